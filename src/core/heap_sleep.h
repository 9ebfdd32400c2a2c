/* The pools of a heap that sleep and wake under a tag: what src/tier asks for before it calls sleep.h; and the host memory that both use. */
#ifndef GAP_HEAP_SLEEP_H
#define GAP_HEAP_SLEEP_H

#include "core/heap.h"

struct gap__policy_state;

struct gap__sleepers {
  struct gap__policy_state *state; /* NULL: no page of the device is gapless's */
  uint32_t count, contiguous;      /* pools in `pools`; and those left out: their memory is not made of pages */
  gap_pool_id *pools;              /* free() it */
};

/* The pools of the device with that tag, those in use no more as well: something may sleep there still.  NULL: with any tag. */
int gap__heap_sleepers(gap_heap *, int device, const char *tag, struct gap__sleepers *out);
/* Idle host memory behind device addresses goes, of all devices, so that so many bytes may be locked for something else. */
void gap__heap_ease_host(gap_heap *, uint64_t bytes);
/* Is the pool in use? */
bool gap__heap_pool_used(gap_heap *, int device, gap_pool_id);

#endif
