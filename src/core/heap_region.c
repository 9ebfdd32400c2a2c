/* Regions of a heap: the strategy gapless serves them, whatever serves other requests. */
#include "core/heap_region.h"

#include "core/at.h"
#include "core/heap_state.h"
#include "core/region.h"

static int pages_of(gap_heap *heap, int device, struct gap__policy_state **out) {
  if (!heap_device_at(heap, device)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  int rc = gap__heap_open_device(heap, device);
  if (!rc) rc = gap__heap_strategy(heap, device, GAP__STRATEGY_GAPLESS, out);
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_region_open(gap_heap *heap, int device, gap_stream stream, const char *tag, uint64_t bytes,
                          struct gap__heap_region *out) {
  struct gap__pool_about about = {.flags = GAP_POOL_SHARED, .tag = tag};
  struct gap__policy_state *state;
  int rc = pages_of(heap, device, &state);
  if (rc) return rc;
  rc = gap__heap_pool_create(heap, device, &about);
  if (rc) return rc;
  rc = gap__region_open(state, stream, about.id, bytes, &out->base);
  if (rc) gap__heap_pool_release(heap, device, about.id);
  else *out = (struct gap__heap_region){heap, device, about.id, out->base, bytes};
  return rc;
}

int gap__heap_region_commit(const struct gap__heap_region *region, uint64_t offset, uint64_t bytes) {
  struct gap__policy_state *state;
  if ((offset | bytes) % GAP__PAGE || !bytes || offset > region->bytes || bytes > region->bytes - offset)
    return GAP_EINVAL;
  int rc = pages_of(region->heap, region->device, &state);
  return rc ? rc : gap__region_commit(state, region->base + offset, bytes);
}

struct sought {
  gap_addr at;
  gap__chunk chunk; /* 0: none of one page */
};

static int note_chunk(void *arg, struct gap__dev *dev, gap_addr at, gap__chunk chunk, uint64_t bytes) {
  struct sought *sought = arg;
  (void)dev;
  if (at == sought->at && bytes == GAP__PAGE) sought->chunk = chunk;
  return 0;
}

int gap__heap_region_chunk(const struct gap__heap_region *region, uint64_t offset, gap__chunk *out) {
  struct sought sought = {.at = region->base + offset};
  struct gap__policy_state *state;
  int rc = pages_of(region->heap, region->device, &state);
  if (!rc) rc = gap__at_pieces(state, sought.at, note_chunk, &sought);
  if (!rc && sought.chunk) rc = gap__at_keep(state, sought.at);
  if (rc) return rc;
  *out = sought.chunk;
  return sought.chunk ? 0 : GAP_ENOTSUP;
}

void gap__heap_region_close(struct gap__heap_region *region) {
  struct gap__policy_state *state;
  if (region->heap && pages_of(region->heap, region->device, &state) == 0) {
    gap__region_close(state, region->base);
    gap__heap_pool_release(region->heap, region->device, region->pool);
  }
  *region = (struct gap__heap_region){0};
}
