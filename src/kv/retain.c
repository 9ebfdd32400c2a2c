#include "kv/retain.h"

#include <stdlib.h>

#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"

uint64_t gap__kv_now_ms(const struct gap_kv *kv) {
  return kv->options.now ? kv->options.now(kv->options.now_arg) : gap__dev_now_ns(kv->dev) / 1000000;
}

/* ---- deadlines: a binary heap, in which those that no longer hold are left until their time ---- */

static int timer_room(struct gap_kv *kv, uint32_t more) {
  uint32_t room = kv->timer_room ? kv->timer_room : 64;
  if (kv->timer_count + more <= kv->timer_room) return 0;
  while (room < kv->timer_count + more) room *= 2;
  struct kv_timer *grown = realloc(kv->timers, room * sizeof *grown);
  if (!grown) return GAP_ENOMETA;
  kv->timers = grown;
  kv->timer_room = room;
  return 0;
}

static bool is_before(const struct kv_timer *a, const struct kv_timer *b) {
  return a->deadline_ms != b->deadline_ms ? a->deadline_ms < b->deadline_ms : a->order > b->order;
}

static void timer_add(struct gap_kv *kv, struct kv_timer timer) {
  uint32_t at = kv->timer_count++;
  timer.order = ++kv->timer_order;
  for (; at && is_before(&timer, &kv->timers[(at - 1) / 2]); at = (at - 1) / 2)
    kv->timers[at] = kv->timers[(at - 1) / 2];
  kv->timers[at] = timer;
}

static struct kv_timer timer_take(struct gap_kv *kv) {
  struct kv_timer first = kv->timers[0], last = kv->timers[--kv->timer_count];
  uint32_t at = 0;
  for (uint32_t next; (next = 2 * at + 1) < kv->timer_count; at = next) {
    if (next + 1 < kv->timer_count && is_before(&kv->timers[next + 1], &kv->timers[next])) next++;
    if (!is_before(&kv->timers[next], &last)) break;
    kv->timers[at] = kv->timers[next];
  }
  kv->timers[at] = last;
  return first;
}

/* ---- levels ---- */

/* Its cached KV pages change lists; `first_to_go`: nobody has asked for them for long. */
static void set_level(struct gap_kv *kv, uint32_t index, uint8_t level, bool first_to_go) {
  struct kv_node *node = kv_node_at(kv, index);
  bool changed = node->level != level;
  node->level = level;
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t page = kv_node_pages(kv, index)[g];
    if (!page || !kv->pages[page].listed || (!changed && !first_to_go)) continue;
    gap__kv_list_remove(kv, page);
    gap__kv_list_add(kv, page, level, first_to_go);
  }
}

void gap__kv_expire(struct gap_kv *kv) {
  if (!kv->timer_count) return;
  uint64_t now = gap__kv_now_ms(kv);
  while (kv->timer_count && kv->timers[0].deadline_ms <= now) {
    struct kv_timer timer = timer_take(kv);
    struct kv_node *node = kv_node_at(kv, timer.node);
    if (node->deadline_ms != timer.deadline_ms) continue; /* it was asked for again, or is another one by now */
    node->deadline_ms = 0;
    set_level(kv, timer.node, GAP_KV_PRIORITY_DEFAULT, true);
    kv->stats.expired++;
  }
}

/* ---- pins ---- */

static void pin(struct gap_kv *kv, uint32_t index, bool on) {
  struct kv_node *node = kv_node_at(kv, index);
  if (!on && !node->pins) return;
  bool was = node->pins != 0;
  node->pins = (uint16_t)(on ? node->pins + 1 : node->pins - 1);
  if (was == (node->pins != 0)) return;
  kv->pinned += on ? 1 : -1u;
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t page = kv_node_pages(kv, index)[g];
    if (!page || kv->state[page] != KV_CACHED) continue;
    if (on) gap__kv_list_remove(kv, page);
    else gap__kv_list_add(kv, page, node->level, false);
  }
}

/* ---- a sequence's prefix ---- */

/* The node at the end of the first `tokens`, in whole KV pages. */
static uint32_t node_at_end(const struct gap_kv *kv, const struct kv_seq *s, uint32_t tokens) {
  uint32_t node = s->node, pages = s->node_pages, wanted = kv_columns(kv, tokens);
  for (; node && pages > wanted; pages--) node = kv_node_at(kv, node)->parent;
  return node;
}

static uint64_t newly_pinned(const struct gap_kv *kv, uint32_t node, uint32_t *depth, bool *full) {
  uint64_t fresh = 0;
  *depth = 0;
  *full = false;
  for (; node && kv_node_at(kv, node)->parent; node = kv_node_at(kv, node)->parent, ++*depth) {
    fresh += kv_node_at(kv, node)->pins == 0;
    *full |= kv_node_at(kv, node)->pins == UINT16_MAX;
  }
  return fresh;
}

/* The higher priority holds, of equal ones the one for longer; what nobody has asked for may be lowered. */
static void raise_level(struct gap_kv *kv, uint32_t index, uint8_t level, uint64_t deadline_ms) {
  struct kv_node *node = kv_node_at(kv, index);
  if (level < node->level && node->level > GAP_KV_PRIORITY_DEFAULT) return;
  bool longer = node->deadline_ms && (!deadline_ms || deadline_ms > node->deadline_ms);
  if (level == node->level && !longer) return;
  node->deadline_ms = deadline_ms;
  set_level(kv, index, level, false);
  if (deadline_ms) timer_add(kv, (struct kv_timer){.deadline_ms = deadline_ms, .node = index});
}

static int retain(struct gap_kv *kv, uint32_t seq, const gap_kv_retention *r) {
  uint32_t depth;
  bool full;
  gap__kv_expire(kv);
  uint32_t node = node_at_end(kv, kv_seq_at(kv, seq), r->tokens);
  uint64_t fresh = newly_pinned(kv, node, &depth, &full);
  if (r->pin > 0 && (full || (kv->pinned + fresh) * kv->options.group_count * 100 >
                                 (uint64_t)kv->options.pin_percent * kv->page_count))
    return GAP_ELIMIT;
  int rc = r->ttl_ms ? timer_room(kv, depth) : 0;
  if (rc) return rc;
  uint64_t deadline = r->ttl_ms ? gap__kv_now_ms(kv) + r->ttl_ms : 0;
  for (; node && kv_node_at(kv, node)->parent; node = kv_node_at(kv, node)->parent) {
    raise_level(kv, node, (uint8_t)r->priority, deadline);
    if (r->pin) pin(kv, node, r->pin > 0);
  }
  return 0;
}

int gap_kv_retain(gap_kv *kv, gap_kv_seq seq, const gap_kv_retention *r) {
  uint32_t index;
  if (!kv || !r || r->size != sizeof *r || r->priority > GAP_KV_PRIORITY_MAX || r->pin < -1 || r->pin > 1)
    return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) rc = retain(kv, index, r);
  gap__unlock(&kv->lock);
  return rc;
}

/* ---- all at once ---- */

/* In the order in which they would have gone: the end of a sequence before its beginning. */
static void move_session(struct gap_kv *kv, uint64_t session, uint32_t level) {
  uint32_t end = kv->page_count + level;
  for (uint32_t page = kv->pages[end].next, next; page != end; page = next) {
    next = kv->pages[page].next;
    if (kv_node_at(kv, kv->pages[page].node)->session != session) continue;
    gap__kv_list_remove(kv, page);
    gap__kv_list_add(kv, page, 0, false);
  }
}

/* Free records, and roots, have no tokens. */
static void end_session(struct gap_kv *kv, uint64_t session) {
  for (uint32_t level = 1; level < KV_LEVELS; level++) move_session(kv, session, level);
  for (uint32_t i = 1; i < kv->nodes.count; i++) {
    struct kv_node *node = kv_node_at(kv, i);
    if (!node->filled || node->session != session) continue;
    node->level = 0;
    node->deadline_ms = 0;
    node->session = 0;
  }
}

int gap_kv_end_session(gap_kv *kv, uint64_t session) {
  if (!kv || !session) return GAP_EINVAL;
  gap__lock(&kv->lock);
  if (kv_shares(kv)) end_session(kv, session);
  gap__unlock(&kv->lock);
  return 0;
}

int gap_kv_forget(gap_kv *kv) {
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  while (kv->cached_listed) gap__kv_evict_one(kv);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return 0;
}
