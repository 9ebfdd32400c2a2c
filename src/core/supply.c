/* Pages for holes: see supply.h.
 *
 * In order: lent mappings under the place whose chunk is idle are taken back (no driver call); idle chunks are stolen, least
 * recently used first, once growing would pass the soft limit; the rest is created.  A chunk of the same stream moves at
 * once: it is mapped at the new address while the old mapping stands (stream order), and the old one stays behind as a lent
 * mapping.  A chunk of another stream moves when its epoch has completed; or, rather than growing beyond the firm limit,
 * earlier: the asking stream is ordered behind that epoch's event on the device, and nobody waits on the host. */
#include "core/supply.h"

#include <stdlib.h>
#include <string.h>

#include "core/chunk.h"
#include "core/convert.h"
#include "core/convert_plan.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/overflow.h"
#include "core/place.h"

enum { VICTIMS_MAX = 1 << 16, LOOT_MAX = 1 << 20, MAPPINGS_KEPT = 3, GRADE_SHARE = 16 };

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

void gap__supply_refresh(struct gap__policy_state *s, const struct gap__lane *asking) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (lane == asking || !may_take(asking, lane)) continue;
    gap__lane_close_epoch(lane);
    gap__lane_poll(lane);
  }
}

/* Orders the asking stream behind all that `owner` has closed. */
static bool order_behind(const struct gap__lane *lane, const struct gap__lane *owner) {
  if (gap__lane_same_stream(lane, owner) || !owner->mark_count) return true;
  uint32_t last = (owner->mark_first + owner->mark_count - 1) % GAP__MARKS;
  return gap__dev_stream_wait(lane->owner->dev, lane->stream, owner->marks[last].event) == 0;
}

struct raid {
  const struct gap__lane *lane; /* who asks */
  uint32_t want, taken;         /* pages */
  bool behind;                  /* other streams' closed epochs will do: the asking one is ordered behind them */
  bool planned;                 /* for a place of the plan */
  enum gap__place place;
  uint32_t *loot_count;
};

/* From the ends of idle blocks, or from their insides too; from places of the plan, or from all others. */
static void steal_round(struct gap__policy_state *s, struct raid *raid, uint32_t count, bool inside, bool from_plan) {
  const struct gap__lane *lane = raid->lane, *ordered = NULL; /* the last lane that it was ordered behind */
  for (uint32_t i = 0; i < count && raid->taken < raid->want; i++) {
    const struct victim *v = &s->scratch->victims[i];
    const struct gap__lane *owner = v->arena->lane;
    uint32_t epoch = epoch_allowed(lane, owner, raid->behind);
    if (raid->planned && from_plan != (v->arena->kind == GAP__ARENA_PLANNED)) continue;
    if (raid->behind && owner != ordered && v->stamp <= epoch) {
      if (!order_behind(lane, owner)) continue;
      ordered = owner;
    }
    const struct terms terms = {raid->place, epoch, inside};
    uint32_t want = raid->want - raid->taken;
    raid->taken += gap__hollow_allowed(v->arena) ? hollow_out(s, v, want, &terms, raid->loot_count)
                                                 : take_from(s, v, want, &terms, raid->loot_count);
  }
}

/* From the ends of idle blocks before their insides; one place of the plan gets the pages of another one last. */
static void steal_rounds(struct gap__policy_state *s, struct raid *raid) {
  for (int from_plan = 0; from_plan <= raid->planned; from_plan++)
    for (int inside = 0; inside <= 1 && raid->taken < raid->want; inside++)
      steal_round(s, raid, collect(s, raid->lane, raid->place), inside, from_plan);
}

/* Takes idle chunks worth `want` pages; returns how many pages they have. */
static uint32_t steal(struct gap__supply *q, uint32_t want, bool behind, uint32_t *loot_count) {
  struct gap__policy_state *s = q->lane->owner;
  struct raid raid = {.lane = q->lane,
                      .want = want,
                      .behind = behind,
                      .planned = q->range->arena->kind == GAP__ARENA_PLANNED,
                      .place = gap__arena_place(q->range->arena),
                      .loot_count = loot_count};
  lock_all(s);
  refresh_epochs(s, q->lane);
  steal_rounds(s, &raid);
  unlock_all(s);
  return raid.taken;
}

/* Puts chunks that found no place back where they were: they are still mapped there. */
static void put_back(struct gap__policy_state *s, uint32_t first, uint32_t count) {
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

/* ---- lent mappings under the place ---- */

/* The device may use these chunks at their old addresses still.  Should the place be given up before it is handed out, its
 * pages are as good as freed now: not ready for other streams before this lane's open epoch has passed. Lane lock held. */
static void stamp_unsettled(struct gap__lane *lane, struct gap__range *range, uint32_t page, uint32_t pages) {
  gap__hollow_fill(range, page, page + pages);
  gap__range_stamp(range, page << GAP__PAGE_UNIT_SHIFT, pages << GAP__PAGE_UNIT_SHIFT, lane->epoch);
  if (lane->credit == GAP__EPOCH_FREES) lane->credit--; /* the epoch is no longer empty */
}

static bool lies_within(const struct gap__supply *q, const struct gap__mapping *m, uint32_t pages) {
  const struct gap__block *place = gap__block(q->lane, q->block);
  return m->page << GAP__PAGE_UNIT_SHIFT >= place->off &&
         (m->page + pages) << GAP__PAGE_UNIT_SHIFT <= place->off + place->len;
}

/* May the chunk of a lent mapping serve here?  `behind`: where its last use may not have ended the asking stream is ordered behind it. */
static bool is_ours(struct gap__supply *q, uint32_t mapping, struct gap__lane *lender, bool behind) {
  struct gap__policy_state *s = q->lane->owner;
  enum gap__place_claim claim = gap__place_home(q->lane, mapping);
  if (claim != GAP__CLAIM_LATER) return claim == GAP__CLAIM_NOW;
  uint32_t home = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk)->home;
  if (!behind || gap__mapping_last_use(s, home) > gap__lane_closed(lender)) return false;
  if (q->ordered != lender && !order_behind(q->lane, lender)) return false;
  q->ordered = lender;
  return true;
}

/* The chunk of a lent mapping is at home here from now on.  The locks of both lanes are held. */
static bool come_home(struct gap__supply *q, uint32_t mapping) {
  struct gap__policy_state *s = q->lane->owner;
  const struct gap__mapping *m = gap__mapping_at(s, mapping);
  const struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  struct gap__range *range = gap__range_at(s, home->range);
  if (gap__hollow_take(range, gap__block_covering(range, home->page << GAP__PAGE_UNIT_SHIFT), home->page)) return false;
  gap__chunk_rehome(s, mapping);
  stamp_unsettled(q->lane, q->range, m->page, c->pages);
  return true;
}

/* Takes back the chunk of a lent mapping when it is idle at its home.  The asking lane's lock is held. */
static void claim(struct gap__supply *q, uint32_t mapping, bool behind) {
  struct gap__policy_state *s = q->lane->owner;
  uint32_t pages = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk)->pages;
  struct gap__lane *lender = gap__place_lender(q->lane, mapping);
  if (!lender || !lies_within(q, gap__mapping_at(s, mapping), pages)) return;
  if (lender != q->lane) gap__lock(&lender->lock);
  bool claimed = is_ours(q, mapping, lender, behind) && come_home(q, mapping);
  if (lender != q->lane) gap__unlock(&lender->lock);
  s->claimed += claimed ? pages : 0;
  s->stolen += claimed ? pages : 0;
}

static void claim_all(struct gap__supply *q, uint32_t from, uint32_t to, bool behind) {
  struct gap__policy_state *s = q->lane->owner;
  if (!q->range->lent_pages) return;
  gap__lock(&q->lane->lock);
  for (uint32_t page = from; page < to; page++)
    if (q->range->slot[page] && !gap__slot_is_home(s, q->range, page)) claim(q, q->range->slot[page], behind);
  gap__unlock(&q->lane->lock);
}

/* Empties the slot of a page that needs another chunk. */
static int vacate(struct gap__policy_state *s, struct gap__range *range, uint32_t page) {
  uint32_t m = range->slot[page];
  if (!m) return 0;
  if (!gap__mapping_settled(s, m)) {
    if (range->arena->kind == GAP__ARENA_PLANNED) return GAP_ENOMEM; /* another place is better than a wait */
    if (atomic_load_explicit(&range->arena->lane->pinned, memory_order_relaxed))
      return GAP_ENOMEM; /* a graph may use it */
    int rc = gap__lane_wait(range->arena->lane, gap__mapping_at(s, m)->stamp);
    if (rc) return rc;
  }
  s->device_frees++;
  return gap__mapping_unmap(s, m);
}

/* Keeps the number of mappings of a chunk bounded: the oldest settled lent ones go. */
static int prune(struct gap__policy_state *s, uint32_t chunk) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  uint32_t count = 0, old = 0;
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next) {
    count++;
    if (m != c->home && gap__mapping_settled(s, m)) old = m;
  }
  if (count < MAPPINGS_KEPT || !old) return 0;
  s->device_frees++;
  return gap__mapping_unmap(s, old);
}

/* ---- mapping ---- */

/* The stolen chunk behind a page has become usable there: that is its home now. */
static void move_in(struct gap__supply *q, uint32_t page) {
  struct gap__policy_state *s = q->lane->owner;
  uint32_t mapping = q->range->slot[page];
  const struct gap__chunk_rec *c = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk);
  uint32_t left = c->home;
  gap__chunk_rehome(s, mapping);
  const struct gap__mapping *old = gap__mapping_at(s, left);
  if (gap__range_at(s, old->range)->arena->kind == GAP__ARENA_PLANNED) q->unplanned += c->pages;
  bool early = old->stamp > gap__range_at(s, old->range)->arena->lane->completed;
  if (early) {
    gap__lock(&q->lane->lock);
    stamp_unsettled(q->lane, q->range, page, c->pages);
    gap__unlock(&q->lane->lock);
  }
  s->device_allocs++;
  s->stolen += c->pages;
  s->stolen_alias += early ? c->pages : 0;
  if (!gap__lane_same_stream(q->lane, gap__range_at(s, old->range)->arena->lane)) s->stolen_across += c->pages;
  q->stolen += c->pages;
}

static uint32_t chunk_behind(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page) {
  return gap__mapping_at(s, range->slot[page])->chunk;
}

static int new_chunk(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t pages) {
  uint32_t chunk, mapping;
  int rc = gap__chunk_create(s, pages, gap__arena_place(range->arena), &chunk);
  if (rc) return rc;
  if ((rc = gap__chunk_map(s, chunk, range, page, &mapping))) {
    gap__chunk_release(s, chunk);
    return rc;
  }
  s->grown += pages;
  return 0;
}

/* New chunks that did not become usable go back. */
static void abandon(struct gap__policy_state *s, const struct gap__range *range, uint32_t page, uint32_t end) {
  while (page < end) {
    uint32_t chunk = chunk_behind(s, range, page);
    page += gap__chunk_at(s, chunk)->pages;
    gap__chunk_abandon(s, chunk);
  }
}

static int make_pages(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t pages,
                      uint32_t most) {
  uint32_t done = 0;
  int rc = 0;
  while (done < pages && !rc) {
    uint32_t next = pages - done < most ? pages - done : most;
    for (uint32_t i = 0; i < next && !rc; i++) rc = vacate(s, range, page + done + i);
    if (!rc && !(rc = new_chunk(s, range, page + done, next))) done += next;
  }
  int seen = gap__chunk_access(s, range, page, done);
  if (seen) abandon(s, range, page, page + done);
  return rc ? rc : seen;
}

int gap__supply_new(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t pages,
                    uint32_t most) {
  bool host = gap__arena_place(range->arena) == GAP__PLACE_HOST;
  if (host && !gap__overflow_ask(s, pages)) return GAP_ENOMEM;
  int rc = make_pages(s, range, page, pages, most);
  if (host) gap__overflow_settle(s);
  return rc;
}

/* Are all addresses of a chunk out of use? `wait`: wait until they are. */
static bool chunk_settled(const struct gap__policy_state *s, uint32_t chunk, bool wait) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next) {
    struct gap__lane *lane = gap__range_at(s, gap__mapping_at(s, m)->range)->arena->lane;
    if (m == c->home && atomic_load_explicit(&lane->pinned, memory_order_relaxed)) return false;
    uint32_t stamp = gap__mapping_last_use(s, m);
    if (lane->completed < stamp && (!wait || gap__lane_wait(lane, stamp))) return false;
  }
  return true;
}

/* Offers loose chunks to the driver again. Returns pages. */
static uint64_t give_loose(struct gap__policy_state *s, bool wait) {
  uint64_t pages = 0;
  for (uint32_t next, chunk = s->loose; chunk; chunk = next) {
    uint32_t size = gap__chunk_at(s, chunk)->pages;
    next = gap__chunk_at(s, chunk)->next_loose;
    bool host = gap__chunk_at(s, chunk)->host;
    if (chunk_settled(s, chunk, wait) && gap__chunk_release(s, chunk) == 0) pages += host ? 0 : size;
  }
  s->trimmed += (int64_t)pages;
  return pages;
}

/* ---- the whole supply ---- */

static uint64_t room(uint64_t limit, uint64_t held) { return limit > held ? limit - held : 0; }

/* What the limits of a supply are compared with. */
static uint64_t pages_at(const struct gap__policy_state *s, enum gap__place place) {
  return place == GAP__PLACE_HOST ? s->overflow.pages : gap__held_pages(s);
}
static uint64_t pages_there(const struct gap__supply *q) {
  return pages_at(q->lane->owner, gap__arena_place(q->range->arena));
}

/* Pages of a new chunk.  While memory is plenty a large block gets large chunks (they cost no more than small ones), at
 * most a sixteenth of it so that little is trapped when a part of a chunk is idle; at the margin all are single pages.  Where
 * conversion frees what is trapped, large ones throughout. */
static uint32_t grade(const struct gap__supply *q) {
  const struct gap__policy_state *s = q->lane->owner;
  uint32_t block = gap__block(q->lane, q->block)->len >> GAP__PAGE_UNIT_SHIFT;
  bool pinned = atomic_load_explicit(&q->lane->pinned, memory_order_relaxed);
  if ((pinned && gap__converts(s)) || gap__arena_place(q->range->arena) == GAP__PLACE_HOST) return 1;
  uint32_t most = gap__limit_chunk_pages(s);
  uint32_t pages = gap__convert_undoes(s) ? block : block / GRADE_SHARE;
  return pages < 1 ? 1 : pages < most ? pages : most;
}

struct fill {
  uint32_t next, count; /* loot used and taken */
};

/* The next stolen chunk of at most `pages`, or 0: a larger one does not fit here. */
static uint32_t next_loot(const struct gap__policy_state *s, struct fill *f, uint32_t pages) {
  for (uint32_t i = f->next; i < f->count; i++) {
    uint32_t chunk = s->scratch->loot[i];
    if (gap__chunk_at(s, chunk)->pages > pages) continue;
    s->scratch->loot[i] = s->scratch->loot[f->next];
    s->scratch->loot[f->next++] = chunk;
    return chunk;
  }
  return 0;
}

static int place_loot(struct gap__supply *q, uint32_t chunk, uint32_t page) {
  struct gap__policy_state *s = q->lane->owner;
  uint32_t pages = gap__chunk_at(s, chunk)->pages, mapping;
  for (uint32_t i = 0; i < pages; i++) {
    int rc = vacate(s, q->range, page + i);
    if (rc) return rc;
  }
  int rc = prune(s, chunk);
  return rc ? rc : gap__chunk_map(s, chunk, q->range, page, &mapping);
}

/* Stolen chunks that did not become usable at [page, end) stay at home; they go back with the rest of the loot. */
static void leave_loot(struct gap__supply *q, struct fill *f, uint32_t page, uint32_t end) {
  struct gap__policy_state *s = q->lane->owner;
  for (; page < end; f->next--) {
    uint32_t mapping = q->range->slot[page];
    page += gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk)->pages;
    gap__mapping_unmap(s, mapping); /* or it stays lent, and dark */
  }
}

/* Stolen chunks side by side from `page` on, as far as they go; *end: where they end. */
static int fill_with_loot(struct gap__supply *q, struct fill *f, uint32_t page, uint32_t to, uint32_t *end) {
  struct gap__policy_state *s = q->lane->owner;
  uint32_t from = page, chunk;
  int rc = 0;
  while (page < to && !rc && (chunk = next_loot(s, f, to - page)) != 0) {
    rc = place_loot(q, chunk, page);
    if (rc) f->next--; /* it goes back with the rest */
    else page += gap__chunk_at(s, chunk)->pages;
  }
  *end = page;
  int seen = gap__chunk_access(s, q->range, from, page - from);
  if (seen) leave_loot(q, f, from, page);
  for (uint32_t at = from; !seen && at < page; at += gap__chunk_at(s, chunk_behind(s, q->range, at))->pages)
    move_in(q, at);
  return rc ? rc : seen;
}

/* Gives stolen chunks that are too large for the gaps back to the driver, so that new ones of the right size stay within the
 * soft limit. */
static void recut(struct gap__supply *q, struct fill *f, uint32_t pages) {
  struct gap__policy_state *s = q->lane->owner;
  while (f->next < f->count && pages > room(q->soft, pages_there(q))) {
    uint32_t chunk = s->scratch->loot[f->count - 1], size = gap__chunk_at(s, chunk)->pages;
    if (!chunk_settled(s, chunk, false)) return;
    int rc = gap__chunk_release(s, chunk);
    if (!rc || gap__chunk_is_loose(s, chunk)) f->count--;
    if (rc) return;
    s->trimmed += size;
  }
}

/* Fills the hole pages [from, to) (none has a home): stolen chunks first, then new ones within the hard limit. */
static int fill_gap(struct gap__supply *q, struct fill *f, uint32_t from, uint32_t to) {
  struct gap__policy_state *s = q->lane->owner;
  uint32_t page;
  int rc = fill_with_loot(q, f, from, to, &page);
  if (rc || page == to) return rc;
  recut(q, f, to - page);
  if (to - page > room(q->hard, pages_there(q))) return GAP_ENOMEM;
  rc = gap__supply_new(s, q->range, page, to - page, grade(q));
  if (!rc) q->grown += to - page;
  return rc;
}

/* The next stretch of pages without a home in [*from, to). */
static bool next_gap(const struct gap__supply *q, uint32_t *from, uint32_t *end, uint32_t to) {
  const struct gap__policy_state *s = q->lane->owner;
  while (*from < to && gap__slot_is_home(s, q->range, *from)) ++*from;
  for (*end = *from; *end < to && !gap__slot_is_home(s, q->range, *end);) ++*end;
  return *from < to;
}

static uint32_t count_gaps(const struct gap__supply *q, uint32_t from, uint32_t to) {
  uint32_t missing = 0;
  for (uint32_t end; next_gap(q, &from, &end, to); from = end) missing += end - from;
  return missing;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Steals what growing by `allowed` pages does not cover of `missing`. */
static uint32_t steal_beyond(struct gap__supply *q, uint32_t missing, uint64_t allowed, bool behind,
                             uint32_t *loot_count) {
  if (missing <= allowed) return 0;
  return steal(q, missing - (uint32_t)allowed, behind, loot_count);
}

int gap__supply_pages(struct gap__supply *q) {
  struct gap__policy_state *s = q->lane->owner;
  const struct gap__block *b = gap__block(q->lane, q->block);
  uint32_t from = gap__page_of(b->off), to = gap__page_up(b->off + b->len);
  give_loose(s, false);
  claim_all(q, from, to, false);

  uint32_t missing = count_gaps(q, from, to);
  uint64_t held = pages_there(q);
  struct fill f = {0};
  uint32_t stolen = steal_beyond(q, missing, room(q->soft, held), false, &f.count);
  if (missing > stolen && missing - stolen > room(q->firm, held) && gap__limit_is_tight(s)) {
    gap__supply_refresh(s, q->lane);
    claim_all(q, from, to, true);
    missing = count_gaps(q, from, to);
  }
  stolen += steal_beyond(q, missing - smaller(stolen, missing), room(q->firm, held), true, &f.count);
  int rc = missing > stolen && missing - stolen > room(q->hard, held) ? GAP_ENOMEM : 0;
  for (uint32_t end; !rc && next_gap(q, &from, &end, to); from = end) rc = fill_gap(q, &f, from, end);
  put_back(s, f.next, f.count);
  return rc;
}

/* ---- waiting and trimming ---- */

struct gap__lane *gap__supply_wait_for(struct gap__policy_state *s, const struct gap__lane *asking, uint32_t *epoch) {
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

static bool in_scope(const struct gap__lane *lane, const gap_pool_id *pool) {
  if (atomic_load_explicit(&lane->pinned, memory_order_relaxed)) return false; /* a graph may use what looks idle */
  return !pool || (lane->pool.first == pool->first && lane->pool.second == pool->second);
}

/* Releases what was taken from idle blocks. Returns pages. */
static uint64_t release_loot(struct gap__policy_state *s, uint32_t count, bool wait) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t chunk = s->scratch->loot[i], size = gap__chunk_at(s, chunk)->pages;
    if (chunk_settled(s, chunk, wait) && gap__chunk_release(s, chunk) == 0) {
      pages += size;
      continue;
    }
    if (gap__chunk_is_loose(s, chunk)) continue;
    s->scratch->loot[0] = chunk;
    put_back(s, 0, 1);
  }
  return pages;
}

struct cut {
  const gap_pool_id *pool;
  uint64_t keep_pages;
  uint32_t epoch;
  bool wait;
  enum gap__place place;
};

/* Takes up to `excess` pages from idle blocks of a lane; how many chunks are in the loot. */
static uint32_t take_excess(struct gap__policy_state *s, struct gap__lane *lane, uint64_t excess,
                            const struct terms *terms) {
  uint32_t victims = 0, count = 0;
  uint64_t taken = 0;
  gap__lock(&lane->lock);
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
    gap__hollow_fold(&lane->arena[kind]);
    if (!has_any(&lane->arena[kind], terms->place)) continue;
    gap__arena_flush(&lane->arena[kind]);
    victims += collect_arena(&lane->arena[kind], s->scratch->victims + victims, VICTIMS_MAX - victims);
  }
  for (uint32_t i = 0; i < victims && taken < excess; i++)
    taken += take_from(s, &s->scratch->victims[i], (uint32_t)(excess - taken), terms, &count);
  gap__unlock(&lane->lock);
  return count;
}

static uint64_t trim(struct gap__policy_state *s, const struct cut *cut) {
  uint64_t total = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (!in_scope(lane, cut->pool)) continue;
    gap__lane_close_epoch(lane);
    gap__lane_poll(lane);
    const struct terms terms = {cut->place, cut->wait || lane->completed > cut->epoch ? cut->epoch : lane->completed,
                                true};
    uint64_t released = 1;
    for (uint64_t there; released && (there = pages_at(s, cut->place)) > cut->keep_pages; total += released)
      released = release_loot(s, take_excess(s, lane, there - cut->keep_pages, &terms), cut->wait);
  }
  return total;
}

static uint64_t trim_device(struct gap__policy_state *s, const struct cut *cut) {
  uint64_t loose = give_loose(s, cut->wait), pages = trim(s, cut);
  s->trimmed += (int64_t)pages;
  return loose + pages;
}

uint64_t gap__trim_idle(struct gap__policy_state *s, const gap_pool_id *pool, uint64_t keep_pages, bool wait) {
  const struct cut cut = {pool, keep_pages, UINT32_MAX, wait, GAP__PLACE_DEVICE};
  return trim_device(s, &cut);
}

uint64_t gap__trim_old(struct gap__policy_state *s, uint64_t keep_pages, uint32_t epoch) {
  const struct cut cut = {NULL, keep_pages, epoch, false, GAP__PLACE_DEVICE};
  return trim_device(s, &cut);
}

uint64_t gap__trim_host(struct gap__policy_state *s, const gap_pool_id *pool, uint64_t keep_pages, uint32_t epoch,
                        bool wait) {
  const struct cut cut = {pool, keep_pages, epoch, wait, GAP__PLACE_HOST};
  return s->overflow.pages > keep_pages ? trim(s, &cut) : 0;
}
