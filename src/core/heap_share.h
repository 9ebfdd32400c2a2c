/* Memory that several processes map, and blocks at given addresses: gapless/share.h and gapless/restore.h. */
#ifndef GAP_HEAP_SHARE_H
#define GAP_HEAP_SHARE_H

#include "core/heap.h"
#include "gapless/share.h"

int gap__heap_alloc_at(gap_heap *, gap_addr, uint64_t bytes);
int gap__heap_export_layout(gap_heap *, gap_addr, gap_addr *base, unsigned *count);
int gap__heap_export(gap_heap *, gap_addr, unsigned first, unsigned count, gap_piece *out);
int gap__heap_import(gap_heap *, int device, const gap_piece *, unsigned count, gap_addr *base);
int gap__heap_import_release(gap_heap *, gap_addr base);

#endif
