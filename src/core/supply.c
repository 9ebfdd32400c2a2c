/* Pages for holes: see supply.h.
 *
 * In order: lent mappings under the place whose chunk is idle are taken back (no driver call); idle chunks are stolen (loot.c), least
 * recently used first, once growing would pass the soft limit; the rest is created.  A chunk of the same stream moves at
 * once: it is mapped at the new address while the old mapping stands (stream order), and the old one stays behind as a lent
 * mapping.  A chunk of another stream moves when its epoch has completed; or, rather than growing beyond the firm limit,
 * earlier: the asking stream is ordered behind that epoch's event on the device, and nobody waits on the host. */
#include "core/supply.h"

#include "core/chunk.h"
#include "core/convert.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/loot.h"
#include "core/overflow.h"
#include "core/place.h"
#include "core/trim.h"

enum { MAPPINGS_KEPT = 3, GRADE_SHARE = 16 };

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
  if (q->ordered != lender && !gap__lane_order_behind(q->lane, lender)) return false;
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
/* ---- the whole supply ---- */

static uint64_t room(uint64_t limit, uint64_t held) { return limit > held ? limit - held : 0; }

static uint64_t pages_there(const struct gap__supply *q) {
  return gap__held_pages_at(q->lane->owner, gap__arena_place(q->range->arena));
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
static uint32_t next_loot(struct gap__policy_state *s, struct fill *f, uint32_t pages) {
  uint32_t *loot = gap__loot(s);
  for (uint32_t i = f->next; i < f->count; i++) {
    uint32_t chunk = loot[i];
    if (gap__chunk_at(s, chunk)->pages > pages) continue;
    loot[i] = loot[f->next];
    loot[f->next++] = chunk;
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
    uint32_t chunk = gap__loot(s)[f->count - 1], size = gap__chunk_at(s, chunk)->pages;
    if (!gap__chunk_settled(s, chunk, false)) return;
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

/* Steals what growing by `allowed` pages does not cover of `missing`, behind what was stolen so far. */
static uint32_t steal_beyond(struct gap__supply *q, uint32_t missing, uint64_t allowed, bool behind, struct fill *f) {
  if (missing <= allowed) return 0;
  struct gap__raid raid = {.lane = q->lane,
                           .want = missing - (uint32_t)allowed,
                           .count = f->count,
                           .behind = behind,
                           .planned = q->range->arena->kind == GAP__ARENA_PLANNED,
                           .place = gap__arena_place(q->range->arena)};
  uint32_t taken = gap__loot_steal(q->lane->owner, &raid);
  f->count = raid.count;
  return taken;
}

int gap__supply_pages(struct gap__supply *q) {
  struct gap__policy_state *s = q->lane->owner;
  const struct gap__block *b = gap__block(q->lane, q->block);
  uint32_t from = gap__page_of(b->off), to = gap__page_up(b->off + b->len);
  gap__trim_loose(s, false);
  claim_all(q, from, to, false);

  uint32_t missing = count_gaps(q, from, to);
  uint64_t held = pages_there(q);
  struct fill f = {0};
  uint32_t stolen = steal_beyond(q, missing, room(q->soft, held), false, &f);
  if (missing > stolen && missing - stolen > room(q->firm, held) && gap__limit_is_tight(s)) {
    gap__loot_refresh(s, q->lane);
    claim_all(q, from, to, true);
    missing = count_gaps(q, from, to);
  }
  stolen += steal_beyond(q, missing - smaller(stolen, missing), room(q->firm, held), true, &f);
  int rc = missing > stolen && missing - stolen > room(q->hard, held) ? GAP_ENOMEM : 0;
  for (uint32_t end; !rc && next_gap(q, &from, &end, to); from = end) rc = fill_gap(q, &f, from, end);
  gap__loot_put_back(s, f.next, f.count);
  return rc;
}
