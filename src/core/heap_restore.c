/* Blocks at given addresses: the strategy that owns the address makes them. */
#include "core/heap_state.h"

static int alloc_at_on(struct gap__device *dev, gap_addr addr, uint64_t bytes) {
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state && gap__heap_policy(s)->alloc_at) rc = gap__heap_policy(s)->alloc_at(state, addr, bytes);
  }
  return rc;
}

int gap__heap_alloc_at(gap_heap *heap, gap_addr addr, uint64_t bytes) {
  if (heap->forked) return GAP_EFORKED;
  if (!bytes || addr % 512 || bytes >= GAP__LARGEST_REQUEST) return GAP_EINVAL;
  int rc = GAP_ENOTMINE;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++)
    rc = alloc_at_on(&heap->devices[i].base, addr, bytes);
  return rc;
}
