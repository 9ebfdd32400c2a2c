/* Threads that each follow a plan on a stream of their own, on real bytes, with the page maker beside them, while another thread
 * puts plans in force and out of it, trims and moves the cap. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/gapless_try.h"
#include "support/plan_maker.h"

enum { THREADS = 6, REQUESTS = 80, LIFE = 7, PERIODS = 15 };

struct run {
  struct try t;
  struct plan_maker m, other;
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

static void give(struct worker *w, struct slot *s) {
  if (!s->addr) return;
  must(w->run, gap__host_expect(w->run->t.dev, s->addr, s->bytes, s->pattern, w->stream) == 0);
  must(w->run, gap__heap_free(w->run->t.heap, s->addr) == 0);
  s->addr = 0;
}

static void take(struct worker *w, struct slot *s, uint64_t bytes) {
  int rc = gap__heap_alloc(w->run->t.heap, 0, w->stream, DEFAULT, bytes, &s->addr);
  must(w->run, rc == 0 || rc == GAP_ENOMEM);
  if (rc) s->addr = 0;
  *s = (struct slot){s->addr, bytes, try_random(&w->seed, UINT64_MAX)};
  if (s->addr) must(w->run, gap__host_fill(w->run->t.dev, s->addr, bytes, s->pattern, w->stream) == 0);
}

/* Now and then a request has another size. */
static void *work(void *arg) {
  struct worker *w = arg;
  struct slot slots[REQUESTS] = {0};
  for (int period = 0; period < PERIODS; period++)
    for (int i = 0; i < REQUESTS + LIFE; i++) {
      bool alter = try_random(&w->seed, 50) == 0;
      if (i >= LIFE) give(w, &slots[i - LIFE]);
      if (i < REQUESTS) take(w, &slots[i], alter ? 3 * KIB : w->run->m.at[i].bytes);
    }
  return NULL;
}

static void make(struct plan_maker *m, uint64_t unit) {
  plan_begin(m);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    if (i >= LIFE) plan_free(m, i - LIFE);
    plan_alloc(m, 0, unit * (1 + i * 37 % 101));
  }
  plan_finish(m);
}

static void configure(struct run *run, const char *conf) {
  struct gap__conf_set *set = gap__conf_new();
  must(run, gap__conf_apply(set, GAP__CONF_RUNTIME, "test", conf, NULL) == 0);
  must(run, gap__heap_configure(run->t.heap, gap__conf_values(set)) == 0);
  gap__conf_free(set);
}

static void *disturb(void *arg) {
  struct run *run = arg;
  uint64_t seed = 99, bytes;
  struct gap__stats stats;
  while (!run->done) {
    switch (try_random(&seed, 8)) {
      case 0: must(run, gap__heap_trim(run->t.heap, 0, DEFAULT, &bytes) == 0); break;
      case 1: must(run, gap__heap_set_cap(run->t.heap, 0, (try_random(&seed, 40) + 40) * PAGE) == 0); break;
      case 2: configure(run, "reserve:0"); break;
      case 3: configure(run, plan_conf(&run->other, "reserve:0")); break;
      default: must(run, gap__heap_stats(run->t.heap, 0, &stats) == 0); configure(run, plan_conf(&run->m, "reserve:0"));
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return NULL;
}

static void contents(void **state) {
  (void)state;
  static struct run run;
  make(&run.m, 8 * KIB), make(&run.other, 12 * KIB);
  run.t = try_host(&(struct gap__host_params){.total_bytes = 256 * MIB, .window_max_bytes = 128 * MIB},
                   plan_conf(&run.m, "reserve:0"), GAP__MAKER_THREAD);
  pthread_t ids[THREADS], disturber;
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.run = &run, .seed = (uint64_t)i, .stream = i < 4 ? (gap_stream)(i + 1) * 1024 : 2};
    assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  }
  assert_int_equal(pthread_create(&disturber, NULL, disturb, &run), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  run.done = true;
  pthread_join(disturber, NULL);
  assert_int_equal(run.failures, 0);
  assert_int_equal(gap__host_faults(run.t.dev), 0);
  assert_true(try_stats(&run.t)->plan_placed > 0);
  assert_int_equal(try_stats(&run.t)->active[0].current, 0);
  try_end(&run.t);
  plan_remove(&run.m), plan_remove(&run.other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(contents)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
