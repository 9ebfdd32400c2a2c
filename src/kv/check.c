/* The whole-cache checker: every invariant of state.h, reckoned anew. */
#include <stdio.h>
#include <stdlib.h>

#include "kv/prefix.h"
#include "kv/seq.h"

struct checker {
  const struct gap_kv *kv;
  char *text;
  size_t bytes;
  uint32_t *refs;  /* by KV page */
  uint32_t *users; /* by node */
  uint32_t pinned;
};

#define BROKEN(c, ...) (snprintf((c)->text, (c)->bytes, __VA_ARGS__), GAP_ESTATE)

/* ---- sequences ---- */

static int check_row(struct checker *c, uint32_t i, const struct kv_seq *s, uint32_t group) {
  const uint32_t *row = kv_row(c->kv, group, i);
  for (uint32_t col = 0; col < c->kv->columns; col++) {
    bool named = col >= s->first[group] && col < s->columns;
    if (named != (row[col] != 0)) return BROKEN(c, "row %u of group %u, column %u: %u", i - 1, group, col, row[col]);
    if (!named || s->swapped) continue;
    if (row[col] >= c->kv->page_count) return BROKEN(c, "row %u names KV page %u", i - 1, row[col]);
    if (c->kv->pages[row[col]].group != group) return BROKEN(c, "KV page %u is of another group", row[col]);
    c->refs[row[col]]++;
  }
  return 0;
}

static int check_seq(struct checker *c, uint32_t i) {
  const struct kv_seq *s = kv_seq_at(c->kv, i);
  int rc = 0;
  if (!s->live) return 0;
  if (s->columns != kv_columns(c->kv, s->length))
    return BROKEN(c, "sequence %u has %u columns for %u tokens", i, s->columns, s->length);
  if (s->node_pages > s->length >> c->kv->token_shift) return BROKEN(c, "sequence %u is known beyond its end", i);
  if (s->pending > s->node_pages) return BROKEN(c, "sequence %u offers more than it has", i);
  if (s->node) c->users[s->node]++;
  for (uint32_t g = 0; !rc && g < c->kv->options.group_count; g++) rc = check_row(c, i, s, g);
  return rc;
}

static int check_seqs(struct checker *c) {
  int rc = 0;
  for (uint32_t i = 1; !rc && i < c->kv->seqs.count; i++) rc = check_seq(c, i);
  for (uint32_t i = 0; i < c->kv->leaving_count; i++)
    for (uint32_t n = 0; n < c->kv->leaving[i].count; n++) c->refs[c->kv->leaving[i].pages[n]]++;
  for (const struct kv_hold *hold = c->kv->holds; hold; hold = hold->next) {
    for (uint32_t n = 0; n < hold->count; n++) {
      const struct kv_page *p = &c->kv->pages[hold->pages[n]];
      if (!hold->reads) c->refs[hold->pages[n]]++;
      else if (p->limbo) c->refs[hold->pages[n]] = 1;
    }
    c->users[hold->node]++; /* of node 0 nobody asks */
  }
  return rc;
}

/* ---- KV pages ---- */

static int check_page(struct checker *c, uint32_t i, bool has_memory) {
  const struct gap_kv *kv = c->kv;
  const struct kv_page *p = &kv->pages[i];
  bool free = kv_bits_has(&kv->free, i);
  if (free != (has_memory && kv->state[i] == KV_FREE))
    return BROKEN(c, "KV page %u: state %d, in the set of free ones: %d", i, kv->state[i], free);
  if (!has_memory && kv->state[i] != KV_FREE) return BROKEN(c, "KV page %u has no memory", i);
  if (kv->state[i] == KV_BARE) return 0;
  if (kv->state[i] != KV_FREE && p->refs != c->refs[i])
    return BROKEN(c, "KV page %u: %u uses are counted, %u found", i, p->refs, c->refs[i]);
  if (kv->state[i] == KV_FREE && c->refs[i]) return BROKEN(c, "KV page %u is free and in use", i);
  if ((kv->state[i] == KV_USED) != (c->refs[i] > 0))
    return BROKEN(c, "KV page %u: state %d with %u uses", i, kv->state[i], c->refs[i]);
  if (kv->state[i] == KV_FREE) return 0;
  if (kv->state[i] == KV_CACHED && !p->node) return BROKEN(c, "KV page %u is cached without a name", i);
  if (p->node && kv_node_pages(kv, p->node)[p->group] != i)
    return BROKEN(c, "KV page %u: its node %u has another", i, p->node);
  bool listed = kv->state[i] == KV_CACHED && !kv_node_at(kv, p->node)->pins;
  return p->listed == listed ? 0 : BROKEN(c, "KV page %u: listed %d", i, p->listed);
}

static int check_pages(struct checker *c) {
  const struct gap_kv *kv = c->kv;
  uint32_t size = 1u << kv->slab_shift, free = 0, cached = 0;
  for (uint32_t slab = 0; slab < kv->slab_count; slab++) {
    bool has_memory = !kv_bits_has(&kv->bare_memory, slab);
    uint32_t used = 0;
    for (uint32_t i = slab * size; i < (slab + 1) * size; i++) {
      int rc = check_page(c, i, has_memory);
      if (rc) return rc;
      used += kv->state[i] != KV_FREE;
      cached += kv->state[i] == KV_CACHED;
      free += has_memory && kv->state[i] == KV_FREE;
    }
    if (used != kv->slab_used[slab])
      return BROKEN(c, "slab %u: %u KV pages are counted, %u found", slab, kv->slab_used[slab], used);
    if (kv_bits_has(&kv->spare, slab) != (has_memory && !used)) return BROKEN(c, "slab %u: spare or not", slab);
  }
  if (cached != kv->cached) return BROKEN(c, "%u KV pages are counted as cached, %u are", kv->cached, cached);
  return free == kv->free.count ? 0 : BROKEN(c, "%u KV pages are counted as free, %u are", kv->free.count, free);
}

static int check_lists(struct checker *c) {
  const struct gap_kv *kv = c->kv;
  uint32_t count = 0;
  for (uint32_t level = 0; level < KV_LEVELS; level++) {
    uint32_t end = kv->page_count + level;
    for (uint32_t at = end, next; (next = kv->pages[at].next) != end; at = next, count++) {
      if (kv->pages[next].prev != at) return BROKEN(c, "list %u is torn at KV page %u", level, next);
      if (kv->pages[next].level != level || kv_node_at(kv, kv->pages[next].node)->level != level)
        return BROKEN(c, "KV page %u is in the list of level %u", next, level);
    }
  }
  return count == kv->cached_listed ? 0
                                    : BROKEN(c, "%u KV pages are counted as listed, %u are", kv->cached_listed, count);
}

/* ---- nodes ---- */

static int check_node(struct checker *c, uint32_t i) {
  const struct gap_kv *kv = c->kv;
  const struct kv_node *n = kv_node_at(kv, i);
  bool pages = false;
  if (n->users != c->users[i]) return BROKEN(c, "node %u: %u users are counted, %u found", i, n->users, c->users[i]);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t page = kv_node_pages(kv, i)[g];
    pages |= page != 0;
    if (page && kv->pages[page].node != i) return BROKEN(c, "node %u: KV page %u is another one's", i, page);
  }
  if (!pages && !n->users && !n->child) return BROKEN(c, "node %u is left over", i);
  if (n->parent && n->hashed &&
      gap__kv_child((struct gap_kv *)(uintptr_t)kv, n->parent, kv_node_tokens(kv, i), false) != i)
    return BROKEN(c, "node %u is not found by its tokens", i);
  for (uint32_t child = n->child, before = 0; child; before = child, child = kv_node_at(kv, child)->next)
    if (kv_node_at(kv, child)->parent != i || kv_node_at(kv, child)->prev != before)
      return BROKEN(c, "node %u: child %u", i, child);
  c->pinned += n->pins != 0;
  return 0;
}

static int check_nodes(struct checker *c) {
  const struct gap_kv *kv = c->kv;
  uint32_t found = 0;
  int rc = 0;
  if (!kv->nodes.base) return 0;
  unsigned char *idle = calloc(kv->nodes.count, 1);
  if (!idle) return GAP_ENOMETA;
  for (uint32_t i = kv->nodes.free_head; i; i = *(const uint32_t *)gap__slab_at(&kv->nodes, i)) idle[i] = 1;
  for (uint32_t i = 1; !rc && i < kv->nodes.count; i++)
    if (!idle[i]) rc = check_node(c, i), found++;
  free(idle);
  if (!rc && found != kv->nodes.in_use) rc = BROKEN(c, "%u nodes are counted, %u found", kv->nodes.in_use, found);
  if (!rc && c->pinned != kv->pinned) rc = BROKEN(c, "%u nodes are counted as pinned, %u are", kv->pinned, c->pinned);
  return rc;
}

static int check(struct checker *c) {
  int rc = check_seqs(c);
  if (!rc) rc = check_pages(c);
  if (!rc) rc = check_lists(c);
  return rc ? rc : check_nodes(c);
}

int gap_kv_check(gap_kv *kv, char *text, size_t bytes) {
  if (!kv || (!text && bytes)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  struct checker c = {.kv = kv,
                      .text = text,
                      .bytes = bytes,
                      .refs = calloc(kv->page_count, sizeof(uint32_t)),
                      .users = calloc(kv->nodes.count + 1, sizeof(uint32_t))};
  int rc = c.refs && c.users ? check(&c) : GAP_ENOMETA;
  gap__unlock(&kv->lock);
  free(c.refs);
  free(c.users);
  return rc;
}
