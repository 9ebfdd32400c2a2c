#include "core/overflow_move.h"

#include <stdlib.h>

#include "core/arena.h"
#include "core/convert_plan.h"
#include "core/gate.h"
#include "core/loot.h"
#include "core/overflow.h"
#include "core/pending.h"

/* ---- hints ---- */

/* Lane lock held. */
static uint32_t live_block_at(const struct gap__range *range, gap_addr addr) {
  uint32_t index = gap__block_covering(range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT));
  return gap__block(range->arena->lane, index)->state == GAP__LIVE ? index : 0;
}

static bool lies_in_host_memory(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page) {
  return gap__slot_is_home(s, range, page) && gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->host;
}

static bool has_moved(const struct gap__policy_state *s, const struct gap__range *range, const struct gap__block *b) {
  for (uint32_t page = gap__page_of(b->off); gap__overflow_holds(range->arena) && page < gap__page_up(b->off + b->len);
       page++)
    if (lies_in_host_memory(s, range, page)) return true;
  return false;
}

/* A block in a tray shares its pages, and one without a whole page is not worth a record. */
static bool is_worth_it(const struct gap__block *b) {
  return !b->tray && gap__page_up(b->off) < gap__page_of(b->off + b->len);
}

static int set_mark(struct gap__policy_state *s, const struct gap__range *range, struct gap__block *b, bool cold) {
  if (!is_worth_it(b)) return 0;
  if (!cold && !has_moved(s, range, b)) {
    gap__use_unmark(s, &b->link_next);
    return 0;
  }
  struct gap__use *mark = gap__use_mark(s, gap__range_addr(range, b->off), &b->link_next);
  if (!mark) return GAP_ENOMETA;
  mark->cold = cold;
  return 0;
}

int gap__overflow_hint(struct gap__policy_state *s, gap_addr addr, bool cold) {
  const struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  uint32_t index = live_block_at(range, addr);
  int rc = index ? set_mark(s, range, gap__block(lane, index), cold) : GAP_EFREED;
  gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  return rc;
}

/* ---- which chunks ---- */

struct plan {
  struct gap__pick *picks; /* `kept`: all pages of the chunk */
  uint32_t count;
  uint64_t pages;
};

static void add_chunk(struct gap__policy_state *s, struct plan *plan, uint32_t chunk) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  bool again = plan->count && plan->picks[plan->count - 1].chunk == chunk; /* two blocks share it */
  if (again || plan->count == GAP__PICKS_MAX || gap__convert_refusal(s, chunk) != GAP__REFUSAL_COUNT) return;
  plan->picks[plan->count++] = (struct gap__pick){.chunk = chunk, .kept = c->pages};
  plan->pages += c->pages;
}

/* The chunks on the device that lie wholly under the block. */
static void add_cold(struct gap__policy_state *s, const struct gap__range *range, const struct gap__block *b,
                     struct plan *plan) {
  uint32_t from = gap__page_up(b->off), to = gap__page_of(b->off + b->len);
  while (from < to) {
    const struct gap__mapping *m = gap__mapping_at(s, range->slot[from]);
    const struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
    if (m->page >= from && m->page + c->pages <= to && !c->host) add_chunk(s, plan, m->chunk);
    from = m->page + c->pages;
  }
}

/* The chunks in host memory under a block. */
static void add_warm(struct gap__policy_state *s, const struct gap__range *range, const struct gap__block *b,
                     struct plan *plan) {
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++)
    if (lies_in_host_memory(s, range, page)) add_chunk(s, plan, gap__mapping_at(s, range->slot[page])->chunk);
}

struct cold {
  uint32_t len;
  gap_addr at;
};

static int by_length(const void *a, const void *b) {
  const struct cold *x = a, *y = b;
  if (x->len != y->len) return x->len > y->len ? -1 : 1;
  return x->at < y->at ? -1 : x->at > y->at;
}

static uint32_t list_cold(const struct gap__policy_state *s, struct cold *out) {
  uint32_t count = 0;
  for (uint32_t i = 1; i < s->uses.count; i++) {
    const struct gap__use *use = gap__slab_at(&s->uses, i);
    if (!use->taken || !use->marked || !use->cold || count == s->overflow.marks) continue;
    const struct gap__range *range = gap__range_of(s, use->marked);
    struct gap__lane *lane = range->arena->lane;
    gap__lock(&lane->lock);
    uint32_t index = live_block_at(range, use->marked);
    if (index) out[count++] = (struct cold){gap__block(lane, index)->len, use->marked};
    gap__unlock(&lane->lock);
  }
  qsort(out, count, sizeof *out, by_length);
  return count;
}

static struct plan plan_cold(struct gap__policy_state *s) {
  struct plan plan = {.picks = gap__scratch_picks(s)};
  struct cold *cold = s->overflow.marks ? malloc(s->overflow.marks * sizeof *cold) : NULL;
  uint32_t count = cold ? list_cold(s, cold) : 0;
  for (uint32_t i = 0; i < count; i++) {
    const struct gap__range *range = gap__range_of(s, cold[i].at);
    struct gap__lane *lane = range->arena->lane;
    gap__lock(&lane->lock);
    uint32_t index = live_block_at(range, cold[i].at);
    if (index) add_cold(s, range, gap__block(lane, index), &plan);
    gap__unlock(&lane->lock);
  }
  free(cold);
  return plan;
}

static bool is_warm(const struct gap__policy_state *s, const struct gap__block *b) {
  const struct gap__use *mark = b->state == GAP__LIVE ? gap__use_marked(s, b->link_next) : NULL;
  return b->state == GAP__LIVE && !(mark && mark->cold);
}

static struct plan plan_warm(struct gap__policy_state *s) {
  struct plan plan = {.picks = gap__scratch_picks(s)};
  for (uint32_t i = 1; s->overflow.pages && i <= s->range_count; i++) {
    const struct gap__range *range = gap__range_at(s, i);
    struct gap__lane *lane = range->arena->lane;
    if (!range->arena->host_pages) continue;
    gap__lock(&lane->lock);
    for (uint32_t index = gap__block_covering(range, 0); index; index = gap__block(lane, index)->next)
      if (is_warm(s, gap__block(lane, index))) add_warm(s, range, gap__block(lane, index), &plan);
    gap__unlock(&lane->lock);
  }
  return plan;
}

/* ---- moving ---- */

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Enough chunks for `pages`: the last may have more than are lacking. */
static uint64_t reach(const struct plan *plan, uint64_t pages) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan->count && sum < pages; i++) sum += plan->picks[i].kept;
  return sum;
}

static uint64_t move_out(struct gap__policy_state *s, uint64_t pages) {
  struct plan plan = plan_cold(s);
  uint64_t limit = gap__overflow_limit(s), room = limit > s->overflow.pages ? limit - s->overflow.pages : 0;
  uint64_t most = smaller(reach(&plan, pages), room);
  if (!most || !gap__overflow_ask(s, most)) return 0;
  uint64_t moved = gap__convert_move(s, plan.picks, plan.count, most, GAP__PLACE_HOST);
  gap__overflow_settle(s);
  s->overflow.out_bytes += (int64_t)(moved << GAP__PAGE_SHIFT);
  return moved;
}

uint64_t gap__overflow_chill(struct gap__policy_state *s, uint64_t pages, enum gap__stillness how) {
  if (!s->overflow.on || !pages || !plan_cold(s).pages) return 0; /* before all streams are stopped */
  uint64_t moved = gap__convert_still(s, how) ? move_out(s, pages) : 0;
  gap__gate_open(s);
  return moved;
}

uint64_t gap__overflow_return(struct gap__policy_state *s, uint64_t most, enum gap__stillness how) {
  uint64_t moved = 0;
  if (!most || !plan_warm(s).pages) return 0;
  if (gap__convert_still(s, how)) {
    struct plan plan = plan_warm(s);
    moved = gap__convert_move(s, plan.picks, plan.count, most, GAP__PLACE_DEVICE);
  }
  gap__gate_open(s);
  s->overflow.back_bytes += (int64_t)(moved << GAP__PAGE_SHIFT);
  return moved;
}

void gap__overflow_balance(struct gap__policy_state *s) {
  gap__overflow_chill(s, s->overflow.need_pages, GAP__STILL_BY_PROMISE);
  gap__overflow_return(s, UINT64_MAX, GAP__STILL_BY_PROMISE);
  s->overflow.need_pages = 0;
}
