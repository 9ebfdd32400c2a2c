/* A panel as JSON; web/src/data.ts says what the fields mean. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/report.h"
#include "replay/verify_native.h"
#include "report/panel.h"

enum { STEPS_MOST = 1000, CONF_BYTES = 4000 };

static const struct gap__hist_device *device_of(const struct gap__panel *panel) {
  return &panel->subject->history->devices[panel->subject->device];
}

static void put_head(const struct gap__panel *panel, struct gap__emit *emit) {
  const struct gap__subject *subject = panel->subject;
  const struct gap__history *history = subject->history;
  const struct gap__hist_device *from = device_of(panel);
  char *head = gap__report_head(subject);
  GAP__EMIT(emit, text, "file", panel->file);
  GAP__EMIT(emit, number, "device", subject->device);
  GAP__EMIT(emit, number, "event_count", from->event_count);
  GAP__EMIT(emit, signed, "duration_us", from->event_count ? from->events[from->event_count - 1].time_us : 0);
  if (history->time_base_us > 0) GAP__EMIT(emit, signed, "began_us", history->time_base_us);
  else GAP__EMIT_NULL(emit, "began_us");
  GAP__EMIT(emit, text, "allocator", gap_policy_name(gap__verify_policy(history, subject->device)));
  gap__emit_name(emit, "conf");
  gap__emit_start(emit, history->settings_text ? history->settings_text : "", CONF_BYTES);
  GAP__EMIT(emit, text, "head", head);
  emit->text.failed |= head == NULL;
  free(head);
}

static void put_figures(const struct gap__panel *panel, struct gap__emit *emit) {
  const struct gap__subject *subject = panel->subject;
  const struct gap__timeline *timeline = &panel->timeline;
  GAP__EMIT(emit, number, "peak_live_bytes", gap__subject_peak(subject));
  GAP__EMIT(emit, number, "peak_needed_bytes", subject->lives.peak_requested_bytes);
  if (!subject->honest.tells_driver) GAP__EMIT_NULL(emit, "peak_held_bytes");
  else GAP__EMIT(emit, number, "peak_held_bytes", timeline->count ? timeline->peak_held : subject->figures.held);
  if (subject->bounds.target) GAP__EMIT(emit, number, "cap_bytes", subject->bounds.target);
  else GAP__EMIT_NULL(emit, "cap_bytes");
}

/* ---- marks --------------------------------------------------------------------------------------------------------- */

static void begin_mark(const struct gap__panel *panel, const char *name, uint32_t event, struct gap__emit *emit) {
  const struct gap__point *point = gap__timeline_at(&panel->timeline, event);
  gap__emit_name(emit, name);
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "event", event);
  GAP__EMIT(emit, signed, "time_us", device_of(panel)->events[event].time_us);
  GAP__EMIT(emit, number, "live_bytes", point ? point->live : 0);
  if (panel->timeline.tells_held && point) GAP__EMIT(emit, number, "held_bytes", point->held);
  else GAP__EMIT_NULL(emit, "held_bytes");
}

static void put_failure(const struct gap__panel *panel, struct gap__emit *emit) {
  const struct gap__refusal *refusal = &panel->subject->refusal;
  if (!refusal->recorded) {
    GAP__EMIT_NULL(emit, "failure");
    return;
  }
  begin_mark(panel, "failure", refusal->event, emit);
  GAP__EMIT(emit, number, "request_bytes", refusal->request);
  GAP__EMIT(emit, number, "count", refusal->count);
  gap__emit_end(emit, '}');
}

static void put_step(const struct gap__step *step, uint32_t index, struct gap__emit *emit) {
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "index", index);
  GAP__EMIT(emit, number, "first", step->first);
  GAP__EMIT(emit, number, "end", step->end);
  GAP__EMIT(emit, number, "peak_event", step->peak_event);
  GAP__EMIT(emit, number, "peak_bytes", step->peak_bytes);
  gap__emit_end(emit, '}');
}

/* Where the whole history is one step, steps cannot be told. */
static void put_steps(const struct gap__steps *steps, struct gap__emit *emit) {
  uint32_t every = steps->count / (STEPS_MOST + 1) + 1;
  gap__emit_name(emit, "steps");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; steps->source != GAP__STEPS_NONE && i < steps->count; i += every)
    put_step(&steps->at[i], i, emit);
  gap__emit_end(emit, ']');
}

static void put_marks(const struct gap__panel *panel, struct gap__emit *emit) {
  gap__emit_name(emit, "marks");
  gap__emit_begin(emit, '{');
  if (panel->subject->honest.has_events) {
    begin_mark(panel, "peak", panel->subject->lives.peak_event, emit);
    gap__emit_end(emit, '}');
  } else {
    GAP__EMIT_NULL(emit, "peak");
  }
  put_failure(panel, emit);
  put_steps(&panel->subject->steps, emit);
  gap__emit_end(emit, '}');
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static void put_pools(const struct gap__history *history, struct gap__emit *emit) {
  gap__emit_name(emit, "pools");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < history->pool_count; i++) {
    char name[64] = "default pool";
    if (i)
      snprintf(name, sizeof name, "pool (%" PRIu64 ", %" PRIu64 ")", history->pools[i].id[0], history->pools[i].id[1]);
    gap__emit_begin(emit, '{');
    gap__emit_name(emit, "id");
    gap__emit_begin(emit, '[');
    gap__emit_number(emit, history->pools[i].id[0]);
    gap__emit_number(emit, history->pools[i].id[1]);
    gap__emit_end(emit, ']');
    GAP__EMIT(emit, text, "name", name);
    gap__emit_end(emit, '}');
  }
  gap__emit_end(emit, ']');
}

static void put_explanation(const struct gap__panel *panel, struct gap__emit *emit) {
  char *json = gap__subject_json(panel->subject, panel->file);
  GAP__EMIT(emit, json, "explain", json);
  free(json);
}

static int put_moments(struct gap__panel *panel, struct gap__emit *emit) {
  int rc = 0;
  gap__emit_name(emit, "moments");
  gap__emit_begin(emit, '[');
  for (uint32_t i = panel->moment_count; !rc && i-- > 0;)
    rc = gap__moment_emit(&panel->moments[i], panel->subject, &panel->streams, &panel->names, emit);
  gap__emit_end(emit, ']');
  return rc;
}

int gap__panel_emit(struct gap__panel *panel, struct gap__emit *emit) {
  gap__emit_begin(emit, '{');
  put_head(panel, emit);
  put_explanation(panel, emit);
  put_figures(panel, emit);
  put_marks(panel, emit);
  gap__emit_name(emit, "streams");
  gap__streams_emit(&panel->streams, emit);
  put_pools(panel->subject->history, emit);
  gap__emit_name(emit, "timeline");
  gap__timeline_emit(&panel->timeline, panel->streams.listed_count, emit);
  int rc = put_moments(panel, emit);
  gap__emit_name(emit, "flame");
  if (!rc) rc = gap__flame_emit(&panel->flame, panel->subject->honest.has_events, &panel->names, emit);
  gap__emit_name(emit, "what_if");
  gap__what_if_emit(&panel->what_if, emit);
  gap__emit_name(emit, "sites");
  gap__names_emit_sites(&panel->names, emit);
  gap__emit_name(emit, "frames");
  gap__names_emit_frames(&panel->names, emit);
  gap__emit_end(emit, '}');
  return rc;
}
