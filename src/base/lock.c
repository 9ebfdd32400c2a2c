#include "base/lock.h"

#include <sched.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)
#define pause_cpu() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pause_cpu() __asm__ volatile("isb")
#else
#define pause_cpu() ((void)0)
#endif

enum { SPINS = 11, YIELDS = 64 };

/* Twice as long each time, so that many who wait do not take the owner's cache line away at every look: who has the lock and
 * needs it again at once goes on with it meanwhile. */
static void spin(unsigned round) {
  for (unsigned left = 1u << round; left; left--) pause_cpu();
}

static void wait_a_little(unsigned round) {
  if (round < SPINS) spin(round);
  else if (round < SPINS + YIELDS) sched_yield();
  else nanosleep(&(struct timespec){0, 50000}, NULL);
}

static bool is_free(struct gap__lock *lock) {
  return !atomic_load_explicit(&lock->taken, memory_order_relaxed) && gap__trylock(lock);
}

void gap__lock_wait(struct gap__lock *lock) {
  unsigned round = 0;
  for (; round < SPINS; round++) {
    spin(round);
    if (is_free(lock)) return;
  }
  atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
  for (; !is_free(lock); round++) wait_a_little(round);
  atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

void gap__lock_give_way(struct gap__lock *lock) {
  for (unsigned round = 0; atomic_load_explicit(&lock->waiting, memory_order_relaxed); round++) wait_a_little(round);
}

bool gap__lock_within(struct gap__lock *lock, unsigned ms) {
  for (unsigned left = ms * 20; !gap__trylock(lock); left--) {
    if (!left) return false;
    nanosleep(&(struct timespec){0, 50000}, NULL);
  }
  return true;
}
