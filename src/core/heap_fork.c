/* fork: a CUDA context does not survive it, so the child's copy of a heap must neither allocate nor call the driver, and
 * frees of inherited blocks (destructors run in the child too) must pass silently.  The hot path pays nothing: the child
 * handler swaps the strategy. */
#include <pthread.h>

#include "core/heap_state.h"

static gap_heap *heaps;             /* guarded by heaps_lock */
static struct gap__lock heaps_lock; /* before every other lock: while it is held no heap goes away */

static int dead_alloc(struct gap__policy_state *state, gap_stream stream, gap_pool_id pool, uint64_t bytes,
                      gap_addr *out) {
  (void)state, (void)stream, (void)pool, (void)bytes, (void)out;
  return GAP_EFORKED;
}
static int dead_free(struct gap__policy_state *state, gap_addr addr) {
  (void)state, (void)addr;
  return 0;
}
static int dead_stream(struct gap__policy_state *state, gap_addr addr, gap_stream stream) {
  (void)state, (void)addr, (void)stream;
  return 0;
}

static const struct gap__policy dead = {.name = "dead",
                                        .strategy = GAP__STRATEGY_GAPLESS,
                                        .alloc = dead_alloc,
                                        .free = dead_free,
                                        .record_stream = dead_stream};

static void bury(gap_heap *heap) {
  heap->forked = true;
  heap->lock = heap->event_lock = (struct gap__lock){0}; /* their owners may be threads that are gone */
  for (int i = 0; i < heap->device_count; i++) {
    struct gap__device *dev = &heap->devices[i].base;
    dev->diagnosis_lock = (struct gap__lock){0};
    atomic_store(&dev->current, &dead);
    for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
      const struct gap__policy *policy = gap__heap_policy(s);
      if (dev->state[s] && policy->after_fork) policy->after_fork(dev->state[s]);
    }
  }
}

/* The list is held across the fork, so the child finds it whole. */
static void before_fork(void) { gap__lock(&heaps_lock); }
static void in_parent(void) { gap__unlock(&heaps_lock); }
static void in_child(void) {
  for (gap_heap *heap = heaps; heap; heap = heap->next) bury(heap);
  gap__unlock(&heaps_lock);
}

static void install(void) { pthread_atfork(before_fork, in_parent, in_child); }

void gap__heap_enlist(gap_heap *heap) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  gap__lock(&heaps_lock);
  heap->next = heaps;
  if (heaps) heaps->prev = heap;
  heaps = heap;
  gap__unlock(&heaps_lock);
}

void gap__heap_delist(gap_heap *heap) {
  gap__lock(&heaps_lock);
  if (heap->prev) heap->prev->next = heap->next;
  else heaps = heap->next;
  if (heap->next) heap->next->prev = heap->prev;
  gap__unlock(&heaps_lock);
}

/* ---- the end of a thread ---- */

static void tell(gap_heap *heap, uint64_t thread) {
  for (int i = 0; i < heap->device_count && !heap->forked; i++)
    for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
      const struct gap__policy *policy = gap__heap_policy(s);
      struct gap__policy_state *state = atomic_load(&heap->devices[i].base.state[s]);
      if (state && policy->thread_end) policy->thread_end(state, thread);
    }
}

void gap__heap_thread_end(uint64_t thread) {
  if (!gap__lock_within(&heaps_lock, 1000)) return;
  for (gap_heap *heap = heaps; heap; heap = heap->next) tell(heap, thread);
  gap__unlock(&heaps_lock);
}
