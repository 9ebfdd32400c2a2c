/* Patterns by the driver's backend: on a driver without a card, whose bytes are `host`'s, and on a real card, from which a ballast takes
 * what the pattern's card has not. */
#include "dev/cuda/cuda.h"
#include "gpu/kernels.h"
#include "support/fake_cuda.h"
#include "support/pattern.h"

static gap_stream make_stream(struct world *w, gap_stream name) {
  gap_stream stream = 0;
  (void)name;
  assert_int_equal(gap__dev_stream_create(w->t.dev, &stream), 0);
  return stream;
}

/* ---- without a card ---- */

static void open_fake(struct world *w, const struct pattern_request *r, struct gap__dev **out) {
  (void)w;
  fake_cuda_reset(&(struct fake_cuda_settings){.device_count = 1,
                                               .total_bytes = r->total_bytes,
                                               .window_max_bytes = r->window_max_bytes,
                                               .address_bytes = r->address_bytes,
                                               .manual = r->manual});
  assert_int_equal(gap__cuda_create(0, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, out), 0);
}

static void settle_fake(struct world *w) {
  (void)w;
  gap__host_run_all(fake_cuda_host(0));
}
static int fill_fake(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  (void)w;
  return gap__host_fill(fake_cuda_host(0), addr, bytes, pattern, stream);
}
static int expect_fake(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  (void)w;
  return gap__host_expect(fake_cuda_host(0), addr, bytes, pattern, stream);
}
static uint64_t faults_fake(struct world *w) {
  (void)w;
  return fake_cuda_wrong();
}
static void capture_fake(struct world *w, gap_stream stream, bool on) {
  (void)w;
  fake_cuda_capture(0, stream, on);
}
static int walk_fake(struct world *w, gap__dev_visit *visit, void *arg) {
  (void)w;
  return gap__host_walk(fake_cuda_host(0), visit, arg);
}

const struct pattern_device pattern_fake = {.open = open_fake,
                                            .stream = make_stream,
                                            .settle = settle_fake,
                                            .fill = fill_fake,
                                            .expect = expect_fake,
                                            .faults = faults_fake,
                                            .capture = capture_fake,
                                            .walk = walk_fake};

/* ---- a real card ---- */

static const char *absent_card(void) {
  int count = 0;
  int rc = gap__cuda_device_count(NULL, &count);
  return rc == GAP_ENOTSUP ? "no CUDA driver" : rc != 0 || count == 0 ? "no CUDA device" : NULL;
}

/* The driver needs a little for itself as time goes on. */
#define SLACK (64 * MIB)

static void open_card(struct world *w, const struct pattern_request *r, struct gap__dev **out) {
  uint64_t free_bytes = 0, total_bytes = 0;
  assert_int_equal(gap__cuda_create(0, NULL, out), 0);
  assert_int_equal(kernels_open(*out, &w->kernels), 0);
  assert_int_equal(gap__dev_mem_info(*out, &free_bytes, &total_bytes), 0);
  while (r->total_bytes / w->scale + SLACK > free_bytes) w->scale *= 2;
  uint64_t ballast = (free_bytes - SLACK - r->total_bytes / w->scale) / PAGE * PAGE;
  if (ballast) assert_int_equal(gap__dev_segment_alloc(*out, ballast, &w->ballast), 0);
}

static void close_card(struct world *w) {
  kernels_close(w->kernels);
  if (w->ballast) assert_int_equal(gap__dev_segment_free(w->t.dev, w->ballast), 0);
}

static void settle_card(struct world *w) { assert_int_equal(kernels_wait(w->kernels), 0); }
static void delay_card(struct world *w, gap_stream stream) {
  assert_int_equal(kernels_delay(w->kernels, PATTERN_DELAY_MS * 1000000ull, stream), 0);
}
static int fill_card(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return kernels_fill(w->kernels, addr, bytes, pattern, stream);
}
static int expect_card(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return kernels_expect(w->kernels, addr, bytes, pattern, stream);
}
static uint64_t faults_card(struct world *w) { return kernels_wrong(w->kernels); }

static void capture_card(struct world *w, gap_stream stream, bool on) {
  assert_int_equal(kernels_capture(w->kernels, stream, on), 0);
}
static void *take_card(struct world *w, gap_stream stream) {
  void *graph = NULL;
  assert_true(kernels_capture_is_whole(w->kernels, stream));
  assert_int_equal(kernels_graph_take(w->kernels, stream, &graph), 0);
  return graph;
}
static void launch_card(struct world *w, void *graph, gap_stream stream) {
  assert_int_equal(kernels_graph_launch(w->kernels, graph, stream), 0);
}
static void drop_card(struct world *w, void *graph) { kernels_graph_drop(w->kernels, graph); }

const struct pattern_device pattern_real = {.absent = absent_card,
                                            .open = open_card,
                                            .close = close_card,
                                            .stream = make_stream,
                                            .settle = settle_card,
                                            .delay = delay_card,
                                            .fill = fill_card,
                                            .expect = expect_card,
                                            .faults = faults_card,
                                            .fills_whole = true,
                                            .capture = capture_card,
                                            .take = take_card,
                                            .launch = launch_card,
                                            .drop = drop_card};
