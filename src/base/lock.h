/* A spin lock for the hot path.
 *
 * Test-and-set with a plain-store release: one locked instruction a pair.  A waiter pauses longer and longer (some 100 us in all),
 * then yields, later it sleeps 50 us: an owner may be inside a driver call for milliseconds.  Nobody is first in line: a thread
 * that takes the lock again and again without need gives way, or those who sleep never find it free.
 * Order: a thread takes locks only in the order heap, device (strategy), lane, and then one inside a backend.  Several lane locks
 * at once are for the owner of the device lock alone. */
#ifndef GAP_LOCK_H
#define GAP_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct gap__lock {
  atomic_uchar taken;
  atomic_ushort waiting; /* threads in gap__lock_wait that have paused long enough */
};

void gap__lock_wait(struct gap__lock *); /* out of line: the lock is contended */
/* For a background thread, before it takes the lock: returns when nobody waits for it. */
void gap__lock_give_way(struct gap__lock *);

static inline void gap__lock(struct gap__lock *lock) {
  if (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire)) gap__lock_wait(lock);
}
static inline bool gap__trylock(struct gap__lock *lock) {
  return !atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire);
}
/* Tries for about `ms` milliseconds. */
bool gap__lock_within(struct gap__lock *, unsigned ms);
static inline void gap__unlock(struct gap__lock *lock) { atomic_store_explicit(&lock->taken, 0, memory_order_release); }

#endif
