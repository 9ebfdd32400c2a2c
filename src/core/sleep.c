#include "core/sleep.h"

#include <string.h>

#include "core/arena.h"
#include "core/chunk.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/neighbour.h"
#include "core/pending.h"
#include "core/pool.h"
#include "core/tally.h"
#include "core/trim.h"

enum { ASKS_MAX = 8 };

static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

static gap_addr address_of(const struct gap__policy_state *s, const struct gap__mapping *m) {
  return gap__range_addr(gap__range_at(s, m->range), m->page << GAP__PAGE_UNIT_SHIFT);
}
static struct gap__lane *lane_of(const struct gap__policy_state *s, uint32_t mapping) {
  return gap__range_at(s, gap__mapping_at(s, mapping)->range)->arena->lane;
}
static uint64_t bytes_of(const struct gap__chunk_rec *c) { return (uint64_t)c->pages << GAP__PAGE_SHIFT; }

/* ---- lanes ---- */

bool gap__sleep_sleeps(const struct gap__policy_state *s, gap_pool_id pool) {
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    if (lane->asleep && same_pool(lane->pool, pool)) return true;
  return false;
}

/* A guest keeps the lane what it is, and a pin keeps its pages; nothing is made ahead in it. */
void gap__sleep_mark(struct gap__lane *lane) {
  _Atomic(struct gap__arena *) *ahead = &lane->owner->ahead;
  if (lane->asleep) return;
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++)
    if (atomic_load(ahead) == &lane->arena[kind]) atomic_store(ahead, NULL);
  lane->asleep = true;
  lane->visitors++;
  atomic_store(&lane->pinned, true);
}

static void unmark(struct gap__lane *lane) {
  lane->asleep = false;
  lane->visitors--;
  atomic_store(&lane->pinned, !lane->released && gap__pool_pins(lane->owner, lane->pool));
}

void gap__sleep_explain(const struct gap__lane *lane) {
  gap__device_explain(lane->owner->device,
                      "the pool that the request is for is asleep: nothing is allocated from it before gap_wake");
}

static void mark_all(struct gap__policy_state *s, gap_pool_id pool) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (!same_pool(lane->pool, pool)) continue;
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
      gap__arena_flush(&lane->arena[kind]);
      gap__hollow_fold(&lane->arena[kind]);
    }
    gap__sleep_mark(lane);
    gap__unlock(&lane->lock);
  }
}

static bool unmark_all(struct gap__policy_state *s, gap_pool_id pool) {
  bool awake = true;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    if (lane->asleep && same_pool(lane->pool, pool)) awake &= !lane->asleep_pages;
  for (struct gap__lane *lane = s->lanes; lane && awake; lane = lane->next) {
    if (!lane->asleep || !same_pool(lane->pool, pool)) continue;
    gap__lock(&lane->lock);
    unmark(lane);
    gap__unlock(&lane->lock);
  }
  return awake;
}

/* By an event on each stream that the heap has seen: for a card so full that nothing can be allocated to drain it by. */
static int await_seen(struct gap__policy_state *s) {
  int rc = s->gate.incomplete ? GAP_ENOMEM : 0;
  for (struct gap__lane *lane = s->lanes; lane && !rc; lane = lane->next)
    if (lane->mark_count) rc = gap__lane_wait(lane, gap__lane_closed(lane));
  for (uint32_t i = 0; i < s->gate.count && !rc; i++) {
    const struct gap__gate_stream *seen = &s->gate.streams[i];
    gap__event event;
    if (seen->thread && seen->thread != gap__thread_number()) return GAP_ENOMEM; /* only that thread can name it */
    rc = gap__event_mark(s, seen->stream, &event);
    if (rc) break;
    rc = gap__dev_event_wait(s->dev, event);
    gap__event_give(s, event);
  }
  return rc;
}

static int drain(struct gap__policy_state *s) {
  int rc = gap__lane_drain_device(s);
  if (rc == GAP_ENOMEM && gap__trim_idle(s, NULL, 0, true)) rc = gap__lane_drain_device(s);
  return rc == GAP_ENOMEM ? await_seen(s) : rc;
}

int gap__sleep_begin(struct gap__policy_state *s, gap_pool_id pool) {
  gap__lock(&s->lock);
  bool asleep = gap__sleep_sleeps(s, pool);
  gap__pending_poll(s, NULL);
  if (!asleep) gap__trim_idle(s, &pool, 0, true);
  mark_all(s, pool);
  int rc = drain(s);
  if (rc) unmark_all(s, pool);
  gap__unlock(&s->lock);
  return rc;
}

bool gap__sleep_end(struct gap__policy_state *s, gap_pool_id pool) {
  gap__lock(&s->lock);
  bool awake = unmark_all(s, pool);
  gap__limit_judge(s);
  gap__unlock(&s->lock);
  return awake;
}

bool gap__sleep_any(struct gap__policy_state *s, gap_pool_id pool) {
  uint64_t pages = 0;
  gap__lock(&s->lock);
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    if (same_pool(lane->pool, pool)) pages += lane->asleep_pages;
  gap__unlock(&s->lock);
  return pages != 0;
}

bool gap__sleep_lives(struct gap__policy_state *s, gap_pool_id pool) {
  bool lives = false;
  gap__lock(&s->lock);
  for (struct gap__lane *lane = s->lanes; lane && !lives; lane = lane->next) {
    if (!same_pool(lane->pool, pool)) continue;
    gap__lock(&lane->lock);
    lives = !gap__tally_is_empty(lane);
    gap__unlock(&lane->lock);
  }
  gap__unlock(&s->lock);
  return lives;
}

uint64_t gap__sleep_pages(struct gap__policy_state *s) {
  uint64_t pages = 0;
  gap__lock(&s->lock);
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next) pages += lane->asleep_pages;
  gap__unlock(&s->lock);
  return pages;
}

/* ---- looking ---- */

/* The pages of a chunk that something lives on.  The lane lock is held. */
static void mark_live(const struct gap__range *range, uint32_t page, uint32_t pages,
                      uint64_t live[GAP__CONVERT_WORDS]) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t end = (page + pages) << GAP__PAGE_UNIT_SHIFT;
  memset(live, 0, GAP__CONVERT_WORDS * sizeof *live);
  for (uint32_t i = gap__block_covering(range, page << GAP__PAGE_UNIT_SHIFT); i && gap__block(lane, i)->off < end;
       i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->state != GAP__LIVE && b->state != GAP__PENDING) continue;
    uint32_t from = gap__page_of(b->off), to = gap__page_up(b->off + b->len);
    for (uint32_t at = from < page ? page : from; at < to && at < page + pages; at++)
      live[(at - page) / 64] |= 1ull << (at - page) % 64;
  }
}

/* Does the pool give up what is idle in it? */
static bool gives_up(struct gap__policy_state *s, const struct gap__lane *lane) {
  return lane->released || !gap__pool_pins(s, lane->pool);
}

/* Graphs may know a chunk by a second address in their pool, which is to be there again; in other pools it is a remnant. */
static bool is_wanted(struct gap__policy_state *s, const struct gap__chunk_rec *c, uint32_t mapping) {
  const struct gap__lane *lane = lane_of(s, mapping);
  return mapping == c->home || (same_pool(lane->pool, lane_of(s, c->home)->pool) && !gives_up(s, lane));
}

/* Memory that others know is not exchanged, nor what graphs know by an address in another pool.  What is in host memory takes none of the
 * card's. */
static bool must_stay(struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  if (c->known || c->host) return true;
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next)
    if (!is_wanted(s, c, m) && !gives_up(s, lane_of(s, m))) return true;
  return false;
}

/* The chunk whose home begins at this page, or NULL. */
static struct gap__chunk_rec *home_at(const struct gap__policy_state *s, const struct gap__range *range,
                                      uint32_t page) {
  if (!gap__slot_is_home(s, range, page)) return NULL;
  const struct gap__mapping *m = gap__mapping_at(s, range->slot[page]);
  return m->page == page ? gap__chunk_at(s, m->chunk) : NULL;
}

static bool is_asleep_in(const struct gap__range *range, gap_pool_id pool) {
  const struct gap__lane *lane = range->arena->lane;
  return lane->asleep && same_pool(lane->pool, pool);
}

static int visit_chunk(struct gap__policy_state *s, const struct gap__range *range, uint32_t page, gap__bed_fn *visit,
                       void *arg) {
  struct gap__lane *lane = range->arena->lane;
  const struct gap__chunk_rec *c = home_at(s, range, page);
  struct gap__bed bed = {.addr = gap__range_addr(range, page << GAP__PAGE_UNIT_SHIFT),
                         .pages = c->pages,
                         .asleep = c->asleep,
                         .empty = c->asleep && (!c->handle || c->empty),
                         .untouched = !lane->touched};
  gap__lock(&lane->lock);
  mark_live(range, page, c->pages, bed.live);
  gap__unlock(&lane->lock);
  return visit(arg, &bed);
}

/* Pages before the last hole. */
static uint32_t used_pages(const struct gap__range *range) {
  struct gap__lane *lane = range->arena->lane;
  gap__lock(&lane->lock);
  const struct gap__block *tail = gap__block(lane, range->tail);
  uint32_t pages = tail->state == GAP__HOLE ? gap__page_of(tail->off) : range->pages;
  gap__unlock(&lane->lock);
  return pages;
}

int gap__sleep_visit(struct gap__policy_state *s, gap_pool_id pool, gap__bed_fn *visit, void *arg,
                     uint64_t *kept_pages) {
  uint64_t kept = 0;
  int rc = 0;
  gap__lock(&s->lock);
  for (uint32_t i = 1; i <= s->range_count && !rc; i++) {
    const struct gap__range *range = gap__range_at(s, i);
    if (!is_asleep_in(range, pool)) continue;
    for (uint32_t page = 0, end = used_pages(range); page < end && !rc; page++) {
      const struct gap__chunk_rec *c = home_at(s, range, page);
      if (!c) continue;
      if (!c->asleep && must_stay(s, c)) kept += c->pages;
      else rc = visit_chunk(s, range, page, visit, arg);
      page += c->pages - 1;
    }
  }
  gap__unlock(&s->lock);
  if (kept_pages) *kept_pages += kept;
  return rc;
}

/* ---- falling asleep and rising ---- */

static struct gap__chunk_rec *chunk_of(struct gap__policy_state *s, gap_addr addr) {
  const struct gap__range *range = gap__range_of(s, addr);
  return gap__chunk_at(s, gap__mapping_at(s, range->slot[(addr - range->base) >> GAP__PAGE_SHIFT])->chunk);
}

static void count_asleep(struct gap__policy_state *s, const struct gap__chunk_rec *c, int64_t pages) {
  lane_of(s, c->home)->asleep_pages += (uint64_t)pages;
}

static int put_away(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  int rc = 0;
  for (uint32_t m = c->mappings; m && !rc; m = gap__mapping_at(s, m)->next) {
    struct gap__mapping *mapping = gap__mapping_at(s, m);
    if (mapping->away) continue;
    rc = gap__dev_unmap(s->dev, address_of(s, mapping), bytes_of(c));
    mapping->away = !rc;
  }
  return rc;
}

static int bring_back(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  int rc = 0;
  for (uint32_t m = c->mappings; m && !rc; m = gap__mapping_at(s, m)->next) {
    struct gap__mapping *mapping = gap__mapping_at(s, m);
    if (!mapping->away) continue;
    rc = gap__dev_map(s->dev, address_of(s, mapping), bytes_of(c), c->handle);
    if (rc) break;
    mapping->away = false;
    rc = gap__dev_set_access(s->dev, address_of(s, mapping), bytes_of(c));
    if (rc) mapping->away = gap__dev_unmap(s->dev, address_of(s, mapping), bytes_of(c)) == 0;
  }
  return rc;
}

static bool any_away(const struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next)
    if (gap__mapping_at(s, m)->away) return true;
  return false;
}

static bool any_mapped(const struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next)
    if (!gap__mapping_at(s, m)->away) return true;
  return false;
}

static int let_go(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  int rc = c->handle ? gap__dev_chunk_release(s->dev, c->handle) : 0;
  if (rc || !c->handle) return rc;
  c->handle = 0;
  gap__chunk_count_asleep(s, c, -(int64_t)c->pages);
  return 0;
}

static int unmap_remnants(struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  for (uint32_t next, m = c->mappings; m; m = next) {
    next = gap__mapping_at(s, m)->next;
    int rc = is_wanted(s, c, m) ? 0 : gap__mapping_unmap(s, m);
    if (rc) return rc;
  }
  return 0;
}

static int fall(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  if (c->asleep) return 0;
  int rc = unmap_remnants(s, c);
  if (rc) return rc;
  rc = put_away(s, c);
  if (rc) bring_back(s, c);
  c->asleep = any_away(s, c);
  if (c->asleep) count_asleep(s, c, c->pages);
  if (!rc) let_go(s, c); /* what the driver keeps sleeps with its bytes */
  return rc;
}

static bool is_single(const struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  return c->asleep && !c->handle && c->mappings == c->home && !gap__mapping_at(s, c->home)->next;
}

/* A chunk of its own begins at `at`, inside the one at `page`: there is no memory that could not be parted.  False: no records. */
static bool part(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t at) {
  uint32_t chunk = gap__slab_take(&s->chunks), mapping = chunk ? gap__slab_take(&s->mappings) : 0;
  if (!mapping) {
    if (chunk) gap__slab_give(&s->chunks, chunk);
    return false;
  }
  struct gap__chunk_rec *c = home_at(s, range, page);
  uint32_t pages = page + c->pages - at;
  *gap__chunk_at(s, chunk) =
      (struct gap__chunk_rec){.pages = pages, .home = mapping, .mappings = mapping, .asleep = true};
  *gap__mapping_at(s, mapping) =
      (struct gap__mapping){.chunk = chunk, .page = at, .range = (uint16_t)(range - s->ranges), .away = true};
  for (uint32_t i = 0; i < pages; i++) range->slot[at + i] = mapping;
  c->pages -= pages;
  return true;
}

/* Parts the chunk between pages that something lived on and others. */
static void part_runs(struct gap__policy_state *s, gap_addr addr, const uint64_t *live) {
  struct gap__range *range = gap__range_of(s, addr);
  uint32_t page = (uint32_t)((addr - range->base) >> GAP__PAGE_SHIFT), pages = chunk_of(s, addr)->pages;
  for (uint32_t i = pages - 1; i > 0; i--) /* from its end: the first part keeps the record */
    if ((live[i / 64] >> i % 64 & 1) != (live[(i - 1) / 64] >> (i - 1) % 64 & 1) && !part(s, range, page, page + i))
      return;
}

int gap__sleep_fall(struct gap__policy_state *s, gap_addr addr, const uint64_t *live) {
  gap__lock(&s->lock);
  struct gap__chunk_rec *c = chunk_of(s, addr);
  int rc = fall(s, c);
  if (!rc && live && is_single(s, c) && gives_up(s, lane_of(s, c->home))) part_runs(s, addr, live);
  gap__unlock(&s->lock);
  return rc;
}

static int make_chunk(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  int rc = gap__dev_chunk_create(s->dev, bytes_of(c), GAP__PLACE_DEVICE, &c->handle);
  if (rc) c->handle = 0;
  else gap__chunk_count_asleep(s, c, c->pages);
  return rc;
}

/* Where the driver has no memory left, idle pages of ours go, then neighbours are asked. */
static int make(struct gap__policy_state *s, struct gap__chunk_rec *c) {
  struct gap__asked asked = {0};
  int rc = make_chunk(s, c);
  if (rc == GAP_ENOMEM && gap__trim_idle(s, NULL, 0, true)) rc = make_chunk(s, c);
  for (int asks = 0; rc == GAP_ENOMEM && asks < ASKS_MAX; asks++) {
    gap__unlock(&s->lock);
    bool hope = gap__neighbour_ask(s->device, bytes_of(c), &asked);
    gap__lock(&s->lock);
    if (!hope) break;
    rc = make_chunk(s, c);
  }
  c->empty = !rc;
  return rc;
}

int gap__sleep_make(struct gap__policy_state *s, gap_addr addr) {
  gap__lock(&s->lock);
  struct gap__chunk_rec *c = chunk_of(s, addr);
  int rc = c->handle ? 0 : make(s, c);
  gap__unlock(&s->lock);
  return rc;
}

int gap__sleep_rise(struct gap__policy_state *s, gap_addr addr) {
  gap__lock(&s->lock);
  int rc = bring_back(s, chunk_of(s, addr));
  gap__unlock(&s->lock);
  return rc;
}

void gap__sleep_wake(struct gap__policy_state *s, gap_addr addr) {
  gap__lock(&s->lock);
  struct gap__chunk_rec *c = chunk_of(s, addr);
  struct gap__lane *lane = lane_of(s, c->home);
  if (c->asleep) count_asleep(s, c, -(int64_t)c->pages);
  c->asleep = c->empty = false;
  gap__lock(&lane->lock);
  lane->touched = false;
  gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
}

/* A chunk whose bytes never left it stays as it is; an empty one goes. */
void gap__sleep_undo(struct gap__policy_state *s, gap_addr addr) {
  gap__lock(&s->lock);
  struct gap__chunk_rec *c = chunk_of(s, addr);
  if (c->asleep) {
    put_away(s, c);
    if (c->empty && !any_mapped(s, c) && let_go(s, c) == 0) c->empty = false;
  }
  gap__unlock(&s->lock);
}

int gap__sleep_room(struct gap__policy_state *s, uint64_t pages) {
  gap__lock(&s->lock);
  gap__limit_ask_again(s);
  uint64_t hard = gap__hard_limit(s);
  if (pages <= hard && gap__held_pages(s) + pages > hard) gap__trim_idle(s, NULL, hard - pages, true);
  hard = gap__hard_limit(s);
  bool fits = pages <= hard && gap__held_pages(s) + pages <= hard;
  gap__unlock(&s->lock);
  return fits ? 0 : GAP_ENOMEM;
}

/* ---- tidying ---- */

/* Of a chunk without memory, once nobody's slot names it. */
static void give_records(struct gap__policy_state *s, uint32_t chunk) {
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  gap__slab_give(&s->mappings, c->home);
  *c = (struct gap__chunk_rec){0};
  gap__slab_give(&s->chunks, chunk);
}

static void forget_chunk(struct gap__policy_state *s, struct gap__range *range, uint32_t page) {
  uint32_t chunk = gap__mapping_at(s, range->slot[page])->chunk, pages = gap__chunk_at(s, chunk)->pages;
  for (uint32_t i = 0; i < pages; i++) range->slot[page + i] = 0;
  gap__chunk_forget_home(range, pages);
  give_records(s, chunk);
}

/* True: it is a hole now. */
static bool dissolve(struct gap__policy_state *s, struct gap__range *range, uint32_t page) {
  struct gap__lane *lane = range->arena->lane;
  struct gap__chunk_rec *c = home_at(s, range, page);
  if (!is_single(s, c)) return false;
  gap__lock(&lane->lock);
  uint32_t index = gap__block_covering(range, page << GAP__PAGE_UNIT_SHIFT);
  const struct gap__block *b = gap__block(lane, index);
  bool idle = b->state == GAP__IDLE && b->off + b->len >= (page + c->pages) << GAP__PAGE_UNIT_SHIFT;
  bool done = idle && gap__arena_withdraw(range->arena, index, page, c->pages) == 0;
  gap__unlock(&lane->lock);
  if (!done) return false;
  count_asleep(s, c, -(int64_t)c->pages);
  forget_chunk(s, range, page);
  return true;
}

static bool lives_throughout(const struct gap__range *range, uint32_t page, uint32_t pages) {
  uint64_t live[GAP__CONVERT_WORDS];
  mark_live(range, page, pages, live);
  for (uint32_t i = 0; i < pages; i++)
    if (!(live[i / 64] >> i % 64 & 1)) return false;
  return true;
}

/* The chunk at `page` takes over its next neighbour: nothing of either is the driver's. */
static void join(struct gap__policy_state *s, struct gap__range *range, struct gap__chunk_rec *c, uint32_t next) {
  uint32_t chunk = gap__mapping_at(s, range->slot[next])->chunk, pages = gap__chunk_at(s, chunk)->pages;
  for (uint32_t i = 0; i < pages; i++) range->slot[next + i] = c->home;
  c->pages += pages;
  give_records(s, chunk);
}

/* Joins what follows the chunk at `page` to it; returns the page behind. */
static uint32_t join_run(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t most) {
  struct gap__chunk_rec *c = home_at(s, range, page), *next;
  while (page + c->pages < range->pages && (next = home_at(s, range, page + c->pages)) != NULL) {
    if (!is_single(s, c) || !is_single(s, next) || c->pages + next->pages > most) break;
    if (!lives_throughout(range, page, c->pages + next->pages)) break;
    join(s, range, c, page + c->pages);
  }
  return page + c->pages;
}

static void tidy_range(struct gap__policy_state *s, struct gap__range *range, bool dissolves, uint32_t most) {
  struct gap__lane *lane = range->arena->lane;
  if (dissolves) {
    gap__lock(&lane->lock);
    gap__arena_flush(range->arena);
    gap__hollow_fold(range->arena);
    gap__unlock(&lane->lock);
  }
  for (uint32_t page = 0, end = used_pages(range); page < end;) {
    const struct gap__chunk_rec *c = home_at(s, range, page);
    uint32_t pages = c ? c->pages : 1;
    if (!c || (dissolves && dissolve(s, range, page))) {
      page += pages;
      continue;
    }
    gap__lock(&lane->lock);
    page = join_run(s, range, page, most);
    gap__unlock(&lane->lock);
  }
}

void gap__sleep_tidy(struct gap__policy_state *s, gap_pool_id pool, uint32_t most_pages) {
  gap__lock(&s->lock);
  for (uint32_t i = 1; i <= s->range_count; i++) {
    struct gap__range *range = gap__range_at(s, i);
    if (!is_asleep_in(range, pool)) continue;
    tidy_range(s, range, gives_up(s, range->arena->lane), most_pages);
  }
  gap__unlock(&s->lock);
}

void gap__sleep_discard(struct gap__policy_state *s, uint32_t chunk) {
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  put_away(s, c);
  let_go(s, c);
}
