#include "report/what_if.h"

#include <stdlib.h>
#include <string.h>

#include "replay/cap.h"
#include "replay/live.h"
#include "replay/verify_native.h"

static const enum gap_policy policies[GAP__WHAT_IF_POLICIES] = {GAP_POLICY_NATIVE, GAP_POLICY_EXPANDABLE,
                                                                GAP_POLICY_GAPLESS, GAP_POLICY_IDEAL};
static const double factors[] = {0.9, 1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.4};

/* ---- caps ---------------------------------------------------------------------------------------------------------- */

static int by_bytes(const void *left, const void *right) {
  uint64_t a = ((const struct gap__what_if_cap *)left)->bytes, b = ((const struct gap__what_if_cap *)right)->bytes;
  return a < b ? -1 : a > b;
}

static void add_cap(struct gap__what_if *what_if, uint64_t bytes, bool is_given) {
  for (uint32_t i = 0; i < what_if->cap_count; i++) {
    if (what_if->caps[i].bytes != bytes) continue;
    what_if->caps[i].is_given |= is_given;
    return;
  }
  what_if->caps[what_if->cap_count++] = (struct gap__what_if_cap){bytes, is_given};
}

static void choose_caps(struct gap__what_if *what_if) {
  uint64_t given = what_if->subject->bounds.target;
  for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
    uint64_t bytes = gap__cap_of(factors[i], what_if->peak);
    if (bytes > what_if->before) add_cap(what_if, bytes, false);
  }
  if (given > what_if->before) add_cap(what_if, given, true);
  qsort(what_if->caps, what_if->cap_count, sizeof *what_if->caps, by_bytes);
  what_if->caps[what_if->cap_count++] = (struct gap__what_if_cap){0, false};
}

/* ---- before -------------------------------------------------------------------------------------------------------- */

static const char *reason_for_nothing(const struct gap__subject *subject, bool off) {
  if (off) return "it was not asked for";
  if (!subject->honest.has_events || !gap__history_has_requests(subject->history, subject->device))
    return "the file has no history";
  return subject->honest.contradictions ? "a history that contradicts itself cannot be replayed" : "";
}

int gap__what_if_prepare(const struct gap__subject *subject, bool off, struct gap__what_if *what_if) {
  struct gap__live live = {0};
  uint64_t over;
  *what_if = (struct gap__what_if){.subject = subject, .reason = reason_for_nothing(subject, off)};
  if (*what_if->reason) return 0;
  int rc = gap__altered_none(subject, &what_if->history);
  if (!rc) rc = gap__live_peaks(&what_if->history.history, subject->device, UINT64_MAX, &live, &over);
  if (rc == GAP_EFORMAT) {
    what_if->reason = "a history that contradicts itself cannot be replayed";
    return 0;
  }
  what_if->before = gap__subject_before(subject);
  what_if->peak = live.bytes_peak + what_if->before;
  if (!rc) choose_caps(what_if);
  return rc;
}

void gap__what_if_free(struct gap__what_if *what_if) {
  gap__altered_free(&what_if->history);
  for (int policy = 0; policy < GAP__WHAT_IF_POLICIES; policy++)
    for (int cap = 0; cap < GAP__WHAT_IF_CAPS; cap++) free(what_if->results[policy][cap].failed.reason);
  *what_if = (struct gap__what_if){0};
}

/* ---- replays ------------------------------------------------------------------------------------------------------- */

/* Without a limit and with the given one first, then those in the middle. */
static uint32_t order_of(const struct gap__what_if *what_if, uint32_t cap) {
  const struct gap__what_if_cap *at = &what_if->caps[cap];
  uint32_t middle = what_if->cap_count / 2;
  if (at->bytes == 0) return 0;
  return at->is_given ? 1 : 2 + (cap > middle ? cap - middle : middle - cap);
}

static int by_order(const void *left, const void *right) {
  const struct gap__what_if_job *a = left, *b = right;
  uint32_t first = order_of(a->what_if, a->cap), second = order_of(b->what_if, b->cap);
  if (first != second) return first < second ? -1 : 1;
  return a->cap != b->cap ? (int)a->cap - (int)b->cap : (int)a->policy - (int)b->policy;
}

uint32_t gap__what_if_jobs(struct gap__what_if *what_if, struct gap__what_if_job *out) {
  uint32_t count = 0;
  for (uint32_t cap = 0; cap < what_if->cap_count; cap++)
    for (uint32_t policy = 0; policy < GAP__WHAT_IF_POLICIES; policy++)
      out[count++] = (struct gap__what_if_job){what_if, (uint8_t)policy, (uint8_t)cap};
  qsort(out, count, sizeof *out, by_order);
  return count;
}

/* The event of the file: refusals that the program survived are not replayed. */
static uint64_t event_of_file(const struct gap__subject *subject, uint64_t replayed) {
  const struct gap__hist_event *events = subject->history->devices[subject->device].events;
  uint64_t event = 0;
  for (uint64_t count = 0;; event++) {
    bool is_left_out = events[event].action == GAP__ACT_OOM && event != subject->refusal.event;
    if (!is_left_out && count++ == replayed) return event;
  }
}

static void take_failure(const struct gap__what_if *what_if, const gap_replay_result *from,
                         struct gap__what_if_result *result) {
  result->failed.event = event_of_file(what_if->subject, from->failed.event);
  result->failed.request = from->failed.size;
  result->failed.live = from->failed.live_bytes + what_if->before;
  result->failed.held = from->failed.held_bytes + what_if->before;
  result->failed.reason = strdup(from->failed.reason);
}

static void take_result(const struct gap__what_if *what_if, const gap_replay_result *from,
                        struct gap__what_if_result *result) {
  result->tried = true;
  result->fits = from->fitted;
  result->held = from->peak_reserved_bytes + what_if->before;
  result->driver_calls = from->driver_calls;
  result->driver_us = from->driver_time_us;
  result->background_us = from->background_time_us;
  result->stalls = from->stalls;
  result->stall_us = from->stall_us;
  if (!from->fitted) take_failure(what_if, from, result);
}

/* A replay that is not possible leaves its place empty. */
void gap__what_if_run(const struct gap__what_if_job *job, gap__replay_fn *replay) {
  struct gap__what_if *what_if = job->what_if;
  uint64_t cap = what_if->caps[job->cap].bytes;
  gap_replay_options how;
  gap_replay_result *result = calloc(1, sizeof *result);
  char message[1024];
  gap_replay_defaults(&how);
  how.device = what_if->subject->device;
  how.policy = policies[job->policy];
  how.cap_bytes = cap ? cap - what_if->before : 0;
  how.check = GAP_CHECK_OFF;
  if (result && replay(&what_if->history.history, &how, result, message, sizeof message) == 0)
    take_result(what_if, result, &what_if->results[job->policy][job->cap]);
  free(result);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static void put_failure(const struct gap__what_if_result *result, struct gap__emit *emit) {
  gap__emit_name(emit, "failed");
  if (result->fits) {
    gap__emit_null(emit);
    return;
  }
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "event", result->failed.event);
  GAP__EMIT(emit, number, "request_bytes", result->failed.request);
  GAP__EMIT(emit, number, "live_bytes", result->failed.live);
  GAP__EMIT(emit, number, "held_bytes", result->failed.held);
  GAP__EMIT(emit, text, "reason", result->failed.reason ? result->failed.reason : "");
  gap__emit_end(emit, '}');
}

static void put_result(const struct gap__what_if_result *result, struct gap__emit *emit) {
  if (!result->tried) {
    gap__emit_null(emit);
    return;
  }
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, bool, "fits", result->fits);
  if (result->fits) GAP__EMIT(emit, number, "held_bytes", result->held);
  else GAP__EMIT_NULL(emit, "held_bytes");
  GAP__EMIT(emit, number, "driver_calls", result->driver_calls);
  GAP__EMIT(emit, number, "driver_us", result->driver_us);
  GAP__EMIT(emit, number, "background_us", result->background_us);
  GAP__EMIT(emit, number, "stalls", result->stalls);
  GAP__EMIT(emit, number, "stall_us", result->stall_us);
  put_failure(result, emit);
  gap__emit_end(emit, '}');
}

static void put_caps(const struct gap__what_if *what_if, struct gap__emit *emit) {
  gap__emit_name(emit, "caps");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < what_if->cap_count; i++) {
    const struct gap__what_if_cap *cap = &what_if->caps[i];
    gap__emit_begin(emit, '{');
    if (cap->bytes) GAP__EMIT(emit, number, "bytes", cap->bytes);
    else GAP__EMIT_NULL(emit, "bytes");
    if (cap->bytes && what_if->peak) GAP__EMIT(emit, real, "factor", (double)cap->bytes / (double)what_if->peak);
    else GAP__EMIT_NULL(emit, "factor");
    GAP__EMIT(emit, bool, "is_given", cap->is_given);
    gap__emit_end(emit, '}');
  }
  gap__emit_end(emit, ']');
}

static bool put_policies(const struct gap__what_if *what_if, struct gap__emit *emit) {
  const struct gap__subject *subject = what_if->subject;
  enum gap_policy recorded = gap__verify_policy(subject->history, subject->device);
  bool all_tried = true;
  gap__emit_name(emit, "policies");
  gap__emit_begin(emit, '[');
  for (int policy = 0; policy < GAP__WHAT_IF_POLICIES && what_if->cap_count; policy++) {
    gap__emit_begin(emit, '{');
    GAP__EMIT(emit, text, "name", gap_policy_name(policies[policy]));
    GAP__EMIT(emit, bool, "recorded", policies[policy] == recorded);
    gap__emit_name(emit, "results");
    gap__emit_begin(emit, '[');
    for (uint32_t cap = 0; cap < what_if->cap_count; cap++) {
      all_tried &= what_if->results[policy][cap].tried;
      put_result(&what_if->results[policy][cap], emit);
    }
    gap__emit_end(emit, ']');
    gap__emit_end(emit, '}');
  }
  gap__emit_end(emit, ']');
  return all_tried;
}

void gap__what_if_emit(const struct gap__what_if *what_if, struct gap__emit *emit) {
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, text, "reason", what_if->reason);
  GAP__EMIT(emit, number, "peak_live_bytes", what_if->peak);
  put_caps(what_if, emit);
  bool all_tried = put_policies(what_if, emit);
  GAP__EMIT(emit, bool, "out_of_time", !all_tried);
  gap__emit_end(emit, '}');
}
