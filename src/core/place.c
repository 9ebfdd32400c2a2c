/* Placement: see place.h.  Source: the policy study's W1 ("fewest missing pages; among equals the smallest run").
 * Bound: RUN_PLACES places a run, each summed over the blocks under it; runs are found from the holes they contain. */
#include "core/place.h"

#include "core/chunk.h"

enum { RUN_PLACES = 64, MISSING_MAX = (1 << 20) - 1 };
#define BLOCKED_COST 4096u /* a lent mapping whose address is still in use: any other place is better */

struct run {
  uint32_t first;      /* leftmost block */
  uint32_t start, end; /* in units */
};

struct search {
  struct gap__arena *arena;
  struct gap__range *range; /* of the run at hand */
  uint32_t units;
  bool aligned;
  enum gap__place_goal goal;
  struct gap__spot best;
  uint64_t best_cost;
};

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
static bool is_free(const struct gap__block *b) { return b->state == GAP__IDLE || b->state == GAP__HOLE; }

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

bool gap__place_claimable(const struct gap__lane *lane, uint32_t mapping) {
  const struct gap__policy_state *s = lane->owner;
  const struct gap__chunk_rec *c = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk);
  if (!c->home || gap__mapping_at(s, mapping)->dark) return false;
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  const struct gap__range *range = gap__range_at(s, home->range);
  if (range->arena->lane != lane) return false;
  uint32_t from = home->page << GAP__PAGE_UNIT_SHIFT, to = (home->page + c->pages) << GAP__PAGE_UNIT_SHIFT;
  const struct gap__block *b = gap__block(lane, gap__block_covering(range, from));
  return b->state == GAP__IDLE && b->off + b->len >= to;
}

static uint32_t page_cost(const struct search *q, uint32_t page) {
  const struct gap__policy_state *s = q->arena->lane->owner;
  uint32_t m = q->range->slot[page];
  if (!m) return 1;
  if (gap__place_claimable(q->arena->lane, m)) return 0;
  return gap__mapping_settled(s, m) ? 1 : BLOCKED_COST;
}

/* Pages of the hole [from, to) (page borders) that must be supplied. */
static uint32_t hole_cost(const struct search *q, uint32_t from, uint32_t to) {
  if (!q->range->lent_pages) return to - from;
  uint32_t cost = 0;
  for (uint32_t page = from; page < to; page++) cost += page_cost(q, page);
  return cost;
}

static uint32_t missing_under(const struct search *q, uint32_t block, uint32_t off, uint32_t end) {
  const struct gap__lane *lane = q->arena->lane;
  uint32_t cost = 0;
  for (uint32_t i = block; i; i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->off >= end) break;
    if (b->state != GAP__HOLE) continue;
    uint32_t from = b->off > off ? b->off : off, to = b->off + b->len < end ? b->off + b->len : end;
    if (from < to) cost += hole_cost(q, gap__page_of(from), gap__page_up(to));
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

void gap__place_search(struct gap__arena *arena, uint32_t units, bool aligned, enum gap__place_goal goal,
                       struct gap__spot *out) {
  struct search q = {.arena = arena, .units = units, .aligned = aligned, .goal = goal};
  for (uint32_t hole = arena->hole_head; hole; hole = gap__block(arena->lane, hole)->link_next) {
    struct run run;
    if (find_run(arena->lane, hole, &run)) search_run(&q, &run);
  }
  *out = q.best;
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
    if (m && !gap__mapping_settled(s, m) && !gap__place_claimable(lane, m)) return UINT32_MAX;
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

static uint32_t block_end(const struct gap__lane *lane, uint32_t block) {
  return gap__block(lane, block)->off + gap__block(lane, block)->len;
}

uint32_t gap__place_reserve(struct gap__arena *arena, const struct gap__spot *spot, uint32_t units) {
  struct gap__lane *lane = arena->lane;
  uint32_t start = spot->off, end = spot->off + units;
  uint32_t first = gap__block_covering(spot->range, start), last = gap__block_covering(spot->range, end - 1);
  if (gap__block(lane, first)->state == GAP__HOLE) start = gap__page_of(start) << GAP__PAGE_UNIT_SHIFT;
  if (gap__block(lane, last)->state == GAP__HOLE) end = gap__page_up(end) << GAP__PAGE_UNIT_SHIFT;

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
  return gap__block_isolate(arena, block, off, units, GAP__IDLE);
}

void gap__place_dissolve(struct gap__arena *arena, uint32_t block) {
  struct gap__lane *lane = arena->lane;
  const struct gap__policy_state *s = lane->owner;
  while (block) {
    const struct gap__block *b = gap__block(lane, block);
    const struct gap__range *range = gap__range_at(s, b->range);
    uint32_t end = b->off + b->len, page = gap__page_of(b->off);
    bool idle = gap__slot_is_home(s, range, page);
    while (++page << GAP__PAGE_UNIT_SHIFT < end && gap__slot_is_home(s, range, page) == idle) continue;
    uint32_t at = page << GAP__PAGE_UNIT_SHIFT;
    if (at < end && !gap__slab_assure(&lane->blocks, 1)) return; /* lost: better than served without memory */
    uint32_t high = at < end ? gap__block_cut(arena, block, at - b->off) : 0;
    gap__block_attach(arena, block, idle ? GAP__IDLE : GAP__HOLE);
    block = high;
  }
}
