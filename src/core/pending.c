/* Uses by other streams and pending frees: see pending.h. */
#include "core/pending.h"

#include "core/arena.h"
#include "core/behind.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/lane.h"
#include "core/overflow.h"
#include "core/tally.h"
#include "core/tray.h"

/* ---- events ---- */

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

int gap__event_mark(struct gap__policy_state *s, gap_stream stream, gap__event *out) {
  int rc = gap__event_take(s, stream, out);
  if (rc) return rc;
  rc = gap__dev_event_record(s->dev, *out, stream);
  if (rc) {
    gap__event_give(s, *out);
    *out = 0;
  }
  return rc;
}

bool gap__stream_captures(struct gap__policy_state *s, gap_stream stream) {
  bool capturing = false;
  return gap__dev_stream_capturing(s->dev, stream, &capturing) == 0 && capturing;
}

/* ---- uses ---- */

static struct gap__use *use_at(const struct gap__policy_state *s, uint32_t index) {
  return gap__slab_at(&s->uses, index);
}

static struct gap__pending *pending_at(const struct gap__policy_state *s, uint32_t i) {
  return &s->pending[(s->pending_first + i) % s->pending_capacity];
}

/* Is it the use of a stream that may go on using the block? */
static bool is_open(const struct gap__use *use, gap_stream stream, uint64_t thread) {
  return use->stream == stream && use->thread == thread && !use->event && !use->lost && !use->over;
}

/* Room for as many pending frees as there are uses: a free must not fail. */
static int pending_room(struct gap__policy_state *s) {
  if (s->uses.in_use < s->pending_capacity) return 0;
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

/* The capture that the stream takes part in, where that is of interest; 0: none. */
static uint64_t capture_of(struct gap__policy_state *s, gap_stream stream) {
  uint64_t capture = 0;
  uint32_t count = 0;
  if (!gap__device_conf(s->device)->graph_capture_record_stream_reuse) return 0;
  return gap__dev_stream_front(s->dev, stream, &capture, NULL, &count) ? 0 : capture;
}

int gap__use_add(struct gap__policy_state *s, gap_stream stream, uint64_t thread, uint32_t *uses) {
  for (uint32_t i = *uses; i; i = use_at(s, i)->next)
    if (is_open(use_at(s, i), stream, thread)) return 0;
  uint32_t use = pending_room(s) ? 0 : gap__slab_take(&s->uses);
  if (!use) return GAP_ENOMETA;
  gap__gate_note(s, stream, thread);
  *use_at(s, use) = (struct gap__use){
      .next = *uses, .taken = true, .stream = stream, .thread = thread, .capture = capture_of(s, stream)};
  *uses = use;
  return 0;
}

static void use_drop(struct gap__policy_state *s, uint32_t *link) {
  uint32_t gone = *link;
  struct gap__use *use = use_at(s, gone);
  *link = use->next;
  s->overflow.marks -= use->marked != 0;
  if (use->event) gap__event_give(s, use->event);
  use->taken = false;
  gap__slab_give(&s->uses, gone);
}

struct gap__use *gap__use_marked(const struct gap__policy_state *s, uint32_t uses) {
  for (uint32_t i = uses; i; i = use_at(s, i)->next)
    if (use_at(s, i)->marked) return use_at(s, i);
  return NULL;
}

/* It is over from the beginning: a free waits for it no longer than for the next look. */
struct gap__use *gap__use_mark(struct gap__policy_state *s, gap_addr addr, uint32_t *uses) {
  struct gap__use *mark = gap__use_marked(s, *uses);
  if (mark) return mark;
  uint32_t use = pending_room(s) ? 0 : gap__slab_take(&s->uses);
  if (!use) return NULL;
  *use_at(s, use) = (struct gap__use){.next = *uses, .taken = true, .over = true, .marked = addr};
  *uses = use;
  s->overflow.marks++;
  return use_at(s, use);
}

void gap__use_unmark(struct gap__policy_state *s, uint32_t *uses) {
  while (*uses && !use_at(s, *uses)->marked) uses = &use_at(s, *uses)->next;
  if (*uses) use_drop(s, uses);
}

/* Records the event that ends a use.  GAP_EAGAIN: not now (the stream is being captured), or not by this thread. */
static int use_record(struct gap__policy_state *s, struct gap__use *use) {
  if (use->thread && use->thread != gap__thread_number()) {
    atomic_fetch_or_explicit(&s->owing, 1ull << (use->thread & 63), memory_order_relaxed);
    return GAP_EAGAIN;
  }
  return gap__stream_captures(s, use->stream) ? GAP_EAGAIN : gap__event_mark(s, use->stream, &use->event);
}

/* A use for each further node behind which `use` ends.  False, and nothing was done: no records. */
static bool add_nodes(struct gap__policy_state *s, struct gap__use *use, const gap__node *nodes, uint32_t count) {
  uint32_t rest = use->next;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t more = gap__slab_take(&s->uses);
    if (!more) {
      while (use->next != rest) use_drop(s, &use->next);
      return false;
    }
    *use_at(s, more) = (struct gap__use){.next = use->next,
                                         .taken = true,
                                         .stream = use->stream,
                                         .thread = use->thread,
                                         .capture = use->capture,
                                         .node = nodes[i]};
    use->next = more;
  }
  return true;
}

/* The use ends here, inside the capture that it began in: behind all nodes that the stream's next operation would come after.  A
 * use that began outside may have work that is in no graph. */
static void use_note_nodes(struct gap__policy_state *s, struct gap__use *use) {
  gap__node nodes[GAP__BEHIND_WIDTH];
  uint32_t count = GAP__BEHIND_WIDTH;
  uint64_t now = 0;
  if (!use->capture || (use->thread && use->thread != gap__thread_number())) return;
  if (gap__dev_stream_front(s->dev, use->stream, &now, nodes, &count) || now != use->capture) return;
  if (count && count <= GAP__BEHIND_WIDTH && add_nodes(s, use, nodes + 1, count - 1)) use->node = nodes[0];
}

/* Whose request it is that looks: the order of a graph tells what has ended for its stream. */
struct looker {
  struct gap__lane *lane; /* NULL: nobody's */
  uint64_t capture;       /* that was looked at; 0: none yet */
  bool takes_part;        /* its stream, in that */
};

/* Is the use inside a capture that the looker takes part in? */
static bool is_captured_with(struct looker *by, const struct gap__use *use) {
  if (!by->lane || !use->node || use->event) return false;
  if (by->capture != use->capture) by->takes_part = gap__behind_look(by->lane, use->capture);
  by->capture = use->capture;
  return by->takes_part;
}

static bool use_ended(struct gap__policy_state *s, struct looker *by, struct gap__use *use) {
  if (use->over) return true;
  if (is_captured_with(by, use)) return gap__behind_has(by->lane, use->node);
  if (!use->event && (use->lost || use_record(s, use))) return false;
  return gap__dev_event_query(s->dev, use->event) == 0; /* not when the driver cannot say either */
}

void gap__use_end_stream(struct gap__policy_state *s, gap_stream stream, uint64_t thread) {
  for (uint32_t i = 1; i < s->uses.count; i++) {
    struct gap__use *use = use_at(s, i);
    if (use->taken && is_open(use, stream, thread)) use->lost = use_record(s, use) != 0;
  }
}

/* Where the driver refuses to record on a stream that nothing captures, or to say what has become of an event, it does not get
 * better by waiting. */
static bool is_lost(struct gap__policy_state *s, struct gap__use *use) {
  if (use->lost || use->over) return use->lost;
  int rc = use->event ? gap__dev_event_query(s->dev, use->event) : use_record(s, use);
  return rc && rc != GAP_EAGAIN;
}

bool gap__use_any_lost(struct gap__policy_state *s) {
  for (uint32_t i = 0; i < s->pending_count; i++)
    for (uint32_t k = pending_at(s, i)->uses; k; k = use_at(s, k)->next) use_at(s, k)->lost = is_lost(s, use_at(s, k));
  for (uint32_t i = 1; i < s->uses.count; i++)
    if (use_at(s, i)->taken && use_at(s, i)->lost) return true;
  return false;
}

void gap__use_end_lost(struct gap__policy_state *s) {
  for (uint32_t i = 1; i < s->uses.count; i++) {
    struct gap__use *use = use_at(s, i);
    if (!use->taken || !use->lost) continue;
    use->lost = false;
    use->over = true;
  }
}

bool gap__use_settle(struct gap__policy_state *s) {
  bool settled = true;
  for (uint32_t i = 1; i < s->uses.count; i++) {
    const struct gap__use *use = use_at(s, i);
    if (!use->taken || use->over) continue;
    if (use->lost || (use->event && gap__dev_event_wait(s->dev, use->event))) settled = false;
  }
  return settled;
}

/* ---- pending frees ---- */

void gap__pending_add(struct gap__lane *lane, uint32_t block, uint32_t uses) {
  struct gap__policy_state *s = lane->owner;
  for (uint32_t i = uses; i; i = use_at(s, i)->next) {
    struct gap__use *use = use_at(s, i);
    if (use->event || use->lost || use->over || use->node) continue;
    if (use_record(s, use) == GAP_EAGAIN) use_note_nodes(s, use);
  }
  uint32_t at = s->pending_count++;
  *pending_at(s, at) = (struct gap__pending){lane, block, uses};
}

/* Drops the uses that have ended. True when none is left. */
static bool uses_ended(struct gap__policy_state *s, struct looker *by, uint32_t *uses) {
  for (uint32_t *link = uses; *link;) {
    if (use_ended(s, by, use_at(s, *link))) use_drop(s, link);
    else link = &use_at(s, *link)->next;
  }
  return !*uses;
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
  if (b->tray) gap__tray_give(lane, p->block);
  else if (gap__overflow_holds(range->arena)) gap__overflow_leave(lane->owner, range, p->block);
  else gap__block_attach(range->arena, p->block, GAP__IDLE);
  gap__unlock(&lane->lock);
}

uint32_t gap__pending_poll(struct gap__policy_state *s, struct gap__lane *lane) {
  struct looker nobody = {0}, by = {.lane = lane};
  uint32_t completed = 0, kept = 0, count = s->pending_count;
  atomic_store_explicit(&s->owing, 0, memory_order_relaxed); /* who still owes is found again */
  for (uint32_t i = 0; i < count; i++) {
    struct gap__pending *p = pending_at(s, i);
    if (uses_ended(s, p->lane == lane ? &by : &nobody, &p->uses)) {
      pending_complete(p);
      completed++;
    } else {
      *pending_at(s, kept++) = *p;
    }
  }
  s->pending_count = kept;
  return completed;
}

/* Takes the entry out; those before it move up. */
static void pending_remove(struct gap__policy_state *s, uint32_t at) {
  for (; at; at--) *pending_at(s, at) = *pending_at(s, at - 1);
  s->pending_first = (s->pending_first + 1) % s->pending_capacity;
  s->pending_count--;
}

static uint32_t poll_lane(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  struct looker by = {.lane = lane};
  uint32_t completed = 0, i = 0;
  while (i < s->pending_count) {
    struct gap__pending *p = pending_at(s, i);
    if (p->lane != lane) {
      i++;
    } else if (uses_ended(s, &by, &p->uses)) {
      pending_complete(p);
      pending_remove(s, i);
      completed++;
    } else if (is_captured_with(&by, use_at(s, p->uses))) {
      i++; /* it waits for its graph, which costs no query */
    } else {
      break;
    }
  }
  return completed;
}

void gap__pending_poll_lane(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  if (!gap__trylock(&s->lock)) return;
  uint64_t began = gap__dev_now_ns(s->dev);
  s->rung_count[GAP__RUNG_pending] += poll_lane(lane) > 0;
  s->rung_ns[GAP__RUNG_pending] += (int64_t)(gap__dev_now_ns(s->dev) - began);
  gap__unlock(&s->lock);
}

void gap__pending_pay(struct gap__policy_state *s) {
  if (!gap__trylock(&s->lock)) return;
  gap__pending_poll(s, NULL);
  gap__unlock(&s->lock);
}

/* Can its end be waited for? Not while a stream is being captured, nor for another thread. */
static bool is_waitable(struct gap__policy_state *s, uint32_t uses) {
  for (uint32_t i = uses; i; i = use_at(s, i)->next)
    if (!use_at(s, i)->event && !use_at(s, i)->over) return false;
  return true;
}

static struct gap__pending *first_waitable(struct gap__policy_state *s) {
  for (uint32_t i = 0; i < s->pending_count; i++)
    if (is_waitable(s, pending_at(s, i)->uses)) return pending_at(s, i);
  return NULL;
}

bool gap__pending_wait(struct gap__policy_state *s) {
  struct gap__pending *p = first_waitable(s);
  if (!p) return false;
  uint64_t began = gap__dev_now_ns(s->dev);
  for (uint32_t i = p->uses; i; i = use_at(s, i)->next)
    if (use_at(s, i)->event) gap__dev_event_wait(s->dev, use_at(s, i)->event);
  gap__count_stall(s, began);
  return gap__pending_poll(s, NULL) > 0;
}
