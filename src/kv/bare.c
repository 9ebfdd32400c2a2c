/* KV pages for who keeps tables of his own. */
#include "kv/hash.h"
#include "kv/pages.h"

/* How numbers count, in registers: the states that the loops write are bytes, which the compiler takes for anything. */
struct numbers {
  uint8_t *state;
  uint64_t inverse;
  uint32_t shift, span, pages;
};

static inline struct numbers numbers_of(const struct gap_kv *kv) {
  return (struct numbers){kv->state, kv->id_slab_inverse, kv->slab_shift, kv->id_slab, kv->page_count};
}

static inline int32_t id_of(struct numbers n, uint32_t page) {
  return (int32_t)((page >> n.shift) * n.span + (page & ((1u << n.shift) - 1)));
}

/* 0: there is no such number, or it is the null page's.  The quotient by multiplication: a division costs as much as all the rest. */
static inline uint32_t page_of(struct numbers n, int32_t id) {
  if (id <= 0) return 0;
  uint32_t slab = n.span == 1 ? (uint32_t)id : (uint32_t)((kv_wide)n.inverse * (uint32_t)id >> 64);
  uint32_t inside = (uint32_t)id - slab * n.span, page = (slab << n.shift) + inside;
  return inside >> n.shift == 0 && slab <= n.pages >> n.shift && page < n.pages ? page : 0;
}

static int get_pages(struct gap_kv *kv, uint32_t count, int32_t *ids) {
  int rc = kv_pages_ensure(kv, count);
  if (rc) {
    kv->stats.requests_refused++;
    return rc;
  }
  struct numbers n = numbers_of(kv);
  if (count == 1) ids[0] = (int32_t)kv_page_take(kv);
  else gap__kv_pages_take(kv, count, (uint32_t *)ids);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t page = (uint32_t)ids[i];
    n.state[page] = KV_BARE;
    ids[i] = id_of(n, page);
  }
  kv->bare_pages += count;
  return 0;
}

int gap_kv_get_pages(gap_kv *kv, uint32_t count, int32_t *ids) {
  if (!kv || !ids) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = get_pages(kv, count, ids);
  gap__unlock(&kv->lock);
  return rc;
}

/* Neighbours go together.  Each leaves its state on the way, so that one that is named twice is noticed; *count of them are free when it fails. */
static int give_all(struct gap_kv *kv, uint32_t *count, const int32_t *ids) {
  struct numbers n = numbers_of(kv);
  uint32_t word = 0, all = *count, i = 0, page = 1;
  uint64_t members = 0;
  for (; i < all; i++) {
    page = page_of(n, ids[i]);
    if (__builtin_expect(!page || n.state[page] != KV_BARE, 0)) break;
    n.state[page] = KV_FREE;
    if (page >> 6 != word) {
      if (members) gap__kv_pages_give_word(kv, word, members);
      word = page >> 6;
      members = 0;
    }
    members |= 1ull << (page & 63);
  }
  if (members) gap__kv_pages_give_word(kv, word, members);
  *count = i;
  return i == all ? 0 : page ? GAP_EFREED : GAP_ENOTMINE;
}

static void take_again(struct gap_kv *kv, uint32_t page) {
  uint32_t slab = page >> kv->slab_shift;
  kv_bits_remove(&kv->free, page);
  if (kv->slab_used[slab]++ == 0) gap__kv_slab_wanted(kv, slab);
  kv->state[page] = KV_BARE;
}

static int free_one(struct gap_kv *kv, int32_t id) {
  uint32_t page = page_of(numbers_of(kv), id);
  if (!page) return GAP_ENOTMINE;
  if (kv->state[page] != KV_BARE) return GAP_EFREED;
  kv_page_give(kv, page);
  kv->bare_pages--;
  return 0;
}

static int free_pages(struct gap_kv *kv, uint32_t count, const int32_t *ids) {
  uint32_t done = count;
  int rc = give_all(kv, &done, ids);
  for (uint32_t i = 0; rc && i < done; i++) take_again(kv, page_of(numbers_of(kv), ids[i]));
  if (!rc) kv->bare_pages -= count;
  return rc;
}

int gap_kv_free_pages(gap_kv *kv, uint32_t count, const int32_t *ids) {
  if (!kv || (!ids && count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = count == 1 ? free_one(kv, ids[0]) : free_pages(kv, count, ids);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}
