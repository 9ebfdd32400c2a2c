/* Which lane serves whom: see lane.h.
 *
 * A lane whose stream was retired, or whose private pool was released, is inherited with its idle memory once all of it is out
 * of use; a lane without memory is spare.  Its addresses stay with it. */
#include "core/lane.h"

#include "core/arena.h"
#include "core/behind.h"
#include "core/chunk.h"
#include "core/follow.h"
#include "core/gate.h"
#include "core/hollow.h"
#include "core/pool.h"
#include "core/sleep.h"
#include "core/tally.h"
#include "core/trim.h"

enum { BLOCKS_MAX = 1 << 24, SWEEP_FROM = 64 };
_Static_assert(sizeof(struct gap__policy_state) < UINT32_MAX, "an offset of a lane has 32 bits");

struct wanted {
  gap_stream stream;
  uint64_t thread;
  gap_pool_id pool;
};

static bool is_pinned(const struct gap__lane *lane) {
  return atomic_load_explicit(&lane->pinned, memory_order_relaxed);
}

/* ---- the table ---- */

struct gap__lane *gap__lane_lock(struct gap__policy_state *s, gap_stream stream, uint64_t thread, gap_pool_id pool) {
  uint64_t hash = gap__lane_hash(stream, thread, pool);
  for (uint64_t i = hash;; i++) {
    uint64_t slot = atomic_load_explicit(&s->lane_of[i & (GAP__LANE_SLOTS - 1)], memory_order_acquire);
    if (!slot) return NULL;
    if (slot >> 32 != hash) continue;
    struct gap__lane *lane = (struct gap__lane *)(void *)((unsigned char *)s + (uint32_t)slot);
    gap__lock(&lane->lock);
    if (gap__lane_serves(lane, stream, thread, pool)) return lane;
    gap__unlock(&lane->lock);
  }
}

static _Atomic uint64_t *slot_at(struct gap__policy_state *s, uint64_t i) {
  return &s->lane_of[i & (GAP__LANE_SLOTS - 1)];
}
static uint64_t slot_get(struct gap__policy_state *s, uint64_t i) {
  return atomic_load_explicit(slot_at(s, i), memory_order_relaxed);
}
static void slot_set(struct gap__policy_state *s, uint64_t i, uint64_t slot) {
  atomic_store_explicit(slot_at(s, i), slot, memory_order_release);
}

static uint64_t slot_of(const struct gap__lane *lane) {
  uint64_t hash = gap__lane_hash(lane->stream, lane->thread, lane->pool);
  return hash << 32 | (uint32_t)((const unsigned char *)lane - (const unsigned char *)lane->owner);
}

static void publish(struct gap__lane *lane) {
  uint64_t slot = slot_of(lane), i = slot >> 32;
  while (slot_get(lane->owner, i)) i++;
  slot_set(lane->owner, i, slot);
}

/* Removal shifts the rest of the run back, so there are no tombstones.  A reader may miss what is being shifted. */
static void unpublish(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  uint64_t slot = slot_of(lane), gap = slot >> 32, next;
  while ((next = slot_get(s, gap)) != slot) {
    if (!next) return; /* it was not there */
    gap++;
  }
  for (uint64_t i = gap + 1; (next = slot_get(s, i)) != 0; i++) {
    uint64_t behind_home = (i - (next >> 32)) & (GAP__LANE_SLOTS - 1);
    if (behind_home < i - gap) continue; /* it would come to lie before its home */
    slot_set(s, gap, next);
    gap = i;
  }
  slot_set(s, gap, 0);
}

void gap__lane_make_plain(struct gap__lane *lane) {
  bool plain = !lane->ended && !lane->thread && !lane->pool.first && !lane->pool.second && !gap__follows(lane->owner) &&
               !atomic_load_explicit(&lane->owner->pooled, memory_order_relaxed);
  lane->plain = plain ? lane->stream : GAP__PLAIN_NONE;
}

void gap__lane_retire(struct gap__lane *lane) {
  if (lane->ended) return;
  gap__follow_leave(lane);
  gap__behind_forget(lane);
  unpublish(lane);
  lane->ended = true;
  lane->thread = GAP__THREAD_NONE; /* reports go on to show the rest */
  gap__lane_make_plain(lane);
}

/* ---- lanes that nobody needs ---- */

static bool has_idle_memory(struct gap__lane *lane) {
  uint64_t units = 0;
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
    gap__arena_flush(&lane->arena[kind]);
    gap__hollow_fold(&lane->arena[kind]);
    units += lane->arena[kind].idle_units;
  }
  return units != 0;
}

static bool nothing_in_use(const struct gap__lane *lane) { return !lane->visitors && gap__tally_is_empty(lane); }

/* Is all that was freed in it out of use? */
static bool is_settled(struct gap__lane *lane) {
  gap__lane_close_epoch_locked(lane);
  gap__lane_poll(lane);
  return !lane->mark_count && lane->credit == GAP__EPOCH_FREES && !lane->overdue && !lane->doubtful;
}

/* Removes what is left of chunks that have moved away. */
static int unmap_lent(struct gap__policy_state *s, struct gap__lane *lane) {
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++)
    for (uint32_t i = lane->arena[kind].range_newest; i; i = gap__range_at(s, i)->older) {
      struct gap__range *range = gap__range_at(s, i);
      for (uint32_t page = 0; page < range->pages && range->lent_pages; page++) {
        int rc = range->slot[page] ? gap__mapping_unmap(s, range->slot[page]) : 0;
        if (rc) return rc;
      }
    }
  return 0;
}

static void add_up(struct gap__tally *to, struct gap__tally *from) {
  to->count_total += from->count_total;
  to->bytes_total += from->bytes_total;
  to->requested_total += from->requested_total;
  to->count_base += from->count_base;
  to->bytes_base += from->bytes_base;
  to->requested_base += from->requested_base;
  to->active_count_base += from->active_count_base;
  to->active_bytes_base += from->active_bytes_base;
  *from = (struct gap__tally){0};
}

/* The page maker works elsewhere from now on. */
static void stop_making(struct gap__lane *lane) {
  _Atomic(struct gap__arena *) *ahead = &lane->owner->ahead;
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++)
    if (atomic_load(ahead) == &lane->arena[kind]) atomic_store(ahead, NULL);
}

/* Takes the lane behind `link` off the list of lanes.  Its lock is held. */
static void make_spare(struct gap__policy_state *s, struct gap__lane **link) {
  struct gap__lane *lane = *link;
  gap__lane_retire(lane);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) add_up(&s->gone[kind], &lane->tally[kind]);
  lane->both = (struct gap__tally_limit){0};
  stop_making(lane);
  *link = lane->next;
  s->lane_count--;
  lane->next = s->spare_lanes;
  s->spare_lanes = lane;
}

/* Lanes without anything, whether their streams live or not: a stream that comes back gets another one. */
static void sweep(struct gap__policy_state *s) {
  for (struct gap__lane **link = &s->lanes; *link;) {
    struct gap__lane *lane = *link;
    gap__lock(&lane->lock);
    bool spare = !is_pinned(lane) && nothing_in_use(lane) && !has_idle_memory(lane) && is_settled(lane) &&
                 unmap_lent(s, lane) == 0;
    if (spare) make_spare(s, link);
    else link = &lane->next;
    gap__unlock(&lane->lock);
  }
  s->lanes_swept_at = 2 * s->lane_count > SWEEP_FROM ? 2 * s->lane_count : SWEEP_FROM;
}

/* ---- a lane for somebody ---- */

static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

/* May `w` have the idle memory of this lane?  In a pool in use graphs know what lies idle: only a stream of the same handle has it, to
 * which it would belong had nobody said that the stream was to go. */
static bool suits(const struct gap__lane *lane, const struct wanted *w) {
  bool left = lane->ended && same_pool(lane->pool, w->pool);
  return is_pinned(lane) ? left && lane->stream == w->stream : left || lane->released;
}

/* A lane whose stream or pool is gone.  A released pool's lane of the same stream is used on in stream order. */
static struct gap__lane *inherit(struct gap__policy_state *s, const struct wanted *w) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (!suits(lane, w)) continue;
    bool same = lane->stream == w->stream && lane->thread == w->thread;
    gap__lock(&lane->lock);
    bool ours = nothing_in_use(lane) && (same || is_settled(lane));
    if (ours) gap__lane_retire(lane);
    gap__unlock(&lane->lock);
    if (ours) {
      stop_making(lane);
      return lane;
    }
  }
  return NULL;
}

static int make(struct gap__policy_state *s, struct gap__lane **out) {
  uint32_t index = gap__slab_take(&s->lane_slab);
  if (!index) return s->lane_slab.count == s->lane_slab.count_max ? GAP_ELIMIT : GAP_ENOMETA;
  struct gap__lane *lane = gap__slab_at(&s->lane_slab, index);
  gap__unlock(&lane->lock); /* the slab may have left a link here */
  if (gap__slab_init_fitting(&lane->blocks, sizeof(struct gap__block), BLOCKS_MAX)) {
    gap__slab_give(&s->lane_slab, index);
    return GAP_ENOMETA;
  }
  lane->owner = s;
  lane->credit = GAP__EPOCH_FREES;
  lane->epoch = ++s->clock;
  lane->completed = lane->epoch - 1;
  lane->ended = true;
  lane->thread = GAP__THREAD_NONE;
  lane->plain = GAP__PLAIN_NONE;
  for (uint8_t kind = 0; kind < GAP__ARENA_COUNT; kind++) gap__arena_init(&lane->arena[kind], lane, kind);
  lane->next = s->spare_lanes;
  s->spare_lanes = lane;
  *out = lane;
  return 0;
}

static int find_spare(struct gap__policy_state *s, struct gap__lane **out) {
  if (!s->spare_lanes && s->lane_count >= s->lanes_swept_at) sweep(s);
  int rc = s->spare_lanes ? 0 : make(s, out);
  if (rc == GAP_ELIMIT) { /* idle memory keeps lanes from being spare */
    gap__trim_idle(s, NULL, 0, true);
    sweep(s);
    if (s->spare_lanes) rc = 0;
  }
  if (rc) return rc;
  struct gap__lane *lane = s->spare_lanes;
  s->spare_lanes = lane->next;
  lane->next = s->lanes;
  s->lanes = lane;
  s->lane_count++;
  *out = lane;
  return 0;
}

static void serve(struct gap__lane *lane, const struct wanted *w) {
  struct gap__policy_state *s = lane->owner;
  bool asleep = (w->pool.first || w->pool.second) && gap__sleep_sleeps(s, w->pool);
  gap__lock(&lane->lock);
  lane->stream = w->stream;
  lane->thread = w->thread;
  lane->pool = w->pool;
  lane->ended = lane->released = false;
  gap__lane_make_plain(lane);
  atomic_store(&lane->pinned, gap__pool_pins(s, w->pool));
  lane->touched = true;
  if (asleep) gap__sleep_mark(lane);
  if (gap__dev_stream_id(s->dev, w->stream, &lane->stream_id)) lane->stream_id = 0;
  publish(lane);
  gap__gate_note(s, w->stream, w->thread);
}

int gap__lane_get(struct gap__policy_state *s, gap_stream stream, uint64_t thread, gap_pool_id pool,
                  struct gap__lane **out) {
  const struct wanted w = {stream, thread, pool};
  int rc = 0;
  gap__lock(&s->lock);
  if (!(*out = gap__lane_lock(s, stream, thread, pool))) { /* another thread may have been first */
    if (!(*out = inherit(s, &w))) rc = find_spare(s, out);
    if (!rc) serve(*out, &w);
  }
  gap__unlock(&s->lock);
  return rc;
}

/* ---- life ---- */

void gap__lanes_create(struct gap__policy_state *s) {
  s->lane_slab = (struct gap__slab){.base = (unsigned char *)s->lane_space,
                                    .record_bytes = sizeof(struct gap__lane),
                                    .count_max = s->lanes_max + 1,
                                    .count = 1};
  s->lanes_swept_at = SWEEP_FROM;
}

void gap__lanes_destroy(struct gap__policy_state *s) {
  for (uint32_t i = 1; i < s->lane_slab.count; i++) {
    struct gap__lane *lane = gap__slab_at(&s->lane_slab, i);
    for (; lane->mark_count; lane->mark_count--) {
      gap__dev_event_destroy(s->dev, lane->marks[lane->mark_first].event);
      lane->mark_first = (lane->mark_first + 1) % GAP__MARKS;
    }
    gap__behind_forget(lane);
    gap__slab_destroy(&lane->blocks);
    gap__slab_destroy(&lane->trays);
  }
}
