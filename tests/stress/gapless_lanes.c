/* Lanes that change hands under threads, on real bytes: streams that are made and retired, pools that come and go, short-lived
 * threads on their default streams, while another thread looks, trims, asks for too much and reads why it was refused. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/gapless_try.h"

enum { THREADS = 6, STREAMS = 120, BLOCKS = 6, SHORT_LIVED = 40 };

struct run {
  struct try t;
  _Atomic uint64_t streams, patterns;
  atomic_int failures;
  atomic_bool done;
};

struct worker {
  struct run *run;
  uint64_t seed;
};

static void must(struct run *run, bool true_) {
  if (!true_) run->failures++;
}

struct held {
  gap_addr addr;
  uint64_t bytes, pattern;
};

static void take(struct worker *w, gap_stream stream, gap_pool_id pool, struct held *b) {
  struct run *run = w->run;
  b->bytes = try_log_uniform(&w->seed, 512, 3 * MIB) / 8 * 8;
  int rc = gap__heap_alloc(run->t.heap, 0, stream, pool, b->bytes, &b->addr);
  must(run, rc == 0 || rc == GAP_ENOMEM);
  if (rc) {
    b->addr = 0;
    return;
  }
  b->pattern = ++run->patterns * 0x9E3779B97F4A7C15ull;
  must(run, gap__host_fill(run->t.dev, b->addr, b->bytes, b->pattern, stream) == 0);
}

static void compare(struct worker *w, gap_stream stream, const struct held *b) {
  if (b->addr) must(w->run, gap__host_expect(w->run->t.dev, b->addr, b->bytes, b->pattern, stream) == 0);
}

static void give(struct worker *w, struct held *b) {
  if (b->addr) must(w->run, gap__heap_free(w->run->t.heap, b->addr) == 0);
  b->addr = 0;
}

/* The life of a stream; some blocks outlive it. */
static void live_and_retire(struct worker *w, gap_pool_id pool) {
  gap_stream stream = (gap_stream)(++w->run->streams + 100) * 64;
  struct held blocks[BLOCKS] = {{0}};
  for (int i = 0; i < 4 * BLOCKS; i++) {
    struct held *b = &blocks[try_random(&w->seed, BLOCKS)];
    compare(w, stream, b);
    give(w, b);
    take(w, stream, pool, b);
  }
  for (int i = 0; i < BLOCKS; i++) compare(w, stream, &blocks[i]);
  for (int i = 0; i < BLOCKS / 2; i++) give(w, &blocks[i]);
  must(w->run, gap__heap_retire_stream(w->run->t.heap, 0, stream) == 0);
  for (int i = 0; i < BLOCKS; i++) give(w, &blocks[i]);
}

static void *work(void *arg) {
  struct worker *w = arg;
  for (int i = 0; i < STREAMS; i++) {
    gap_pool_id pool = {try_random(&w->seed, 3) ? 0 : w->seed >> 32 | 1, 7};
    if (!pool.first) pool.second = 0;
    if (pool.first) must(w->run, gap__heap_pool_retain(w->run->t.heap, 0, pool) == 0);
    live_and_retire(w, pool);
    if (pool.first) must(w->run, gap__heap_pool_release(w->run->t.heap, 0, pool) == 0);
  }
  return NULL;
}

static void *live_shortly(void *arg) {
  struct worker *w = arg;
  struct held blocks[BLOCKS] = {{0}};
  for (int i = 0; i < BLOCKS; i++) take(w, 2, DEFAULT, &blocks[i]);
  for (int i = 0; i < BLOCKS; i++) {
    compare(w, 2, &blocks[i]);
    if (i % 2 && blocks[i].addr) must(w->run, gap__heap_record_stream(w->run->t.heap, blocks[i].addr, 64 * 50) == 0);
    give(w, &blocks[i]);
  }
  return NULL;
}

static void *start_threads(void *arg) {
  struct worker *w = arg;
  for (int i = 0; i < SHORT_LIVED; i++) {
    pthread_t threads[2];
    struct worker workers[2] = {{w->run, w->seed + (uint64_t)i}, {w->run, w->seed - (uint64_t)i}};
    for (int k = 0; k < 2; k++) must(w->run, pthread_create(&threads[k], NULL, live_shortly, &workers[k]) == 0);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
  }
  return NULL;
}

static void *look(void *arg) {
  struct run *run = arg;
  struct gap__stats stats;
  char text[1024];
  gap_addr addr;
  uint64_t bytes;
  while (!run->done) {
    must(run, gap__heap_stats(run->t.heap, 0, &stats) == 0);
    must(run, gap__heap_trim(run->t.heap, 0, DEFAULT, &bytes) == 0);
    must(run, gap__heap_alloc(run->t.heap, 0, 64, DEFAULT, 300 * MIB, &addr) == GAP_ENOMEM);
    must(run, gap__heap_diagnosis(run->t.heap, 0, text, sizeof text) == 0);
    must(run, strncmp(text, "asked for ", 10) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
  }
  return NULL;
}

static void *read_only(void *arg) {
  struct run *run = arg;
  char text[1024];
  while (!run->done) {
    must(run, gap__heap_diagnosis(run->t.heap, 0, text, sizeof text) == 0);
    must(run, !text[0] || text[strlen(text) - 1] == '.');
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return NULL;
}

static void lanes_change_hands(void **state) {
  (void)state;
  struct gap__host_params card = {.total_bytes = 256 * MIB, .window_max_bytes = 64 * MIB};
  struct run run = {.t = try_host(&card, "reserve:0", GAP__MAKER_THREAD)};
  pthread_t ids[THREADS + 1], looking, reading;
  struct worker workers[THREADS + 1];
  for (int i = 0; i <= THREADS; i++) {
    workers[i] = (struct worker){.run = &run, .seed = (uint64_t)i + 1};
    assert_int_equal(pthread_create(&ids[i], NULL, i < THREADS ? work : start_threads, &workers[i]), 0);
  }
  assert_int_equal(pthread_create(&looking, NULL, look, &run), 0);
  assert_int_equal(pthread_create(&reading, NULL, read_only, &run), 0);
  for (int i = 0; i <= THREADS; i++) pthread_join(ids[i], NULL);
  run.done = true;
  pthread_join(looking, NULL);
  pthread_join(reading, NULL);
  assert_int_equal(run.failures, 0);
  assert_int_equal(gap__host_faults(run.t.dev), 0);
  try_trim(&run.t);
  assert_int_equal(try_stats(&run.t)->active[0].current, 0);
  assert_int_equal(try_held(&run.t), 0);
  assert_true(try_state(&run.t)->lane_slab.count < 400);
  try_end(&run.t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_change_hands)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
