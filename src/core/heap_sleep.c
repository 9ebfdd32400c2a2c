#include "core/heap_sleep.h"

#include <stdlib.h>
#include <string.h>

#include "core/heap_state.h"
#include "core/overflow.h"

static bool is_meant(const struct heap_pool *pool, int device, const char *tag) {
  if (pool->device != device || !pool->tag[0]) return false;
  return !tag || (strncmp(pool->tag, tag, sizeof pool->tag - 1) == 0 && pool->tag_sum == gap__heap_tag_sum(tag));
}

/* Counts them, and lists them where there is room.  The heap's lock is held. */
static void collect(gap_heap *heap, int device, const char *tag, struct gap__sleepers *out) {
  out->count = out->contiguous = 0;
  for (int b = 0; b < HEAP_POOL_BUCKETS; b++)
    for (const struct heap_pool *pool = atomic_load(&heap->pools[b]); pool; pool = pool->next) {
      if (!is_meant(pool, device, tag)) continue;
      if (atomic_load(&pool->flags) == GAP_POOL_CONTIGUOUS) {
        out->contiguous += atomic_load(&pool->uses) != 0;
        continue;
      }
      if (out->pools) out->pools[out->count] = pool->id;
      out->count++;
    }
}

int gap__heap_sleepers(gap_heap *heap, int device, const char *tag, struct gap__sleepers *out) {
  struct heap_device *at = heap_device_at(heap, device);
  *out = (struct gap__sleepers){0};
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  out->state = atomic_load_explicit(&at->base.state[GAP__STRATEGY_GAPLESS], memory_order_acquire);
  gap__lock(&heap->lock);
  collect(heap, device, tag, out);
  out->pools = calloc(out->count + 1, sizeof *out->pools);
  if (out->pools) collect(heap, device, tag, out);
  gap__unlock(&heap->lock);
  return out->pools ? 0 : GAP_ENOMETA;
}

void gap__heap_ease_host(gap_heap *heap, uint64_t bytes) {
  for (int i = 0; i < heap->device_count && !heap->forked; i++) {
    struct gap__device *dev = &heap->devices[i].base;
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[GAP__STRATEGY_GAPLESS], memory_order_acquire);
    if (state) gap__overflow_ease(state, bytes);
  }
}

bool gap__heap_pool_used(gap_heap *heap, int device, gap_pool_id id) {
  const struct heap_pool *pool = gap__heap_pool_find(heap, device, id);
  return pool && atomic_load(&pool->uses);
}
