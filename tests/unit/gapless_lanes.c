/* Lanes come and go: streams and pools by the thousand, streams that are retired or destroyed without a word, threads that end,
 * and what a refused request says. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/lane.h"
#include "support/gapless_try.h"

#define LAG_US 20000
#define PER_THREAD ((gap_stream)2)

static struct try lagging(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 80 * GIB, .lag_us = LAG_US}, conf, GAP__MAKER_OFF);
}
static void pass(struct try *t) { gap__sim_clock_advance(t->dev, 2ull * LAG_US * 1000); }

static gap_stream stream_of(int i) { return (gap_stream)(i + 100) * 64; }

/* ---- a driver that is watched ---- */

static struct {
  struct gap__dev_ops ops;
  const struct gap__dev_ops *inner;
  gap_stream gone; /* a handle that must not be named, or 0 */
  uint64_t named;  /* how often it was, all the same */
  int code;        /* what calls that name it return */
  int access_code, reserve_code;
} driver;

static bool is_gone(gap_stream stream) {
  if (!driver.gone || stream != driver.gone) return false;
  driver.named++;
  return true;
}

static int event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  return is_gone(stream) ? driver.code : driver.inner->event_create(dev, stream, out);
}
static int event_record(struct gap__dev *dev, gap__event event, gap_stream stream) {
  return is_gone(stream) ? driver.code : driver.inner->event_record(dev, event, stream);
}
static int stream_wait(struct gap__dev *dev, gap_stream stream, gap__event event) {
  return is_gone(stream) ? driver.code : driver.inner->stream_wait(dev, stream, event);
}
static int stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) {
  return is_gone(stream) ? driver.code : driver.inner->stream_id(dev, stream, out);
}
static int stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  return is_gone(stream) ? driver.code : driver.inner->stream_capturing(dev, stream, out);
}
static int set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  return driver.access_code ? driver.access_code : driver.inner->set_access(dev, addr, bytes);
}
static int reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  return driver.reserve_code ? driver.reserve_code : driver.inner->reserve(dev, bytes, align, out);
}

/* From here on the driver's calls pass through the functions above. */
static void watch(struct try *t) {
  memset(&driver, 0, sizeof driver);
  driver.inner = t->dev->ops;
  driver.ops = *t->dev->ops;
  driver.code = GAP_EDEVICE;
  driver.ops.event_create = event_create;
  driver.ops.event_record = event_record;
  driver.ops.stream_wait = stream_wait;
  driver.ops.stream_id = stream_id;
  driver.ops.stream_capturing = stream_capturing;
  driver.ops.set_access = set_access;
  driver.ops.reserve = reserve;
  t->dev->ops = &driver.ops;
}

static void retire(struct try *t, gap_stream stream) {
  assert_int_equal(gap__heap_retire_stream(t->heap, 0, stream), 0);
  driver.gone = stream;
}

static void expect_untouched(void) { assert_int_equal(driver.named, 0); }

static int64_t drains(struct try *t) { return try_stats(t)->num_sync_all_streams; }

/* ---- by the thousand ---- */

/* Each stream is retired: the next one inherits its memory, and nothing grows. */
static void streams_come_and_go(void **state) {
  (void)state;
  struct try t = lagging("");
  for (int i = 0; i < 5000; i++) {
    gap_addr small = try_get(&t, stream_of(i), 4096), large = try_get(&t, stream_of(i), 6 * MIB);
    try_give(&t, small), try_give(&t, large);
    assert_int_equal(gap__heap_retire_stream(t.heap, 0, stream_of(i)), 0);
    pass(&t);
  }
  assert_true(try_state(&t)->lane_slab.count <= 4);
  assert_true(try_held(&t) <= 16 * MIB);
  assert_true(try_calls(&t, GAP__CALL_chunk_create) <= 8);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_end(&t);
}

/* Nobody says that a stream has gone: lanes without memory serve again. */
static void streams_without_a_word(void **state) {
  (void)state;
  struct try t = lagging("max_memory:64MiB");
  for (int i = 0; i < 5000; i++) {
    gap_addr addr = try_get(&t, stream_of(i), 10 * MIB);
    try_give(&t, addr);
    pass(&t);
  }
  assert_true(try_state(&t)->lane_slab.count <= 200);
  try_end(&t);
}

static void pools_come_and_go(void **state) {
  (void)state;
  struct try t = lagging("");
  for (int i = 0; i < 3000; i++) {
    gap_pool_id pool = {0, (uint64_t)i + 1};
    assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
    gap_addr small = try_get_pool(&t, STREAM_A, pool, 700), large = try_get_pool(&t, STREAM_A, pool, 6 * MIB);
    try_give(&t, small), try_give(&t, large);
    assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  }
  assert_true(try_state(&t)->lane_slab.count <= 4);
  assert_true(try_calls(&t, GAP__CALL_chunk_create) <= 8); /* in stream order the next pool has the pages at once */
  try_end(&t);
}

/* A shared pool is not pinned, but it is in use: its lane stays its own. */
static void shared_pool_keeps_its_lane(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:64MiB");
  gap_pool_id pool = {0, 9};
  const struct gap__pool_about about = {.id = pool, .flags = GAP_POOL_SHARED};
  assert_int_equal(gap__heap_pool_adopt(t.heap, 0, &about), 0);
  gap_addr a = try_get_pool(&t, STREAM_A, pool, 6 * MIB);
  try_give(&t, a);
  assert_true(try_get(&t, STREAM_B, 6 * MIB) != a);
  assert_true(try_get_pool(&t, STREAM_A, pool, 6 * MIB) == a);
  try_end(&t);
}

/* Thousands at once, each with a block: all found again, all figures exact. */
static void thousands_at_once(void **state) {
  (void)state;
  enum { COUNT = 2000 };
  static gap_addr at[COUNT];
  struct try t = lagging("");
  for (int i = 0; i < COUNT; i++) at[i] = try_get(&t, stream_of(i), 512);
  assert_int_equal(try_stats(&t)->allocation[0].current, COUNT);
  for (int i = 0; i < COUNT; i++) try_give(&t, at[i]);
  for (int i = 0; i < COUNT; i++) assert_true(try_get(&t, stream_of(i), 512) == at[i]);
  for (int i = 0; i < COUNT; i++) try_give(&t, at[i]);
  assert_int_equal(try_stats(&t)->allocation[0].allocated, 2 * COUNT);
  try_end(&t);
}

/* Where the last lane is in use the code says that it is a limit; idle memory does not keep lanes from serving others. */
static void the_limit(void **state) {
  (void)state;
  enum { COUNT = 40 };
  gap_addr at[COUNT];
  struct try t = lagging("");
  try_state(&t)->lane_slab.count_max = COUNT + 1;
  for (int i = 0; i < COUNT; i++) at[i] = try_get(&t, stream_of(i), 512);
  try_refuse(&t, STREAM_A, 512, GAP_ELIMIT);
  try_give(&t, at[7]);
  at[7] = try_get(&t, STREAM_A, 512);
  try_refuse(&t, STREAM_B, 512, GAP_ELIMIT);
  for (int i = 0; i < COUNT; i++) try_give(&t, at[i]);
  try_give(&t, try_get(&t, STREAM_B, 512));
  try_end(&t);
}

/* Totals of lanes that have changed hands are not lost, and a reset forgets them. */
static void totals_survive(void **state) {
  (void)state;
  struct try t = lagging("max_memory:64MiB");
  for (int i = 0; i < 300; i++) try_give(&t, try_get(&t, stream_of(i), 10 * MIB)), pass(&t);
  assert_non_null(try_state(&t)->spare_lanes);
  assert_int_equal(try_stats(&t)->allocation[0].allocated, 300);
  assert_int_equal(try_stats(&t)->allocation[0].freed, 300);
  assert_int_equal(try_stats(&t)->allocated_bytes[GAP__KIND_LARGE].freed, 300 * 10 * MIB);
  assert_int_equal(gap__heap_reset_accumulated(t.heap, 0), 0);
  assert_int_equal(try_stats(&t)->allocation[0].allocated, 0);
  assert_int_equal(try_stats(&t)->allocation[0].freed, 0);
  try_end(&t);
}

/* ---- retired streams ---- */

/* Blocks live on, are freed after, and their pages serve another stream once the last event has passed; the handle is not named. */
static void free_after_retire(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  watch(&t);
  gap_addr a = try_get(&t, STREAM_A, 8 * MIB), b = try_get(&t, STREAM_A, 12 * MIB);
  try_give(&t, a);
  retire(&t, STREAM_A);
  for (int i = 0; i < 3; i++) assert_int_equal(gap__heap_record_stream(t.heap, b, STREAM_B), 0);
  pass(&t);
  try_give(&t, b);
  pass(&t);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 0);
  assert_int_equal(drains(&t), 0);
  try_trim(&t);
  expect_untouched();
  try_end(&t);
  expect_untouched();
}

/* The retire event counts for blocks that are freed before it has passed. */
static void free_before_the_last_event(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  watch(&t);
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  retire(&t, STREAM_A);
  try_give(&t, a);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB)); /* behind the event, on the device */
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 1);
  assert_int_equal(try_stats(&t)->stalls, 0);
  expect_untouched();
  try_end(&t);
}

/* A retired stream used a block of another one, which is freed later. */
static void uses_of_a_retired_stream(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  watch(&t);
  gap_addr b = try_get(&t, STREAM_B, 20 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, b, STREAM_A), 0);
  retire(&t, STREAM_A);
  try_give(&t, b);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  pass(&t);
  assert_true(try_get(&t, STREAM_B, 20 * MIB) == b);
  assert_int_equal(try_stats(&t)->stalls, 0);
  expect_untouched();
  try_end(&t);
}

/* The handle comes back: what the new stream holds up is its own. */
static void handle_comes_back(void **state) {
  (void)state;
  struct try t = lagging("max_memory:32MiB");
  watch(&t);
  gap_addr old = try_get(&t, STREAM_A, 20 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, old, STREAM_B), 0);
  retire(&t, STREAM_A);
  driver.gone = 0;
  gap__sim_stream_recycle(t.dev, STREAM_A);
  gap_addr fresh = try_get(&t, STREAM_A, 12 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, old, STREAM_A), 0); /* another stream than its own, now */
  try_give(&t, old);
  assert_int_equal(try_stats(&t)->active[0].current, 2);
  pass(&t);
  gap__sim_stream_hold(t.dev, STREAM_A);
  try_give(&t, fresh);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB)); /* the old stream's, ready */
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(drains(&t), 0);
  try_end(&t);
}

/* A stream that was given the handle of a retired one gets nothing that the old one's work may still use. */
static void handle_comes_back_at_once(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr old = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, old);
  retire(&t, STREAM_A);
  driver.gone = 0;
  gap__sim_stream_recycle(t.dev, STREAM_A);
  gap_addr fresh = try_get(&t, STREAM_A, 20 * MIB);
  assert_true(fresh != old);
  try_give(&t, fresh);
  pass(&t);
  try_end(&t);
}

/* Streams that come and go in a private pool that stays: neither lanes nor memory grow. */
static void handles_come_back_in_a_pool(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_pool_id pool = {0, 9};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  for (int i = 0; i < 400; i++) {
    gap_stream stream = stream_of(i % 4);
    gap__sim_stream_recycle(t.dev, stream);
    try_give(&t, try_get_pool(&t, stream, pool, 8 * MIB));
    try_give(&t, try_get(&t, stream, 8 * MIB));
    assert_int_equal(gap__heap_retire_stream(t.heap, 0, stream), 0);
    pass(&t);
  }
  assert_true(try_state(&t)->lane_count <= 8);
  assert_true(try_held(&t) <= 5 * 8 * MIB);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  try_end(&t);
}

/* A retired stream whose lane nobody can close: its events in flight fill the ring. */
static void retire_with_a_full_ring(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = GIB, .lag_us = 1000000}, "max_memory:32MiB",
                              GAP__MAKER_OFF);
  watch(&t);
  try_get(&t, STREAM_B, 512);
  for (int i = 0; i < 256 * 40; i++) try_give(&t, try_get(&t, STREAM_A, 4096));
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  retire(&t, STREAM_A);
  try_give(&t, a);
  gap__sim_clock_advance(t.dev, 2000000000);
  try_give(&t, try_get(&t, STREAM_B, 24 * MIB));
  assert_int_equal(try_stats(&t)->stalls, 0);
  expect_untouched();
  try_end(&t);
}

/* ---- streams that went without a word ---- */

/* The driver refuses every call that names the handle: nothing fails, nothing is taken for complete; in the end the device is
 * drained, once. */
static void driver_refuses_the_handle(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  watch(&t);
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  driver.gone = STREAM_A;
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_B, 20 * MIB);
  assert_int_equal(drains(&t), 1);
  assert_int_equal(try_stats(&t)->stalls, 1);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 0);
  try_refuse(&t, STREAM_B, 4 * MIB, GAP_ENOMEM);
  assert_int_equal(drains(&t), 1);
  try_give(&t, b);
  try_end(&t);
}

/* A block that such a stream used is not free before the device is drained. */
static void use_that_cannot_be_recorded(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  watch(&t);
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  driver.gone = STREAM_B;
  try_give(&t, a);
  pass(&t);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  assert_true(try_get(&t, STREAM_A, 20 * MIB) == a);
  assert_int_equal(drains(&t), 1);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  try_end(&t);
}

/* The handle names a new stream, whose events say nothing about what the old one still does. */
static void new_stream_does_not_vouch(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  gap__sim_stream_recycle(t.dev, STREAM_A);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(drains(&t), 1);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 0);
  try_give(&t, try_get(&t, STREAM_A, 20 * MIB)); /* from here on it is the new stream's lane */
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(drains(&t), 1);
  try_end(&t);
}

/* A drain that fails leaves everything as it was, and the next one serves. */
static void drain_fails(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 64 * MIB, .lag_us = LAG_US}, "max_memory:20MiB",
                              GAP__MAKER_OFF);
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  gap__sim_stream_recycle(t.dev, STREAM_A);
  gap__sim_neighbour_set(t.dev, 44 * MIB); /* not a byte left */
  try_refuse(&t, STREAM_B, 20 * MIB, GAP_ENOMEM);
  assert_int_equal(drains(&t), 0);
  try_check(&t);
  gap__sim_neighbour_set(t.dev, 0);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(drains(&t), 1);
  try_end(&t);
}

/* ---- threads ---- */

struct asking {
  struct try *t, *other;
  gap_addr addr;
  pthread_barrier_t *step;
};

static void run_thread(void *(*body)(void *), struct asking *asking) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, body, asking), 0);
  pthread_join(thread, NULL);
}

static void *take_and_give(void *arg) {
  struct asking *asking = arg;
  asking->addr = try_get(asking->t, PER_THREAD, 20 * MIB);
  try_give(asking->t, asking->addr);
  if (asking->other) try_give(asking->other, try_get(asking->other, PER_THREAD, 20 * MIB));
  return NULL;
}

/* What a thread that has ended left on its default stream serves others, in every heap. */
static void thread_ends(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB"), other = lagging("max_memory:20MiB");
  struct asking asking = {.t = &t, .other = &other};
  run_thread(take_and_give, &asking);
  pass(&t), pass(&other);
  try_give(&t, try_get(&t, STREAM_A, 20 * MIB));
  try_give(&other, try_get(&other, STREAM_A, 20 * MIB));
  assert_int_equal(try_stats(&t)->stalls + try_stats(&other)->stalls, 0);
  assert_int_equal(drains(&t) + drains(&other), 0);
  try_end(&t), try_end(&other);
}

/* Threads by the thousand: their lanes serve again. */
static void threads_come_and_go(void **state) {
  (void)state;
  struct try t = lagging("");
  struct asking asking = {.t = &t};
  for (int i = 0; i < 1000; i++) run_thread(take_and_give, &asking), pass(&t);
  assert_true(try_state(&t)->lane_slab.count <= 4);
  assert_true(try_held(&t) <= 20 * MIB);
  try_end(&t);
}

static void *take(void *arg) {
  struct asking *asking = arg;
  asking->addr = try_get(asking->t, PER_THREAD, 20 * MIB);
  return NULL;
}

/* The block lives on, and is freed by another thread. */
static void block_outlives_its_thread(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  struct asking asking = {.t = &t};
  run_thread(take, &asking);
  pass(&t);
  try_give(&t, asking.addr);
  try_give(&t, try_get(&t, STREAM_A, 20 * MIB));
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(drains(&t), 0);
  try_end(&t);
}

static void *outlive_the_heap(void *arg) {
  struct asking *asking = arg;
  try_give(asking->t, try_get(asking->t, PER_THREAD, 4 * MIB));
  pthread_barrier_wait(asking->step); /* now the heap ends, */
  pthread_barrier_wait(asking->step);
  return NULL; /* then the thread */
}

static void heap_ends_first(void **state) {
  (void)state;
  struct try t = lagging("");
  pthread_barrier_t step;
  pthread_barrier_init(&step, NULL, 2);
  struct asking asking = {.t = &t, .step = &step};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, outlive_the_heap, &asking), 0);
  pthread_barrier_wait(&step);
  try_end(&t);
  pthread_barrier_wait(&step);
  pthread_join(thread, NULL);
  pthread_barrier_destroy(&step);
}

/* A forked child's threads end, and so does the child, without a call to the driver. */
static void *use_in_child(void *arg) {
  gap_addr addr;
  struct asking *asking = arg;
  if (gap__heap_alloc(asking->t->heap, 0, PER_THREAD, DEFAULT, MIB, &addr) != GAP_EFORKED) _exit(1);
  return NULL;
}

/* After the destructors of the thread that leaves. */
static void judge_child(void) { _exit(driver.named ? 3 : 0); }

static void threads_of_a_child(void **state) {
  (void)state;
  struct try t = lagging("");
  struct asking asking = {.t = &t};
  try_give(&t, try_get(&t, PER_THREAD, MIB)); /* this thread has an end to announce, in the child, too */
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    pthread_t thread;
    watch(&t);
    driver.gone = PER_THREAD;
    if (pthread_create(&thread, NULL, use_in_child, &asking)) _exit(2);
    pthread_join(thread, NULL);
    atexit(judge_child);
    exit(4);
  }
  int status;
  assert_true(waitpid(pid, &status, 0) == pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  try_end(&t);
}

/* exit() in any thread, with blocks on its stream. */
static void *leave(void *arg) {
  struct asking *asking = arg;
  try_get(asking->t, PER_THREAD, MIB);
  exit(7);
}

static void process_ends(void **state) {
  (void)state;
  for (int by_thread = 0; by_thread < 2; by_thread++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
      struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = GIB}, "", GAP__MAKER_THREAD);
      struct asking asking = {.t = &t};
      try_get(&t, PER_THREAD, MIB);
      if (by_thread) run_thread(leave, &asking);
      else leave(&asking);
    }
    int status;
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
  }
}

/* ---- uses of a per-thread default stream ---- */

/* Says that its stream uses the block; then, step by step: another thread frees it; this one holds its stream up and comes back
 * to the heap; it ends. */
static void *use_and_come_back(void *arg) {
  struct asking *asking = arg;
  assert_int_equal(gap__heap_record_stream(asking->t->heap, asking->addr, PER_THREAD), 0);
  pthread_barrier_wait(asking->step);
  pthread_barrier_wait(asking->step);
  try_give(asking->t, try_get(asking->t, PER_THREAD, 512));
  pthread_barrier_wait(asking->step);
  pthread_barrier_wait(asking->step);
  return NULL;
}

static void only_its_thread_records(void **state) {
  (void)state;
  struct try t = lagging("max_memory:40MiB");
  pthread_barrier_t step;
  pthread_barrier_init(&step, NULL, 2);
  struct asking asking = {.t = &t, .step = &step, .addr = try_get(&t, STREAM_A, 20 * MIB)};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, use_and_come_back, &asking), 0);
  pthread_barrier_wait(&step);
  uint64_t records = try_calls(&t, GAP__CALL_event_record);
  try_give(&t, asking.addr);
  pass(&t);
  assert_int_equal(try_calls(&t, GAP__CALL_event_record), records); /* not on this thread's stream */
  gap_addr second = try_get(&t, STREAM_A, 18 * MIB);                /* goes on without it */
  assert_true(second != asking.addr);
  assert_int_equal(try_stats(&t)->active[0].current, 2);
  try_refuse(&t, STREAM_A, 20 * MIB, GAP_ENOMEM); /* and ends, where it cannot */
  pthread_barrier_wait(&step);
  pthread_barrier_wait(&step); /* the thread has come back: its event is recorded */
  pass(&t);
  assert_true(try_get(&t, STREAM_A, 20 * MIB) == asking.addr);
  assert_int_equal(try_stats(&t)->stalls, 0);
  pthread_barrier_wait(&step);
  pthread_join(thread, NULL);
  pthread_barrier_destroy(&step);
  try_end(&t);
}

static void *use_and_end(void *arg) {
  struct asking *asking = arg;
  assert_int_equal(gap__heap_record_stream(asking->t->heap, asking->addr, PER_THREAD), 0);
  return NULL;
}

/* Freed after the thread has ended, or before: the event stands for what it had queued. */
static void use_of_a_thread_that_ended(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  struct asking asking = {.t = &t, .addr = try_get(&t, STREAM_A, 20 * MIB)};
  run_thread(use_and_end, &asking);
  try_give(&t, asking.addr);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  pass(&t);
  assert_true(try_get(&t, STREAM_A, 20 * MIB) == asking.addr);
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(drains(&t), 0);
  try_end(&t);
}

/* ---- addresses ---- */

static void record_stream_looks_at_the_address(void **state) {
  (void)state;
  struct try t = try_sim("");
  const gap_stream streams[] = {STREAM_A, STREAM_B, PER_THREAD};
  gap_addr a = try_get(&t, STREAM_A, 8 * MIB), b = try_get(&t, PER_THREAD, 4096);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gap__heap_record_stream(t.heap, a + 512, streams[i]), GAP_EFREED);
    assert_int_equal(gap__heap_record_stream(t.heap, a + 1, streams[i]), GAP_EFREED);
    assert_int_equal(gap__heap_record_stream(t.heap, b + 4096, streams[i]), GAP_EFREED);
    assert_int_equal(gap__heap_record_stream(t.heap, 4096, streams[i]), GAP_ENOTMINE);
    assert_int_equal(gap__heap_record_stream(t.heap, 0, streams[i]), 0);
  }
  try_give(&t, a), try_give(&t, b);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gap__heap_record_stream(t.heap, a, streams[i]), GAP_EFREED);
    assert_int_equal(gap__heap_record_stream(t.heap, b, streams[i]), GAP_EFREED);
  }
  try_end(&t);
}

/* ---- why a request was refused ---- */

static const char *explained(struct try *t) {
  static char text[1024];
  assert_int_equal(gap__heap_diagnosis(t->heap, 0, text, sizeof text), 0);
  return text;
}

static void no_addresses(void **state) {
  (void)state;
  struct try t = try_sim("");
  watch(&t);
  driver.reserve_code = GAP_EDEVICE; /* it fails, not for want of addresses */
  try_refuse(&t, STREAM_A, MIB, GAP_EDEVICE);
  assert_non_null(strstr(explained(&t), "a driver call failed (reserve"));
  driver.reserve_code = GAP_ENOMEM;
  try_give(&t, try_get(&t, STREAM_A, MIB));
  assert_int_equal(try_calls(&t, GAP__CALL_segment_alloc), 1);
  try_end(&t);
}

static void no_records(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr a = try_get(&t, STREAM_A, 4 * MIB);
  try_state(&t)->chunks.count_max = try_state(&t)->chunks.count;
  try_refuse(&t, STREAM_A, 4 * MIB, GAP_ENOMETA);
  assert_non_null(strstr(explained(&t), "records"));
  try_give(&t, a);
  try_end(&t);
}

static void no_access(void **state) {
  (void)state;
  struct try t = try_sim("");
  watch(&t);
  driver.access_code = GAP_EDEVICE;
  try_refuse(&t, STREAM_A, 4 * MIB, GAP_EDEVICE);
  assert_non_null(strstr(explained(&t), "set_access"));
  assert_non_null(strstr(explained(&t), gap_strerror(GAP_EDEVICE)));
  driver.access_code = 0;
  try_give(&t, try_get(&t, STREAM_A, 4 * MIB));
  try_refuse(&t, STREAM_A, 5 * GIB, GAP_ENOMEM); /* the trouble of an earlier request is none of this one's */
  assert_null(strstr(explained(&t), "set_access"));
  try_end(&t);
}

static void neighbour_took_it(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:2GiB");
  gap__sim_neighbour_set(t.dev, 4 * GIB);
  try_refuse(&t, STREAM_A, MIB, GAP_ENOMEM);
  assert_non_null(strstr(explained(&t), "other programs"));
  try_end(&t);
}

static void in_use(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:20MiB");
  try_get(&t, STREAM_A, 20 * MIB);
  try_refuse(&t, STREAM_A, MIB, GAP_ENOMEM);
  assert_non_null(strstr(explained(&t), "the memory is in use"));
  try_end(&t);
}

/* The numbers of epochs run out: what is still in use stays out of reach, what is over can be had at once. */
static void epochs_begin_anew(void **state) {
  (void)state;
  struct try t = lagging("max_memory:64MiB");
  struct gap__policy_state *s = try_state(&t);
  gap_addr a = try_get(&t, STREAM_A, 32 * MIB), b = try_get(&t, STREAM_B, 32 * MIB);
  try_give(&t, b);
  assert_int_equal(gap__heap_retire_stream(t.heap, 0, STREAM_B), 0); /* its last event */
  pass(&t);
  s->clock = GAP__EPOCH_LAST;
  gap__sim_stream_hold(t.dev, STREAM_A);
  try_give(&t, a);
  uint64_t waits = try_calls(&t, GAP__CALL_stream_wait) + try_calls(&t, GAP__CALL_event_wait);
  gap_addr over = try_get(&t, stream_of(1), 16 * MIB); /* of what B let go long ago */
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait) + try_calls(&t, GAP__CALL_event_wait), waits);
  gap_addr in_use = try_get(&t, stream_of(1), 32 * MIB);
  assert_true(try_calls(&t, GAP__CALL_stream_wait) + try_calls(&t, GAP__CALL_event_wait) > waits);
  try_give(&t, over), try_give(&t, in_use);
  gap__sim_stream_release(t.dev, STREAM_A);
  pass(&t);
  try_give(&t, try_get(&t, STREAM_B, 48 * MIB));
  pass(&t); /* what was freed by then is over now */
  try_give(&t, try_get(&t, STREAM_A, 60 * MIB));
  assert_true(s->clock < 1000);
  try_end(&t);
}

/* Random programs over the end of the numbers, again and again. */
static void epochs_begin_anew_at_any_time(void **state) {
  (void)state;
  struct try t = lagging("max_memory:256MiB");
  struct gap__policy_state *s = try_state(&t);
  gap_addr live[40] = {0};
  uint64_t seed = 7;
  for (int i = 0; i < 6000; i++) {
    gap_addr *at = &live[try_random(&seed, 40)];
    if (i % 97 == 0)
      s->clock = s->clock < GAP__EPOCH_LAST ? GAP__EPOCH_LAST - (uint32_t)try_random(&seed, 3) : s->clock;
    if (*at) try_give(&t, *at);
    *at = 0;
    gap__heap_alloc(t.heap, 0, stream_of((int)try_random(&seed, 5)), DEFAULT, try_log_uniform(&seed, 512, 16 * MIB),
                    at);
    if (i % 50 == 0) gap__sim_clock_advance(t.dev, try_random(&seed, 30000000));
    if (i % 200 == 0) try_check(&t);
  }
  for (int i = 0; i < 40; i++) try_give(&t, live[i]);
  pass(&t);
  try_trim(&t);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epochs_begin_anew),
      cmocka_unit_test(epochs_begin_anew_at_any_time),
      cmocka_unit_test(streams_come_and_go),
      cmocka_unit_test(streams_without_a_word),
      cmocka_unit_test(pools_come_and_go),
      cmocka_unit_test(shared_pool_keeps_its_lane),
      cmocka_unit_test(thousands_at_once),
      cmocka_unit_test(the_limit),
      cmocka_unit_test(totals_survive),
      cmocka_unit_test(free_after_retire),
      cmocka_unit_test(free_before_the_last_event),
      cmocka_unit_test(uses_of_a_retired_stream),
      cmocka_unit_test(handle_comes_back),
      cmocka_unit_test(handle_comes_back_at_once),
      cmocka_unit_test(handles_come_back_in_a_pool),
      cmocka_unit_test(retire_with_a_full_ring),
      cmocka_unit_test(driver_refuses_the_handle),
      cmocka_unit_test(use_that_cannot_be_recorded),
      cmocka_unit_test(new_stream_does_not_vouch),
      cmocka_unit_test(drain_fails),
      cmocka_unit_test(thread_ends),
      cmocka_unit_test(threads_come_and_go),
      cmocka_unit_test(block_outlives_its_thread),
      cmocka_unit_test(heap_ends_first),
      cmocka_unit_test(threads_of_a_child),
      cmocka_unit_test(process_ends),
      cmocka_unit_test(only_its_thread_records),
      cmocka_unit_test(use_of_a_thread_that_ended),
      cmocka_unit_test(record_stream_looks_at_the_address),
      cmocka_unit_test(no_addresses),
      cmocka_unit_test(no_records),
      cmocka_unit_test(no_access),
      cmocka_unit_test(neighbour_took_it),
      cmocka_unit_test(in_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
