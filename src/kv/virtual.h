/* Virtual mode: its records.
 *
 *     place (range, index) -> page of physical memory, or none: place[range * pages + index]
 *     have[range]: its first so many places have a page; there is none beyond, but for those that are leaving
 *     uses[page] = places that name it, leaving ones included; 0: free
 *
 * Without sharing a page's home is its place, and a place is left at once: the heap knows about stream order.  With
 * sharing homes lie in a region of their own, and places are further mappings of the same memory, which are removed
 * when the work queued before has ended. */
#ifndef GAP_KV_VIRTUAL_H
#define GAP_KV_VIRTUAL_H

#include <pthread.h>

#include "base/lock.h"
#include "core/heap_region.h"
#include "gapless/kv_virtual.h"
#include "kv/bits.h"

#define VIRTUAL_STUCK UINT32_MAX

struct virtual_leaving { /* places that go when the event has passed */
  gap__event event;
  uint32_t batch, count;
  uint32_t *places;
};

struct gap_kv_virtual {
  struct gap__lock lock; /* guards all but the thread's own */
  gap_kv_virtual_options options;
  gap_heap *heap;
  struct gap__dev *dev;
  struct gap__heap_region memory; /* homes */
  gap_addr base;                  /* of places */
  bool own_window;
  uint32_t pages, place_count; /* of a range; of all */
  uint32_t ahead;              /* pages */
  uint32_t *place;             /* page + 1 */
  uint32_t *uses;
  /* place -> batch, 0: it stays; VIRTUAL_STUCK: the driver did not unmap it, and is asked again */
  uint32_t *leaving_in;
  uint8_t *read_only;    /* place -> it is a further mapping for reading */
  uint8_t *counted;      /* place -> it was mapped ahead and not asked for yet */
  uint32_t *have, *want; /* pages of each range */
  struct kv_bits free;   /* pages; with sharing only */
  struct kv_bits hungry; /* ranges with have < want */
  struct virtual_leaving *leaving;
  uint32_t leaving_count, leaving_room, batch;
  uint64_t held, shared, pages_ahead, pages_late;
  /* the thread */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  bool running, wanted, stop; /* the last two under the mutex */
};

/* One page more behind a range.  Under the lock. */
int gap__virtual_place_next(struct gap_kv_virtual *, uint32_t range);
/* Removes the mappings whose time has come. */
void gap__virtual_settle(struct gap_kv_virtual *);

/* virtual_ahead.c */
void gap__virtual_start(struct gap_kv_virtual *);
void gap__virtual_stop(struct gap_kv_virtual *);
void gap__virtual_wake(struct gap_kv_virtual *);

#endif
