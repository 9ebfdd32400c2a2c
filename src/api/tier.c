/* Memory beyond the card, under its public names. */
#include "tier/tier.h"

#include "api/client.h"

static struct gap__tier *tier_of(gap_heap *heap) { return ((struct gap__client *)gap__heap_client(heap))->tier; }

int gap_reserve_host(gap_heap *heap, int device, uint64_t bytes) {
  return gap__tier_reserve_host(tier_of(heap), device, bytes);
}

int gap_get_tiers(gap_heap *heap, int device, gap_tiers *out) { return gap__tier_figures(tier_of(heap), device, out); }
