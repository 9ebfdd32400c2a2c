/* The processor's own counter, for those who cannot afford the system's clock: some 20 cycles.  It runs evenly and alike on all
 * processors of a machine; how fast is not said, so compare it with the clock now and then. */
#ifndef GAP_BASE_TICKS_H
#define GAP_BASE_TICKS_H

#include <stdint.h>

#if defined(__x86_64__)
static inline uint64_t gap__ticks(void) { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
static inline uint64_t gap__ticks(void) {
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}
#else
#include <time.h>
static inline uint64_t gap__ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
#endif

#endif
