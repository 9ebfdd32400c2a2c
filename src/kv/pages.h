/* KV pages and slabs: which are free, which are cached, when slabs come and go.  Under the cache's lock.
 *
 * The lowest free KV page is taken first, so that those in use keep together in the low slabs, neighbours in time become neighbours in
 * memory, and high slabs empty. */
#ifndef GAP_KV_PAGES_H
#define GAP_KV_PAGES_H

#include "kv/state.h"

int gap__kv_pages_init(struct gap_kv *);
void gap__kv_pages_free(struct gap_kv *);

/* Makes `need` KV pages free: takes slabs from the heap, then evicts.  GAP_ENOMEM, GAP_EAGAIN (those that leave would do): nothing was evicted. */
int gap__kv_pages_ensure_slow(struct gap_kv *, uint32_t need);
static inline int kv_pages_ensure(struct gap_kv *kv, uint32_t need) {
  return __builtin_expect(kv->free.count >= need, 1) ? 0 : gap__kv_pages_ensure_slow(kv, need);
}

/* Gives up to `most` empty slabs back; how many. */
uint32_t gap__kv_slabs_release(struct gap_kv *, uint32_t most);
/* Gives back the slabs that have stayed empty since it last did: at every flush, and now and then at the end of other calls. */
void gap__kv_settle_slow(struct gap_kv *);
static inline void kv_settle(struct gap_kv *kv) {
  if (__builtin_expect((++kv->calls & 255) == 0, 0)) gap__kv_settle_slow(kv);
}
void gap__kv_slab_wanted(struct gap_kv *, uint32_t slab); /* it was empty */

/* A free KV page, of which there must be one; its state is the caller's to set. */
static inline uint32_t kv_page_take(struct gap_kv *kv) {
  uint32_t page = kv_bits_first(&kv->free), slab = page >> kv->slab_shift;
  kv_bits_remove(&kv->free, page);
  if (kv->slab_used[slab]++ == 0) gap__kv_slab_wanted(kv, slab);
  return page;
}

void gap__kv_page_to_limbo(struct gap_kv *, uint32_t page); /* hold.h */
static inline void kv_page_give(struct gap_kv *kv, uint32_t page) {
  if (__builtin_expect(kv->read_pages != 0, 0) && kv->pages[page].readers) {
    gap__kv_page_to_limbo(kv, page);
    return;
  }
  uint32_t slab = page >> kv->slab_shift;
  kv->state[page] = KV_FREE;
  kv_bits_add(&kv->free, page);
  if (--kv->slab_used[slab] == 0) kv_bits_add(&kv->spare, slab);
}

/* Many at once, of which there must be so many: a word of the set at a time. */
void gap__kv_pages_take(struct gap_kv *, uint32_t count, uint32_t *out);
void gap__kv_pages_give_word(struct gap_kv *, uint32_t word, uint64_t members);

static inline uint32_t kv_page_take_for(struct gap_kv *kv, uint32_t group) {
  uint32_t page = kv_page_take(kv);
  struct kv_page *p = &kv->pages[page];
  p->refs = 1;
  p->node = 0;
  p->on_servers = false;
  kv->state[page] = KV_USED;
  p->group = (uint8_t)group;
  return page;
}

/* One more table entry names it; cached ones are in use again. */
void gap__kv_page_revive(struct gap_kv *, uint32_t page);
static inline void kv_page_share(struct gap_kv *kv, uint32_t page) {
  if (kv->pages[page].refs++ == 0) gap__kv_page_revive(kv, page);
}
/* One fewer; the last one leaves it cached or free. */
void gap__kv_page_rest(struct gap_kv *, uint32_t page);
static inline void kv_page_drop(struct gap_kv *kv, uint32_t page) {
  if (--kv->pages[page].refs == 0) gap__kv_page_rest(kv, page);
}

/* Lists of the cached ones. */
void gap__kv_list_add(struct gap_kv *, uint32_t page, uint8_t level, bool first_to_go);
void gap__kv_list_remove(struct gap_kv *, uint32_t page);
/* `to`, just taken, gets everything that `from` is. */
void gap__kv_page_move(struct gap_kv *, uint32_t from, uint32_t to);
/* The first to go of the lowest level.  There must be one. */
void gap__kv_evict_one(struct gap_kv *);

#endif
