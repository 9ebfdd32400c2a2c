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

enum { SPINS = 64, YIELDS = 64 };

void gap__lock_wait(struct gap__lock *lock) {
  for (unsigned round = 0;; round++) {
    if (round < SPINS) pause_cpu();
    else if (round < SPINS + YIELDS) sched_yield();
    else nanosleep(&(struct timespec){0, 50000}, NULL);
    if (!atomic_load_explicit(&lock->taken, memory_order_relaxed) && gap__trylock(lock)) return;
  }
}
