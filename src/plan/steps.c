#include "plan/steps.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "gapless/gapless.h"

enum {
  NEAR_EVENTS = 16, /* marks that follow each other so closely begin one step */
  CONTEXT = 24,     /* requests that must agree for two places to look alike */
  CANDIDATES = 64,  /* periods that are looked at */
  PERIODS_MIN = 2,  /* repetitions that make a period */
};

/* ---- marks --------------------------------------------------------------------------------------------------------- */

static uint32_t event_at(const struct gap__hist_device *device, int64_t time_us) {
  uint32_t low = 0, high = (uint32_t)device->event_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (device->events[middle].time_us < time_us) low = middle + 1;
    else high = middle;
  }
  return low;
}

static void add_start(struct gap__plan_steps *steps, uint32_t start) {
  if (start - steps->starts[steps->count - 1] >= NEAR_EVENTS) steps->starts[steps->count++] = start;
}

static bool is_named(const struct gap__history *history, uint32_t mark, const char *prefix) {
  return strncmp(history->text + history->annotations[mark].name, prefix, strlen(prefix)) == 0;
}

/* A step begins where a mark so named begins or, `at_end`, after it ends.  starts[0] is 0 throughout. */
static void from_marks(const struct gap__history *history, uint32_t device, const char *prefix, bool at_end,
                       struct gap__plan_steps *steps) {
  const struct gap__hist_device *from = &history->devices[device];
  steps->count = 1;
  for (uint32_t i = 0; i < history->annotation_count; i++) {
    const struct gap__hist_annotation *mark = &history->annotations[i];
    if ((uint32_t)mark->device != device || mark->is_start == at_end) continue;
    if (!is_named(history, i, prefix)) continue;
    uint32_t start = event_at(from, mark->time_us + at_end);
    if (start + NEAR_EVENTS < from->event_count) add_start(steps, start);
  }
}

/* ---- period -------------------------------------------------------------------------------------------------------- */

struct requests { /* the allocations: what is asked, hashed, and by which event */
  uint64_t *what;
  uint32_t *event, count;
};

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15;
  return a ^ a >> 29;
}

static int list_requests(const struct gap__hist_device *from, struct requests *requests) {
  requests->what = malloc((from->event_count + 1) * sizeof *requests->what);
  requests->event = malloc((from->event_count + 1) * sizeof *requests->event);
  if (!requests->what || !requests->event) return GAP_ENOMETA;
  for (uint32_t i = 0; i < from->event_count; i++) {
    const struct gap__hist_event *event = &from->events[i];
    if (event->action != GAP__ACT_ALLOC || event->pool) continue;
    requests->event[requests->count] = i;
    requests->what[requests->count++] = mix(event->size, event->stream);
  }
  return 0;
}

/* How often each distance lies between a place and the next that looks like it. */
static int count_distances(const struct requests *requests, uint32_t *counts) {
  struct gap__map last = {0};
  int rc = 0;
  for (uint32_t i = CONTEXT; !rc && i <= requests->count; i++) {
    uint64_t context = 0, before;
    for (uint32_t j = i - CONTEXT; j < i; j++) context = mix(context, requests->what[j]);
    if (gap__map_get(&last, context, &before)) counts[i - before]++;
    rc = gap__map_put(&last, context, i);
  }
  gap__map_free(&last);
  return rc;
}

/* The share of requests that are the same one period later. */
static double likeness(const struct requests *requests, uint32_t period) {
  uint32_t same = 0, most = requests->count - period;
  for (uint32_t i = 0; i < most; i++) same += requests->what[i] == requests->what[i + period];
  return most ? (double)same / requests->count : 0;
}

/* The shortest of the periods that explain the history about as well as the best one; 0: none explains half of it. */
static uint32_t best_period(const struct requests *requests, uint32_t *counts) {
  uint32_t periods[CANDIDATES], found = 0, period = 0;
  double like[CANDIDATES], best = 0.5;
  for (; found < CANDIDATES; found++) {
    uint32_t most = 0;
    for (uint32_t i = CONTEXT; i <= requests->count / PERIODS_MIN; i++)
      if (counts[i] > counts[most]) most = i;
    if (counts[most] == 0) break;
    counts[most] = 0;
    periods[found] = most;
    like[found] = likeness(requests, most);
    if (like[found] > best) best = like[found];
  }
  for (uint32_t i = 0; i < found; i++)
    if (like[i] >= 0.9 * best && like[i] >= 0.5 && (period == 0 || periods[i] < period)) period = periods[i];
  return period;
}

/* The first place from which a whole period repeats. */
static uint32_t first_repeat(const struct requests *requests, uint32_t period) {
  uint32_t same = 0;
  for (uint32_t i = 0; i + period < requests->count; i++) {
    same = requests->what[i] == requests->what[i + period] ? same + 1 : 0;
    if (same == period) return i + 1 - period;
  }
  return 0;
}

static int from_period(const struct gap__hist_device *from, struct gap__plan_steps *steps) {
  struct requests requests = {0};
  uint32_t *counts = calloc(from->event_count + 2, sizeof *counts);
  int rc = counts ? list_requests(from, &requests) : GAP_ENOMETA;
  if (!rc) rc = count_distances(&requests, counts);
  uint32_t period = rc ? 0 : best_period(&requests, counts);
  steps->count = 1;
  if (period)
    for (uint32_t i = first_repeat(&requests, period); i + period <= requests.count; i += period)
      if (requests.event[i] > steps->starts[steps->count - 1]) steps->starts[steps->count++] = requests.event[i];
  free(counts);
  free(requests.what);
  free(requests.event);
  return rc;
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */

int gap__plan_steps_find(const struct gap__history *history, uint32_t device, const char *mark,
                         struct gap__plan_steps *steps) {
  const struct gap__hist_device *from = &history->devices[device];
  size_t room = from->event_count + history->annotation_count + 2;
  int rc = 0;
  *steps = (struct gap__plan_steps){.starts = calloc(room, sizeof *steps->starts), .from = "mark"};
  if (!steps->starts) return GAP_ENOMETA;
  steps->count = 1;
  if (mark) from_marks(history, device, mark, false, steps);
  if (!mark) {
    from_marks(history, device, "ProfilerStep", false, steps);
    steps->from = "profiler";
    if (steps->count == 1) {
      from_marks(history, device, "Optimizer.step", true, steps);
      steps->from = "optimiser";
    }
    if (steps->count == 1) {
      rc = from_period(from, steps);
      steps->from = "period";
    }
  }
  if (steps->count == 1) steps->from = "none";
  steps->starts[steps->count] = (uint32_t)from->event_count;
  return rc;
}

bool gap__plan_steps_know(const struct gap__history *history, uint32_t device, const char *mark) {
  for (uint32_t i = 0; i < history->annotation_count; i++)
    if ((uint32_t)history->annotations[i].device == device && is_named(history, i, mark)) return true;
  return false;
}

void gap__plan_steps_free(struct gap__plan_steps *steps) {
  free(steps->starts);
  steps->starts = NULL;
}
