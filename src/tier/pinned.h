/* Host memory that the device reaches: the pool of one device.
 *
 * It consists of *slabs* of up to 64 MiB (one mapping, one registration each), cut into units of 2 MiB.  A slab has exactly the
 * bytes asked for, is made of huge pages where the system has them, first touched and registered by all processors side by side,
 * and is not handed to a child of a fork.  What is taken are runs of units inside one slab, so that no copy reaches over
 * the end of a registration.
 *
 *     locked bytes = sum of the slabs;  used units <= units;  a slab goes back whole, when nothing of it is used
 *
 * Before each growth the budget is looked at anew (budget.h).  Not thread-safe: its owner has a lock. */
#ifndef GAP_TIER_PINNED_H
#define GAP_TIER_PINNED_H

#include "base/lock.h"
#include "dev/dev.h"
#include "tier/budget.h"

#define GAP__UNIT_PAGE ((uint64_t)2 << 20) /* a unit of host memory */
enum { GAP__SLAB_UNITS = 32 };

/* What all pools of a heap may lock together, and beside them what stands behind device addresses (core/overflow.h). */
struct gap__allowance {
  const char *root;                        /* of the machine's files: "" */
  uint64_t most_bytes;                     /* as configured; 0: what the budget allows */
  void (*ease)(void *arg, uint64_t bytes); /* others of the heap give back what they have idle; may be NULL */
  void *ease_arg;
  struct gap__lock lock;
  _Atomic uint64_t locked_bytes; /* and what is about to be; grows under the lock */
};

/* Takes a part of it for memory that is about to be locked, so that two do not take the same.  False: `why` says who limits it. */
bool gap__allowance_take(struct gap__allowance *, uint64_t bytes, char *why, size_t why_bytes);
void gap__allowance_give(struct gap__allowance *, uint64_t bytes);

struct gap__pinned_slab {
  unsigned char *memory; /* the units */
  void *mapping;
  uint64_t mapping_bytes;
  uint32_t units, used; /* `used` as bits, of `units` ones */
};

struct gap__pinned {
  struct gap__dev *dev;
  struct gap__allowance *allowance;
  struct gap__pinned_slab *slabs;
  uint32_t slab_count, slab_room;
  uint64_t locked_bytes, used_bytes;
  char refusal[256]; /* why it did not grow, in words */
};

void gap__pinned_init(struct gap__pinned *, struct gap__dev *, struct gap__allowance *);
/* Nothing of it is used any more, by the device neither. */
void gap__pinned_destroy(struct gap__pinned *);

/* At least `bytes` are unused after it.  GAP_ELIMIT: the budget does not allow it, `refusal` says why and nothing has changed;
 * GAP_ENOMETA: the system has no such memory; or the driver's error. */
int gap__pinned_ensure(struct gap__pinned *, uint64_t bytes);
/* Makes the pool that large: grows it, or gives back unused slabs while it stays at least as large. */
int gap__pinned_resize(struct gap__pinned *, uint64_t bytes);
/* Has others give back so many bytes that they have idle. */
void gap__pinned_ease(struct gap__pinned *, uint64_t bytes);
/* How many bytes could be unused after gap__pinned_ensure, by the budget as it is now. */
uint64_t gap__pinned_reach(const struct gap__pinned *);
static inline uint64_t gap__pinned_unused(const struct gap__pinned *p) { return p->locked_bytes - p->used_bytes; }

/* The longest run of at most `units` that one slab has unused; how many units it has, 0: none is left. */
uint32_t gap__pinned_take(struct gap__pinned *, uint32_t units, unsigned char **out);
/* A run of exactly `units`, for which the pool grows; where the budget does not allow that, slabs that are unused and too short go first. */
int gap__pinned_take_run(struct gap__pinned *, uint32_t units, unsigned char **out);
void gap__pinned_give(struct gap__pinned *, unsigned char *, uint32_t units);

#endif
