#include "kv/hold.h"

#include "kv/pages.h"
#include "kv/prefix.h"

static void link_hold(struct gap_kv *kv, struct kv_hold *hold) {
  hold->prev = NULL;
  hold->next = kv->holds;
  if (kv->holds) kv->holds->prev = hold;
  kv->holds = hold;
}

static void unlink_hold(struct gap_kv *kv, struct kv_hold *hold) {
  if (hold->next) hold->next->prev = hold->prev;
  if (hold->prev) hold->prev->next = hold->next;
  else kv->holds = hold->next;
}

void gap__kv_hold(struct gap_kv *kv, struct kv_hold *hold) {
  link_hold(kv, hold);
  kv->leaving_pages += hold->count;
  if (hold->node) kv_node_hold(kv, hold->node);
}

void gap__kv_unhold(struct gap_kv *kv, struct kv_hold *hold) {
  unlink_hold(kv, hold);
  kv->leaving_pages -= hold->count;
  for (uint32_t i = hold->count; i-- > 0;) kv_page_drop(kv, hold->pages[i]); /* of a chain the end goes first */
  if (hold->node) kv_node_drop(kv, hold->node);
  hold->count = hold->node = 0;
}

void gap__kv_read_begin(struct gap_kv *kv, struct kv_hold *hold) {
  hold->reads = true;
  link_hold(kv, hold);
  kv->read_pages += hold->count;
  for (uint32_t i = 0; i < hold->count; i++) kv->pages[hold->pages[i]].readers++;
}

void gap__kv_read_end(struct gap_kv *kv, struct kv_hold *hold) {
  unlink_hold(kv, hold);
  kv->read_pages -= hold->count;
  for (uint32_t i = 0; i < hold->count; i++) {
    struct kv_page *p = &kv->pages[hold->pages[i]];
    if (--p->readers || !p->limbo) continue;
    p->limbo = false;
    p->refs = 0;
    kv->leaving_pages--;
    kv_page_give(kv, hold->pages[i]);
  }
}

void gap__kv_page_to_limbo(struct gap_kv *kv, uint32_t page) {
  struct kv_page *p = &kv->pages[page];
  p->limbo = true;
  p->refs = 1;
  p->node = 0;
  kv->state[page] = KV_USED;
  kv->leaving_pages++;
}
