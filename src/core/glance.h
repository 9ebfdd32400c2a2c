/* What can be told of a device at any time without disturbing it: cached blocks stay cached, no request is ordered, no limit moves, and a
 * lock that is not free soon is not waited for.  For whoever looks again and again; gap__heap_stats is exact instead. */
#ifndef GAP_GLANCE_H
#define GAP_GLANCE_H

#include "core/heap.h"

enum { GAP__GLANCE_USAGES = 32, GAP__GLANCE_WAIT_MS = 20 };

struct gap__glance {
  /* As gap__heap_stats has it, but that inactive_split and inactive_split_bytes are 0, and that freed blocks up to 64 KiB count as stuck
   * before they are merged; and with very many blocks of caching_allocator, where the idle bytes are is as of up to 20 glances ago. */
  struct gap__stats stats;
  const char *strategy;                 /* that serves new blocks */
  uint64_t card_free_bytes, card_bytes; /* 0: the driver did not say */
  uint64_t room_bytes; /* that could still be taken from the driver; set before the strategies are asked */
  uint32_t usage_count, usage_missed; /* missed: (stream, pool) pairs beyond those below */
  struct gap__usage usage[GAP__GLANCE_USAGES];
};

/* Where the usage of a (stream, pool) is counted; NULL: there is no room, and one more is missed. */
struct gap__usage *gap__glance_usage(struct gap__glance *, gap_stream, gap_pool_id);

/* Asks the driver how much is free, as background work.  0; GAP_ESTATE: a lock was not free in time, *out is useless; GAP_EINVAL: the device is
 * not open; GAP_EFORKED. */
int gap__heap_glance(gap_heap *, int device, struct gap__glance *out);

#endif
