/* Events between the program and the thread that writes them: a ring of plain records.  One puts at a time (the heap's event lock), one
 * takes. */
#ifndef GAP_API_TRACE_RING_H
#define GAP_API_TRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/ticks.h"
#include "gapless/gapless.h"

enum { GAP__TRACE_SLOTS = 1 << 15 }; /* 2 MiB: some milliseconds of a program that does nothing else */

struct gap__trace_slot { /* one cache line */
  uint64_t ticks, addr, bytes, requested, stream, pool_first, pool_second;
  uint16_t device, kind;
  uint32_t stack;
};

struct gap__trace_ring {
  _Alignas(64) _Atomic uint64_t taken;  /* by the one who takes; a cache line of its own */
  _Alignas(64) _Atomic uint64_t filled; /* slots that may be taken */
  _Atomic uint64_t lost_total;          /* events that found no room */
  struct gap__trace_slot *slots;
  uint64_t put, room_until; /* of the one who puts; up to room_until nothing need be looked up */
  bool is_losing;           /* the last one found no room */
};

static inline void gap__trace_ring_put(struct gap__trace_ring *ring, const gap_event *event, uint32_t stack) {
  ring->slots[ring->put % GAP__TRACE_SLOTS] = (struct gap__trace_slot){.ticks = gap__ticks(),
                                                                       .addr = event->addr,
                                                                       .bytes = event->bytes,
                                                                       .requested = event->requested,
                                                                       .stream = event->stream,
                                                                       .pool_first = event->pool.first,
                                                                       .pool_second = event->pool.second,
                                                                       .device = (uint16_t)event->device,
                                                                       .kind = (uint16_t)event->kind,
                                                                       .stack = stack};
  atomic_store_explicit(&ring->filled, ++ring->put, memory_order_release);
}

#endif
