/* Lanes, epochs and pending frees: see lane.h. */
#include "core/lane.h"

#include "core/arena.h"
#include "core/events.h"
#include "core/pool.h"
#include "core/tally.h"

enum { BLOCKS_MAX = 1 << 24 };

uint64_t gap__thread_number(void) {
  static _Atomic uint64_t last;
  static _Thread_local uint64_t mine;
  if (!mine) mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return mine;
}

static struct gap__lane *lane_create(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool) {
  struct gap__lane *lane = gap__meta_map(sizeof *lane);
  if (!lane) return NULL;
  if (gap__slab_init(&lane->blocks, sizeof(struct gap__block), BLOCKS_MAX)) {
    gap__meta_unmap(lane, sizeof *lane);
    return NULL;
  }
  lane->owner = s;
  lane->stream = stream;
  lane->thread = stream == GAP__STREAM_PER_THREAD ? gap__thread_number() : 0;
  lane->pool = pool;
  lane->credit = GAP__EPOCH_FREES;
  lane->epoch = ++s->clock;
  lane->completed = lane->epoch - 1;
  atomic_store(&lane->pinned, gap__pool_pins(s, pool));
  if (gap__dev_stream_id(s->dev, stream, &lane->stream_id)) lane->stream_id = 0;
  for (uint8_t kind = 0; kind < GAP__ARENA_COUNT; kind++) gap__arena_init(&lane->arena[kind], lane, kind);
  return lane;
}

void gap__lane_destroy(struct gap__lane *lane) {
  for (; lane->mark_count; lane->mark_count--) {
    gap__dev_event_destroy(lane->owner->dev, lane->marks[lane->mark_first].event);
    lane->mark_first = (lane->mark_first + 1) % GAP__MARKS;
  }
  gap__slab_destroy(&lane->blocks);
  gap__meta_unmap(lane, sizeof *lane);
}

static int publish(struct gap__policy_state *s, struct gap__lane *lane) {
  if (s->lane_count >= GAP__LANE_SLOTS * 3 / 4) return GAP_ENOMETA;
  uint64_t i = gap__lane_hash(lane->stream, lane->thread, lane->pool);
  while (atomic_load_explicit(&s->lane_of[i & (GAP__LANE_SLOTS - 1)], memory_order_relaxed)) i++;
  lane->next = s->lanes;
  s->lanes = lane;
  s->lane_count++;
  atomic_store_explicit(&s->lane_of[i & (GAP__LANE_SLOTS - 1)], lane, memory_order_release);
  return 0;
}

int gap__lane_get(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool, struct gap__lane **out) {
  if ((*out = gap__lane_find(s, stream, pool))) return 0;
  int rc = 0;
  gap__lock(&s->lock);
  if (!(*out = gap__lane_find(s, stream, pool))) { /* another thread may have been first */
    struct gap__lane *lane = lane_create(s, gap__stream_normal(stream), pool);
    rc = lane ? publish(s, lane) : GAP_ENOMETA;
    if (rc && lane) gap__lane_destroy(lane);
    if (!rc) *out = lane;
  }
  gap__unlock(&s->lock);
  return rc;
}

/* ---- epochs ---- */

int gap__event_take(struct gap__policy_state *s, gap_stream stream, gap__event *out) {
  if (s->event_cached) {
    *out = s->event_cache[--s->event_cached];
    return 0;
  }
  return gap__dev_event_create(s->dev, stream, out);
}

void gap__event_give(struct gap__policy_state *s, gap__event event) {
  if (s->event_cached < s->event_capacity) s->event_cache[s->event_cached++] = event;
  else gap__dev_event_destroy(s->dev, event);
}

static void forget_mark(struct gap__lane *lane) {
  struct gap__mark *mark = &lane->marks[lane->mark_first];
  lane->completed = mark->epoch;
  gap__event_give(lane->owner, mark->event);
  lane->mark_first = (lane->mark_first + 1) % GAP__MARKS;
  lane->mark_count--;
}

/* A handle whose id has changed names a new stream.  The driver reuses a handle only after the old stream's work has
 * ended (its resources go then), so every closed epoch is over.  The open one may hold frees of the new stream already. */
static void check_identity(struct gap__lane *lane) {
  uint64_t id;
  if (gap__dev_stream_id(lane->owner->dev, lane->stream, &id) || id == lane->stream_id) return;
  bool is_first = lane->stream_id == 0; /* it was capturing when the lane was made: no id could be had */
  lane->stream_id = id;
  if (is_first) return;
  while (lane->mark_count) forget_mark(lane);
}

void gap__lane_close_epoch_locked(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  bool capturing = false;
  gap__event event;
  if (lane->credit == GAP__EPOCH_FREES || lane->mark_count == GAP__MARKS) return;
  if (lane->thread && lane->thread != gap__thread_number()) return; /* only its own thread can name that stream */
  if (gap__dev_stream_capturing(s->dev, lane->stream, &capturing) == 0 && capturing) return;
  check_identity(lane);
  if (gap__event_take(s, lane->stream, &event)) return;
  if (gap__dev_event_record(s->dev, event, lane->stream)) {
    gap__event_give(s, event);
    return;
  }
  lane->marks[(lane->mark_first + lane->mark_count++) % GAP__MARKS] = (struct gap__mark){event, lane->epoch};
  lane->epoch = ++s->clock;
  lane->credit = GAP__EPOCH_FREES;
}

void gap__lane_close_epoch(struct gap__lane *lane) {
  gap__lock(&lane->lock);
  gap__lane_close_epoch_locked(lane);
  gap__unlock(&lane->lock);
}

void gap__lane_poll(struct gap__lane *lane) {
  while (lane->mark_count && gap__dev_event_query(lane->owner->dev, lane->marks[lane->mark_first].event) == 0)
    forget_mark(lane);
}

int gap__lane_wait(struct gap__lane *lane, uint32_t epoch) {
  struct gap__policy_state *s = lane->owner;
  uint64_t began = gap__dev_now_ns(s->dev);
  int rc = 0;
  if (lane->epoch <= epoch) gap__lane_close_epoch(lane);
  while (lane->completed < epoch && lane->mark_count) {
    if ((rc = gap__dev_event_wait(s->dev, lane->marks[lane->mark_first].event))) break;
    forget_mark(lane);
  }
  s->stalls++;
  s->stall_ns += (int64_t)(gap__dev_now_ns(s->dev) - began);
  return rc ? rc : lane->completed >= epoch ? 0 : GAP_EAGAIN;
}

/* ---- pending frees ---- */

static int pending_grow(struct gap__policy_state *s) {
  uint32_t capacity = s->pending_capacity ? s->pending_capacity * 2 : 1024;
  struct gap__pending *more = gap__meta_map(capacity * sizeof *more);
  if (!more) return GAP_ENOMETA;
  for (uint32_t i = 0; i < s->pending_count; i++) more[i] = s->pending[(s->pending_first + i) % s->pending_capacity];
  gap__meta_unmap(s->pending, s->pending_capacity * sizeof *more);
  s->pending = more;
  s->pending_capacity = capacity;
  s->pending_first = 0;
  return 0;
}

static struct gap__use *use_at(struct gap__policy_state *s, uint32_t index) { return gap__slab_at(&s->uses, index); }

/* Records the event that ends a use.  Not while the stream is being captured: then it is tried again at the next poll. */
static bool use_record(struct gap__policy_state *s, struct gap__use *use) {
  bool capturing = false;
  if (gap__dev_stream_capturing(s->dev, use->stream, &capturing) == 0 && capturing) return false;
  if (gap__event_take(s, use->stream, &use->event)) return false;
  if (gap__dev_event_record(s->dev, use->event, use->stream) == 0) return true;
  gap__event_give(s, use->event);
  use->event = 0;
  return false;
}

int gap__pending_add(struct gap__lane *lane, uint32_t block, uint32_t uses) {
  struct gap__policy_state *s = lane->owner;
  if (s->pending_count == s->pending_capacity && pending_grow(s)) return GAP_ENOMETA;
  for (uint32_t i = uses; i; i = use_at(s, i)->next) use_record(s, use_at(s, i));
  s->pending[(s->pending_first + s->pending_count++) % s->pending_capacity] = (struct gap__pending){lane, block, uses};
  return 0;
}

/* Drops the uses that have ended. True when none is left. */
static bool uses_ended(struct gap__policy_state *s, uint32_t *uses) {
  while (*uses) {
    struct gap__use *use = use_at(s, *uses);
    if (!use->event && !use_record(s, use)) return false;
    if (gap__dev_event_query(s->dev, use->event)) return false; /* also when the driver cannot say */
    gap__event_give(s, use->event);
    uint32_t gone = *uses;
    *uses = use->next;
    gap__slab_give(&s->uses, gone);
  }
  return true;
}

static void pending_complete(const struct gap__pending *p) {
  struct gap__lane *lane = p->lane;
  gap__lock(&lane->lock);
  struct gap__block *b = gap__block(lane, p->block);
  struct gap__range *range = gap__range_at(lane->owner, b->range);
  gap__tally_complete(lane, b);
  gap__events_block(lane, b, GAP_EVENT_FREE_COMPLETED);
  gap__range_stamp(range, b->off, b->len, lane->epoch);
  if (lane->credit == GAP__EPOCH_FREES) lane->credit--;
  gap__block_attach(range->arena, p->block, GAP__IDLE);
  gap__unlock(&lane->lock);
}

uint32_t gap__pending_poll(struct gap__policy_state *s) {
  uint32_t completed = 0, kept = 0, count = s->pending_count;
  for (uint32_t i = 0; i < count; i++) {
    struct gap__pending *p = &s->pending[(s->pending_first + i) % s->pending_capacity];
    if (uses_ended(s, &p->uses)) {
      pending_complete(p);
      completed++;
    } else {
      s->pending[(s->pending_first + kept++) % s->pending_capacity] = *p;
    }
  }
  s->pending_count = kept;
  return completed;
}

/* Can its end be waited for? Not while a stream is being captured. */
static bool uses_recorded(struct gap__policy_state *s, uint32_t uses) {
  for (uint32_t i = uses; i; i = use_at(s, i)->next)
    if (!use_at(s, i)->event) return false;
  return true;
}

static struct gap__pending *first_waitable(struct gap__policy_state *s) {
  for (uint32_t i = 0; i < s->pending_count; i++) {
    struct gap__pending *p = &s->pending[(s->pending_first + i) % s->pending_capacity];
    if (uses_recorded(s, p->uses)) return p;
  }
  return NULL;
}

bool gap__pending_wait(struct gap__policy_state *s) {
  struct gap__pending *p = first_waitable(s);
  if (!p) return false;
  uint64_t began = gap__dev_now_ns(s->dev);
  for (uint32_t i = p->uses; i; i = use_at(s, i)->next) gap__dev_event_wait(s->dev, use_at(s, i)->event);
  s->stalls++;
  s->stall_ns += (int64_t)(gap__dev_now_ns(s->dev) - began);
  return gap__pending_poll(s) > 0;
}
