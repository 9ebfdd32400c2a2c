/* What a heap is made of; for heap*.c only. */
#ifndef GAP_HEAP_STATE_H
#define GAP_HEAP_STATE_H

#include "base/lock.h"
#include "core/policy.h"

struct heap_device {
  struct gap__device base;
  uint64_t conf_cap_bytes; /* what the configuration last asked for; a cap set by hand stays until this changes */
  struct gap__driver_figure driver_base[GAP__CALL_COUNT]; /* at the last reset of accumulated figures */
};

struct heap_pool_use { /* private pools in use: a strategy that is made later must know them */
  int device;
  gap_pool_id id;
  uint32_t count;
};

struct gap_heap {
  struct heap_device *devices;
  int device_count;
  struct gap__lock lock; /* rank HEAP: configuration, strategies, pool_uses */
  struct heap_pool_use *pool_uses;
  uint32_t pool_use_count, pool_use_room;
  bool forked;           /* we are the child: nothing here may touch the driver */
  gap_heap *prev, *next; /* all heaps of the process; guarded by heap_fork.c */
};

/* heap_fork.c: fork safety.  In the child every device gets a strategy that refuses to allocate and ignores frees. */
void gap__heap_enlist(gap_heap *);
void gap__heap_delist(gap_heap *);

static inline struct heap_device *heap_device_at(gap_heap *heap, int device) {
  return (unsigned)device < (unsigned)heap->device_count ? &heap->devices[device] : NULL;
}
static inline struct gap__policy_state *heap_state_of(struct gap__device *dev, const struct gap__policy *policy) {
  return atomic_load_explicit(&dev->state[policy->strategy], memory_order_relaxed);
}
/* The strategies that exist on a device, for loops: NULL where there is none yet. */
const struct gap__policy *gap__heap_policy(enum gap__strategy);

#endif
