/* The spin lock: one owner at a time, and a background thread that gives way. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/lock.h"

enum { THREADS = 4, TURNS = 20000, TRIES = 51 };

struct shared {
  struct gap__lock lock;
  uint64_t count; /* guarded by the lock */
  atomic_bool stop;
  atomic_uint rounds; /* of the background thread */
};

static void *count_up(void *arg) {
  struct shared *shared = arg;
  for (int i = 0; i < TURNS; i++) {
    gap__lock(&shared->lock);
    shared->count++;
    gap__unlock(&shared->lock);
  }
  return NULL;
}

static void test_one_owner_at_a_time(void **state) {
  (void)state;
  struct shared shared = {0};
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, count_up, &shared);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(shared.count, THREADS * TURNS);
  assert_int_equal(atomic_load(&shared.lock.waiting), 0);
}

/* Takes the lock again as soon as it has let go, as a page maker with much to do. */
static void *work_in_background(void *arg) {
  struct shared *shared = arg;
  while (!atomic_load(&shared->stop)) {
    gap__lock_give_way(&shared->lock);
    gap__lock(&shared->lock);
    atomic_fetch_add(&shared->rounds, 1);
    nanosleep(&(struct timespec){0, 300000}, NULL);
    gap__unlock(&shared->lock);
  }
  return NULL;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void test_background_gives_way(void **state) {
  (void)state;
  struct shared shared = {0};
  pthread_t thread;
  int rounds[TRIES]; /* that went by while we waited; the median, since anybody may be descheduled */
  pthread_create(&thread, NULL, work_in_background, &shared);
  while (!atomic_load(&shared.rounds)) continue;
  for (int i = 0; i < TRIES; i++) {
    unsigned before = atomic_load(&shared.rounds);
    gap__lock(&shared.lock);
    rounds[i] = (int)(atomic_load(&shared.rounds) - before);
    gap__unlock(&shared.lock);
    nanosleep(&(struct timespec){0, 400000}, NULL);
  }
  atomic_store(&shared.stop, true);
  pthread_join(thread, NULL);
  qsort(rounds, TRIES, sizeof *rounds, by_value);
  assert_in_range(rounds[TRIES / 2], 0, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_owner_at_a_time),
      cmocka_unit_test(test_background_gives_way),
  };
  return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
