/* A spin lock for the hot path, and the ranks that keep the order of locks honest.
 *
 * Test-and-set with a plain-store release: one locked instruction a pair.  After 64 pauses the waiter yields, later it
 * sleeps 50 us: an owner may be inside a driver call for milliseconds.
 * Rank rule: a thread takes locks only in rising rank; debug builds check it. */
#ifndef GAP_LOCK_H
#define GAP_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

enum gap__rank {
  GAP__RANK_HEAP,   /* list of devices, strategies, streams */
  GAP__RANK_DEVICE, /* chunks, mappings, holes, growth */
  GAP__RANK_LANE,   /* blocks and bins of one (stream, pool); several at once only by the owner of the device lock */
  GAP__RANK_LEAF    /* taken last, nothing is called while it is held */
};

struct gap__lock {
  atomic_uchar taken;
};

void gap__lock_wait(struct gap__lock *); /* out of line: the lock is contended */

static inline void gap__lock(struct gap__lock *lock) {
  if (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire)) gap__lock_wait(lock);
}
static inline bool gap__trylock(struct gap__lock *lock) {
  return !atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire);
}
static inline void gap__unlock(struct gap__lock *lock) {
  atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

#endif
