/* When streams and threads end, on a real card: whoever gets the memory must find the last work on it done, also when it was
 * queued on a stream that has been destroyed meanwhile.
 *
 * Each case leaves a late kernel on a stream that goes: it fills the block with a pattern after 300 ms.  Another stream then
 * gets the memory, fills it with a pattern of its own and compares.  Whoever came too early loses words. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "gpu/kernels.h"

#define MIB ((uint64_t)1 << 20)
#define BYTES (20 * MIB) /* all that the cap allows */
#define DEFAULT ((gap_pool_id){0, 0})
#define PER_THREAD ((gap_stream)2)
enum { LATE_MS = 300, HANDLES = 64 };

static struct gap__dev *dev;
static struct kernels *k;
static gap_heap *heap;
static gap_stream other; /* gets the memory */
static unsigned passed, failed;

static void count(bool good, const char *what, int line) {
  passed += good;
  failed += !good;
  if (!good) printf("streams.c:%d: not so: %s\n", line, what);
}
#define CHECK(condition) count((condition), #condition, __LINE__)

static int64_t stalls(void) {
  struct gap__stats s;
  return gap__heap_stats(heap, 0, &s) ? -1 : s.stalls;
}
static int64_t drains(void) {
  struct gap__stats s;
  return gap__heap_stats(heap, 0, &s) ? -1 : s.num_sync_all_streams;
}

static gap_addr get(gap_stream stream) {
  gap_addr addr = 0;
  CHECK(gap__heap_alloc(heap, 0, stream, DEFAULT, BYTES, &addr) == 0);
  return addr;
}

static void fill_late(gap_addr addr, gap_stream stream) {
  CHECK(kernels_delay(k, LATE_MS * 1000000ull, stream) == 0);
  CHECK(kernels_fill(k, addr, BYTES, 0x1111111111111111, stream) == 0);
}

/* Waits for everything: freeing a segment waits for destroyed streams, too. */
static void settle(void) {
  gap_addr segment = 0;
  CHECK(gap__dev_segment_alloc(dev, 512, &segment) == 0 && gap__dev_segment_free(dev, segment) == 0);
}

/* How the host came by the memory. */
enum wait { NOT_AT_ALL, FOR_AN_EVENT, FOR_THE_DEVICE };

/* The other stream gets the memory and uses it at once. */
static void take_over(enum wait expected) {
  int64_t stalled = stalls(), drained = drains();
  gap_addr addr = get(other);
  if (!addr) return;
  CHECK(stalls() == stalled + (expected != NOT_AT_ALL));
  CHECK(drains() == drained + (expected == FOR_THE_DEVICE));
  CHECK(kernels_fill(k, addr, BYTES, 0x2222222222222222, other) == 0);
  settle();
  CHECK(kernels_expect(k, addr, BYTES, 0x2222222222222222, other) == 0);
  CHECK(kernels_wrong(k) == 0);
  CHECK(gap__heap_free(heap, addr) == 0);
  settle();
  uint64_t bytes;
  CHECK(gap__heap_trim(heap, 0, DEFAULT, &bytes) == 0 && bytes == BYTES);
}

/* New streams until one has the handle, 0: none has. */
static gap_stream make_again(gap_stream handle) {
  gap_stream made[HANDLES], found = 0;
  int count = 0;
  while (count < HANDLES && !found && gap__dev_stream_create(dev, &made[count]) == 0)
    if (made[count++] == handle) found = handle;
  for (int i = 0; i < count; i++)
    if (made[i] != handle) gap__dev_stream_destroy(dev, made[i]);
  return found;
}

static void retired(bool free_first) {
  gap_stream stream;
  CHECK(gap__dev_stream_create(dev, &stream) == 0);
  gap_addr addr = get(stream);
  fill_late(addr, stream);
  if (free_first) CHECK(gap__heap_free(heap, addr) == 0);
  CHECK(gap__heap_retire_stream(heap, 0, stream) == 0);
  CHECK(gap__dev_stream_destroy(dev, stream) == 0);
  if (!free_first)
    CHECK(gap__heap_free(heap, addr) == 0); /* the handle names nothing now: to call with it would crash */
  take_over(NOT_AT_ALL);                    /* the device waits, behind the last event */
}

/* The last case.  False: the handle was not given again, and the heap, which could not be told, must not be used any more: it
 * would call with a handle that names nothing. */
static bool handle_reused(void) {
  gap_stream stream;
  CHECK(gap__dev_stream_create(dev, &stream) == 0);
  gap_addr addr = get(stream);
  fill_late(addr, stream);
  CHECK(gap__heap_free(heap, addr) == 0);
  CHECK(gap__dev_stream_destroy(dev, stream) == 0);
  if (!make_again(stream)) {
    printf("handle_reused skipped: the driver gave other handles\n");
    return false;
  }
  take_over(FOR_THE_DEVICE);
  CHECK(gap__heap_retire_stream(heap, 0, stream) == 0);
  CHECK(gap__dev_stream_destroy(dev, stream) == 0);
  return true;
}

static void *use_and_end(void *arg) {
  (void)arg;
  gap_addr addr = get(PER_THREAD);
  fill_late(addr, PER_THREAD);
  CHECK(gap__heap_free(heap, addr) == 0);
  return NULL;
}

static void *lend_and_end(void *arg) {
  gap_addr addr = *(gap_addr *)arg;
  CHECK(gap__heap_record_stream(heap, addr, PER_THREAD) == 0);
  fill_late(addr, PER_THREAD);
  return NULL;
}

static void run_thread(void *(*body)(void *), void *arg) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, arg) == 0);
  pthread_join(thread, NULL);
}

static void thread_ended(void) {
  run_thread(use_and_end, NULL);
  take_over(NOT_AT_ALL);
}

static void user_ended(void) {
  gap_addr addr = get(other);
  run_thread(lend_and_end, &addr);
  CHECK(gap__heap_free(heap, addr) == 0);
  take_over(FOR_AN_EVENT);
}

static int open_all(void) {
  struct gap__conf_set *set = gap__conf_new();
  int rc =
      set ? gap__conf_apply(set, GAP__CONF_RUNTIME, "streams", "max_memory:20MiB,page_maker:False", NULL) : GAP_ENOMETA;
  if (!rc) rc = gap__cuda_create(0, &(struct gap__cuda_params){0}, &dev);
  if (!rc) rc = kernels_open(dev, &k);
  struct gap__heap_params params = {.devs = &dev, .dev_count = 1, .conf = set ? gap__conf_values(set) : NULL};
  if (!rc) rc = gap__heap_create(&params, &heap);
  if (set) gap__conf_free(set);
  return rc ? rc : gap__dev_stream_create(dev, &other);
}

int main(void) {
  int devices = 0;
  if (gap__cuda_device_count(NULL, &devices) != 0 || devices == 0) {
    printf("skipped: the driver shows no device\n");
    return 77;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* a crash loses nothing of what was said */
  int rc = open_all();
  if (rc) {
    fprintf(stderr, "streams: %s\n", gap_strerror(rc));
    return 1;
  }
  retired(true);
  retired(false);
  thread_ended();
  user_ended();
  char text[256] = "";
  CHECK(gap__heap_check(heap, 0, text, sizeof text) == 0);
  bool whole = handle_reused();
  printf("streams: %u passed, %u failed%s%s\n", passed, failed, *text ? ", " : "", text);
  if (!whole) _exit(failed != 0);
  kernels_close(k);
  gap__heap_destroy(heap);
  return failed != 0;
}
