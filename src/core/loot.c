/* Idle chunks taken from where they lie: see loot.h. */
#include "core/loot.h"

#include <stdlib.h>
#include <string.h>

#include "core/chunk.h"
#include "core/convert_plan.h"
#include "core/hollow.h"
#include "core/lane.h"

enum { VICTIMS_MAX = 1 << 16, LOOT_MAX = 1 << 20 };

struct victim {
  uint32_t stamp; /* of the older end */
  uint32_t block;
  struct gap__arena *arena;
};

struct gap__scratch {
  struct victim victims[VICTIMS_MAX];
  uint32_t loot[LOOT_MAX]; /* chunks taken from their homes */
  struct gap__pick picks[GAP__PICKS_MAX];
};

struct gap__pick *gap__scratch_picks(struct gap__policy_state *s) {
  return s->scratch->picks;
}
uint32_t *gap__loot(struct gap__policy_state *s) { return s->scratch->loot; }

int gap__scratch_create(struct gap__policy_state *s) {
  s->scratch = gap__meta_map(sizeof *s->scratch);
  return s->scratch ? 0 : GAP_ENOMETA;
}
void gap__scratch_destroy(struct gap__policy_state *s) { gap__meta_unmap(s->scratch, sizeof *s->scratch); }

/* ---- victims ---- */

struct whole { /* the whole pages of an idle block */
  uint32_t from, to;
};

static struct whole whole_pages(const struct gap__block *b) {
  return (struct whole){gap__page_up(b->off), gap__page_of(b->off + b->len)};
}

static struct whole between_bare(const struct gap__range *range, struct whole w) {
  while (w.from < w.to && gap__page_is_bare(range, w.from)) w.from++;
  while (w.from < w.to && gap__page_is_bare(range, w.to - 1)) w.to--;
  return w;
}

static uint32_t older_stamp(const struct gap__range *range, struct whole w) {
  uint32_t low = range->stamp[w.from], high = range->stamp[w.to - 1];
  return low < high ? low : high;
}

static uint32_t collect_arena(struct gap__arena *arena, struct victim *out, uint32_t room) {
  const struct gap__lane *lane = arena->lane;
  uint32_t count = 0;
  if (arena->idle_units < GAP__PAGE_UNITS) return 0;
  for (uint32_t word = GAP__BIN_EXACT / 64; word < GAP__BIN_WORDS; word++)
    for (uint64_t bits = arena->bins.word[word]; bits; bits &= bits - 1) {
      uint32_t bin = word * 64 + (uint32_t)__builtin_ctzll(bits);
      for (uint32_t i = arena->bins.head[bin]; i && count < room; i = gap__block(lane, i)->link_next) {
        const struct gap__block *b = gap__block(lane, i);
        const struct gap__range *range = gap__range_at(lane->owner, b->range);
        struct whole w = between_bare(range, whole_pages(b));
        if (w.from >= w.to) continue;
        out[count++] = (struct victim){older_stamp(range, w), i, arena};
      }
    }
  return count;
}

static int by_stamp(const void *a, const void *b) {
  const struct victim *x = a, *y = b;
  return x->stamp < y->stamp ? -1 : x->stamp > y->stamp;
}

/* May `lane` take pages from `from` at all? A pinned pool keeps its pages; only itself moves them about. */
static bool may_take(const struct gap__lane *lane, const struct gap__lane *from) {
  return lane == from || !atomic_load_explicit(&from->pinned, memory_order_relaxed);
}

/* Has the arena memory of that place?  An overflow arena may have some of both (convert.h). */
static bool has_any(const struct gap__arena *arena, enum gap__place place) {
  return place == GAP__PLACE_HOST ? arena->host_pages : arena->home_pages > arena->host_pages;
}

/* Idle blocks with whole pages over all lanes that may serve `lane`, oldest first.  Every lane's lock is held. */
static uint32_t collect(struct gap__policy_state *s, const struct gap__lane *lane, enum gap__place place) {
  struct victim *victims = s->scratch->victims;
  uint32_t count = 0;
  for (struct gap__lane *from = s->lanes; from; from = from->next) {
    if (!may_take(lane, from)) continue;
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
      if (!has_any(&from->arena[kind], place)) continue;
      gap__arena_flush(&from->arena[kind]);
      count += collect_arena(&from->arena[kind], victims + count, VICTIMS_MAX - count);
    }
  }
  qsort(victims, count, sizeof *victims, by_stamp);
  return count;
}

/* ---- taking ---- */

/* The highest epoch that a page of `owner` may carry to be taken for `lane`; `behind`: closed is enough. */
static uint32_t epoch_allowed(const struct gap__lane *lane, const struct gap__lane *owner, bool behind) {
  if (gap__lane_same_stream(lane, owner)) return UINT32_MAX;
  return behind ? gap__lane_closed(owner) : owner->completed;
}

struct terms {
  enum gap__place place; /* of the chunks */
  uint32_t epoch;        /* the latest that they may carry */
  bool inside;           /* from the inside of a block too, not from its ends alone */
};

/* Pages of the chunk at `page` when it lies wholly inside [from, to) and may be taken; else 0. */
static uint32_t takeable(const struct gap__policy_state *s, const struct gap__range *range, struct whole w,
                         uint32_t page, bool from_high, const struct terms *terms) {
  if (gap__page_is_bare(range, page)) return 0;
  const struct gap__mapping *m = gap__mapping_at(s, range->slot[page]);
  const struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
  uint32_t pages = c->pages;
  if (c->host != (terms->place == GAP__PLACE_HOST)) return 0;
  if (m->page < w.from || m->page + pages > w.to) return 0;
  if (from_high ? m->page + pages - 1 != page : m->page != page) return 0;
  for (uint32_t i = 0; i < pages; i++)
    if (range->stamp[m->page + i] > terms->epoch) return 0;
  return pages;
}

/* From which end: the one beside a hole, so that holes grow together, or the one that was used longer ago. */
static bool from_high_end(const struct gap__range *range, const struct gap__block *b, struct whole w) {
  const struct gap__lane *lane = range->arena->lane;
  if (b->prev && gap__block(lane, b->prev)->state == GAP__HOLE && b->off == w.from << GAP__PAGE_UNIT_SHIFT)
    return false;
  return range->stamp[w.to - 1] <= range->stamp[w.from] || (b->next && gap__block(lane, b->next)->state == GAP__HOLE);
}

/* Takes up to `want` pages from an idle block; they become a hole, the chunks go to the scratch's loot.  Returns pages. */
static uint32_t take_from(struct gap__policy_state *s, const struct victim *v, uint32_t want, const struct terms *terms,
                          uint32_t *loot_count) {
  const struct gap__block *b = gap__block(v->arena->lane, v->block);
  struct gap__range *range = gap__range_at(s, b->range);
  struct whole w = whole_pages(b);
  bool high = from_high_end(range, b, w);
  uint32_t taken = 0, skipped = 0, loot_before = *loot_count;
  while (terms->inside && w.from + skipped < w.to &&
         !takeable(s, range, w, high ? w.to - 1 - skipped : w.from + skipped, high, terms))
    skipped++;
  w = high ? (struct whole){w.from, w.to - skipped} : (struct whole){w.from + skipped, w.to};
  while (taken < want && w.from + taken < w.to && *loot_count < LOOT_MAX) {
    uint32_t page = high ? w.to - 1 - taken : w.from + taken;
    uint32_t pages = takeable(s, range, w, page, high, terms);
    if (!pages) break;
    s->scratch->loot[(*loot_count)++] = gap__mapping_at(s, range->slot[page])->chunk;
    taken += pages;
  }
  uint32_t first = high ? w.to - taken : w.from;
  if (!taken || gap__arena_withdraw(v->arena, v->block, first, taken) == 0) return taken;
  *loot_count = loot_before;
  return 0;
}

/* The same where the pages become bare. */
static uint32_t hollow_out(struct gap__policy_state *s, const struct victim *v, uint32_t want,
                           const struct terms *terms, uint32_t *loot_count) {
  const struct gap__block *b = gap__block(v->arena->lane, v->block);
  struct gap__range *range = gap__range_at(s, b->range);
  const struct whole w = between_bare(range, whole_pages(b));
  bool high = w.from < w.to && from_high_end(range, b, w);
  uint32_t taken = 0, step;
  for (uint32_t done = 0; taken < want && w.from + done < w.to && *loot_count < LOOT_MAX; done += step) {
    uint32_t page = high ? w.to - 1 - done : w.from + done;
    step = 1;
    if (gap__page_is_bare(range, page)) continue;
    uint32_t pages = takeable(s, range, w, page, high, terms);
    if (!pages && !terms->inside) break;
    if (!pages) continue;
    uint32_t mapping = range->slot[page];
    gap__hollow_take(range, v->block, gap__mapping_at(s, mapping)->page);
    s->scratch->loot[(*loot_count)++] = gap__mapping_at(s, mapping)->chunk;
    taken += step = pages;
  }
  return taken;
}

static void lock_all(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lock(&lane->lock);
}
static void unlock_all(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__unlock(&lane->lock);
}

static void refresh_epochs(struct gap__policy_state *s, const struct gap__lane *asking) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (lane != asking && may_take(asking, lane)) gap__lane_close_epoch_locked(lane);
    gap__lane_poll(lane);
  }
}

void gap__loot_refresh(struct gap__policy_state *s, const struct gap__lane *asking) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (lane == asking || !may_take(asking, lane)) continue;
    gap__lane_close_epoch(lane);
    gap__lane_poll(lane);
  }
}

/* From the ends of idle blocks, or from their insides too; from places of the plan, or from all others. */
static void steal_round(struct gap__policy_state *s, struct gap__raid *raid, uint32_t count, bool inside,
                        bool from_plan) {
  const struct gap__lane *lane = raid->lane, *ordered = NULL; /* the last lane that it was ordered behind */
  for (uint32_t i = 0; i < count && raid->taken < raid->want; i++) {
    const struct victim *v = &s->scratch->victims[i];
    const struct gap__lane *owner = v->arena->lane;
    uint32_t epoch = epoch_allowed(lane, owner, raid->behind);
    if (raid->planned && from_plan != (v->arena->kind == GAP__ARENA_PLANNED)) continue;
    if (raid->behind && owner != ordered && v->stamp <= epoch) {
      if (!gap__lane_order_behind(lane, owner)) continue;
      ordered = owner;
    }
    const struct terms terms = {raid->place, epoch, inside};
    uint32_t want = raid->want - raid->taken;
    raid->taken += gap__hollow_allowed(v->arena) ? hollow_out(s, v, want, &terms, &raid->count)
                                                 : take_from(s, v, want, &terms, &raid->count);
  }
}

/* From the ends of idle blocks before their insides; one place of the plan gets the pages of another one last. */
static void steal_rounds(struct gap__policy_state *s, struct gap__raid *raid) {
  for (int from_plan = 0; from_plan <= raid->planned; from_plan++)
    for (int inside = 0; inside <= 1 && raid->taken < raid->want; inside++)
      steal_round(s, raid, collect(s, raid->lane, raid->place), inside, from_plan);
}

uint32_t gap__loot_steal(struct gap__policy_state *s, struct gap__raid *raid) {
  lock_all(s);
  refresh_epochs(s, raid->lane);
  steal_rounds(s, raid);
  unlock_all(s);
  return raid->taken;
}

void gap__loot_put_back(struct gap__policy_state *s, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < count; i++) {
    const struct gap__chunk_rec *c = gap__chunk_at(s, s->scratch->loot[i]);
    const struct gap__mapping *home = gap__mapping_at(s, c->home);
    struct gap__range *range = gap__range_at(s, home->range);
    struct gap__lane *lane = range->arena->lane;
    gap__lock(&lane->lock);
    gap__hollow_return(range, home->page);
    gap__unlock(&lane->lock);
  }
}

struct gap__lane *gap__loot_wait_for(struct gap__policy_state *s, const struct gap__lane *asking, uint32_t *epoch) {
  struct gap__lane *best = NULL;
  lock_all(s);
  refresh_epochs(s, asking);
  uint32_t count = collect(s, asking, GAP__PLACE_DEVICE);
  for (uint32_t i = 0; i < count; i++) {
    struct gap__lane *lane = s->scratch->victims[i].arena->lane;
    uint32_t mark = gap__lane_oldest_mark(lane);
    if (gap__lane_same_stream(lane, asking) || !mark || (best && mark >= *epoch)) continue;
    best = lane;
    *epoch = mark;
  }
  unlock_all(s);
  return best;
}

uint32_t gap__loot_excess(struct gap__policy_state *s, struct gap__lane *lane, uint64_t excess, enum gap__place place,
                          uint32_t epoch) {
  const struct terms terms = {place, epoch, true};
  uint32_t victims = 0, count = 0;
  uint64_t taken = 0;
  gap__lock(&lane->lock);
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
    gap__hollow_fold(&lane->arena[kind]);
    if (!has_any(&lane->arena[kind], place)) continue;
    gap__arena_flush(&lane->arena[kind]);
    victims += collect_arena(&lane->arena[kind], s->scratch->victims + victims, VICTIMS_MAX - victims);
  }
  for (uint32_t i = 0; i < victims && taken < excess; i++)
    taken += take_from(s, &s->scratch->victims[i], (uint32_t)(excess - taken), &terms, &count);
  gap__unlock(&lane->lock);
  return count;
}
