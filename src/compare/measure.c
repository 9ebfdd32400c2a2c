#include "compare/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/held.h"
#include "explain/phrase.h"

/* ---- figures ------------------------------------------------------------------------------------------------------- */

#define KIND_BYTES GAP__FIGURE_BYTES
#define KIND_PERCENT GAP__FIGURE_PERCENT
#define KIND_GROWTH GAP__FIGURE_IN_GROWTH
#define KIND_COUNT GAP__FIGURE_COUNTED

const struct gap__figure_info *gap__figure_info(enum gap__figure figure) {
  static const struct gap__figure_info infos[] = {
#define FIGURE(name, json, option, kind, words, unknown) {json, option, KIND_##kind, words, unknown},
#include "compare/figures.def"
#undef FIGURE
  };
  return &infos[figure];
}

char *gap__figure_text(enum gap__figure figure, double value, bool is_change, char out[GAP__TEXT_BYTES]) {
  enum gap__figure_kind kind = gap__figure_info(figure)->kind;
  const char *sign = value < 0 ? "-" : is_change && value > 0 ? "+" : "";
  char text[GAP__TEXT_BYTES];
  if (kind == GAP__FIGURE_PERCENT) {
    snprintf(out, GAP__TEXT_BYTES, "%s%.1f %s", sign, fabs(value), is_change ? "points" : "%");
    return out;
  }
  uint64_t amount = (uint64_t)fabs(value);
  snprintf(out, GAP__TEXT_BYTES, "%s%.28s", sign,
           kind == GAP__FIGURE_COUNTED ? gap__text_thousands(amount, text) : gap__text_size(amount, text));
  return out;
}

static void set(struct gap__measure *measure, enum gap__figure figure, bool known, double value) {
  measure->figures[figure] = (struct gap__figure_value){known, known ? value : 0};
}

/* ---- the course of a history --------------------------------------------------------------------------------------- */

struct course {
  int64_t live, held;           /* now */
  int64_t peak_held, idle_then; /* idle when most was held */
  uint64_t allocs, calls, retries, refusals,
      driver_events; /* driver_events: of the whole history, the others of the window */
  bool freed_last;
};

static bool is_driver_event(const struct gap__hist_event *event) {
  return event->action >= GAP__ACT_SEGMENT_ALLOC && event->action <= GAP__ACT_SEGMENT_UNMAP;
}

static void begin(struct course *course, const struct gap__subject *subject, const struct gap__hist_device *from) {
  *course =
      (struct course){.live = gap__lives_at_start(&subject->lives),
                      .held = gap__held_at_start(subject->history, subject->device, subject->honest.has_segments)};
  for (uint64_t i = 0; i < from->event_count; i++) course->driver_events += is_driver_event(&from->events[i]);
}

/* Of several moments at which most is held the one with the least idle. */
static void note_most(struct course *course) {
  int64_t idle = gap__held_sum(course->held, -course->live);
  if (course->held < course->peak_held || (course->held == course->peak_held && idle >= course->idle_then)) return;
  course->peak_held = course->held;
  course->idle_then = idle;
}

/* A retry: memory is given back, and then asked for again or refused. */
static void count(struct course *course, const struct gap__hist_event *event) {
  bool frees = event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP;
  bool asks = event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP;
  course->allocs += event->action == GAP__ACT_ALLOC;
  course->calls += is_driver_event(event);
  course->refusals += event->action == GAP__ACT_OOM;
  course->retries += course->freed_last && (asks || event->action == GAP__ACT_OOM);
  course->freed_last = frees;
}

static void follow(struct gap__measure *measure, struct course *course) {
  const struct gap__subject *subject = &measure->subject;
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  begin(course, subject, from);
  for (uint32_t i = 0; i < measure->end; i++) {
    if (i == measure->first) note_most(course);
    course->live += gap__lives_change(&subject->lives, &from->events[i], i);
    course->held = gap__held_sum(course->held, gap__held_change(&from->events[i]));
    if (i < measure->first) continue;
    count(course, &from->events[i]);
    note_most(course);
  }
  note_most(course);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* What of the idle memory cannot go back to the driver, as the file ends. */
static int stuck_at_end(const struct gap__subject *subject, double *out) {
  struct gap__picture picture;
  struct gap__figures figures = {0};
  int rc = gap__picture_begin(subject->history, subject->device, &picture);
  if (!rc) rc = gap__figures_count(&picture, &subject->asker, &figures);
  gap__picture_end(&picture);
  *out = (double)figures.stuck;
  return rc;
}

static void set_memory(struct gap__measure *measure, const struct course *course) {
  double held = (double)(course->peak_held > 0 ? course->peak_held : 0), live = (double)measure->peak_bytes;
  bool any = !measure->subject.honest.is_empty, tells = any && measure->tells_driver;
  set(measure, GAP__FIGURE_PEAK_LIVE, any, live);
  set(measure, GAP__FIGURE_PEAK_HELD, tells, held);
  set(measure, GAP__FIGURE_PEAK_IDLE, tells, (double)(course->idle_then > 0 ? course->idle_then : 0));
  set(measure, GAP__FIGURE_WASTE, tells && held > 0, held > live ? 100 * (held - live) / held : 0);
  set(measure, GAP__FIGURE_END_LIVE, any, (double)(course->live > 0 ? course->live : 0));
  set(measure, GAP__FIGURE_END_HELD, tells, (double)(course->held > 0 ? course->held : 0));
}

static void set_events(struct gap__measure *measure, const struct course *course) {
  const struct gap__subject *subject = &measure->subject;
  const struct gap__growth *growth = &subject->growth;
  bool has_events = subject->honest.has_events, tells = course->driver_events > 0;
  set(measure, GAP__FIGURE_GROWTH, measure->step < 0 && growth->steps > 0,
      growth->grows ? (double)growth->per_step : 0);
  set(measure, GAP__FIGURE_ALLOCS, has_events, (double)course->allocs);
  set(measure, GAP__FIGURE_CALLS, tells, (double)course->calls);
  set(measure, GAP__FIGURE_RETRIES, tells, (double)course->retries);
  set(measure, GAP__FIGURE_REFUSALS, has_events, (double)course->refusals);
}

static int measure_window(struct gap__measure *measure) {
  const struct gap__subject *subject = &measure->subject;
  struct course course;
  double stuck = 0;
  follow(measure, &course);
  measure->tells_driver = gap__history_tells_driver(subject->history, subject->device);
  set_memory(measure, &course);
  set_events(measure, &course);
  bool has_stuck = measure->step < 0 && subject->honest.has_segments;
  int rc = has_stuck ? stuck_at_end(subject, &stuck) : 0;
  set(measure, GAP__FIGURE_END_STUCK, has_stuck, stuck);
  return rc;
}

static int choose_window(struct gap__measure *measure, char *message, size_t bytes) {
  const struct gap__subject *subject = &measure->subject;
  measure->first = 0;
  measure->end = subject->lives.event_count;
  measure->peak_event = subject->lives.peak_event;
  measure->peak_bytes = subject->lives.peak_bytes;
  if (measure->step < 0) return 0;
  if (measure->step >= (int64_t)subject->steps.count) {
    snprintf(message, bytes, "there is no step %" PRId64 ": %" PRIu32 " step%s recognised, counted from 0",
             measure->step, subject->steps.count, subject->steps.count == 1 ? " was" : "s were");
    return GAP_EINVAL;
  }
  const struct gap__step *step = &subject->steps.at[measure->step];
  measure->first = step->first;
  measure->end = step->end;
  measure->peak_event = step->peak_event;
  measure->peak_bytes = step->peak_bytes;
  return 0;
}

static int study(struct gap__measure *measure, char *message, size_t bytes) {
  struct gap__subject *subject = &measure->subject;
  int rc = gap__subject_study(subject);
  if (rc == GAP_EINVAL)
    snprintf(message, bytes, "there is no device %" PRId64 ": the file has %" PRIu32, subject->options.device,
             subject->history->device_count);
  if (!rc) rc = choose_window(measure, message, bytes);
  return rc ? rc : measure_window(measure);
}

int gap__measure_studied(struct gap__measure *measure) {
  measure->step = -1;
  choose_window(measure, NULL, 0);
  return measure_window(measure);
}

int gap__measure_history(struct gap__measure *measure, struct gap__history *history,
                         const struct gap__measure_options *options, char *message, size_t bytes) {
  gap_explain_options *explain = &measure->subject.options;
  *measure =
      (struct gap__measure){.step = options->step, .subject = {.history = history}, .file = strdup(history->path)};
  *explain = (gap_explain_options){.size = sizeof *explain, .device = options->device};
  message[0] = '\0';
  int rc = measure->file ? study(measure, message, bytes) : GAP_ENOMETA;
  if (rc && !message[0]) snprintf(message, bytes, "%s", gap_strerror(rc));
  return rc;
}

int gap__measure_file(struct gap__measure *measure, const char *file, const struct gap__measure_options *options,
                      char *message, size_t bytes) {
  struct gap__history *history;
  char *text;
  *measure = (struct gap__measure){0};
  int rc = gap__history_read(file, options->progress, options->progress_arg, &history, &text);
  if (rc) snprintf(message, bytes, "%s", text);
  free(text);
  return rc ? rc : gap__measure_history(measure, history, options, message, bytes);
}

void gap__measure_free(struct gap__measure *measure) {
  gap__subject_free(&measure->subject);
  free(measure->file);
  measure->file = NULL;
}
