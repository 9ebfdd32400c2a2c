/* The size of the cache at run time: what the program says, and what others need. */
#include "kv/elastic.h"

#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/table.h"

enum { LOCK_MS = 20 };

/* Evicts the first to go until what is left would fit into the slabs that there may be. */
static void evict_surplus(struct gap_kv *kv) {
  uint32_t in_memory = kv_slabs_held(kv) << kv->slab_shift;
  while (kv->cached_listed && in_memory - kv->free.count > kv_capacity(kv)) gap__kv_evict_one(kv);
}

static void release_surplus(struct gap_kv *kv) {
  if (kv_slabs_held(kv) > kv->slab_limit) gap__kv_slabs_release(kv, kv_slabs_held(kv) - kv->slab_limit);
}

static int shrink(struct gap_kv *kv) {
  gap_kv_compaction c = {.size = sizeof c};
  gap__kv_leaving_poll(kv);
  evict_surplus(kv);
  release_surplus(kv);
  if (kv_slabs_held(kv) <= kv->slab_limit) return 0;
  int rc = gap__kv_compact(kv, &c);
  release_surplus(kv);
  kv->stats.compactions += !rc;
  kv->stats.bytes_compacted += c.bytes_moved;
  return rc ? rc : kv_slabs_held(kv) <= kv->slab_limit ? 0 : GAP_ENOMEM;
}

int gap_kv_resize(gap_kv *kv, uint64_t bytes) {
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  uint64_t slabs = bytes / kv->slab_bytes;
  int rc = slabs < 2 || bytes > kv->options.bytes ? GAP_EINVAL : 0;
  if (!rc) kv->slab_limit = (uint32_t)slabs;
  if (!rc) rc = shrink(kv);
  gap__unlock(&kv->lock);
  return rc;
}

/* Nothing that is in use moves: a step may be on its way. */
static uint64_t give(void *arg, int device, uint64_t bytes) {
  struct gap_kv *kv = arg;
  uint64_t given = 0;
  if (device != kv->options.device || !gap__lock_within(&kv->lock, LOCK_MS)) return 0;
  gap__kv_leaving_poll(kv);
  while (given < bytes) {
    given +=
        gap__kv_slabs_release(kv, (uint32_t)((bytes - given + kv->slab_bytes - 1) / kv->slab_bytes)) * kv->slab_bytes;
    if (given >= bytes || !kv->cached_listed) break;
    while (!kv->spare.count && kv->cached_listed) gap__kv_evict_one(kv);
    if (!kv->spare.count) break;
  }
  gap__unlock(&kv->lock);
  return given;
}

void gap__kv_elastic_init(struct gap_kv *kv) {
  kv->relief = (struct gap__relief){.give = give, .arg = kv};
  gap__heap_add_relief(kv->heap, &kv->relief);
}

void gap__kv_elastic_free(struct gap_kv *kv) { gap__heap_remove_relief(kv->heap, &kv->relief); }
