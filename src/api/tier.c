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

int gap_get_tiers(gap_heap *heap, int device, gap_tiers *out) { return gap__tier_figures(tier_of(heap), device, out); }
