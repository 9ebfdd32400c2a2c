#include "report/timeline.h"

#include <stdlib.h>

#include "base/map.h"
#include "explain/held.h"
#include "gapless/gapless.h"

static const struct gap__hist_device *device_of(const struct gap__subject *subject) {
  return &subject->history->devices[subject->device];
}

static uint64_t above_zero(int64_t bytes) { return bytes > 0 ? (uint64_t)bytes : 0; }

/* ---- lives that end unseen ----------------------------------------------------------------------------------------- */

/* Where a file contradicts itself an address is handed out twice: the first life ends with the second one's alloc. */
struct replaced {
  uint32_t *lives; /* by the event that ends them */
  uint32_t count;
};

static bool is_replaced(const struct gap__subject *subject, const struct gap__life *life) {
  return life->gone != GAP__LIFE_NEVER && device_of(subject)->events[life->gone].action == GAP__ACT_ALLOC;
}

static int by_end(const void *left, const void *right, void *arg) {
  const struct gap__life *lives = arg;
  uint32_t a = lives[*(const uint32_t *)left].gone, b = lives[*(const uint32_t *)right].gone;
  return a < b ? -1 : a > b;
}

static int find_replaced(const struct gap__subject *subject, struct replaced *out) {
  uint32_t count = 0;
  *out = (struct replaced){0};
  for (uint32_t i = 0; i < subject->lives.count; i++) count += is_replaced(subject, &subject->lives.at[i]);
  if (!count) return 0;
  out->lives = malloc(count * sizeof *out->lives);
  if (!out->lives) return GAP_ENOMETA;
  for (uint32_t i = 0; i < subject->lives.count; i++)
    if (is_replaced(subject, &subject->lives.at[i])) out->lives[out->count++] = i;
  qsort_r(out->lives, count, sizeof *out->lives, by_end, subject->lives.at);
  return 0;
}

/* ---- the course ---------------------------------------------------------------------------------------------------- */

/* All sums, event by event. */
struct course {
  const struct gap__subject *subject;
  const struct gap__streams *streams;
  struct replaced replaced;
  uint32_t next_replaced;
  struct gap__map asked; /* of blocks that no event names: address -> bytes */
  int64_t held;
  uint64_t live, pending, needed;
  uint64_t by_category[GAP__CAT_COUNT], by_stream[GAP__STREAMS_LISTED];
};

/* As the segments at the end say. */
static int map_asked(const struct gap__subject *subject, struct gap__map *out) {
  const struct gap__history *history = subject->history;
  int rc = 0;
  for (uint64_t i = 0; i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    if ((uint32_t)segment->device != subject->device) continue;
    for (uint32_t j = 0; !rc && j < segment->block_count; j++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + j];
      if (block->state == 1) rc = gap__map_put(out, block->addr, block->requested);
    }
  }
  return rc;
}

static uint64_t asked_by(const struct course *course, const struct gap__life *life) {
  const struct gap__hist_event *events = device_of(course->subject)->events;
  uint64_t asked = 0;
  if (!life->before) return events[life->born].size;
  if (life->let_go != GAP__LIFE_NEVER) return events[life->let_go].size;
  gap__map_get(&course->asked, life->addr, &asked);
  return asked;
}

static void count_life(struct course *course, uint32_t index, bool begins) {
  const struct gap__life *life = &course->subject->lives.at[index];
  uint64_t change = begins ? life->bytes : 0 - life->bytes; /* modulo 2^64 */
  course->live += change;
  course->by_category[life->category] += change;
  course->by_stream[gap__streams_of_life(course->streams, index)] += change;
}

static void let_go(struct course *course, const struct gap__life *life) {
  course->needed -= asked_by(course, life);
  course->pending += life->bytes;
}

/* A life that was never let go of gives back here what it had asked for. */
static void end_life(struct course *course, uint32_t index, uint32_t event) {
  const struct gap__life *life = &course->subject->lives.at[index];
  if (life->let_go >= event) let_go(course, life);
  course->pending -= life->bytes;
  count_life(course, index, false);
}

static int begin_course(const struct gap__subject *subject, const struct gap__streams *streams, struct course *course) {
  *course = (struct course){.subject = subject, .streams = streams};
  course->held = gap__held_at_start(subject->history, subject->device, subject->honest.has_segments);
  int rc = subject->honest.lives_before ? map_asked(subject, &course->asked) : 0;
  for (uint32_t i = 0; i < subject->lives.count; i++) {
    if (!subject->lives.at[i].before) continue;
    course->needed += asked_by(course, &subject->lives.at[i]);
    count_life(course, i, true);
  }
  return rc ? rc : find_replaced(subject, &course->replaced);
}

static void end_replaced(struct course *course, uint32_t event) {
  const struct replaced *replaced = &course->replaced;
  while (course->next_replaced < replaced->count) {
    uint32_t index = replaced->lives[course->next_replaced];
    if (course->subject->lives.at[index].gone > event) return;
    end_life(course, index, event);
    course->next_replaced++;
  }
}

static void pass(struct course *course, uint32_t event) {
  const struct gap__hist_event *at = &device_of(course->subject)->events[event];
  uint32_t index = course->subject->lives.of_event[event];
  course->held = gap__held_sum(course->held, gap__held_change(at));
  end_replaced(course, event);
  if (index == GAP__LIFE_NEVER) return;
  const struct gap__life *life = &course->subject->lives.at[index];
  if (at->action == GAP__ACT_ALLOC) {
    count_life(course, index, true);
    course->needed += at->size;
  } else if (at->action == GAP__ACT_FREE_COMPLETED) {
    end_life(course, index, event);
  } else if (life->let_go == event) {
    let_go(course, life);
  }
}

/* ---- which events are kept ----------------------------------------------------------------------------------------- */

enum { EXTREMES = 4 };

struct chooser {
  uint32_t *kept; /* events, in order */
  uint32_t count;
  uint64_t peak_held;
};

struct stretch {
  uint32_t at[EXTREMES]; /* the events of least and most live, least and most held */
  uint64_t least_live, most_live, least_held, most_held;
};

static void begin_stretch(struct stretch *stretch, uint32_t event) {
  *stretch = (struct stretch){.at = {event, event, event, event}, .least_live = UINT64_MAX, .least_held = UINT64_MAX};
}

static void widen(struct stretch *stretch, const struct course *course, uint32_t event) {
  uint64_t live = course->live, held = above_zero(course->held);
  if (live < stretch->least_live) stretch->least_live = live, stretch->at[0] = event;
  if (live > stretch->most_live) stretch->most_live = live, stretch->at[1] = event;
  if (held < stretch->least_held) stretch->least_held = held, stretch->at[2] = event;
  if (held > stretch->most_held) stretch->most_held = held, stretch->at[3] = event;
}

static int by_number(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

static void keep(struct chooser *chooser, const struct stretch *stretch) {
  for (int i = 0; i < EXTREMES; i++) chooser->kept[chooser->count++] = stretch->at[i];
}

static void walk(struct chooser *chooser, struct course *course, uint32_t events, uint32_t length) {
  for (uint32_t first = 0; first < events; first += length) {
    struct stretch stretch;
    begin_stretch(&stretch, first);
    uint32_t end = events - first < length ? events : first + length;
    for (uint32_t i = first; i < end; i++) {
      pass(course, i);
      widen(&stretch, course, i);
    }
    keep(chooser, &stretch);
    if (stretch.most_held > chooser->peak_held) chooser->peak_held = stretch.most_held;
  }
}

static void make_unique(struct chooser *chooser) {
  uint32_t kept = 0;
  qsort(chooser->kept, chooser->count, sizeof *chooser->kept, by_number);
  for (uint32_t i = 0; i < chooser->count; i++)
    if (!kept || chooser->kept[kept - 1] != chooser->kept[i]) chooser->kept[kept++] = chooser->kept[i];
  chooser->count = kept;
}

/* The ends, the peak and the refusal besides. */
static int choose(const struct gap__subject *subject, struct course *course, uint32_t length, struct chooser *chooser) {
  uint32_t events = subject->lives.event_count, stretches = (events - 1) / length + 1;
  *chooser = (struct chooser){.kept = malloc(((size_t)stretches * EXTREMES + 4) * sizeof *chooser->kept)};
  if (!chooser->kept) return GAP_ENOMETA;
  walk(chooser, course, events, length);
  chooser->kept[chooser->count++] = 0;
  chooser->kept[chooser->count++] = events - 1;
  chooser->kept[chooser->count++] = subject->lives.peak_event;
  if (subject->refusal.recorded) chooser->kept[chooser->count++] = subject->refusal.event;
  make_unique(chooser);
  return 0;
}

/* ---- the points ---------------------------------------------------------------------------------------------------- */

static void take_point(const struct course *course, uint32_t event, struct gap__point *point) {
  *point = (struct gap__point){.event = event,
                               .time_us = device_of(course->subject)->events[event].time_us,
                               .live = course->live,
                               .pending = course->pending,
                               .held = above_zero(course->held),
                               .needed = course->needed};
  for (int i = 0; i < GAP__CAT_COUNT; i++) point->by_category[i] = course->by_category[i];
  for (int i = 0; i < GAP__STREAMS_LISTED; i++) point->by_stream[i] = course->by_stream[i];
}

static int take_points(struct course *course, const struct chooser *chooser, struct gap__timeline *timeline) {
  timeline->points = malloc(((size_t)chooser->count + 1) * sizeof *timeline->points);
  if (!timeline->points) return GAP_ENOMETA;
  for (uint32_t event = 0; timeline->count < chooser->count; event++) {
    pass(course, event);
    if (chooser->kept[timeline->count] == event) take_point(course, event, &timeline->points[timeline->count++]);
  }
  return 0;
}

int gap__timeline_find(const struct gap__subject *subject, const struct gap__streams *streams, uint32_t stretches,
                       struct gap__timeline *timeline) {
  struct course start, course;
  struct chooser chooser = {0};
  uint32_t events = subject->lives.event_count;
  *timeline = (struct gap__timeline){.tells_held = subject->honest.tells_driver};
  if (!subject->honest.has_events) return 0;
  timeline->stretch = (events - 1) / stretches + 1;
  int rc = begin_course(subject, streams, &start);
  course = start;
  if (!rc) rc = choose(subject, &course, timeline->stretch, &chooser);
  if (!rc) {
    course = start; /* a second time */
    rc = take_points(&course, &chooser, timeline);
    timeline->peak_held = chooser.peak_held;
  }
  free(chooser.kept);
  free(start.replaced.lives);
  gap__map_free(&start.asked);
  return rc;
}

void gap__timeline_free(struct gap__timeline *timeline) {
  free(timeline->points);
  *timeline = (struct gap__timeline){0};
}

const struct gap__point *gap__timeline_at(const struct gap__timeline *timeline, uint32_t event) {
  uint32_t low = 0, high = timeline->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (timeline->points[middle].event <= event) low = middle + 1;
    else high = middle;
  }
  return low ? &timeline->points[low - 1] : NULL;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

void gap__timeline_emit(const struct gap__timeline *timeline, uint32_t streams, struct gap__emit *emit) {
  const struct gap__point *points = timeline->points;
  if (!points) {
    gap__emit_null(emit);
    return;
  }
  gap__emit_begin(emit, '{');
  GAP__EMIT_COLUMN(emit, number, "event", points, timeline->count, event);
  GAP__EMIT_COLUMN(emit, signed, "time_us", points, timeline->count, time_us);
  GAP__EMIT_COLUMN(emit, number, "live_bytes", points, timeline->count, live);
  GAP__EMIT_COLUMN(emit, number, "pending_bytes", points, timeline->count, pending);
  if (timeline->tells_held) GAP__EMIT_COLUMN(emit, number, "held_bytes", points, timeline->count, held);
  else GAP__EMIT_NULL(emit, "held_bytes");
  GAP__EMIT_COLUMN(emit, number, "needed_bytes", points, timeline->count, needed);
  gap__emit_name(emit, "by_category");
  gap__emit_begin(emit, '[');
  for (int i = 0; i < GAP__CAT_COUNT; i++) GAP__EMIT_ITEMS(emit, number, points, timeline->count, by_category[i]);
  gap__emit_end(emit, ']');
  gap__emit_name(emit, "by_stream");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < streams; i++) GAP__EMIT_ITEMS(emit, number, points, timeline->count, by_stream[i]);
  gap__emit_end(emit, ']');
  GAP__EMIT(emit, number, "events_per_stretch", timeline->stretch);
  gap__emit_end(emit, '}');
}
