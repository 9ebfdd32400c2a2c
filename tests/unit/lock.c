/* The spin lock keeps threads apart, also when its owner sleeps. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/lock.h"

enum { THREADS = 4, ROUNDS = 20000 };

static struct gap__lock lock;
static long counter; /* plain on purpose: only the lock orders its writers */
static int inside;

static void *count(void *arg) {
  long *most = arg;
  for (int i = 0; i < ROUNDS; i++) {
    gap__lock(&lock);
    if (++inside > *most) *most = inside;
    counter++;
    inside--;
    gap__unlock(&lock);
  }
  return NULL;
}

static void test_mutual_exclusion(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  long most[THREADS] = {0};
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, count, &most[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(counter, (long)THREADS * ROUNDS);
  for (int i = 0; i < THREADS; i++) assert_int_equal(most[i], 1);
}

static void test_trylock(void **state) {
  (void)state;
  struct gap__lock own = {0};
  assert_true(gap__trylock(&own));
  assert_false(gap__trylock(&own));
  gap__unlock(&own);
  assert_true(gap__trylock(&own));
}

static void *take_once(void *arg) {
  gap__lock(&lock);
  *(long *)arg = counter;
  gap__unlock(&lock);
  return NULL;
}

/* Long enough for the waiter to get past spinning and yielding. */
static void test_owner_sleeps(void **state) {
  (void)state;
  pthread_t thread;
  long seen = -1;
  gap__lock(&lock);
  counter = 1;
  assert_int_equal(pthread_create(&thread, NULL, take_once, &seen), 0);
  nanosleep(&(struct timespec){0, 20000000}, NULL);
  counter = 2;
  gap__unlock(&lock);
  pthread_join(thread, NULL);
  assert_int_equal(seen, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mutual_exclusion),
      cmocka_unit_test(test_trylock),
      cmocka_unit_test(test_owner_sleeps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
