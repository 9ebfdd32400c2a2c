/* Two threads at work: see scaling.h. */
#include "scaling.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct worker {
  struct bench_pair *pair;
  pthread_t thread;
  int index;
  uint64_t start_ns, end_ns, cpu_ns; /* of the last piece of work */
};

struct bench_pair {
  pthread_barrier_t begin, end; /* both workers and the thread that measures */
  struct worker workers[2];
  struct bench_user *users;
  uint32_t count;
  uint64_t pair_bytes;
  int at_work; /* the first so many workers; the others wait */
  bool stop;
};

/* Arithmetic that depends on itself, in registers. */
static void spin(uint32_t count) {
  uint64_t x = count;
  for (uint32_t i = 0; i < count; i++) {
    for (int k = 0; k < 8; k++) x = x * 0xD6E8FEB86659FD93u + 1;
    __asm__ volatile("" : "+r"(x));
  }
}

static void work(struct worker *worker) {
  struct bench_pair *pair = worker->pair;
  struct bench_user *user = &pair->users[worker->index];
  uint64_t cpu = bench_thread_ns();
  worker->start_ns = bench_wall_ns();
  if (user->subject) bench_play(user, pair->count, pair->pair_bytes);
  else spin(pair->count);
  worker->end_ns = bench_wall_ns();
  worker->cpu_ns = bench_thread_ns() - cpu;
}

/* On the worker's own processor of those we may use: woken together, two threads may share one for a long while. */
static void settle(int index) {
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < 2) return;
  CPU_ZERO(&own);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && seen++ == index) CPU_SET(cpu, &own);
  sched_setaffinity(0, sizeof own, &own);
}

static void *run(void *arg) {
  struct worker *worker = arg;
  settle(worker->index);
  struct bench_pair *pair = worker->pair;
  for (;;) {
    pthread_barrier_wait(&pair->begin);
    if (pair->stop) return NULL;
    if (worker->index < pair->at_work) work(worker);
    pthread_barrier_wait(&pair->end);
  }
}

struct bench_pair *bench_pair_start(void) {
  struct bench_pair *pair = bench_alloc(sizeof *pair);
  pthread_barrier_init(&pair->begin, NULL, 3);
  pthread_barrier_init(&pair->end, NULL, 3);
  for (int i = 0; i < 2; i++) {
    pair->workers[i] = (struct worker){.pair = pair, .index = i};
    if (pthread_create(&pair->workers[i].thread, NULL, run, &pair->workers[i])) {
      fprintf(stderr, "cannot start a thread\n");
      exit(1);
    }
  }
  return pair;
}

void bench_pair_stop(struct bench_pair *pair) {
  pair->stop = true;
  pthread_barrier_wait(&pair->begin);
  for (int i = 0; i < 2; i++) pthread_join(pair->workers[i].thread, NULL);
  pthread_barrier_destroy(&pair->begin);
  pthread_barrier_destroy(&pair->end);
  free(pair);
}

static void let_work(struct bench_pair *pair, int workers) {
  pair->at_work = workers;
  pthread_barrier_wait(&pair->begin);
  pthread_barrier_wait(&pair->end);
}

struct bench_scaling bench_pair_measure(struct bench_pair *pair, struct bench_user users[2], uint32_t count,
                                        uint64_t pair_bytes) {
  pair->users = users, pair->count = count, pair->pair_bytes = pair_bytes;
  const struct worker *a = &pair->workers[0], *b = &pair->workers[1];
  let_work(pair, 1);
  double one_wall = (double)(a->end_ns - a->start_ns), one_cpu = (double)a->cpu_ns;
  let_work(pair, 2);
  uint64_t start = a->start_ns < b->start_ns ? a->start_ns : b->start_ns;
  uint64_t end = a->end_ns > b->end_ns ? a->end_ns : b->end_ns;
  double both_cpu = (double)(a->cpu_ns + b->cpu_ns) / 2;
  return (struct bench_scaling){.wall = 2 * one_wall / (double)(end - start),
                                .cpu = 2 * one_cpu / both_cpu,
                                .one_ns = one_cpu / count,
                                .both_ns = both_cpu / count};
}

uint32_t bench_loop_calibrate(uint64_t target_ns) {
  enum { TRIAL = 100000 };
  spin(TRIAL);
  uint64_t start = bench_thread_ns();
  spin(TRIAL);
  return (uint32_t)(target_ns * TRIAL / (bench_thread_ns() - start + 1));
}
