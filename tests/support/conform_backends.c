#include "support/conform_backends.h"

#include <stdlib.h>

#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"
#include "gpu/kernels.h"
#include "support/fake_cuda.h"

static int create_sim(struct gap__dev **out) {
  return gap__sim_create(3, &(struct gap__sim_params){.total_bytes = CONFORM_TOTAL, .lag_us = 5000}, out);
}
static void settle_sim(struct gap__dev *dev) { gap__sim_clock_advance(dev, 20000000); }

static int create_host(struct gap__dev **out) {
  return gap__host_create(3, &(struct gap__host_params){.total_bytes = CONFORM_TOTAL, .manual = true}, out);
}

/* ---- The driver's backend on the fake driver: bytes and queues are the fake's ---- */

static int create_fake(struct gap__dev **out) {
  fake_cuda_reset(&(struct fake_cuda_settings){.total_bytes = CONFORM_TOTAL, .manual = true});
  return gap__cuda_create(3, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, out);
}
static struct gap__dev *behind(struct gap__dev *dev) { return fake_cuda_host(dev->ordinal); }
static void settle_fake(struct gap__dev *dev) { gap__host_run_all(behind(dev)); }
static int fill_fake(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return gap__host_fill(behind(dev), addr, bytes, pattern, stream);
}
static int expect_fake(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return gap__host_expect(behind(dev), addr, bytes, pattern, stream);
}
static uint64_t faults_fake(struct gap__dev *dev) {
  (void)dev;
  return fake_cuda_wrong();
}
static void capture_fake(struct gap__dev *dev, gap_stream stream, bool on) {
  fake_cuda_capture(dev->ordinal, stream, on);
}

/* ---- The real card ---- */

static struct kernels *on_card; /* of the device under test: one at a time */

static const char *absent_card(void) {
  int count = 0;
  int rc = gap__cuda_device_count(NULL, &count);
  return rc == GAP_ENOTSUP ? "no CUDA driver" : rc != 0 || count == 0 ? "no CUDA device" : NULL;
}
static int create_card(struct gap__dev **out) {
  int rc = gap__cuda_create(0, NULL, out);
  if (rc == 0) rc = kernels_open(*out, &on_card);
  return rc;
}
static void close_card(struct gap__dev *dev) {
  (void)dev;
  kernels_close(on_card);
}
static int delay_card(struct gap__dev *dev, gap_stream stream) {
  (void)dev;
  return kernels_delay(on_card, 30 * 1000 * 1000, stream);
}
static void settle_card(struct gap__dev *dev) {
  (void)dev;
  kernels_settle(on_card, 100);
}
static int fill_card(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  (void)dev;
  return kernels_fill(on_card, addr, bytes, pattern, stream);
}
static int expect_card(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  (void)dev;
  return kernels_expect(on_card, addr, bytes, pattern, stream);
}
static uint64_t faults_card(struct gap__dev *dev) {
  (void)dev;
  return kernels_wrong(on_card);
}
static void capture_card(struct gap__dev *dev, gap_stream stream, bool on) {
  (void)dev;
  if (kernels_capture(on_card, stream, on) != 0) abort();
}

const struct backend backends[] = {
    {.name = "sim",
     .ordinal = 3,
     .is_bounded = true,
     .is_strict = true,
     .create = create_sim,
     .settle = settle_sim,
     .capture = gap__sim_stream_capture},
    {.name = "host",
     .ordinal = 3,
     .is_bounded = true,
     .is_strict = true,
     .create = create_host,
     .settle = gap__host_run_all,
     .fill = gap__host_fill,
     .expect = gap__host_expect,
     .faults = gap__host_faults,
     .capture = gap__host_stream_capture},
    {.name = "cuda (fake driver)",
     .ordinal = 3,
     .is_bounded = true,
     .is_strict = true,
     .create = create_fake,
     .settle = settle_fake,
     .fill = fill_fake,
     .expect = expect_fake,
     .faults = faults_fake,
     .capture = capture_fake},
    {.name = "cuda",
     .absent = absent_card,
     .create = create_card,
     .close = close_card,
     .delay = delay_card,
     .settle = settle_card,
     .fill = fill_card,
     .expect = expect_card,
     .faults = faults_card,
     .capture = capture_card},
};
const size_t backend_count = sizeof backends / sizeof *backends;
