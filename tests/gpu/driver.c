/* What the suite for all backends cannot ask: how the real driver behaves under the cuda backend.  Captures in global mode, the default
 * streams, the calling thread's context, exported chunks, a lost device.  Prints what the probe found. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/cuda/state.h"
#include "gpu/kernels.h"

static unsigned passed, failed, log_lines;

static void count(bool good, const char *what, const char *file, int line) {
  passed += good;
  failed += !good;
  if (!good) printf("%s:%d: not so: %s\n", file, line, what);
}
#define CHECK(condition) count((condition), #condition, __FILE__, __LINE__)

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  log_lines++;
  printf("log[%d]: %s\n", level, line);
}

static void print_info(struct gap__dev *dev, uint64_t open_ns) {
  const struct gap__cuda_info *i = gap__cuda_info(dev);
  printf("%s, compute %d.%d, driver %d, uuid ", i->name, i->capability_major, i->capability_minor, i->driver_version);
  for (int b = 0; b < 16; b++) printf("%02x", i->uuid[b]);
  printf("\n%" PRIu64 " bytes, granularity %" PRIu64
         ", vmm %d, exportable %d, rdma %d, host chunks %d, wait values %d, ids %d\n",
         dev->caps.total_bytes, i->granularity_bytes, i->vmm, i->exportable, i->rdma, i->host_chunks, i->wait_values,
         i->stream_ids);
  printf("missing \"%s\", given up \"%s\", opened in %.1f ms\n", i->missing, i->fallback, (double)open_ns / 1e6);
}

/* Everything that an allocation may do, once. */
static int whole_round(struct gap__dev *dev, gap_stream stream) {
  gap_addr addr = 0;
  gap__chunk chunk = 0;
  gap__event event = 0;
  uint64_t left, total;
  int rc = gap__dev_reserve(dev, 4 * GAP__PAGE, GAP__PAGE, &addr);
  if (rc == 0) rc = gap__dev_chunk_create(dev, GAP__PAGE, GAP__PLACE_DEVICE, &chunk);
  if (rc == 0) rc = gap__dev_map(dev, addr, GAP__PAGE, chunk);
  if (rc == 0) rc = gap__dev_set_access(dev, addr, GAP__PAGE);
  if (rc == 0) rc = gap__dev_event_create(dev, stream, &event);
  if (rc == 0) rc = gap__dev_event_record(dev, event, stream);
  if (rc == 0) rc = gap__dev_event_wait(dev, event);
  if (rc == 0) rc = gap__dev_event_query(dev, event);
  if (rc == 0) rc = gap__dev_event_destroy(dev, event);
  if (rc == 0) rc = gap__dev_mem_info(dev, &left, &total);
  if (rc == 0) rc = gap__dev_unmap(dev, addr, GAP__PAGE);
  if (rc == 0) rc = gap__dev_chunk_release(dev, chunk);
  if (rc == 0) rc = gap__dev_unreserve(dev, addr, 4 * GAP__PAGE);
  if (rc == 0) rc = gap__dev_segment_alloc(dev, GAP__PAGE, &addr);
  if (rc == 0) rc = gap__dev_segment_free(dev, addr);
  return rc;
}

/* A capture in the mode that forbids most: everything still works on other streams, and the capture ends whole. */
static void try_capture(struct gap__dev *dev, struct kernels *k, gap_stream stream, gap_stream other) {
  uint64_t before = 0, during = 0;
  bool capturing = false;
  CHECK(gap__dev_stream_id(dev, stream, &before) == 0);
  CHECK(kernels_capture(k, stream, true) == 0);
  CHECK(gap__dev_stream_capturing(dev, stream, &capturing) == 0 && capturing);
  CHECK(gap__dev_stream_capturing(dev, other, &capturing) == 0 && !capturing);
  CHECK(gap__dev_stream_capturing(dev, 2, &capturing) == 0 && !capturing);
  CHECK(whole_round(dev, other) == 0);
  CHECK(gap__dev_stream_id(dev, stream, &during) == GAP_EAGAIN);
  CHECK(gap__dev_stream_id(dev, 0, &during) == 0);
  CHECK(kernels_delay(k, 1000, stream) == 0); /* becomes a node */
  CHECK(kernels_capture_is_whole(k, stream));
  CHECK(kernels_capture(k, stream, false) == 0);
  CHECK(gap__dev_stream_id(dev, stream, &during) == 0 && during == before);
}

/* A stream that the legacy stream waits for captures: the legacy stream is barred, which is no error. */
static void try_legacy(struct gap__dev *dev, struct kernels *k) {
  bool capturing = false;
  uint64_t id;
  gap_stream blocking = kernels_blocking_stream(k);
  CHECK(blocking != 0);
  CHECK(gap__dev_stream_capturing(dev, 0, &capturing) == 0 && !capturing);
  CHECK(kernels_capture(k, blocking, true) == 0);
  CHECK(gap__dev_stream_capturing(dev, 0, &capturing) == 0 && capturing);
  CHECK(gap__dev_stream_capturing(dev, 1, &capturing) == 0 && capturing);
  CHECK(gap__dev_stream_id(dev, 0, &id) == GAP_EAGAIN);
  CHECK(kernels_capture_is_whole(k, blocking));
  CHECK(kernels_capture(k, blocking, false) == 0);
  CHECK(gap__dev_stream_capturing(dev, 0, &capturing) == 0 && !capturing);
}

struct own_stream {
  struct gap__dev *dev;
  uint64_t id;
  int rc;
};

/* A thread that never had a context. */
static void *ask_own_stream(void *arg) {
  struct own_stream *own = arg;
  gap__cuda_context current = NULL;
  own->rc = gap__dev_stream_id(own->dev, 2, &own->id);
  if (own->rc == 0) own->rc = whole_round(own->dev, 2);
  if (cuda_of(own->dev)->driver.cuCtxGetCurrent(&current) != 0 || current) own->rc = GAP_ESTATE;
  return NULL;
}

static void try_default_streams(struct gap__dev *dev) {
  struct own_stream mine = {.dev = dev}, theirs = {.dev = dev};
  pthread_t thread;
  uint64_t zero = 0, one = 1;
  ask_own_stream(&mine);
  CHECK(pthread_create(&thread, NULL, ask_own_stream, &theirs) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(mine.rc == 0 && theirs.rc == 0 && mine.id != theirs.id);
  CHECK(gap__dev_stream_id(dev, 0, &zero) == 0 && gap__dev_stream_id(dev, 1, &one) == 0 && zero == one &&
        zero != mine.id);
  CHECK(whole_round(dev, 0) == 0);
}

/* An exported chunk comes back as another handle of the same bytes. */
static void try_export(struct gap__dev *dev, struct kernels *k, gap_stream stream) {
  gap_addr addr = 0;
  gap__chunk chunk = 0, again = 0;
  int fd = -1;
  if (!dev->caps.exportable) return;
  CHECK(gap__dev_reserve(dev, 2 * GAP__PAGE, GAP__PAGE, &addr) == 0);
  CHECK(gap__dev_chunk_create(dev, GAP__PAGE, GAP__PLACE_DEVICE, &chunk) == 0);
  CHECK(gap__dev_chunk_export(dev, chunk, &fd) == 0 && fd >= 0);
  CHECK(gap__dev_chunk_import(dev, fd, &again) == 0);
  CHECK(close(fd) == 0);
  CHECK(gap__dev_map(dev, addr, GAP__PAGE, chunk) == 0 && gap__dev_map(dev, addr + GAP__PAGE, GAP__PAGE, again) == 0);
  CHECK(gap__dev_set_access(dev, addr, 2 * GAP__PAGE) == 0);
  CHECK(kernels_fill(k, addr, GAP__PAGE, 0xfeedface, stream) == 0);
  CHECK(kernels_expect(k, addr + GAP__PAGE, GAP__PAGE, 0xfeedface, stream) == 0);
  CHECK(kernels_wrong(k) == 0);
  CHECK(kernels_expect(k, addr + GAP__PAGE, GAP__PAGE, 0xfeedfacf, stream) == 0);
  CHECK(kernels_wrong(k) == GAP__PAGE / 8); /* the comparison sees what is wrong */
  CHECK(gap__dev_unmap(dev, addr, GAP__PAGE) == 0 && gap__dev_unmap(dev, addr + GAP__PAGE, GAP__PAGE) == 0);
  CHECK(gap__dev_chunk_release(dev, chunk) == 0 && gap__dev_chunk_release(dev, again) == 0);
  CHECK(gap__dev_unreserve(dev, addr, 2 * GAP__PAGE) == 0);
}

/* A kernel of another device reads what was mapped before and after it was let in, and a segment. */
static void try_peer(struct gap__dev *dev, struct kernels *k, gap_stream stream) {
  struct gap__dev *peer = NULL;
  struct kernels *theirs = NULL;
  gap_addr addr = 0, segment = 0;
  gap__chunk chunk = 0, later = 0;
  gap_stream there = 0;
  CHECK(gap__cuda_create(1, NULL, &peer) == 0 && kernels_open(peer, &theirs) == 0);
  CHECK(gap__dev_stream_create(peer, &there) == 0);
  CHECK(gap__dev_reserve(dev, 2 * GAP__PAGE, GAP__PAGE, &addr) == 0);
  CHECK(gap__dev_chunk_create(dev, GAP__PAGE, GAP__PLACE_DEVICE, &chunk) == 0);
  CHECK(gap__dev_map(dev, addr, GAP__PAGE, chunk) == 0 && gap__dev_set_access(dev, addr, GAP__PAGE) == 0);
  CHECK(gap__dev_segment_alloc(dev, GAP__PAGE, &segment) == 0);
  int rc = gap__dev_peer_enable(dev, 1);
  printf("peer access from device 1 to device 0: %s\n", rc == 0 ? "yes" : gap_strerror(rc));
  CHECK(rc == 0 || rc == GAP_ENOTSUP);
  if (rc == 0) {
    CHECK(gap__dev_chunk_create(dev, GAP__PAGE, GAP__PLACE_DEVICE, &later) == 0);
    CHECK(gap__dev_map(dev, addr + GAP__PAGE, GAP__PAGE, later) == 0 &&
          gap__dev_set_access(dev, addr, 2 * GAP__PAGE) == 0);
    CHECK(kernels_fill(k, addr, 2 * GAP__PAGE, 0xabcd, stream) == 0 &&
          kernels_fill(k, segment, GAP__PAGE, 0xef, stream) == 0);
    CHECK(kernels_wait(k) == 0);
    CHECK(kernels_expect(theirs, addr, 2 * GAP__PAGE, 0xabcd, there) == 0);
    CHECK(kernels_expect(theirs, segment, GAP__PAGE, 0xef, there) == 0);
    CHECK(kernels_wrong(theirs) == 0);
    CHECK(gap__dev_peer_disable(dev, 1) == 0);
  }
  kernels_close(theirs);
  gap__dev_destroy(peer);
}

static void try_errors(struct gap__dev *dev) {
  char text[256];
  gap_addr segment;
  CHECK(gap__dev_segment_alloc(dev, dev->caps.total_bytes * 2, &segment) == GAP_ENOMEM);
  gap__dev_last_error(dev, text, sizeof text);
  CHECK(strncmp(text, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", 40) == 0);
  CHECK(gap__dev_peer_enable(dev, 63) != 0 && gap__dev_peer_enable(dev, dev->ordinal) == GAP_EINVAL);
  printf("last error: %s\n", text);
  CHECK(log_lines == 0);
}

/* A kernel writes where nothing is: everything fails from then on, and one line says why. */
static void try_lost_device(struct gap__dev *dev, struct kernels *k, gap_stream stream) {
  gap__event event = 0;
  CHECK(gap__dev_event_create(dev, stream, &event) == 0);
  CHECK(kernels_fill(k, (gap_addr)1 << 44, 64, 1, stream) == 0);
  CHECK(gap__dev_event_record(dev, event, stream) == 0 || log_lines == 1);
  CHECK(gap__dev_event_wait(dev, event) == GAP_EDEVICE);
  for (int i = 0; i < 10; i++) CHECK(gap__dev_event_query(dev, event) == GAP_EDEVICE);
  CHECK(whole_round(dev, stream) == GAP_EDEVICE);
  CHECK(log_lines == 1);
}

/* A process of its own when `lose` is set: its context does not survive. */
static int run(bool lose) {
  struct gap__dev *first = NULL, *dev = NULL;
  struct kernels *k = NULL;
  gap_stream stream = 0, other = 0;
  int devices = 0;
  gap_set_log(log_line, NULL);
  if (gap__cuda_create(0, NULL, &first) != 0) return 1; /* keeps the context, so that the probe's own time is seen */
  uint64_t begin = gap__dev_now_ns(first);
  if (gap__cuda_create(0, NULL, &dev) != 0) return 1;
  if (!lose) print_info(dev, gap__dev_now_ns(first) - begin);
  if (kernels_open(dev, &k) != 0) return 1;
  CHECK(gap__dev_stream_create(dev, &stream) == 0 && gap__dev_stream_create(dev, &other) == 0);
  if (lose) {
    try_lost_device(dev, k, stream);
  } else {
    try_capture(dev, k, stream, other);
    try_legacy(dev, k);
    try_default_streams(dev);
    try_export(dev, k, stream);
    if (gap__cuda_device_count(NULL, &devices) == 0 && devices > 1) try_peer(dev, k, stream);
    try_errors(dev);
  }
  if (!lose) {
    kernels_close(k);
    gap__dev_destroy(dev);
    gap__dev_destroy(first);
  }
  return failed != 0;
}

int main(void) {
  int devices = 0, status = 0;
  fflush(stdout);
  pid_t child = fork(); /* before the driver is loaded */
  if (child == 0) {
    if (gap__cuda_device_count(NULL, &devices) != 0 || devices == 0) _exit(77);
    int rc = run(true);
    printf("lost device: %u passed, %u failed\n", passed, failed);
    fflush(stdout);
    _exit(rc);
  }
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    puts("driver skipped: no CUDA device");
    return 77;
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  int rc = run(false);
  printf("driver: %u passed, %u failed\n", passed, failed);
  return rc;
}
