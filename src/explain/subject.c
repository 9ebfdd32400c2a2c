#include "explain/subject.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/held.h"
#include "gapless/gapless.h"

/* ---- which device -------------------------------------------------------------------------------------------------- */

static bool has_refusal(const struct gap__hist_device *device) {
  for (uint64_t i = 0; i < device->event_count; i++)
    if (device->events[i].action == GAP__ACT_OOM) return true;
  return false;
}

/* One with a refusal before one without; then the one that holds most; then the one with most events. */
static uint32_t choose_device(const struct gap__history *history) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < history->device_count; i++) {
    bool refused = has_refusal(&history->devices[i]), best_refused = has_refusal(&history->devices[best]);
    uint64_t held = (uint64_t)gap__held_at_end(history, i), most = (uint64_t)gap__held_at_end(history, best);
    bool more = held > most || (held == most && history->devices[i].event_count > history->devices[best].event_count);
    if (refused != best_refused ? refused : more) best = i;
  }
  return best;
}

/* ---- which request ------------------------------------------------------------------------------------------------- */

static void find_refusal(struct gap__subject *subject) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  struct gap__refusal *refusal = &subject->refusal;
  *refusal = (struct gap__refusal){.event = (uint32_t)from->event_count, .request = subject->options.request_bytes};
  for (uint64_t i = 0; i < from->event_count; i++) {
    if (from->events[i].action != GAP__ACT_OOM) continue;
    refusal->recorded = true;
    refusal->event = (uint32_t)i;
    refusal->count++;
    refusal->request = from->events[i].size;
    refusal->driver_free = from->events[i].addr;
  }
  if (refusal->request) refusal->segment = gap__figures_segment_for(refusal->request, subject->history->by_gapless);
}

/* Chunks may be larger than a page, and an idle page in one that is used cannot go: the allocator knows what can. */
static void trust_facts(struct gap__subject *subject) {
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  struct gap__figures *figures = &subject->figures;
  if (!facts) return;
  figures->returnable = facts->returnable_bytes < figures->idle ? facts->returnable_bytes : figures->idle;
  figures->stuck = figures->idle - figures->returnable;
}

static int take_picture(struct gap__subject *subject) {
  struct gap__picture picture;
  const struct gap__refusal *refusal = &subject->refusal;
  int rc = gap__picture_begin(subject->history, subject->device, &picture);
  for (uint32_t i = subject->lives.event_count; !rc && refusal->recorded && i-- > refusal->event;)
    rc = gap__picture_undo(&picture, &subject->lives, i);
  if (!rc) {
    const struct gap__hist_event *events = subject->history->devices[subject->device].events;
    subject->asker.is_small = refusal->request && refusal->request <= (uint64_t)1 << 20;
    if (refusal->recorded) subject->asker.stream = events[refusal->event].stream;
    else rc = gap__figures_main_stream(&picture, &subject->asker.stream);
    if (!rc) rc = gap__figures_count(&picture, &subject->asker, &subject->figures);
  }
  gap__picture_end(&picture);
  if (!rc) trust_facts(subject);
  return rc;
}

/* ---- what the driver was asked ------------------------------------------------------------------------------------- */

static void count_segments(struct gap__subject *subject) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  struct gap__segment_counts *counts = &subject->segment_counts;
  bool freed_last = false;
  for (uint64_t i = 0; i < from->event_count; i++) {
    uint8_t action = from->events[i].action;
    bool makes = action == GAP__ACT_SEGMENT_ALLOC || action == GAP__ACT_SEGMENT_MAP;
    bool frees = action == GAP__ACT_SEGMENT_FREE || action == GAP__ACT_SEGMENT_UNMAP;
    counts->made += makes;
    counts->freed += frees;
    counts->bursts += freed_last && (makes || action == GAP__ACT_OOM);
    freed_last = frees;
  }
}

/* The most that was held at a time, by the events; what is held at the end where they do not tell. */
static uint64_t most_held(const struct gap__subject *subject) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  int64_t now = gap__held_at_end(subject->history, subject->device), most = now;
  for (uint64_t i = from->event_count; i-- > 0;) {
    now = gap__held_less(now, gap__held_change(&from->events[i]));
    if (now > most) most = now;
  }
  return (uint64_t)most;
}

static int look_for_size(struct gap__subject *subject) {
  if (!subject->options.request_bytes || !subject->honest.has_events || !subject->honest.has_segments) return 0;
  struct gap__asker asker = subject->asker;
  asker.is_small = subject->options.request_bytes <= (uint64_t)1 << 20;
  subject->has_servable = true;
  subject->servable_limit = subject->bounds.target;
  subject->servable_implied = subject->servable_limit == 0;
  if (subject->servable_implied) subject->servable_limit = most_held(subject);
  return gap__servable_find(subject->history, subject->device, &subject->lives, &asker, subject->options.request_bytes,
                            subject->servable_limit, &subject->servable);
}

uint64_t gap__subject_peak(const struct gap__subject *subject) {
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  uint64_t seen = subject->lives.peak_bytes;
  return !subject->honest.has_events && facts && facts->peak_live_bytes > seen ? facts->peak_live_bytes : seen;
}

uint64_t gap__subject_before(const struct gap__subject *subject) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < subject->lives.count; i++)
    if (subject->lives.at[i].before && gap__life_covers(&subject->lives.at[i], subject->lives.peak_event))
      bytes += subject->lives.at[i].bytes;
  return bytes;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int study_events(struct gap__subject *subject) {
  const struct gap__history *history = subject->history;
  int rc = gap__lives_find(history, subject->device, &subject->lives);
  if (!rc) rc = gap__sites_find(history, &subject->sites);
  if (!rc) rc = gap__steps_find(history, subject->device, &subject->lives, &subject->sites, &subject->steps);
  if (!rc)
    rc = gap__categories_find(history, subject->device, &subject->lives, &subject->sites, &subject->steps,
                              &subject->categories);
  if (!rc) rc = gap__growth_find(&subject->lives, &subject->sites, &subject->steps, &subject->growth);
  if (!rc) rc = gap__holders_find(&subject->lives, &subject->sites, &subject->steps, &subject->holders);
  if (!rc) rc = gap__honest_find(history, subject->device, &subject->lives, &subject->honest);
  return rc;
}

int gap__subject_study(struct gap__subject *subject) {
  const struct gap__history *history = subject->history;
  if (subject->options.device >= (int64_t)history->device_count || history->device_count == 0) return GAP_EINVAL;
  subject->device = subject->options.device < 0 ? choose_device(history) : (uint32_t)subject->options.device;
  int rc = study_events(subject);
  find_refusal(subject);
  if (!rc) rc = take_picture(subject);
  if (rc) return rc;
  if (!subject->honest.has_events) subject->lives.peak_bytes = subject->figures.live + subject->figures.pending;
  count_segments(subject);
  gap__verdict_find(subject);
  return look_for_size(subject);
}

void gap__subject_free(struct gap__subject *subject) {
  gap__history_free(subject->history);
  gap__honest_free(&subject->honest);
  gap__lives_free(&subject->lives);
  gap__sites_free(&subject->sites);
  gap__steps_free(&subject->steps);
}
