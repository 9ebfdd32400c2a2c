/* The requests of some steps of a history.  A block that outlives the steps keeps its address to their end; what was there
 * before them is not theirs to place. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/steps.h"
#include "trace/message.h"

enum { UNIT = 512, STREAMS_MAX = 4096 };

struct gather {
  const struct gap__hist_event *events;
  uint32_t first, end;
  struct gap_plan *plan;
  struct gap__map live; /* address -> entry + 1, 0 for what is not placed */
  char **message;
};

static uint64_t rounded(uint64_t bytes) { return bytes ? (bytes + UNIT - 1) / UNIT * UNIT : UNIT; }

static int stream_index(struct gather *gather, uint64_t stream, uint32_t *index) {
  struct gap_plan *plan = gather->plan;
  for (*index = 0; *index < plan->stream_count; ++*index)
    if (plan->streams[*index] == stream) return 0;
  if (plan->stream_count == STREAMS_MAX)
    return gap__message_set(gather->message, GAP_ELIMIT, "more than %d streams", STREAMS_MAX);
  plan->streams[plan->stream_count++] = stream;
  return 0;
}

static void end_life(struct gather *gather, uint64_t addr) {
  uint64_t entry;
  if (!gap__map_remove(&gather->live, addr, &entry) || entry == 0) return;
  gather->plan->at[entry - 1].to = gather->plan->moments++;
}

static int on_alloc(struct gather *gather, const struct gap__hist_event *event) {
  struct gap_plan *plan = gather->plan;
  uint64_t entry = 0;
  int rc = 0;
  end_life(gather, event->addr); /* a free that the history does not show */
  if (event->pool) plan->info.left_out++;
  if (!event->pool) {
    struct gap__plan_entry *made = &plan->at[plan->count];
    if (event->size > UINT64_MAX / 4)
      return gap__message_set(gather->message, GAP_ELIMIT, "a request beyond all limits");
    *made = (struct gap__plan_entry){.bytes = rounded(event->size), .align = UNIT, .from = plan->moments++};
    rc = stream_index(gather, event->stream, &made->stream);
    entry = ++plan->count;
  }
  return rc ? rc : gap__map_put(&gather->live, event->addr, entry);
}

/* Bytes of blocks from before the steps that are still there when they end. */
static int find_resident(struct gather *gather) {
  struct gap__map live = {0};
  int rc = 0;
  for (uint32_t i = 0; !rc && i < gather->end; i++) {
    const struct gap__hist_event *event = &gather->events[i];
    if (event->action == GAP__ACT_FREE_COMPLETED) gap__map_remove(&live, event->addr, NULL);
    if (event->action == GAP__ACT_ALLOC && i < gather->first)
      rc = gap__map_put(&live, event->addr, rounded(event->size));
    else if (event->action == GAP__ACT_ALLOC) gap__map_remove(&live, event->addr, NULL);
  }
  struct gap__map_slot slot;
  for (size_t cursor = 0; !rc && gap__map_next(&live, &cursor, &slot);) gather->plan->info.resident_bytes += slot.value;
  gap__map_free(&live);
  return rc;
}

static int walk(struct gather *gather) {
  int rc = find_resident(gather);
  for (uint32_t i = gather->first; !rc && i < gather->end; i++) {
    const struct gap__hist_event *event = &gather->events[i];
    if (event->action == GAP__ACT_ALLOC) rc = on_alloc(gather, event);
    else if (event->action == GAP__ACT_FREE_COMPLETED) end_life(gather, event->addr);
  }
  struct gap__map_slot slot;
  bool any = false;
  for (size_t cursor = 0; !rc && gap__map_next(&gather->live, &cursor, &slot);) {
    if (slot.value) gather->plan->at[slot.value - 1].to = gather->plan->moments;
    any |= slot.value != 0;
  }
  gather->plan->moments += any;
  return rc;
}

/* Lives that reach the end of the steps end there together. */
static int gather_requests(const struct gap__hist_device *from, uint32_t first, uint32_t end, struct gap_plan *plan,
                           char **message) {
  struct gather gather = {.events = from->events, .first = first, .end = end, .plan = plan, .message = message};
  plan->at = calloc((size_t)(end - first) + 1, sizeof *plan->at);
  plan->streams = calloc(STREAMS_MAX, sizeof *plan->streams);
  int rc = plan->at && plan->streams ? walk(&gather) : GAP_ENOMETA;
  gap__map_free(&gather.live);
  if (!rc && plan->count == 0) rc = gap__message_set(message, GAP_EINVAL, "there is no request in these steps");
  return rc;
}

static int pick_device(const struct gap__history *history, int64_t wanted, uint32_t *device, char **message) {
  if (wanted >= 0 && wanted >= (int64_t)history->device_count)
    return gap__message_set(message, GAP_EINVAL, "there is no device %" PRId64 ": the file has %" PRIu32, wanted,
                            history->device_count);
  for (*device = wanted < 0 ? 0 : (uint32_t)wanted; *device < history->device_count; ++*device)
    if (gap__history_has_requests(history, *device) || wanted >= 0) return 0;
  return gap__message_set(message, GAP_EINVAL, "no requests were recorded: there is nothing to place");
}

static int pick_steps(const struct gap__plan_steps *steps, const gap_plan_options *options, gap_plan_info *info,
                      char **message) {
  int64_t first = options->step_first < 0 ? 0 : options->step_first;
  int64_t last = options->step_last < 0 ? (int64_t)steps->count - 1 : options->step_last;
  if (first > last || last >= (int64_t)steps->count)
    return gap__message_set(message, GAP_EINVAL,
                            "there are no steps %" PRId64 "..%" PRId64 ": the history has 0..%" PRIu32, first, last,
                            steps->count - 1);
  info->steps_found = steps->count;
  info->step_first = (uint64_t)first;
  info->step_last = (uint64_t)last;
  strncpy(info->steps_from, steps->from, sizeof info->steps_from - 1);
  return 0;
}

int gap__plan_from_history(const struct gap__history *history, const gap_plan_options *options, struct gap_plan *plan,
                           char **message) {
  struct gap__plan_steps steps = {0};
  uint32_t device = 0;
  int rc = pick_device(history, options->device, &device, message);
  if (!rc && history->devices[device].event_count >= UINT32_MAX / 2)
    rc = gap__message_set(message, GAP_ELIMIT, "more events than a plan can hold");
  if (!rc && options->mark && !gap__plan_steps_know(history, device, options->mark))
    rc = gap__message_set(message, GAP_EINVAL, "no mark in it begins with \"%s\"", options->mark);
  if (!rc) rc = gap__plan_steps_find(history, device, options->mark, &steps);
  if (!rc) plan->info.wrapped = history->devices[device].wrapped;
  if (!rc) rc = pick_steps(&steps, options, &plan->info, message);
  if (!rc)
    rc = gather_requests(&history->devices[device], steps.starts[plan->info.step_first],
                         steps.starts[plan->info.step_last + 1], plan, message);
  gap__plan_steps_free(&steps);
  return rc;
}
