/* How long a search may still take, and what it tells meanwhile. */
#ifndef GAP_PLAN_CLOCK_H
#define GAP_PLAN_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct gap__plan_clock {
  uint64_t start_ms, limit_ms; /* of the whole; CLOCK_MONOTONIC */
  void (*progress)(void *arg, uint64_t done, uint64_t total);
  void *progress_arg;
};

static inline uint64_t gap__plan_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline uint64_t gap__plan_elapsed_ms(const struct gap__plan_clock *clock) {
  return gap__plan_now_ms() - clock->start_ms;
}

/* True once `until_ms` after the start, or the limit, is reached; tells the progress. */
static inline bool gap__plan_is_late(const struct gap__plan_clock *clock, uint64_t until_ms) {
  uint64_t elapsed = gap__plan_elapsed_ms(clock);
  if (clock->progress) clock->progress(clock->progress_arg, elapsed, clock->limit_ms);
  return elapsed >= until_ms || elapsed >= clock->limit_ms;
}

#endif
