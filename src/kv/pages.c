#include "kv/pages.h"

#include "kv/below.h"
#include "kv/leave.h"
#include "kv/prefix.h"
#include "kv/retain.h"
#include "kv/table.h"

enum { SPARE_SHARE = 256 };

int gap__kv_pages_init(struct gap_kv *kv) {
  kv->pages = gap__meta_map((kv->page_count + (size_t)KV_LEVELS) * sizeof *kv->pages);
  kv->slab_used = gap__meta_map(kv->slab_count * sizeof *kv->slab_used);
  kv->state = gap__meta_map(kv->page_count);
  if (!kv->pages || !kv->state || !kv->slab_used || gap__kv_bits_init(&kv->free, kv->page_count) ||
      gap__kv_bits_init(&kv->spare, kv->slab_count) || gap__kv_bits_init(&kv->bare_memory, kv->slab_count))
    return GAP_ENOMETA;
  for (uint32_t i = kv->page_count; i < kv->page_count + KV_LEVELS; i++) kv->pages[i].prev = kv->pages[i].next = i;
  gap__kv_bits_add_range(&kv->bare_memory, 0, kv->slab_count);
  return 0;
}

void gap__kv_pages_free(struct gap_kv *kv) {
  for (uint32_t slab = 0; kv->bare_memory.level[0] && slab < kv->slab_count; slab++)
    if (!kv_bits_has(&kv->bare_memory, slab)) gap__heap_free(kv->heap, kv->region.base + slab * kv->slab_bytes);
  gap__meta_unmap(kv->pages, (kv->page_count + (size_t)KV_LEVELS) * sizeof *kv->pages);
  gap__meta_unmap(kv->state, kv->page_count);
  gap__meta_unmap(kv->slab_used, kv->slab_count * sizeof *kv->slab_used);
  gap__kv_bits_free(&kv->free);
  gap__kv_bits_free(&kv->spare);
  gap__kv_bits_free(&kv->bare_memory);
}

/* ---- slabs ---- */

static int commit(struct gap_kv *kv) {
  uint32_t slab = kv_bits_first(&kv->bare_memory);
  int rc = gap__heap_region_commit(&kv->region, slab * kv->slab_bytes, kv->slab_bytes);
  if (rc) {
    kv->stats.slab_refusals++;
    return rc;
  }
  kv_bits_remove(&kv->bare_memory, slab);
  kv_bits_add(&kv->spare, slab);
  gap__kv_bits_add_range(&kv->free, slab << kv->slab_shift, 1u << kv->slab_shift);
  kv->stats.slab_commits++;
  uint64_t slabs = kv->slab_count - kv->bare_memory.count;
  if (slabs > kv->stats.slabs_peak) kv->stats.slabs_peak = slabs;
  return 0;
}

static void release(struct gap_kv *kv, uint32_t slab) {
  kv_bits_remove(&kv->spare, slab);
  kv_bits_add(&kv->bare_memory, slab);
  gap__kv_bits_remove_range(&kv->free, slab << kv->slab_shift, 1u << kv->slab_shift);
  gap__heap_free(kv->heap, kv->region.base + slab * kv->slab_bytes);
  kv->stats.slab_releases++;
}

uint32_t gap__kv_slabs_release(struct gap_kv *kv, uint32_t most) {
  uint32_t done = 0;
  if (kv->copy_count && gap__kv_copies_queue(kv)) return 0; /* they may read what is to go */
  for (; done < most && kv->spare.count; done++) release(kv, gap__kv_bits_last(&kv->spare));
  return done;
}

void gap__kv_slab_wanted(struct gap_kv *kv, uint32_t slab) {
  kv_bits_remove(&kv->spare, slab);
  if (kv->spare.count < kv->spare_least) kv->spare_least = kv->spare.count;
}

/* Taking a slab from the heap costs a hundred times what taking a KV page costs, so those that were wanted since are kept, and a few. */
void gap__kv_settle_slow(struct gap_kv *kv) {
  uint32_t kept = (kv->slab_count - kv->bare_memory.count) / SPARE_SHARE;
  if (kv->spare_least > kept) gap__kv_slabs_release(kv, kv->spare_least - kept);
  kv->spare_least = kv->spare.count;
}

/* Cached ones that would be free as soon as they were evicted: those that are being copied are not. */
static uint32_t evictable(const struct gap_kv *kv) {
  return kv->cached_listed > kv->read_pages ? kv->cached_listed - kv->read_pages : 0;
}

int gap__kv_pages_ensure_slow(struct gap_kv *kv, uint32_t need) {
  gap__kv_leaving_poll(kv);
  uint64_t soon = (uint64_t)kv->cached_listed + kv->leaving_pages;
  if (need > (uint64_t)kv_free_pages(kv) + evictable(kv))
    return need <= kv_free_pages(kv) + soon ? GAP_EAGAIN : GAP_ENOMEM;
  while (kv->free.count < need && kv_slabs_room(kv))
    if (commit(kv)) break; /* the heap has no more: the cache makes do */
  if (need > (uint64_t)kv->free.count + evictable(kv))
    return need <= kv->free.count + (uint64_t)kv->cached_listed ? GAP_EAGAIN : GAP_ENOMEM;
  gap__kv_expire(kv);
  while (kv->free.count < need) gap__kv_evict_one(kv);
  return 0;
}

/* ---- many at once ---- */

/* Those of one word lie in one slab, or, where slabs are small, each is looked at. */
static void use_slabs(struct gap_kv *kv, uint32_t word, uint64_t members, int by) {
  uint32_t step = kv->slab_shift < 6 ? 1u << kv->slab_shift : 64;
  for (uint32_t at = 0; at < 64; at += step) {
    uint64_t here = step == 64 ? members : members >> at & ((1ull << step) - 1);
    if (!here) continue;
    uint32_t slab = (word * 64 + at) >> kv->slab_shift, count = (uint32_t)__builtin_popcountll(here);
    if (by > 0 && kv->slab_used[slab] == 0) gap__kv_slab_wanted(kv, slab);
    kv->slab_used[slab] += by > 0 ? count : -count;
    if (by < 0 && kv->slab_used[slab] == 0) kv_bits_add(&kv->spare, slab);
  }
}

void gap__kv_pages_take(struct gap_kv *kv, uint32_t count, uint32_t *out) {
  while (count) {
    uint32_t word = kv_bits_first(&kv->free) >> 6;
    uint64_t left = kv->free.level[0][word], there = left;
    for (; count && left; count--, left &= left - 1) *out++ = word * 64 + (uint32_t)__builtin_ctzll(left);
    kv_bits_remove_word(&kv->free, word, there ^ left);
    use_slabs(kv, word, there ^ left, 1);
  }
}

void gap__kv_pages_give_word(struct gap_kv *kv, uint32_t word, uint64_t members) {
  kv_bits_add_word(&kv->free, word, members);
  use_slabs(kv, word, members, -1);
}

/* ---- cached ones ---- */

void gap__kv_list_add(struct gap_kv *kv, uint32_t page, uint8_t level, bool first_to_go) {
  struct kv_page *p = &kv->pages[page];
  uint32_t end = kv->page_count + level; /* its next is the first to go */
  uint32_t before = first_to_go ? end : kv->pages[end].prev;
  p->prev = before;
  p->next = kv->pages[before].next;
  kv->pages[p->next].prev = page;
  kv->pages[before].next = page;
  p->level = level;
  p->listed = true;
  kv->cached_listed++;
}

void gap__kv_list_remove(struct gap_kv *kv, uint32_t page) {
  struct kv_page *p = &kv->pages[page];
  kv->pages[p->prev].next = p->next;
  kv->pages[p->next].prev = p->prev;
  p->listed = false;
  kv->cached_listed--;
}

void gap__kv_page_revive(struct gap_kv *kv, uint32_t page) {
  if (kv->pages[page].listed) gap__kv_list_remove(kv, page);
  if (kv->below) gap__kv_below_uncached(kv->below, page);
  kv->state[page] = KV_USED;
  kv->cached--;
}

void gap__kv_page_rest(struct gap_kv *kv, uint32_t page) {
  struct kv_page *p = &kv->pages[page];
  if (!p->node) {
    kv_page_give(kv, page);
    return;
  }
  const struct kv_node *node = kv_node_at(kv, p->node);
  kv->state[page] = KV_CACHED;
  kv->cached++;
  if (!node->pins) gap__kv_list_add(kv, page, node->level, false);
  if (kv->below) gap__kv_below_cached(kv->below, page);
}

void gap__kv_page_move(struct gap_kv *kv, uint32_t from, uint32_t to) {
  struct kv_page *f = &kv->pages[from], *t = &kv->pages[to];
  bool waits = kv->below && gap__kv_below_uncached(kv->below, from);
  *t = *f;
  kv->state[to] = kv->state[from];
  if (t->listed) kv->pages[t->prev].next = kv->pages[t->next].prev = to;
  if (t->node) kv_node_pages(kv, t->node)[t->group] = to;
  f->node = 0;
  f->listed = false;
  kv_page_give(kv, from);
  if (waits) gap__kv_below_cached(kv->below, to);
}

void gap__kv_evict_one(struct gap_kv *kv) {
  uint32_t end = kv->page_count;
  while (kv->pages[end].next == end) end++;
  uint32_t page = kv->pages[end].next;
  gap__kv_list_remove(kv, page);
  if (kv->below) gap__kv_below_uncached(kv->below, page);
  gap__kv_node_detach(kv, page);
  kv_page_give(kv, page);
  kv->cached--;
  kv->stats.evicted++;
}
