/* Regions of a heap: one run of addresses for good, memory behind the parts that the owner asks for.  A part is a block like any
 * other: gap__heap_free gives it back, and its pages serve whoever needs them. */
#ifndef GAP_HEAP_REGION_H
#define GAP_HEAP_REGION_H

#include "core/heap.h"

struct gap__heap_region {
  gap_heap *heap; /* NULL: closed */
  int device;
  gap_pool_id pool; /* of its own, shared: idle pages serve everybody */
  gap_addr base;    /* a multiple of 2 MiB */
  uint64_t bytes;
};

/* GAP_ENOTSUP: the device maps no pages; GAP_ENOMEM: no such window; GAP_EINVAL, GAP_ENOMETA, GAP_EFORKED. */
int gap__heap_region_open(gap_heap *, int device, gap_stream, const char *tag, uint64_t bytes,
                          struct gap__heap_region *out);
/* Memory behind [offset, offset + bytes), whole pages where nothing lives.  Waits for nothing.  GAP_ENOMEM: none can be had under the cap;
 * GAP_EAGAIN: something lives there, or other streams still use what did. */
int gap__heap_region_commit(const struct gap__heap_region *, uint64_t offset, uint64_t bytes);
/* The chunk whose home is the page at `offset`, and no more than that page; it is kept as it is while the page is
 * committed.  GAP_ENOTSUP: a larger chunk stands there. */
int gap__heap_region_chunk(const struct gap__heap_region *, uint64_t offset, gap__chunk *out);
/* Its blocks have been freed.  The addresses stay with the heap, for the next region. */
void gap__heap_region_close(struct gap__heap_region *);

#endif
