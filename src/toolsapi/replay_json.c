/* A replay's result as one JSON object. */
#include <jansson.h>
#include <stdbool.h>

#include "dev/dev.h"
#include "gapless/tools.h"
#include "trace/json_text.h"

static void put_count(json_t *object, const char *name, uint64_t value) {
  json_object_set_new(object, name, json_integer((json_int_t)value));
}

/* A figure that may be missing. */
static void put_some(json_t *object, const char *name, uint64_t value) {
  json_object_set_new(object, name, value ? json_integer((json_int_t)value) : json_null());
}

static void put_ratio(json_t *object, const char *name, double part, double whole) {
  json_object_set_new(object, name, whole > 0 ? json_real(part / whole) : json_null());
}

static json_t *failure(const gap_replay_result *result) {
  const gap_replay_failure *failed = &result->failed;
  if (result->fitted) return json_null();
  return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "index", (json_int_t)failed->event, "action",
                   failed->action, "size", (json_int_t)failed->size, "stream", (json_int_t)failed->stream, "time_us",
                   (json_int_t)failed->time_us, "live_bytes", (json_int_t)failed->live_bytes, "held_bytes",
                   (json_int_t)failed->held_bytes, "reason", failed->reason);
}

static json_t *rungs(const gap_replay_result *result) {
  json_t *object = json_object();
  for (uint32_t i = 0; i < result->rung_count; i++)
    json_object_set_new(
        object, result->rung_name[i],
        json_pack("{s:I, s:I}", "served", (json_int_t)result->rung_served[i], "us", (json_int_t)result->rung_us[i]));
  return object;
}

/* Kinds that were never called are left out. */
static json_t *calls(const gap_replay_result *result) {
  json_t *object = json_object();
  for (uint32_t i = 0; i < result->call_count; i++) {
    const gap_replay_call *call = &result->call[i];
    if (call->calls + call->background_calls == 0) continue;
    json_object_set_new(object, call->name,
                        json_pack("{s:I, s:I, s:I, s:I}", "calls", (json_int_t)call->calls, "us", (json_int_t)call->us,
                                  "background_calls", (json_int_t)call->background_calls, "background_us",
                                  (json_int_t)call->background_us));
  }
  return object;
}

static void put_memory(json_t *object, const gap_replay_result *result) {
  double peak = (double)result->peak_live_bytes;
  put_some(object, "cap_bytes", result->cap_bytes);
  json_object_set_new(object, "fitted", json_boolean(result->fitted));
  put_count(object, "peak_live_bytes", result->peak_live_bytes);
  put_count(object, "peak_requested_live_bytes", result->peak_requested_live_bytes);
  put_count(object, "peak_reserved_bytes", result->peak_reserved_bytes);
  put_ratio(object, "peak_reserved_factor", (double)result->peak_reserved_bytes, peak);
  put_some(object, "least_cap_bytes", result->least_cap_bytes);
  put_ratio(object, "least_cap_factor", (double)result->least_cap_bytes, result->least_cap_bytes ? peak : 0);
}

static void put_time(json_t *object, const gap_replay_result *result) {
  put_count(object, "driver_calls", result->driver_calls);
  put_count(object, "driver_time_us", result->driver_time_us);
  put_count(object, "background_time_us", result->background_time_us);
  put_count(object, "stalls", result->stalls);
  put_count(object, "stall_us", result->stall_us);
  put_count(object, "longest_call_us", result->longest_call_us);
  put_count(object, "recorded_us", result->recorded_us);
  put_ratio(object, "late_driver_share", (double)(result->late_driver_us + result->late_background_us),
            (double)result->late_recorded_us);
  put_ratio(object, "late_driver_share_caller", (double)result->late_driver_us, (double)result->late_recorded_us);
}

static void put_growth(json_t *object, const gap_replay_result *result) {
  double gib = (double)result->pages_grown * (double)GAP__PAGE / (double)((uint64_t)1 << 30);
  put_count(object, "pages_grown", result->pages_grown);
  put_count(object, "pages_made_ahead", result->pages_made_ahead);
  put_count(object, "pages_stolen", result->pages_stolen);
  json_object_set_new(object, "gib_grown", json_real(gib));
  put_ratio(object, "growth_us_per_gib", (double)(result->growth_caller_us + result->growth_background_us), gib);
  put_ratio(object, "growth_caller_us_per_gib", (double)result->growth_caller_us, gib);
  put_ratio(object, "growth_background_us_per_gib", (double)result->growth_background_us, gib);
}

/* Only where a plan was followed. */
static void put_plan(json_t *object, const gap_replay_plan *plan) {
  if (!plan->requests) return;
  json_t *part = json_object();
  put_count(part, "requests", plan->requests);
  put_count(part, "bytes", plan->bytes);
  put_count(part, "placed", plan->placed);
  put_count(part, "placed_bytes", plan->placed_bytes);
  put_count(part, "unexpected", plan->unexpected);
  put_count(part, "unexpected_bytes", plan->unexpected_bytes);
  put_count(part, "taken", plan->taken);
  put_count(part, "taken_bytes", plan->taken_bytes);
  put_count(part, "unbacked", plan->unbacked);
  put_count(part, "unbacked_bytes", plan->unbacked_bytes);
  put_count(part, "found", plan->found);
  put_count(part, "periods", plan->periods);
  json_object_set_new(object, "plan", part);
}

/* Only where something was exchanged. */
static void put_conversion(json_t *object, const gap_replay_conversion *conversion) {
  if (!conversion->chunks) return;
  json_t *part = json_object();
  put_count(part, "chunks", conversion->chunks);
  put_count(part, "copied_bytes", conversion->copied_bytes);
  put_count(part, "freed_bytes", conversion->freed_bytes);
  put_count(part, "us", conversion->us);
  json_object_set_new(object, "conversion", part);
}

/* Only where something lay there. */
static void put_overflow(json_t *object, const gap_replay_overflow *overflow) {
  if (!overflow->requests) return;
  json_t *part = json_object();
  put_count(part, "peak_bytes", overflow->peak_bytes);
  put_count(part, "requests", overflow->requests);
  put_count(part, "bytes", overflow->bytes);
  json_object_set_new(object, "overflow", part);
}

static void put_verification(json_t *object, const gap_replay_result *result) {
  if (result->verdict == GAP_VERDICT_NONE) return;
  bool agrees = result->verdict == GAP_VERDICT_AGREES;
  json_object_set_new(object, "verified", result->verdict == GAP_VERDICT_CANNOT ? json_null() : json_boolean(agrees));
  put_count(object, "verified_events", result->verified_events);
  json_object_set_new(object, "difference", agrees ? json_null() : gap__json_text(result->difference));
}

static void put_rest(json_t *object, const gap_replay_result *result) {
  json_object_set_new(object, "failed_event", failure(result));
  json_object_set_new(object, "rungs", rungs(result));
  json_object_set_new(object, "calls", calls(result));
  put_count(object, "num_alloc_retries", result->num_alloc_retries);
  put_count(object, "trims", result->trims);
  json_object_set_new(object, "wrapped", json_boolean(result->wrapped));
  put_count(object, "unknown_frees", result->unknown_frees);
  put_count(object, "checks", result->checks);
  put_count(object, "events", result->events);
  json_object_set_new(object, "seconds", json_real(result->seconds));
  put_ratio(object, "events_per_second", (double)result->events, result->seconds);
}

char *gap_replay_json(const char *file, const gap_replay_result *result) {
  json_t *object = json_object();
  if (!object) return NULL;
  json_object_set_new(object, "file", gap__json_text(file));
  put_count(object, "device", result->device);
  json_object_set_new(object, "policy", json_string(gap_policy_name(result->policy)));
  json_object_set_new(object, "conf", gap__json_text(result->conf));
  json_object_set_new(object, "backend", json_string(gap_backend_name(result->backend)));
  json_object_set_new(object, "speed", json_real(result->speed));
  put_count(object, "lag_us", result->lag_us);
  put_memory(object, result);
  put_time(object, result);
  put_growth(object, result);
  put_plan(object, &result->plan);
  put_conversion(object, &result->conversion);
  put_overflow(object, &result->overflow);
  put_rest(object, result);
  put_verification(object, result);
  char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(8));
  json_decref(object);
  return line;
}
