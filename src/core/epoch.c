/* Epochs of lanes, and the end of streams: see lane.h.
 *
 * What the driver does when a stream is destroyed (measured, driver 580, H200): destroying returns at once and its work goes
 * on; the handle may name a new stream immediately, while that work still runs; every call that names a handle which is not
 * in use crashes; events recorded before stay good; a context synchronisation does not wait for such work and breaks captures;
 * freeing memory (cuMemFree) waits for it and disturbs no capture.  Hence: the last event of a stream is recorded when the
 * program says that it will go, its handle is forgotten, and where nobody said so only freeing a segment tells what is over. */
#include "core/arena.h"
#include "core/chunk.h"
#include "core/gate.h"
#include "core/lane.h"
#include "core/pending.h"
#include "core/tally.h"
#include "core/trouble.h"

static bool is_empty(const struct gap__lane *lane) { return lane->credit == GAP__EPOCH_FREES; }

/* Must an event be recorded? Also when nothing was freed since a drain that failed. */
static bool needs_event(const struct gap__lane *lane) { return !is_empty(lane) || lane->overdue; }

static void next_epoch(struct gap__lane *lane) {
  lane->epoch = ++lane->owner->clock;
  lane->credit = GAP__EPOCH_FREES;
  lane->overdue = false;
}

static struct gap__mark *first_mark(struct gap__lane *lane) { return &lane->marks[lane->mark_first]; }
static struct gap__mark *last_mark(struct gap__lane *lane) {
  return &lane->marks[(lane->mark_first + lane->mark_count - 1) % GAP__MARKS];
}

/* The first mark's event has completed. */
static void forget_mark(struct gap__lane *lane) {
  lane->completed = first_mark(lane)->epoch;
  gap__event_give(lane->owner, first_mark(lane)->event);
  lane->mark_first = (lane->mark_first + 1) % GAP__MARKS;
  lane->mark_count--;
  lane->unheard = false;
}

/* Files an event that stands behind all frees so far. */
static void add_mark(struct gap__lane *lane, gap__event event) {
  lane->mark_count++;
  *last_mark(lane) = (struct gap__mark){event, lane->epoch};
  next_epoch(lane);
}

/* A handle whose id has changed names a new stream, and nobody said that the old one was to go.  An event on the new stream
 * says nothing about what the old one still does. */
static bool same_identity(struct gap__lane *lane) {
  uint64_t id;
  if (gap__dev_stream_id(lane->owner->dev, lane->stream, &id) || id == lane->stream_id) return true;
  bool is_first = lane->stream_id == 0; /* it was capturing when the lane was made: no id could be had */
  lane->stream_id = id;
  lane->doubtful = !is_first;
  return is_first;
}

/* Nothing more is queued on the stream of an ended lane: what is freed is over when the events recorded before are. */
static void close_ended(struct gap__lane *lane) {
  if (lane->mark_count) last_mark(lane)->epoch = lane->epoch;
  else lane->completed = lane->epoch;
  next_epoch(lane);
}

/* Whether this thread may name the lane's stream. */
static bool is_nameable(const struct gap__lane *lane) {
  return !lane->ended && (!lane->thread || lane->thread == gap__thread_number());
}

void gap__lane_close_epoch_locked(struct gap__lane *lane) {
  gap__event event;
  if (!needs_event(lane) || lane->doubtful) return;
  if (lane->ended) {
    close_ended(lane);
    return;
  }
  if (lane->mark_count == GAP__MARKS_OPEN || !is_nameable(lane)) return;
  if (gap__stream_captures(lane->owner, lane->stream) || !same_identity(lane)) return;
  if (gap__event_mark(lane->owner, lane->stream, &event) == 0) add_mark(lane, event);
}

void gap__lane_close_epoch(struct gap__lane *lane) {
  gap__lock(&lane->lock);
  gap__lane_close_epoch_locked(lane);
  gap__unlock(&lane->lock);
}

void gap__lane_begin_epoch_locked(struct gap__lane *lane) {
  if (needs_event(lane)) gap__lane_close_epoch_locked(lane);
  else next_epoch(lane);
}

void gap__lane_poll(struct gap__lane *lane) {
  while (lane->mark_count) {
    int rc = gap__dev_event_query(lane->owner->dev, first_mark(lane)->event);
    lane->unheard = rc && rc != GAP_EAGAIN;
    if (rc) return;
    forget_mark(lane);
  }
}

void gap__count_stall(struct gap__policy_state *s, uint64_t began_ns) {
  s->stalls++;
  s->stall_ns += (int64_t)(gap__dev_now_ns(s->dev) - began_ns);
}

int gap__lane_wait(struct gap__lane *lane, uint32_t epoch) {
  struct gap__policy_state *s = lane->owner;
  uint64_t began = gap__dev_now_ns(s->dev);
  int rc = 0;
  gap__lock(&lane->lock);
  if (lane->epoch <= epoch) gap__lane_close_epoch_locked(lane);
  gap__unlock(&lane->lock);
  bool waits = lane->completed < epoch && lane->mark_count;
  while (lane->completed < epoch && lane->mark_count && !rc) {
    if ((rc = gap__dev_event_wait(s->dev, first_mark(lane)->event)) == 0) forget_mark(lane);
  }
  if (waits) gap__count_stall(s, began);
  return rc ? rc : lane->completed >= epoch ? 0 : GAP_EAGAIN;
}

bool gap__lane_order_behind(const struct gap__lane *lane, const struct gap__lane *owner) {
  if (gap__lane_same_stream(lane, owner) || !owner->mark_count) return true;
  uint32_t last = (owner->mark_first + owner->mark_count - 1) % GAP__MARKS;
  return gap__dev_stream_wait(lane->owner->dev, lane->stream, owner->marks[last].event) == 0;
}

/* ---- the end of a stream ---- */

/* Has work been queued on the stream for memory of this lane, of which no event tells the end yet? */
static bool has_work(const struct gap__lane *lane) {
  return needs_event(lane) || lane->visitors || !gap__tally_is_empty(lane);
}

static void end_lane(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  gap__event event;
  gap__lock(&lane->lock);
  if (has_work(lane) && !lane->doubtful) {
    bool told =
        !gap__stream_captures(s, lane->stream) && same_identity(lane) && gap__event_mark(s, lane->stream, &event) == 0;
    if (told) add_mark(lane, event);
    else lane->doubtful = true;
  }
  gap__lane_retire(lane);
  gap__unlock(&lane->lock);
}

void gap__lane_end_stream(struct gap__policy_state *s, gap_stream stream, uint64_t thread) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    if (lane->stream == stream && lane->thread == thread) end_lane(lane);
  gap__gate_forget(s, stream, thread);
  gap__use_end_stream(s, stream, thread);
}

/* ---- when the numbers run out ---- */

/* A lane's epochs are compared with each other only, so each lane may begin anew: what is over becomes 0, the rest keeps its order. */
static void renumber_range(const struct gap__policy_state *s, struct gap__range *range, uint32_t over) {
  for (uint32_t page = 0; page < range->pages; page++) {
    uint32_t *stamp = &range->stamp[page];
    if (*stamp && *stamp != GAP__BARE) *stamp = *stamp > over ? *stamp - over : 0;
    struct gap__mapping *m = range->slot[page] ? gap__mapping_at(s, range->slot[page]) : NULL;
    if (m && m->page == page) m->stamp = m->stamp > over ? m->stamp - over : 0;
  }
}

/* How many numbers the lane needs from now on. */
static uint32_t unsettled(struct gap__lane *lane) {
  gap__lock(&lane->lock);
  gap__lane_close_epoch_locked(lane);
  gap__lane_poll(lane);
  if (is_empty(lane) && !lane->mark_count && !lane->doubtful && !lane->overdue) lane->completed = lane->epoch - 1;
  uint32_t count = lane->epoch - lane->completed;
  gap__unlock(&lane->lock);
  return count;
}

static uint32_t most_unsettled(struct gap__policy_state *s) {
  uint32_t most = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    uint32_t count = unsettled(lane);
    if (count > most) most = count;
  }
  return most;
}

static void renumber(struct gap__lane *lane) {
  gap__lock(&lane->lock);
  uint32_t over = lane->completed;
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) gap__arena_flush(&lane->arena[kind]);
  for (uint32_t i = 1; i <= lane->owner->range_count; i++) {
    struct gap__range *range = gap__range_at(lane->owner, i);
    if (range->arena->lane == lane) renumber_range(lane->owner, range, over);
  }
  for (uint32_t i = 0; i < lane->mark_count; i++) lane->marks[(lane->mark_first + i) % GAP__MARKS].epoch -= over;
  lane->epoch -= over;
  lane->completed = 0;
  if (lane->epoch > lane->owner->clock) lane->owner->clock = lane->epoch;
  gap__unlock(&lane->lock);
}

/* A lane with something that has not ended for very long is waited for, at the very end only. */
void gap__epochs_begin_anew(struct gap__policy_state *s) {
  if (most_unsettled(s) > GAP__EPOCH_LAST / 2 &&
      (s->clock < GAP__EPOCH_LAST + (GAP__EPOCH_MARGIN / 2) || !gap__lane_drain(s)))
    return;
  s->clock = 0;
  s->watch.trim.count = s->watch.lend.count = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) renumber(lane);
  for (struct gap__lane *lane = s->spare_lanes; lane; lane = lane->next) {
    lane->completed = lane->epoch - 1;
    renumber(lane);
  }
}

/* ---- when no event can tell ---- */

/* Does nothing but a drained device end what was freed here? */
static bool is_stuck(const struct gap__lane *lane) {
  if (lane->unheard) return true;
  if (is_nameable(lane) && (lane->doubtful || needs_event(lane)))
    return lane->mark_count < GAP__MARKS_OPEN && !gap__stream_captures(lane->owner, lane->stream);
  return lane->doubtful;
}

/* Draws a line under the frees so far.  A pinned pool keeps its pages in any case. */
static bool draw_line(struct gap__lane *lane) {
  if (atomic_load_explicit(&lane->pinned, memory_order_relaxed)) return false;
  gap__lock(&lane->lock);
  gap__lane_close_epoch_locked(lane);
  bool stuck = is_stuck(lane);
  if (stuck) {
    lane->line = lane->epoch;
    next_epoch(lane);
  }
  gap__unlock(&lane->lock);
  return stuck;
}

static void settle_line(struct gap__lane *lane, bool drained) {
  if (!lane->line) return;
  if (drained) {
    while (lane->mark_count) forget_mark(lane);
    lane->completed = lane->line;
    lane->doubtful = lane->unheard = false;
  } else {
    lane->overdue = true;
  }
  lane->line = 0;
}

int gap__lane_drain_device(struct gap__policy_state *s) {
  bool kept = s->drain_segment != 0;
  enum gap__dev_call call = GAP__CALL_segment_alloc;
  int rc = kept ? 0 : gap__dev_segment_alloc(s->dev, GAP__UNIT, &s->drain_segment);
  if (!rc) {
    call = GAP__CALL_segment_free;
    rc = gap__dev_segment_free(s->dev, s->drain_segment);
    if (rc != 0 && !kept) gap__chunk_count_extra(s, 1);
    if (rc == 0 && kept) gap__chunk_count_extra(s, -1);
    if (rc == 0) s->drain_segment = 0;
  }
  if (rc) gap__trouble_note(s, rc == GAP_ENOMEM ? GAP__TROUBLE_MEMORY : GAP__TROUBLE_DRIVER, call, rc);
  return rc;
}

bool gap__lane_drain(struct gap__policy_state *s) {
  bool any = gap__use_any_lost(s);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) any |= draw_line(lane);
  if (!any) return false;
  uint64_t began = gap__dev_now_ns(s->dev);
  int rc = gap__lane_drain_device(s);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) settle_line(lane, rc == 0);
  if (rc) return false;
  gap__use_end_lost(s);
  gap__pending_poll(s, NULL);
  s->drains++;
  gap__count_stall(s, began);
  return true;
}
