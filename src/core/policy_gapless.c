/* The strategy `gapless`: the hot path and the table heap.c dispatches through.
 *
 * Hot path: one hash probe for the lane, one lock, a front cache or two find-first-sets, three counters and one branch for
 * all peaks; no driver call, no clock, no log.  Everything else is out of line. */
#include "core/arena.h"
#include "core/at.h"
#include "core/check.h"
#include "core/chunk.h"
#include "core/convert.h"
#include "core/events.h"
#include "core/figures.h"
#include "core/follow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/loot.h"
#include "core/maker.h"
#include "core/neighbour.h"
#include "core/overflow.h"
#include "core/overflow_move.h"
#include "core/peer.h"
#include "core/pending.h"
#include "core/pool.h"
#include "core/reclaim.h"
#include "core/sleep.h"
#include "core/tally.h"
#include "core/tray.h"
#include "core/trim.h"
#include "core/watch.h"

#define COLD __attribute__((noinline, cold))
#define HOT __attribute__((always_inline)) static inline
enum {
  CREDIT_RETRY = 255,
  RANGES_MAX = 65536,
  CHUNKS_MAX = 1 << 22,
  MAPPINGS_MAX = 1 << 24,
  USES_MAX = 1 << 22,
  EVENT_CACHE = 4096
};

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
  if (arena->hot) gap__arena_cool(arena); /* it may merge into what is needed */
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
  if (!atomic_load_explicit(&s->plain_rounding, memory_order_relaxed))
    bytes = gap__conf_round(gap__device_conf(s->device), bytes);
  return (bytes + GAP__UNIT - 1) >> GAP__UNIT_SHIFT;
}

/* Blocks of the lane that other streams used may be free by now.  Expects the lane lock, and returns with it. */
static COLD void look_at_pending(struct gap__lane *lane) {
  lane->visitors++;
  gap__unlock(&lane->lock);
  gap__pending_poll_lane(lane);
  gap__lock(&lane->lock);
  lane->visitors--;
}

/* Expects the lane lock, and returns with it. */
static COLD int climb(struct gap__lane *lane, const struct gap__request *req, uint32_t *block) {
  lane->visitors++;
  gap__unlock(&lane->lock);
  int rc = gap__reclaim(lane, req, block);
  gap__lock(&lane->lock);
  lane->visitors--;
  return rc;
}

/* Hands out a RESERVED or cached block of the lane, whose lock is held and given up. */
static inline gap_addr hand_out(const struct gap__policy_state *s, struct gap__lane *lane, uint32_t index,
                                uint64_t units, uint64_t bytes) {
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__LIVE;
  b->link_next = 0;
  b->slack = (uint32_t)((units << GAP__UNIT_SHIFT) - bytes);
  bool trip = gap__tally_alloc(lane, (uint32_t)units, b->slack);
  gap_addr addr = gap__range_addr(&s->ranges[b->range], b->off);
  if (__builtin_expect(trip | gap__watched(s->device), 0)) alloc_noted(lane, index, trip);
  else gap__unlock(&lane->lock);
  return addr;
}

/* No page serves the request; where that is for want of addresses, a driver allocation may.  Unlocks the lane. */
static COLD int give_up(struct gap__lane *lane, int rc, uint64_t bytes, gap_addr *out) {
  gap_stream stream = lane->stream;
  gap_pool_id pool = lane->pool;
  gap__unlock(&lane->lock);
  return rc == GAP_ENOTSUP ? gap__heap_alloc_whole(lane->owner->device, stream, pool, bytes, out) : rc;
}

/* No idle block fits. Expects the lane lock. */
static COLD int alloc_slow(struct gap__lane *lane, uint64_t units, uint64_t bytes, gap_addr *out) {
  const struct gap__request req = {.units = (uint32_t)(units <= GAP__UNITS_MAX ? units : GAP__UNITS_MAX + 1),
                                   .bytes = bytes,
                                   .aligned = units % GAP__PAGE_UNITS == 0};
  uint32_t index;
  int rc = climb(lane, &req, &index);
  if (rc) return give_up(lane, rc, bytes, out);
  *out = hand_out(lane->owner, lane, index, units, bytes);
  return 0;
}

static inline int alloc_locked(const struct gap__policy_state *s, struct gap__lane *lane, uint64_t units,
                               uint64_t bytes, gap_addr *out) {
  uint32_t index = take_cached(lane, units);
  if (!index) {
    if (__builtin_expect(gap__tally_has_pending(lane), 0)) look_at_pending(lane);
    if (units <= GAP__UNITS_MAX && !lane->asleep) index = take_idle(lane, (uint32_t)units);
  }
  if (__builtin_expect(!index, 0)) return alloc_slow(lane, units, bytes, out);
  *out = hand_out(s, lane, index, units, bytes);
  return 0;
}

/* Where the plan places it, or without one. */
static COLD int alloc_planned(struct gap__policy_state *s, struct gap__lane *lane, uint64_t units, uint64_t bytes,
                              gap_addr *out) {
  uint32_t index = units <= GAP__UNITS_MAX ? gap__follow(lane, (uint32_t)units, bytes) : 0;
  if (!index) return alloc_locked(s, lane, units, bytes, out);
  *out = hand_out(s, lane, index, units, bytes);
  return 0;
}

/* Blocks of the overflow are in no tray: their class would go on being served from host memory. */
static bool lies_alone(const struct gap__lane *lane, uint32_t index) {
  return gap__range_at(lane->owner, gap__block(lane, index)->range)->arena->kind == GAP__ARENA_OVERFLOW;
}

/* No block of the class is idle: pages for a tray.  Expects the lane lock, and returns with it. */
static COLD int fetch_tray(struct gap__lane *lane, uint32_t class, uint64_t bytes, uint32_t *index) {
  const struct gap__classes *classes = &lane->owner->classes;
  const struct gap__request req = {.units = classes->pages[class] << GAP__PAGE_UNIT_SHIFT,
                                   .bytes = bytes,
                                   .aligned = true,
                                   .tray = true,
                                   .class = class,
                                   .least = gap__page_up(classes->units[class]) << GAP__PAGE_UNIT_SHIFT};
  struct gap__arena *arena = &lane->arena[is_small(classes->units[class]) ? GAP__ARENA_SMALL : GAP__ARENA_LARGE];
  *index = lane->asleep ? 0 : gap__arena_fit(arena, req.units, true);
  int rc = *index ? 0 : climb(lane, &req, index);
  if (rc || gap__block(lane, *index)->tray || lies_alone(lane, *index)) return rc;
  rc = gap__tray_cut(arena, *index, class);
  if (!rc) *index = gap__tray_take(lane, class);
  return rc;
}

/* In size classes; what no class is long enough for has pages of its own. */
static COLD int alloc_pooled(const struct gap__policy_state *s, struct gap__lane *lane, uint64_t units, uint64_t bytes,
                             gap_addr *out) {
  const struct gap__classes *classes = &s->classes;
  uint32_t class = gap__class_for(s, units);
  if (class == classes->count) return alloc_locked(s, lane, gap__tray_units(s, units), bytes, out);
  uint32_t index = gap__tray_take(lane, class);
  if (!index && gap__tally_has_pending(lane)) {
    look_at_pending(lane);
    index = lane->asleep ? 0 : gap__tray_take(lane, class);
  }
  int rc = index ? 0 : fetch_tray(lane, class, bytes, &index);
  if (rc) return give_up(lane, rc, bytes, out);
  *out = hand_out(s, lane, index, classes->units[class], bytes);
  return 0;
}

static COLD int refuse_asleep(struct gap__lane *lane) {
  gap__sleep_explain(lane);
  gap__unlock(&lane->lock);
  return GAP_ESTATE;
}

/* A private pool, size classes, a per-thread default stream, a plan, or somebody who asks for the first time. */
static __attribute__((noinline)) int alloc_finding(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool,
                                                   uint64_t bytes, gap_addr *out) {
  uint64_t thread = gap__stream_thread(stream);
  if (thread && gap__pending_owes(s, thread)) gap__pending_pay(s);
  struct gap__lane *lane = gap__lane_lock(s, stream, thread, pool);
  int rc = lane ? 0 : gap__lane_get(s, stream, thread, pool, &lane);
  if (rc) return rc;
  if (lane->asleep) return refuse_asleep(lane);
  lane->touched = true;
  uint64_t units = units_of(s, bytes);
  if (atomic_load_explicit(&s->pooled, memory_order_relaxed)) return alloc_pooled(s, lane, units, bytes, out);
  if (gap__follows(s) && !(pool.first | pool.second)) return alloc_planned(s, lane, units, bytes, out);
  return alloc_locked(s, lane, units, bytes, out);
}

static int alloc(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  stream = gap__stream_normal(stream);
  uint64_t units = units_of(s, bytes);
  bool is_private = pool.first | pool.second;
  struct gap__lane *lane = is_private ? NULL : gap__lane_lock_plain(s, stream);
  if (__builtin_expect(!lane, 0)) return alloc_finding(s, stream, pool, bytes, out);
  return alloc_locked(s, lane, units, bytes, out);
}

/* ---- free ---- */

static inline void cache(struct gap__range *range, uint32_t index, struct gap__block *b) {
  struct gap__arena *arena = range->arena;
  b->state = GAP__CACHED;
  if (arena->kind == GAP__ARENA_SMALL) {
    gap__range_stamp(range, b->off, b->len, arena->lane->epoch);
    b->link_next = arena->front[b->len];
    arena->front[b->len] = index;
    return;
  }
  if (arena->hot) gap__arena_cool(arena);
  arena->hot = index;
  arena->hot_epoch = arena->lane->epoch;
  if (atomic_load_explicit(&arena->lane->owner->scarce, memory_order_relaxed)) gap__arena_cool(arena);
}

/* Every GAP__EPOCH_FREES frees: closes the epoch and looks at what has completed, unless somebody is at it.  A lone lane
 * does without: its epochs matter in its own slow paths only, and those close them. */
static COLD void turn_epoch(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  if (!gap__trylock(&s->lock)) return;
  gap__epochs_renumber(s);
  if (s->lane_count == 1 && !s->pending_count) {
    gap__unlock(&s->lock);
    return;
  }
  gap__lane_close_epoch(lane);
  gap__lane_poll(lane);
  gap__pending_poll(s, NULL);
  gap__unlock(&s->lock);
}

/* Reported before the block can be handed out again. */
static COLD void free_noted(struct gap__lane *lane, const struct gap__block *b) {
  gap__events_block(lane, b, GAP_EVENT_FREE_REQUESTED);
  gap__events_block(lane, b, GAP_EVENT_FREE_COMPLETED);
}

/* Under the lane lock. True: the epoch is to be closed. */
HOT bool release(struct gap__lane *lane, struct gap__range *range, uint32_t index, struct gap__block *b) {
  gap__tally_free(lane, b);
  if (__builtin_expect(b->tray, 0)) gap__tray_give(lane, index);
  else cache(range, index, b);
  bool turn = --lane->credit == 0;
  if (turn) lane->credit = CREDIT_RETRY;
  return turn;
}

/* The block is still used by other streams: it waits for them. */
static COLD int free_later(struct gap__lane *lane, struct gap__range *range, uint32_t unit) {
  struct gap__policy_state *s = lane->owner;
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  uint32_t index = gap__block_starting(range, unit), uses = 0;
  struct gap__block *b = gap__block(lane, index);
  bool live = index && b->state == GAP__LIVE;
  if (live && (uses = b->link_next) != 0) {
    b->state = GAP__PENDING;
    gap__tally_pending(lane, b);
    gap__events_block(lane, b, GAP_EVENT_FREE_REQUESTED);
  } else if (live) { /* freed and handed out again since we looked */
    free_noted(lane, b);
    release(lane, range, index, b);
  }
  gap__unlock(&lane->lock);
  if (uses) gap__pending_add(lane, index, uses);
  gap__unlock(&s->lock);
  return live ? 0 : GAP_EFREED;
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
  bool turn = release(lane, range, index, b);
  gap__unlock(&lane->lock);
  if (__builtin_expect(turn, 0)) turn_epoch(lane);
  return 0;
}

/* ---- uses by other streams ---- */

/* The live block at an address, or 0.  Lane lock held. */
static uint32_t live_block(const struct gap__range *range, gap_addr addr) {
  if (addr & (GAP__UNIT - 1)) return 0;
  uint32_t index = gap__block_starting(range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT));
  return index && gap__block(range->arena->lane, index)->state == GAP__LIVE ? index : 0;
}

static int record_stream(struct gap__policy_state *s, gap_addr addr, gap_stream stream) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  stream = gap__stream_normal(stream);
  uint64_t thread = gap__stream_thread(stream);
  gap__lock(&lane->lock);
  uint32_t index = live_block(range, addr);
  bool own = lane->stream == stream && lane->thread == thread;
  gap__unlock(&lane->lock);
  if (!index || own) return index ? 0 : GAP_EFREED;

  gap__lock(&s->lock); /* guards uses */
  gap__lock(&lane->lock);
  index = live_block(range, addr);
  int rc = index ? gap__use_add(s, stream, thread, &gap__block(lane, index)->link_next) : GAP_EFREED;
  gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  return rc;
}

/* ---- the rest of the table ---- */

static int retire_stream(struct gap__policy_state *s, gap_stream stream) {
  stream = gap__stream_normal(stream);
  uint64_t thread = gap__stream_thread(stream);
  gap__lock(&s->lock);
  gap__lane_end_stream(s, stream, thread);
  gap__unlock(&s->lock);
  return 0;
}

/* The thread ends: so does its default stream.  Gives up where the lock cannot be had: the process may be ending inside one
 * of our own calls. */
static void thread_end(struct gap__policy_state *s, uint64_t thread) {
  if (!gap__lock_within(&s->lock, 1000)) return;
  gap__lane_end_stream(s, GAP__STREAM_PER_THREAD, thread);
  gap__unlock(&s->lock);
}

/* Waits for what is still in use, at last for the whole device. */
static uint64_t trim_to(struct gap__policy_state *s, const gap_pool_id *pool, uint64_t keep_pages) {
  uint64_t pages = gap__trim_idle(s, pool, keep_pages, true);
  if (s->drain_segment && gap__lane_drain_device(s) == 0) pages++;
  if (gap__held_pages(s) > keep_pages && gap__lane_drain(s)) pages += gap__trim_idle(s, pool, keep_pages, true);
  return pages;
}

/* A call by which the program says that nothing is launched, and what was is of no matter. */
static bool is_safe_point(const struct gap__policy_state *s) {
  return gap__device_conf(s->device)->convert == GAP__CONVERT_SAFE_POINTS;
}

static uint64_t at_safe_point(struct gap__policy_state *s) {
  bool converts = gap__device_conf(s->device)->convert != GAP__CONVERT_OFF;
  uint64_t pages = converts ? gap__convert(s, GAP__CONVERT_ALL, GAP__STILL_BY_PROMISE) : 0;
  gap__overflow_balance(s);
  return pages;
}

static int trim(struct gap__policy_state *s, gap_pool_id pool, uint64_t *bytes_returned) {
  bool all = !pool.first && !pool.second;
  gap__lock(&s->lock);
  atomic_store(&s->ahead, NULL); /* what is given back must not be made anew ahead of need */
  gap__pending_poll(s, NULL);
  while (gap__pending_wait(s)) continue; /* what other streams still use is given back too, as empty_cache does */
  uint64_t pages = trim_to(s, all ? NULL : &pool, 0);
  if (all && is_safe_point(s)) pages += at_safe_point(s);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
  *bytes_returned = pages << GAP__PAGE_SHIFT;
  return 0;
}

static void trim_host(struct gap__policy_state *s, gap_pool_id pool) {
  bool all = !pool.first && !pool.second;
  gap__lock(&s->lock);
  gap__trim_host(s, all ? NULL : &pool, 0, UINT32_MAX, true);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
}

static int defragment(struct gap__policy_state *s, uint64_t *bytes_freed) {
  gap__lock(&s->lock);
  gap__pending_poll(s, NULL);
  uint64_t pages = at_safe_point(s);
  gap__figures_sample(s);
  gap__limit_judge(s);
  gap__unlock(&s->lock);
  *bytes_freed = pages << GAP__PAGE_SHIFT;
  return 0;
}

/* What is live stays where it is, and is freed as it was made. */
static void serve_in_classes(struct gap__policy_state *s, const struct gap__conf *conf) {
  bool choosy = conf->strategy == GAP__STRATEGY_HEURISTIC && conf->pool_size_count;
  bool pooled = conf->strategy == GAP__STRATEGY_POOLED || choosy;
  if (atomic_load(&s->pooled) == pooled && atomic_load(&s->choosy) == choosy) return;
  gap__lock(&s->lock);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lock(&lane->lock);
  atomic_store(&s->pooled, pooled);
  atomic_store(&s->choosy, choosy);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lane_make_plain(lane);
    gap__unlock(&lane->lock);
  }
  gap__unlock(&s->lock);
}

static int configure(struct gap__policy_state *s) {
  const struct gap__conf *conf = gap__device_conf(s->device);
  bool plain = conf->granularity == GAP__UNIT;
  for (int i = 0; i < 16; i++) plain = plain && conf->roundup_power2_divisions[i] <= 1;
  atomic_store(&s->plain_rounding, plain);
  gap__follow_configure(s);
  serve_in_classes(s, conf);
  gap__lock(&s->lock);
  gap__overflow_configure(s);
  uint64_t keep = gap__limit_keep(s);
  if (gap__held_pages(s) > keep) trim_to(s, NULL, keep);
  keep = s->overflow.on ? gap__overflow_limit(s) : 0;
  gap__trim_host(s, NULL, keep, UINT32_MAX, true);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
  return 0;
}

static size_t state_bytes(uint32_t lanes) {
  return offsetof(struct gap__policy_state, lane_space) + ((size_t)lanes + 1) * sizeof(struct gap__lane);
}

static void destroy(struct gap__policy_state *s) {
  gap__maker_stop(s);
  for (uint32_t i = 1; s->chunks.base && i < s->chunks.count; i++)
    if (gap__chunk_at(s, i)->asleep) gap__sleep_discard(s, i);
    else if (gap__chunk_at(s, i)->mappings) gap__chunk_release(s, i);
  for (uint32_t next, i = s->loose; i; i = next) {
    next = gap__chunk_at(s, i)->next_loose;
    gap__chunk_release(s, i);
  }
  if (s->drain_segment) gap__dev_segment_free(s->dev, s->drain_segment);
  gap__convert_destroy(s);
  for (uint32_t i = 1; i <= s->range_count; i++) gap__range_destroy(s, gap__range_at(s, i));
  for (uint32_t i = 0; i < s->event_cached; i++) gap__dev_event_destroy(s->dev, s->event_cache[i]);
  gap__lanes_destroy(s);
  gap__plan_unload(atomic_load(&s->plan));
  gap__slab_destroy(&s->chunks);
  gap__slab_destroy(&s->mappings);
  gap__slab_destroy(&s->uses);
  gap__scratch_destroy(s);
  gap__meta_unmap(s->pools, GAP__POOLS_MAX * sizeof *s->pools);
  gap__meta_unmap(s->pending, s->pending_capacity * sizeof *s->pending);
  gap__meta_unmap(s->event_cache, EVENT_CACHE * sizeof *s->event_cache);
  gap__meta_unmap(s->ranges, RANGES_MAX * sizeof *s->ranges);
  gap__meta_unmap(s->range_of, (1ull << (GAP__ADDRESS_BITS - GAP__WINDOW_SHIFT)) * sizeof *s->range_of);
  gap__meta_unmap(s, state_bytes(s->lanes_max));
}

static int create(struct gap__device *device, struct gap__policy_state **out) {
  if (!device->dev->caps.vmm) return GAP_ENOTSUP;
  uint32_t lanes = gap__meta_fitting(sizeof(struct gap__lane), GAP__LANES_MAX);
  struct gap__policy_state *s = gap__meta_map(state_bytes(lanes));
  if (!s) return GAP_ENOMETA;
  s->lanes_max = lanes;
  s->device = device;
  s->dev = device->dev;
  gap__classes_set(&s->classes, gap__device_conf(device));
  gap__lanes_create(s);
  s->range_of = gap__meta_map((1ull << (GAP__ADDRESS_BITS - GAP__WINDOW_SHIFT)) * sizeof *s->range_of);
  s->ranges = gap__meta_map(RANGES_MAX * sizeof *s->ranges);
  s->event_cache = gap__meta_map(EVENT_CACHE * sizeof *s->event_cache);
  s->event_capacity = s->event_cache ? EVENT_CACHE : 0;
  gap__maker_start(s);
  if (!s->range_of || !s->ranges || gap__slab_init_fitting(&s->chunks, sizeof(struct gap__chunk_rec), CHUNKS_MAX) ||
      gap__slab_init_fitting(&s->mappings, sizeof(struct gap__mapping), MAPPINGS_MAX) ||
      gap__slab_init_fitting(&s->uses, sizeof(struct gap__use), USES_MAX) || gap__scratch_create(s)) {
    destroy(s);
    return GAP_ENOMETA;
  }
  configure(s);
  *out = s;
  return 0;
}

/* Where no thread of ours does it. */
static void tick(struct gap__policy_state *s) {
  if (s->maker_running) return;
  gap__maker_step(s);
  gap__watch_step(s);
}

static void reset(struct gap__policy_state *s, bool peaks, bool accumulated) {
  gap__lock(&s->lock);
  gap__tally_reset(s, peaks, accumulated);
  gap__figures_reset(s, peaks, accumulated);
  if (accumulated) gap__follow_reset(s);
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
    .thread_end = thread_end,
    .pool_retain = gap__pool_retain,
    .pool_release = gap__pool_release,
    .trim = trim,
    .trim_host = trim_host,
    .defragment = defragment,
    .configure = configure,
    .stats = gap__figures_stats,
    .glance = gap__glance_gapless,
    .rest = gap__maker_rest,
    .reset = reset,
    .walk = gap__figures_walk,
    .alloc_at = gap__at_alloc,
    .pieces = gap__at_pieces,
    .keep = gap__at_keep,
    .hint = gap__overflow_hint,
    .find = gap__figures_find,
    .check = gap__check,
    .renew_access = gap__peer_renew_access,
    .give = gap__neighbour_give,
    .tick = tick,
};
