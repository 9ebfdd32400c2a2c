/* `trace_frames:True`: who asked.  At the call of an allocation or a free the Python stack of the thread is looked at, before any lock is
 * taken, and given a number; events that the call leads to carry it.
 *
 * Texts, frames and stacks are kept once each, for the process, as long as it lasts: they are few, since they are places in the
 * program.  A recorder tells its file those that it has not told yet. */
#ifndef GAP_API_FRAMES_H
#define GAP_API_FRAMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "record/writer.h"

extern _Atomic int gap__frames_users; /* recorders that want stacks */

static inline void gap__frames_want(bool wanted) {
  if (wanted) atomic_fetch_add(&gap__frames_users, 1);
}
static inline void gap__frames_leave(bool wanted) {
  if (wanted) atomic_fetch_sub(&gap__frames_users, 1);
}
static inline bool gap__frames_wanted(void) {
  return __builtin_expect(atomic_load_explicit(&gap__frames_users, memory_order_relaxed) != 0, 0);
}

/* Around a call: `begin` returns what `end` is given. */
uint32_t gap__frames_begin(void);
void gap__frames_end(uint32_t before);
/* The number of this thread's stack inside a call, from 1; else 0. */
uint32_t gap__frames_current(void);

/* What a file has been told of. */
struct gap__frames_told {
  uint32_t texts, frames, stacks;
};

uint32_t gap__frames_stacks(void); /* so many are known */
/* Writes what is missing; 0, or the writer's error: then nothing more counts as told. */
int gap__frames_tell(struct gap__frames_told *, struct gap__record_writer *);

/* So that a child finds the store in order. */
void gap__frames_before_fork(void);
void gap__frames_after_fork(void); /* in both */

#endif
