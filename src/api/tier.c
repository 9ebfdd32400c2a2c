/* Memory beyond the card, under its public names. */
#include "tier/tier.h"

#include "api/client.h"

static struct gap__tier *tier_of(gap_heap *heap) { return ((struct gap__client *)gap__heap_client(heap))->tier; }

int gap_reserve_host(gap_heap *heap, int device, uint64_t bytes) {
  return gap__tier_reserve_host(tier_of(heap), device, bytes);
}

int gap_sleep(gap_heap *heap, int device, const char *tag, unsigned flags, uint64_t *freed) {
  uint64_t bytes = 0;
  int rc = gap__tier_sleep(tier_of(heap), device, tag, flags, &bytes);
  if (!rc && freed) *freed = bytes;
  return rc;
}

int gap_wake(gap_heap *heap, int device, const char *tag, unsigned flags) {
  return gap__tier_wake(tier_of(heap), device, tag, flags);
}

int gap_wake_block(gap_heap *heap, gap_addr addr) { return gap__tier_wake_block(tier_of(heap), addr); }

int gap_tier_put(gap_heap *heap, int device, const gap_span *spans, uint32_t count, gap_stream stream, unsigned flags,
                 gap_item *out) {
  return gap__tier_put(tier_of(heap), device, spans, count, stream, flags, out);
}

int gap_tier_get(gap_heap *heap, int device, gap_item item, uint64_t from, const gap_span *spans, uint32_t count,
                 gap_stream stream) {
  return gap__tier_get(tier_of(heap), device, item, from, spans, count, stream);
}

int gap_tier_join(gap_heap *heap, int device, gap_item item, gap_stream stream) {
  return gap__tier_join(tier_of(heap), device, item, stream);
}

int gap_tier_wait(gap_heap *heap, int device, gap_item item) { return gap__tier_wait(tier_of(heap), device, item); }

int gap_tier_look(gap_heap *heap, int device, gap_item item, gap_item_info *out) {
  return gap__tier_look(tier_of(heap), device, item, out);
}

int gap_tier_drop(gap_heap *heap, int device, gap_item item) { return gap__tier_drop(tier_of(heap), device, item); }

int gap_get_tiers(gap_heap *heap, int device, gap_tiers *out) { return gap__tier_figures(tier_of(heap), device, out); }
