/* The strategy `gapless`: the hot path and the table heap.c dispatches through.
 *
 * Hot path: one hash probe for the lane, one lock, a front cache or two find-first-sets, three counters and one branch for
 * all peaks; no driver call, no clock, no log.  Everything else is out of line. */
#include "core/arena.h"
#include "core/at.h"
#include "core/check.h"
#include "core/chunk.h"
#include "core/events.h"
#include "core/figures.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/maker.h"
#include "core/peer.h"
#include "core/pool.h"
#include "core/reclaim.h"
#include "core/supply.h"
#include "core/tally.h"

#define COLD __attribute__((noinline, cold))
enum { CREDIT_RETRY = 255, RANGES_MAX = 65536, CHUNKS_MAX = 1 << 22, MAPPINGS_MAX = 1 << 24, USES_MAX = 1 << 22,
       EVENT_CACHE = 4096 };
#define UNITS_MAX 0x7fffffffull /* 1 TiB less 512 B: no card has more */

/* ---- allocation ---- */

static inline bool is_small(uint64_t units) { return units <= GAP__SMALL_UNITS; }

/* A cached block of exactly this length. */
static inline uint32_t take_cached(struct gap__lane *lane, uint64_t units) {
  if (is_small(units)) {
    struct gap__arena *arena = &lane->arena[GAP__ARENA_SMALL];
    uint32_t index = arena->front[units];
    if (index) arena->front[units] = gap__block(lane, index)->link_next;
    return index;
  }
  struct gap__arena *arena = &lane->arena[GAP__ARENA_LARGE];
  uint32_t index = arena->hot;
  if (!index || gap__block(lane, index)->len != units) return 0;
  arena->hot = 0;
  return index;
}

static inline uint32_t take_idle(struct gap__lane *lane, uint32_t units) {
  struct gap__arena *arena = &lane->arena[is_small(units) ? GAP__ARENA_SMALL : GAP__ARENA_LARGE];
  if (arena->hot) { /* large: it may merge into what is needed */
    uint32_t hot = arena->hot;
    arena->hot = 0;
    gap__block_attach(arena, hot, GAP__IDLE);
  }
  return gap__arena_fit(arena, units, units % GAP__PAGE_UNITS == 0);
}

/* The end of an allocation that is not plain: somebody listens, or a limit is passed.  Unlocks the lane. */
static COLD void alloc_noted(struct gap__lane *lane, uint32_t index, bool trip) {
  gap__events_block(lane, gap__block(lane, index), GAP_EVENT_ALLOC);
  gap__unlock(&lane->lock);
  if (!trip) return;
  gap__lock(&lane->owner->lock);
  gap__tally_trip(lane->owner, lane);
  gap__unlock(&lane->owner->lock);
}

static inline uint64_t units_of(const struct gap__policy_state *s, uint64_t bytes) {
  if (!atomic_load_explicit(&s->plain_rounding, memory_order_relaxed)) bytes = gap__conf_round(gap__device_conf(s->device), bytes);
  return (bytes + GAP__UNIT - 1) >> GAP__UNIT_SHIFT;
}

static COLD int climb(struct gap__lane *lane, uint64_t units, uint64_t bytes, uint32_t *block) {
  struct gap__request req = {.units = (uint32_t)(units < UNITS_MAX ? units : UNITS_MAX),
                             .bytes = bytes,
                             .aligned = units % GAP__PAGE_UNITS == 0};
  return gap__reclaim(lane, &req, block);
}

static int alloc(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct gap__lane *lane = gap__lane_find(s, stream, pool);
  int rc;
  if (__builtin_expect(!lane, 0) && (rc = gap__lane_get(s, stream, pool, &lane))) return rc;
  uint64_t units = units_of(s, bytes);

  gap__lock(&lane->lock);
  uint32_t index = take_cached(lane, units);
  if (!index && units <= UNITS_MAX) index = take_idle(lane, (uint32_t)units);
  if (__builtin_expect(!index, 0)) {
    gap__unlock(&lane->lock);
    if ((rc = climb(lane, units, bytes, &index))) return rc;
    gap__lock(&lane->lock);
  }
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__LIVE;
  b->link_next = 0;
  b->slack = (uint32_t)((units << GAP__UNIT_SHIFT) - bytes);
  bool trip = gap__tally_alloc(lane, (uint32_t)units, b->slack);
  *out = gap__range_addr(&s->ranges[b->range], b->off);
  if (__builtin_expect(trip | gap__watched(s->device), 0)) alloc_noted(lane, index, trip);
  else gap__unlock(&lane->lock);
  return 0;
}

/* ---- free ---- */

static inline void cache(struct gap__arena *arena, uint32_t index, struct gap__block *b) {
  b->state = GAP__CACHED;
  if (arena->kind == GAP__ARENA_SMALL) {
    b->link_next = arena->front[b->len];
    arena->front[b->len] = index;
  } else {
    bool scarce = atomic_load_explicit(&arena->lane->owner->scarce, memory_order_relaxed);
    uint32_t colder = arena->hot;
    arena->hot = scarce ? 0 : index;
    if (colder) gap__block_attach(arena, colder, GAP__IDLE);
    if (scarce) gap__block_attach(arena, index, GAP__IDLE);
  }
}

/* Every GAP__EPOCH_FREES frees: closes the epoch and looks at what has completed, unless somebody is at it.  A lone lane
 * does without: its epochs matter in its own slow paths only, and those close them. */
static COLD void turn_epoch(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  if (!gap__trylock(&s->lock)) return;
  if (s->lane_count == 1 && !s->pending_count) {
    gap__unlock(&s->lock);
    return;
  }
  gap__lane_close_epoch(lane);
  gap__lane_poll(lane);
  gap__pending_poll(s);
  gap__unlock(&s->lock);
}

/* The block is still used by other streams: it waits for them. */
static COLD int free_later(struct gap__lane *lane, struct gap__range *range, uint32_t unit) {
  struct gap__policy_state *s = lane->owner;
  int rc = GAP_EFREED;
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  uint32_t index = gap__block_starting(range, unit), uses = 0;
  struct gap__block *b = gap__block(lane, index);
  if (index && b->state == GAP__LIVE) {
    uses = b->link_next;
    b->state = GAP__PENDING;
    gap__tally_pending(lane, b);
    gap__events_block(lane, b, GAP_EVENT_FREE_REQUESTED);
    rc = 0;
  }
  gap__unlock(&lane->lock);
  if (!rc) rc = gap__pending_add(lane, index, uses);
  gap__unlock(&s->lock);
  return rc;
}

/* Reported before the block can be handed out again. */
static COLD void free_noted(struct gap__lane *lane, const struct gap__block *b) {
  gap__events_block(lane, b, GAP_EVENT_FREE_REQUESTED);
  gap__events_block(lane, b, GAP_EVENT_FREE_COMPLETED);
}

static int free_block(struct gap__policy_state *s, gap_addr addr) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  uint32_t unit = (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT);
  if (addr & (GAP__UNIT - 1)) return GAP_EFREED;

  gap__lock(&lane->lock);
  uint32_t index = gap__block_starting(range, unit);
  struct gap__block *b = gap__block(lane, index);
  if (__builtin_expect(!index || b->state != GAP__LIVE || b->link_next | gap__watched(s->device), 0)) {
    bool live = index && b->state == GAP__LIVE;
    if (!live || b->link_next) {
      gap__unlock(&lane->lock);
      return live ? free_later(lane, range, unit) : GAP_EFREED;
    }
    free_noted(lane, b);
  }
  gap__tally_free(lane, b);
  gap__range_stamp(range, b->off, b->len, lane->epoch);
  cache(range->arena, index, b);
  bool turn = --lane->credit == 0;
  if (turn) lane->credit = CREDIT_RETRY;
  gap__unlock(&lane->lock);
  if (__builtin_expect(turn, 0)) turn_epoch(lane);
  return 0;
}

static int record_stream(struct gap__policy_state *s, gap_addr addr, gap_stream stream) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  stream = gap__stream_normal(stream);
  if (stream == lane->stream && stream != GAP__STREAM_PER_THREAD) return 0;
  int rc = GAP_EFREED;
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  uint32_t index = gap__block_starting(range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT));
  struct gap__block *b = gap__block(lane, index);
  if (index && b->state == GAP__LIVE && !(addr & (GAP__UNIT - 1))) {
    uint32_t use = b->link_next;
    while (use && ((struct gap__use *)gap__slab_at(&s->uses, use))->stream != stream)
      use = ((struct gap__use *)gap__slab_at(&s->uses, use))->next;
    if (!use && (use = gap__slab_take(&s->uses))) {
      *(struct gap__use *)gap__slab_at(&s->uses, use) = (struct gap__use){.stream = stream, .next = b->link_next};
      b->link_next = use;
    }
    rc = use ? 0 : GAP_ENOMETA;
  }
  gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  return rc;
}

/* ---- the rest of the table ---- */

static int retire_stream(struct gap__policy_state *s, gap_stream stream) {
  stream = gap__stream_normal(stream);
  gap__lock(&s->lock);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    if (lane->stream == stream) gap__lane_close_epoch(lane); /* the last event this stream can record */
  gap__unlock(&s->lock);
  return 0;
}

static int trim(struct gap__policy_state *s, gap_pool_id pool, uint64_t *bytes_returned) {
  bool all = !pool.first && !pool.second;
  gap__lock(&s->lock);
  atomic_store(&s->ahead, NULL); /* what is given back must not be made anew ahead of need */
  gap__pending_poll(s);
  while (gap__pending_wait(s)) continue; /* what other streams still use is given back too, as empty_cache does */
  uint64_t pages = gap__trim_idle(s, all ? NULL : &pool, 0, true);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
  *bytes_returned = pages << GAP__PAGE_SHIFT;
  return 0;
}

static int configure(struct gap__policy_state *s) {
  const struct gap__conf *conf = gap__device_conf(s->device);
  bool plain = conf->granularity == GAP__UNIT;
  for (int i = 0; i < 16; i++) plain = plain && conf->roundup_power2_divisions[i] <= 1;
  atomic_store(&s->plain_rounding, plain);
  gap__lock(&s->lock);
  uint64_t keep = gap__limit_keep(s);
  if (gap__held_pages(s) > keep) gap__trim_idle(s, NULL, keep, true);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
  return 0;
}

static void destroy(struct gap__policy_state *s) {
  gap__maker_stop(s);
  for (uint32_t i = 1; s->chunks.base && i < s->chunks.count; i++)
    if (gap__chunk_at(s, i)->mappings) gap__chunk_release(s, i);
  for (uint32_t next, i = s->loose; i; i = next) {
    next = gap__chunk_at(s, i)->next_loose;
    gap__chunk_release(s, i);
  }
  for (uint32_t i = 1; i <= s->range_count; i++) gap__range_destroy(s, gap__range_at(s, i));
  for (uint32_t i = 0; i < s->event_cached; i++) gap__dev_event_destroy(s->dev, s->event_cache[i]);
  for (struct gap__lane *next, *lane = s->lanes; lane; lane = next) {
    next = lane->next;
    gap__lane_destroy(lane);
  }
  gap__slab_destroy(&s->chunks);
  gap__slab_destroy(&s->mappings);
  gap__slab_destroy(&s->uses);
  gap__scratch_destroy(s);
  gap__meta_unmap(s->pools, 4096 * sizeof *s->pools);
  gap__meta_unmap(s->pending, s->pending_capacity * sizeof *s->pending);
  gap__meta_unmap(s->event_cache, EVENT_CACHE * sizeof *s->event_cache);
  gap__meta_unmap(s->ranges, RANGES_MAX * sizeof *s->ranges);
  gap__meta_unmap(s->range_of, (1ull << (GAP__ADDRESS_BITS - GAP__WINDOW_SHIFT)) * sizeof *s->range_of);
  gap__meta_unmap(s, sizeof *s);
}

static int create(struct gap__device *device, struct gap__policy_state **out) {
  if (!device->dev->caps.vmm) return GAP_ENOTSUP;
  struct gap__policy_state *s = gap__meta_map(sizeof *s);
  if (!s) return GAP_ENOMETA;
  s->device = device;
  s->dev = device->dev;
  s->range_of = gap__meta_map((1ull << (GAP__ADDRESS_BITS - GAP__WINDOW_SHIFT)) * sizeof *s->range_of);
  s->ranges = gap__meta_map(RANGES_MAX * sizeof *s->ranges);
  s->event_cache = gap__meta_map(EVENT_CACHE * sizeof *s->event_cache);
  s->event_capacity = s->event_cache ? EVENT_CACHE : 0;
  gap__maker_start(s);
  if (!s->range_of || !s->ranges || gap__slab_init(&s->chunks, sizeof(struct gap__chunk_rec), CHUNKS_MAX) ||
      gap__slab_init(&s->mappings, sizeof(struct gap__mapping), MAPPINGS_MAX) ||
      gap__slab_init(&s->uses, sizeof(struct gap__use), USES_MAX) || gap__scratch_create(s)) {
    destroy(s);
    return GAP_ENOMETA;
  }
  configure(s);
  *out = s;
  return 0;
}

static void reset(struct gap__policy_state *s, bool peaks, bool accumulated) {
  gap__lock(&s->lock);
  gap__tally_reset(s, peaks, accumulated);
  gap__figures_reset(s, peaks, accumulated);
  gap__unlock(&s->lock);
}

const struct gap__policy gap__policy_gapless = {
    .name = "gapless",
    .strategy = GAP__STRATEGY_GAPLESS,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = free_block,
    .record_stream = record_stream,
    .retire_stream = retire_stream,
    .pool_retain = gap__pool_retain,
    .pool_release = gap__pool_release,
    .trim = trim,
    .configure = configure,
    .stats = gap__figures_stats,
    .reset = reset,
    .walk = gap__figures_walk,
    .alloc_at = gap__at_alloc,
    .pieces = gap__at_pieces,
    .find = gap__figures_find,
    .check = gap__check,
    .renew_access = gap__peer_renew_access,
    .tick = gap__maker_step,
};
