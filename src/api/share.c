/* Memory of several processes, and blocks at given addresses, under their public names. */
#include "core/heap_share.h"

#include "gapless/restore.h"

int gap_alloc_at(gap_heap *heap, gap_addr addr, uint64_t bytes) { return gap__heap_alloc_at(heap, addr, bytes); }

int gap_export_layout(gap_heap *heap, gap_addr addr, gap_addr *base, unsigned *count) {
  return gap__heap_export_layout(heap, addr, base, count);
}

int gap_export(gap_heap *heap, gap_addr addr, unsigned first, unsigned count, gap_piece *out) {
  return gap__heap_export(heap, addr, first, count, out);
}

int gap_import(gap_heap *heap, int device, const gap_piece *pieces, unsigned count, gap_addr *base) {
  return gap__heap_import(heap, device, pieces, count, base);
}

int gap_import_release(gap_heap *heap, gap_addr base) { return gap__heap_import_release(heap, base); }
