/* Threads on own and shared streams against one heap with caching_allocator, while another asks for statistics, checks, trims,
 * changes the cap and the settings.  In the end everything is back. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/heap.h"
#include "dev/sim/sim.h"

#define MIB ((uint64_t)1 << 20)
#define DEFAULT ((gap_pool_id){0, 0})

enum { THREADS = 16, ROUNDS = 6000, SLOTS = 32 };

struct run {
  gap_heap *heap;
  struct gap__conf_set *set;
  atomic_int failures;
  atomic_bool done;
};

struct worker {
  struct run *run;
  unsigned seed;
  gap_stream stream;
};

static int next(unsigned *seed, int below) {
  *seed = *seed * 1103515245u + 12345u;
  return (int)(*seed >> 16) % below;
}

static void one_round(struct worker *worker, gap_addr *slot) {
  gap_heap *heap = worker->run->heap;
  if (*slot) {
    if (next(&worker->seed, 8) == 0 && gap__heap_record_stream(heap, *slot, 4096)) worker->run->failures++;
    if (gap__heap_free(heap, *slot)) worker->run->failures++;
    *slot = 0;
    return;
  }
  uint64_t bytes = ((uint64_t)512 << next(&worker->seed, 14)) + (uint64_t)next(&worker->seed, 3000);
  int rc = gap__heap_alloc(heap, 0, worker->stream, DEFAULT, bytes, slot);
  if (rc && rc != GAP_ENOMEM) worker->run->failures++;
  if (rc) *slot = 0;
}

static void *work(void *arg) {
  struct worker *worker = arg;
  gap_addr slots[SLOTS] = {0};
  for (int i = 0; i < ROUNDS; i++) one_round(worker, &slots[next(&worker->seed, SLOTS)]);
  for (int i = 0; i < SLOTS; i++) {
    if (gap__heap_free(worker->run->heap, slots[i])) worker->run->failures++;
  }
  return NULL;
}

static void *disturb(void *arg) {
  struct run *run = arg;
  struct gap__stats stats;
  char text[300];
  for (unsigned i = 0; !run->done; i++) {
    uint64_t bytes;
    if (gap__heap_stats(run->heap, 0, &stats) || gap__heap_check(run->heap, 0, text, sizeof text)) run->failures++;
    if (i % 4 == 1 && gap__heap_trim(run->heap, 0, DEFAULT, &bytes)) run->failures++;
    if (i % 4 == 2 && gap__heap_set_cap(run->heap, 0, (i % 3 + 1) * 60 * MIB)) run->failures++;
    if (i % 4 == 3 && gap__heap_configure(run->heap, gap__conf_values(run->set))) run->failures++;
  }
  return NULL;
}

static void play(const char *settings) {
  struct run run = {.set = gap__conf_new()};
  struct gap__dev *dev;
  assert_int_equal(gap__conf_apply(run.set, GAP__CONF_RUNTIME, "test", settings, NULL), 0);
  assert_int_equal(gap__sim_create(0, &(struct gap__sim_params){.total_bytes = 1024 * MIB}, &dev), 0);
  struct gap__heap_params params = {.devs = &dev, .dev_count = 1, .conf = gap__conf_values(run.set)};
  assert_int_equal(gap__heap_create(&params, &run.heap), 0);
  pthread_t ids[THREADS], disturber;
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.run = &run, .seed = (unsigned)i + 1, .stream = (gap_stream)(i % 10) * 1024};
    assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  }
  assert_int_equal(pthread_create(&disturber, NULL, disturb, &run), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  run.done = true;
  pthread_join(disturber, NULL);
  assert_int_equal(run.failures, 0);
  uint64_t bytes;
  struct gap__stats stats;
  assert_int_equal(gap__heap_trim(run.heap, 0, DEFAULT, &bytes), 0);
  assert_int_equal(gap__heap_stats(run.heap, 0, &stats), 0);
  assert_int_equal(stats.active[GAP__KIND_ALL].current, 0);
  assert_int_equal(stats.reserved_bytes[GAP__KIND_ALL].current, 0);
  assert_int_equal(stats.allocation[GAP__KIND_ALL].allocated, stats.allocation[GAP__KIND_ALL].freed);
  gap__heap_destroy(run.heap);
  gap__conf_free(run.set);
}

static void threads(void **state) {
  (void)state;
  play("strategy:caching_allocator");
}

static void threads_on_expandable_segments(void **state) {
  (void)state;
  play("strategy:caching_allocator,expandable_segments:True");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(threads_on_expandable_segments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
