/* KV pages for who keeps tables of his own. */
#include "kv/pages.h"

static int get_pages(struct gap_kv *kv, uint32_t count, int32_t *ids) {
  int rc = kv_pages_ensure(kv, count);
  if (rc) {
    kv->stats.requests_refused++;
    return rc;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t page = kv_page_take(kv);
    kv->pages[page] = (struct kv_page){.refs = 1, .state = KV_BARE};
    ids[i] = kv_id(kv, page);
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

/* 0: there is no such number, or it is the null page's. */
static uint32_t page_of(const struct gap_kv *kv, int32_t id) {
  if (id <= 0) return 0;
  uint32_t slab = (uint32_t)id / kv->id_slab, inside = (uint32_t)id % kv->id_slab;
  return slab < kv->slab_count && inside < 1u << kv->slab_shift ? (slab << kv->slab_shift) + inside : 0;
}

/* Marks each by its second reference, so that one that is named twice is noticed; `count` of them are marked when it fails. */
static int mark_all(struct gap_kv *kv, uint32_t *count, const int32_t *ids) {
  for (uint32_t i = 0; i < *count; i++) {
    uint32_t page = page_of(kv, ids[i]);
    bool known = page && kv->pages[page].state == KV_BARE && kv->pages[page].refs == 1;
    if (known) kv->pages[page].refs = 2;
    else *count = i;
    if (!known) return page ? GAP_EFREED : GAP_ENOTMINE;
  }
  return 0;
}

static int free_pages(struct gap_kv *kv, uint32_t count, const int32_t *ids) {
  uint32_t marked = count;
  int rc = mark_all(kv, &marked, ids);
  for (uint32_t i = 0; i < marked; i++) {
    struct kv_page *p = &kv->pages[page_of(kv, ids[i])];
    p->refs = rc ? 1 : 0;
    if (!rc) kv_page_give(kv, (uint32_t)(p - kv->pages));
  }
  if (!rc) kv->bare_pages -= count;
  return rc;
}

int gap_kv_free_pages(gap_kv *kv, uint32_t count, const int32_t *ids) {
  if (!kv || (!ids && count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = free_pages(kv, count, ids);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}
