/* Placement: see place.h.  Source: the policy study's W1 ("fewest missing pages; among equals the smallest run").
 * Bound: RUN_PLACES places a run, each summed over the blocks under it; runs are found from the holes they contain. */
#include "core/place.h"

#include "core/chunk.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"

enum { RUN_PLACES = 64, MISSING_MAX = (1 << 20) - 1 };

struct run {
  uint32_t first;      /* leftmost block */
  uint32_t start, end; /* in units */
};

struct search {
  struct gap__arena *arena;
  struct gap__range *range; /* of the run at hand */
  uint32_t units;
  bool aligned;
  bool tight;
  enum gap__place_goal goal;
  uint32_t from, to; /* pages of the place at hand */
  struct gap__spot best;
  uint64_t best_cost;
};

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
static bool is_free(const struct gap__block *b) { return gap__block_is_idle(b) || b->state == GAP__HOLE; }

/* The run around a hole; false when an earlier hole of the same run stands for it. */
static bool find_run(const struct gap__lane *lane, uint32_t hole, struct run *run) {
  uint32_t first = hole, last = hole;
  for (uint32_t i; (i = gap__block(lane, first)->prev) && is_free(gap__block(lane, i)); first = i)
    if (gap__block(lane, i)->state == GAP__HOLE) return false;
  for (uint32_t i; (i = gap__block(lane, last)->next) && is_free(gap__block(lane, i));) last = i;
  const struct gap__block *l = gap__block(lane, last);
  *run = (struct run){first, gap__block(lane, first)->off, l->off + l->len};
  return true;
}

enum gap__place_claim gap__place_home(const struct gap__lane *lane, uint32_t mapping) {
  const struct gap__policy_state *s = lane->owner;
  const struct gap__chunk_rec *c = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk);
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  const struct gap__range *range = gap__range_at(s, home->range);
  const struct gap__lane *owner = range->arena->lane;
  uint32_t from = home->page << GAP__PAGE_UNIT_SHIFT, to = (home->page + c->pages) << GAP__PAGE_UNIT_SHIFT;
  const struct gap__block *b = gap__block(owner, gap__block_covering(range, from));
  if (!gap__block_is_idle(b) || b->off + b->len < to || gap__page_is_bare(range, home->page)) return GAP__CLAIM_NOT;
  if (gap__lane_same_stream(lane, owner) || gap__mapping_last_use(s, c->home) <= owner->completed)
    return GAP__CLAIM_NOW;
  return GAP__CLAIM_LATER;
}

static bool is_ordinary(const struct gap__arena *arena) {
  return arena->kind == GAP__ARENA_SMALL || arena->kind == GAP__ARENA_LARGE;
}

/* Lanes of other streams lend to each other what no plan and no graph wants to find where it is. */
static bool may_claim(const struct gap__lane *lane, const struct gap__arena *from, const struct gap__arena *to) {
  if (from->lane == lane) return true;
  return gap__limit_is_tight(lane->owner) && is_ordinary(from) && is_ordinary(to) &&
         !atomic_load_explicit(&from->lane->pinned, memory_order_relaxed);
}

struct gap__lane *gap__place_lender(const struct gap__lane *lane, uint32_t mapping) {
  const struct gap__policy_state *s = lane->owner;
  const struct gap__mapping *m = gap__mapping_at(s, mapping);
  uint32_t home = gap__chunk_at(s, m->chunk)->home;
  if (!home || m->dark) return NULL;
  const struct gap__arena *from = gap__range_at(s, gap__mapping_at(s, home)->range)->arena;
  return may_claim(lane, from, gap__range_at(s, m->range)->arena) ? from->lane : NULL;
}

enum gap__place_claim gap__place_claimable(const struct gap__lane *lane, uint32_t mapping) {
  struct gap__lane *lender = gap__place_lender(lane, mapping);
  if (!lender) return GAP__CLAIM_NOT;
  if (lender == lane) return gap__place_home(lane, mapping);
  gap__lock(&lender->lock);
  enum gap__place_claim claim = gap__place_home(lane, mapping);
  gap__unlock(&lender->lock);
  return claim;
}

/* Could a chunk that is lent there be at home in a place of the pages [from, to)? All of it must lie there, and its home elsewhere. */
static bool may_move_in(const struct gap__policy_state *s, uint32_t mapping, uint32_t from, uint32_t to) {
  const struct gap__mapping *m = gap__mapping_at(s, mapping);
  const struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  bool lives_there = home->range == m->range && home->page < to && home->page + c->pages > from;
  return m->page >= from && m->page + c->pages <= to && !lives_there;
}

static uint32_t page_cost(const struct search *q, uint32_t page) {
  const struct gap__policy_state *s = q->arena->lane->owner;
  uint32_t m = q->range->slot[page];
  if (!m) return 1;
  bool comes =
      !q->tight || may_move_in(s, m, q->from, q->to); /* not looked at where much is idle: hardly any is lost by it */
  if (comes && gap__place_claimable(q->arena->lane, m) == GAP__CLAIM_NOW) return 0;
  return gap__mapping_settled(s, m) ? 1 : GAP__PLACE_BLOCKED;
}

/* Pages of [from, to) (page borders) of a hole, or of a hollow block, that must be supplied. */
static uint32_t hole_cost(const struct search *q, uint32_t from, uint32_t to, bool hollow) {
  if (!hollow && !q->range->lent_pages) return to - from;
  uint32_t cost = 0;
  for (uint32_t page = from; page < to; page++)
    if (!hollow || gap__page_is_bare(q->range, page)) cost += page_cost(q, page);
  return cost;
}

static uint32_t missing_under(struct search *q, uint32_t block, uint32_t off, uint32_t end) {
  const struct gap__lane *lane = q->arena->lane;
  uint32_t cost = 0;
  q->from = gap__page_of(off);
  q->to = gap__page_up(end);
  for (uint32_t i = block; i; i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->off >= end) break;
    if (b->state != GAP__HOLE && b->state != GAP__HOLLOW) continue;
    uint32_t from = b->off > off ? b->off : off, to = b->off + b->len < end ? b->off + b->len : end;
    if (from < to) cost += hole_cost(q, gap__page_of(from), gap__page_up(to), b->state == GAP__HOLLOW);
  }
  return cost;
}

/* Pages that would leave circulation: all of the place's, but for border pages that a live neighbour shares already. */
static uint32_t consumed_by(const struct run *run, uint32_t off, uint32_t end) {
  uint32_t first = gap__page_of(off), last = gap__page_up(end);
  uint32_t pages = last - first;
  if (run->start > first << GAP__PAGE_UNIT_SHIFT) pages--;
  if (pages && last > first + 1 && run->end < last << GAP__PAGE_UNIT_SHIFT) pages--;
  return pages;
}

static void consider(struct search *q, const struct run *run, uint32_t block, uint32_t off) {
  uint32_t end = off + q->units;
  if (off < run->start || end > run->end || end < off) return;
  uint32_t missing = smaller(missing_under(q, block, off, end), MISSING_MAX);
  uint64_t cost = q->goal == GAP__PLACE_FEW_MISSING ? missing : (uint64_t)consumed_by(run, off, end) << 20 | missing;
  uint32_t length = (run->end - run->start) >> GAP__PAGE_UNIT_SHIFT;
  cost = cost << 24 | length;
  if (q->best.range && cost >= q->best_cost) return;
  q->best = (struct gap__spot){.range = q->range, .off = off, .missing = missing};
  q->best_cost = cost;
}

/* The block of the run in which a place that ends at `end` starts, walking left from `block`. */
static uint32_t block_left_of(const struct gap__lane *lane, uint32_t block, uint32_t off) {
  while (gap__block(lane, block)->off > off) block = gap__block(lane, block)->prev;
  return block;
}

static void search_run(struct search *q, const struct run *run) {
  const struct gap__lane *lane = q->arena->lane;
  q->range = gap__range_at(lane->owner, gap__block(lane, run->first)->range);
  if ((uint64_t)run->start + q->units > run->end) return;
  uint32_t places = 0, index = run->first;
  while (index && places++ < RUN_PLACES) {
    const struct gap__block *b = gap__block(lane, index);
    if (b->off >= run->end) break;
    consider(q, run, index, gap__place_low(b->off, q->aligned));
    uint32_t end = b->off + b->len;
    if (end - run->start >= q->units) {
      uint32_t off = end - q->units;
      if (q->aligned) off &= ~(GAP__PAGE_UNITS - 1);
      if (off >= run->start) consider(q, run, block_left_of(lane, index, off), off);
    }
    index = b->next;
  }
}

/* Hollow blocks with live ones on both sides: no hole stands for their runs. */
static void search_hollow(struct search *q) {
  const struct gap__arena *arena = q->arena;
  for (uint32_t word = 0; word < GAP__BIN_WORDS; word++)
    for (uint64_t bits = arena->bins.word[word]; bits; bits &= bits - 1)
      for (uint32_t i = arena->bins.head[word * 64 + (uint32_t)__builtin_ctzll(bits)]; i;
           i = gap__block(arena->lane, i)->link_next) {
        const struct gap__block *b = gap__block(arena->lane, i);
        if (b->state == GAP__HOLLOW) search_run(q, &(struct run){i, b->off, b->off + b->len});
      }
}

void gap__place_search(struct gap__arena *arena, uint32_t units, bool aligned, enum gap__place_goal goal,
                       struct gap__spot *out) {
  struct search q = {.arena = arena, .units = units, .aligned = aligned, .goal = goal};
  q.tight = gap__limit_is_tight(arena->lane->owner);
  for (uint32_t hole = arena->hole_head; hole; hole = gap__block(arena->lane, hole)->link_next) {
    struct run run;
    if (find_run(arena->lane, hole, &run)) search_run(&q, &run);
  }
  if (arena->hollow_count) search_hollow(&q);
  *out = q.best;
}

/* What it takes to have all bare pages of [from, to) back; the chunks that are lent there must not reach beyond. */
static enum gap__place_claim claim_bare(const struct gap__lane *lane, const struct gap__range *range, uint32_t from,
                                        uint32_t to) {
  const struct gap__policy_state *s = lane->owner;
  enum gap__place_claim all = GAP__CLAIM_NOW;
  for (uint32_t page = from; page < to; page++) {
    uint32_t m = range->slot[page];
    if (!gap__page_is_bare(range, page)) continue;
    if (!m || !may_move_in(s, m, from, to)) return GAP__CLAIM_NOT;
    enum gap__place_claim one = gap__place_claimable(lane, m);
    if (one == GAP__CLAIM_NOT) return one;
    if (one == GAP__CLAIM_LATER) all = one;
  }
  return all;
}

enum gap__place_claim gap__place_hollow(const struct gap__arena *arena, uint32_t units, bool aligned,
                                        struct gap__spot *out) {
  uint32_t index = arena->hollow_count ? gap__bin_find(arena, units, aligned) : 0;
  const struct gap__block *b = gap__block(arena->lane, index);
  if (!index || b->state != GAP__HOLLOW) return GAP__CLAIM_NOT;
  *out =
      (struct gap__spot){.range = gap__range_at(arena->lane->owner, b->range), .off = gap__place_low(b->off, aligned)};
  return claim_bare(arena->lane, out->range, gap__page_of(out->off), gap__page_up(out->off + units));
}

/* ---- given places ---- */

enum gap__place_state gap__place_look(const struct gap__range *range, uint32_t off, uint32_t units, uint32_t *block) {
  const struct gap__lane *lane = range->arena->lane;
  enum gap__place_state found = GAP__PLACE_FREE;
  *block = gap__block_covering(range, off);
  const struct gap__block *b = gap__block(lane, *block);
  if (b->state == GAP__IDLE && b->len - (off - b->off) >= units) return GAP__PLACE_MAPPED;
  for (uint32_t i = *block; i && gap__block(lane, i)->off < off + units; i = gap__block(lane, i)->next) {
    b = gap__block(lane, i);
    if (b->state == GAP__PENDING) found = GAP__PLACE_PENDING;
    else if (!is_free(b)) return GAP__PLACE_TAKEN;
  }
  return found;
}

uint32_t gap__place_missing(const struct gap__range *range, uint32_t off, uint32_t units) {
  const struct gap__lane *lane = range->arena->lane;
  const struct gap__policy_state *s = lane->owner;
  uint32_t missing = 0;
  for (uint32_t page = gap__page_of(off); page < gap__page_up(off + units); page++) {
    uint32_t m = range->slot[page];
    if (gap__slot_is_home(s, range, page)) continue;
    if (m && !gap__mapping_settled(s, m) && gap__place_claimable(lane, m) != GAP__CLAIM_NOW) return UINT32_MAX;
    missing++;
  }
  return missing;
}

/* ---- reserving ---- */

/* Detaches `block`, keeps [off, off + len) of it, files the rest under its old state. 0: GAP_ENOMETA. */
uint32_t gap__place_carve(struct gap__arena *arena, uint32_t block, uint32_t off, uint32_t len) {
  enum gap__state was = gap__block(arena->lane, block)->state;
  gap__block_detach(arena, block);
  uint32_t wanted = gap__block_isolate(arena, block, off, len, was);
  if (!wanted) gap__block_attach(arena, block, was);
  return wanted;
}

/* A place takes pages without memory as a whole. */
static bool is_bare_at(const struct gap__lane *lane, uint32_t block, const struct gap__range *range, uint32_t page) {
  const struct gap__block *b = gap__block(lane, block);
  return b->state == GAP__HOLE || (b->state == GAP__HOLLOW && gap__page_is_bare(range, page));
}

static uint32_t block_end(const struct gap__lane *lane, uint32_t block) {
  return gap__block(lane, block)->off + gap__block(lane, block)->len;
}

uint32_t gap__place_reserve(struct gap__arena *arena, const struct gap__spot *spot, uint32_t units) {
  struct gap__lane *lane = arena->lane;
  uint32_t start = spot->off, end = spot->off + units;
  uint32_t first = gap__block_covering(spot->range, start), last = gap__block_covering(spot->range, end - 1);
  if (is_bare_at(lane, first, spot->range, gap__page_of(start))) start = gap__page_of(start) << GAP__PAGE_UNIT_SHIFT;
  if (is_bare_at(lane, last, spot->range, gap__page_of(end - 1))) end = gap__page_up(end) << GAP__PAGE_UNIT_SHIFT;

  uint32_t whole = gap__place_carve(arena, first, start, smaller(block_end(lane, first), end) - start);
  while (whole && block_end(lane, whole) < end) {
    uint32_t next = gap__block(lane, whole)->next;
    const struct gap__block *n = gap__block(lane, next);
    if (!gap__place_carve(arena, next, n->off, smaller(n->len, end - n->off))) {
      gap__place_dissolve(arena, whole);
      return 0;
    }
    gap__block_absorb_next(arena, whole);
  }
  return whole;
}

uint32_t gap__place_settle(struct gap__arena *arena, uint32_t block, uint32_t off, uint32_t units) {
  const struct gap__block *b = gap__block(arena->lane, block);
  gap__hollow_fill(gap__range_at(arena->lane->owner, b->range), gap__page_of(b->off), gap__page_up(b->off + b->len));
  return gap__block_isolate(arena, block, off, units, GAP__IDLE);
}

/* Where pages of one kind end: those that stay idle addresses, bare ones too, or those of a hole. */
static uint32_t end_of_kind(const struct gap__range *range, uint32_t page, uint32_t end, enum gap__state *kind) {
  const struct gap__policy_state *s = range->arena->lane->owner;
  bool idle = gap__slot_is_home(s, range, page) || gap__page_is_bare(range, page), bare = false;
  for (; page << GAP__PAGE_UNIT_SHIFT < end; page++) {
    if ((gap__slot_is_home(s, range, page) || gap__page_is_bare(range, page)) != idle) break;
    bare |= gap__page_is_bare(range, page);
  }
  *kind = !idle ? GAP__HOLE : bare ? GAP__HOLLOW : GAP__IDLE;
  return page;
}

void gap__place_dissolve(struct gap__arena *arena, uint32_t block) {
  struct gap__lane *lane = arena->lane;
  const struct gap__policy_state *s = lane->owner;
  while (block) {
    const struct gap__block *b = gap__block(lane, block);
    struct gap__range *range = gap__range_at(s, b->range);
    uint32_t end = b->off + b->len;
    enum gap__state kind;
    gap__hollow_fill(range, gap__page_of(b->off), gap__page_up(end));
    uint32_t at = end_of_kind(range, gap__page_of(b->off), end, &kind) << GAP__PAGE_UNIT_SHIFT;
    if (at < end && !gap__slab_assure(&lane->blocks, 1)) return; /* lost: better than served without memory */
    uint32_t high = at < end ? gap__block_cut(arena, block, at - b->off) : 0;
    gap__block_attach(arena, block, kind);
    block = high;
  }
}
