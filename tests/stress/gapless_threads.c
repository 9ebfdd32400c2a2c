/* Threads on own and shared streams on real bytes, the page maker (GAP__MAKER_THREAD) beside them: every block is filled and
 * compared; while another thread looks, trims and moves the cap.  And two threads that free one block: one succeeds. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/gapless_try.h"

enum { THREADS = 16, ROUNDS = 1500, SLOTS = 12, RACES = 3000 };

struct run {
  struct try t;
  atomic_int failures;
  atomic_bool done;
};

struct worker {
  struct run *run;
  uint64_t seed;
  gap_stream stream;
};

struct slot {
  gap_addr addr;
  uint64_t bytes, pattern;
};

static void must(struct run *run, bool true_) {
  if (!true_) run->failures++;
}

static void take(struct worker *w, struct slot *s) {
  gap_heap *heap = w->run->t.heap;
  s->bytes = try_log_uniform(&w->seed, 512, 512 * KIB) / 8 * 8;
  if (try_random(&w->seed, 30) == 0) s->bytes = 3 * MIB;
  int rc = gap__heap_alloc(heap, 0, w->stream, DEFAULT, s->bytes, &s->addr);
  must(w->run, rc == 0 || rc == GAP_ENOMEM);
  if (rc) s->addr = 0;
  s->pattern = try_random(&w->seed, UINT64_MAX);
  if (!rc) must(w->run, gap__host_fill(w->run->t.dev, s->addr, s->bytes, s->pattern, w->stream) == 0);
}

static void give(struct worker *w, struct slot *s) {
  gap_heap *heap = w->run->t.heap;
  must(w->run, gap__host_expect(w->run->t.dev, s->addr, s->bytes, s->pattern, w->stream) == 0);
  if (try_random(&w->seed, 8) == 0) must(w->run, gap__heap_record_stream(heap, s->addr, 64 * 1024) == 0);
  must(w->run, gap__heap_free(heap, s->addr) == 0);
  s->addr = 0;
}

static void *work(void *arg) {
  struct worker *w = arg;
  struct slot slots[SLOTS] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    struct slot *s = &slots[try_random(&w->seed, SLOTS)];
    if (s->addr) give(w, s);
    else take(w, s);
  }
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].addr) give(w, &slots[i]);
  return NULL;
}

static void change_strategy(struct run *run, uint64_t *seed) {
  struct gap__conf conf = *gap__device_conf(try_state(&run->t)->device);
  static const enum gap__strategy strategies[] = {GAP__STRATEGY_GAPLESS, GAP__STRATEGY_POOLED, GAP__STRATEGY_HEURISTIC};
  conf.strategy = strategies[try_random(seed, 3)];
  must(run, gap__heap_configure(run->t.heap, &conf) == 0);
}

static void *disturb(void *arg) {
  struct run *run = arg;
  uint64_t seed = 99, bytes;
  struct gap__stats stats;
  while (!run->done) {
    switch (try_random(&seed, 6)) {
      case 0: must(run, gap__heap_trim(run->t.heap, 0, DEFAULT, &bytes) == 0); break;
      case 1: must(run, gap__heap_set_cap(run->t.heap, 0, (try_random(&seed, 40) + 20) * PAGE) == 0); break;
      case 2: must(run, gap__heap_retire_stream(run->t.heap, 0, 1024) == 0); break;
      case 3: gap__heap_tick(run->t.heap, 0); break;
      case 4: change_strategy(run, &seed); break;
      default: must(run, gap__heap_stats(run->t.heap, 0, &stats) == 0);
    }
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  }
  return NULL;
}

/* Eight have streams of their own, four share one, two share another, two use the per-thread default stream. */
static gap_stream stream_of(int thread) {
  static const gap_stream shared[] = {64, 64, 64, 64, 128, 128, 2, 2};
  return thread < 8 ? (gap_stream)(thread + 1) * 1024 : shared[thread - 8];
}

static void contents(void **state) {
  (void)state;
  struct run run = {.t = try_host(&(struct gap__host_params){.total_bytes = 256 * MIB, .window_max_bytes = 128 * MIB},
                                  "reserve:0", GAP__MAKER_THREAD)};
  pthread_t ids[THREADS], disturber;
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.run = &run, .seed = (uint64_t)i, .stream = stream_of(i)};
    assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  }
  assert_int_equal(pthread_create(&disturber, NULL, disturb, &run), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  run.done = true;
  pthread_join(disturber, NULL);
  assert_int_equal(run.failures, 0);
  assert_int_equal(gap__host_faults(run.t.dev), 0);
  try_trim(&run.t);
  assert_int_equal(try_stats(&run.t)->active[0].current, 0);
  try_end(&run.t);
}

/* ---- double free from two threads ---- */

struct race {
  struct try t;
  pthread_barrier_t start;
  gap_addr addr[RACES];
  atomic_int freed, refused;
};

static void *free_all(void *arg) {
  struct race *race = arg;
  pthread_barrier_wait(&race->start);
  for (int i = 0; i < RACES; i++) {
    int rc = gap__heap_free(race->t.heap, race->addr[i]);
    if (rc == 0) race->freed++;
    else if (rc == GAP_EFREED) race->refused++;
  }
  return NULL;
}

static void one_of_two_frees(void **state) {
  (void)state;
  static struct race race;
  race.t = try_sim("");
  pthread_barrier_init(&race.start, NULL, 2);
  for (int i = 0; i < RACES; i++) {
    race.addr[i] = try_get(&race.t, 0, i % 7 ? 4096 : 3 * MIB);
    if (i % 5 == 0) assert_int_equal(gap__heap_record_stream(race.t.heap, race.addr[i], STREAM_B), 0);
  }
  pthread_t other;
  assert_int_equal(pthread_create(&other, NULL, free_all, &race), 0);
  free_all(&race);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&race.start);
  assert_int_equal(race.freed, RACES);
  assert_int_equal(race.refused, RACES);
  try_end(&race.t);
}

/* Figures that lanes count for themselves are exact once all is still. */
static void *count_up(void *arg) {
  struct worker *w = arg;
  for (int i = 0; i < 2000; i++) {
    gap_addr addr = 0;
    must(w->run, gap__heap_alloc(w->run->t.heap, 0, w->stream, DEFAULT, 1000, &addr) == 0);
    if (i % 2) must(w->run, gap__heap_free(w->run->t.heap, addr) == 0);
  }
  return NULL;
}

static void totals(void **state) {
  (void)state;
  struct run run = {.t = try_sim("")};
  pthread_t ids[THREADS];
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.run = &run, .stream = (gap_stream)(i / 2) * 1024};
    assert_int_equal(pthread_create(&ids[i], NULL, count_up, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  assert_int_equal(run.failures, 0);
  const struct gap__stats *s = try_stats(&run.t);
  assert_int_equal(s->allocation[0].current, THREADS * 1000);
  assert_int_equal(s->allocation[0].allocated, THREADS * 2000);
  assert_int_equal(s->allocated_bytes[0].current, THREADS * 1000 * 1024);
  assert_int_equal(s->requested_bytes[0].current, THREADS * 1000 * 1000);
  try_end(&run.t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(contents),
      cmocka_unit_test(one_of_two_frees),
      cmocka_unit_test(totals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
