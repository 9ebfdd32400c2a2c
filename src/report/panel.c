#include "report/panel.h"

#include <stdlib.h>

#include "gapless/gapless.h"

enum { STRETCHES = 1000, ROWS = 2000, CELLS = 12000, FLAME_NODES = 6000, WHOLE_PANELS = 4, ROWS_LEAST = 50 };

static uint32_t share(uint32_t whole, uint32_t panels, uint32_t least) {
  uint32_t part = panels > WHOLE_PANELS ? whole * WHOLE_PANELS / panels : whole;
  return part > least ? part : whole < least ? whole : least;
}

struct gap__panel_limits gap__panel_limits(uint32_t panels, uint32_t top) {
  return (struct gap__panel_limits){.stretches = share(STRETCHES, panels, 100),
                                    .flame_nodes = share(FLAME_NODES, panels, 200),
                                    .moment = {.rows = share(ROWS, panels, ROWS_LEAST),
                                               .cells = share(CELLS, panels, 10 * ROWS_LEAST),
                                               .top = share(top, panels, 10)}};
}

/* ---- moments ------------------------------------------------------------------------------------------------------- */

static int undo_to(struct gap__picture *picture, const struct gap__subject *subject, uint32_t *now, uint32_t event) {
  int rc = 0;
  for (; !rc && *now > event; (*now)--) rc = gap__picture_undo(picture, &subject->lives, *now);
  return rc;
}

static int take(struct gap__panel *panel, struct gap__picture *picture, uint32_t *now, const char *name, uint32_t event,
                const struct gap__moment_limits *limits) {
  int rc = undo_to(picture, panel->subject, now, event);
  if (rc) return rc;
  return gap__moment_take(picture, panel->subject, name, event, limits, &panel->moments[panel->moment_count++]);
}

/* The file has its end; from there events are undone, so the later of the peak and the refusal comes first. */
static int take_past(struct gap__panel *panel, struct gap__picture *picture, uint32_t now,
                     const struct gap__moment_limits *limits) {
  const struct gap__subject *subject = panel->subject;
  uint32_t peak = subject->lives.peak_event, failure = subject->refusal.event;
  bool fails = subject->refusal.recorded, fails_first = fails && failure < peak;
  int rc = 0;
  if (fails && !fails_first) rc = take(panel, picture, &now, "failure", failure, limits);
  if (!rc) rc = take(panel, picture, &now, "peak", peak, limits);
  if (!rc && fails_first) rc = take(panel, picture, &now, "failure", failure, limits);
  return rc;
}

static int take_moments(struct gap__panel *panel, const struct gap__moment_limits *limits) {
  const struct gap__subject *subject = panel->subject;
  uint32_t events = subject->lives.event_count, now = events ? events - 1 : 0;
  struct gap__picture picture;
  int rc = gap__picture_begin(subject->history, subject->device, &picture);
  if (!rc) rc = take(panel, &picture, &now, "end", now, limits);
  if (!rc && subject->honest.has_events) rc = take_past(panel, &picture, now, limits);
  gap__picture_end(&picture);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

int gap__panel_make(struct gap__panel *panel, const char *file, struct gap__subject *subject,
                    const struct gap__panel_limits *limits) {
  *panel = (struct gap__panel){.file = file, .subject = subject};
  gap__names_begin(&panel->names, &subject->sites);
  int rc = gap__streams_find(subject, &panel->streams);
  if (!rc) rc = gap__timeline_find(subject, &panel->streams, limits->stretches, &panel->timeline);
  if (!rc) rc = take_moments(panel, &limits->moment);
  if (!rc) rc = gap__flame_find(subject, limits->flame_nodes, &panel->flame);
  if (!rc) rc = gap__what_if_prepare(subject, limits->no_what_if, &panel->what_if);
  return rc;
}

void gap__panel_free(struct gap__panel *panel) {
  gap__streams_free(&panel->streams);
  gap__timeline_free(&panel->timeline);
  for (uint32_t i = 0; i < panel->moment_count; i++) gap__moment_free(&panel->moments[i]);
  gap__flame_free(&panel->flame);
  gap__what_if_free(&panel->what_if);
  gap__names_free(&panel->names);
}
