/* KV pages below the device: the cache meets the heap's tiers. */
#include "api/client.h"
#include "kv/below.h"

int gap_kv_tiers_open(gap_kv *kv, const gap_kv_tiers_options *options, char *message, size_t bytes) {
  if (!kv || !options) return GAP_EINVAL;
  return gap__kv_below_open(kv, gap__client_of(kv->heap)->tier, options, message, bytes);
}
