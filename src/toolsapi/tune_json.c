/* Tuned histories as lines of JSON. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/text.h"
#include "gapless/tune.h"
#include "trace/json_text.h"

static json_t *count(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *some(uint64_t value) { return value ? count(value) : json_null(); }
static json_t *ratio(uint64_t part, uint64_t whole) {
  return part && whole ? json_real((double)part / (double)whole) : json_null();
}

static json_t *setting(const gap_tune *tune, uint32_t history, uint32_t index, uint64_t ideal) {
  gap_tune_setting one;
  if (index == GAP_TUNE_NONE) return json_null();
  gap_tune_setting_at(tune, history, index, &one);
  return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "policy",
                   gap_policy_name(one.policy), "conf", one.conf, "known", one.known, "least_cap_bytes",
                   some(one.least_cap_bytes), "least_cap_ideal", ratio(one.least_cap_bytes, ideal), "fails_bytes",
                   some(one.fails_bytes), "peak_reserved_bytes", count(one.peak_reserved_bytes), "driver_calls",
                   count(one.driver_calls), "driver_time_us", count(one.driver_time_us), "stalls", count(one.stalls),
                   "least_driver_calls", count(one.least_driver_calls), "least_driver_time_us",
                   count(one.least_driver_time_us), "least_stalls", count(one.least_stalls), "least_retries",
                   count(one.least_retries));
}

static bool gains(const gap_tune *tune, uint32_t history, uint32_t better, uint32_t worse) {
  gap_tune_setting left = {0}, right = {0};
  if (better == GAP_TUNE_NONE || worse == GAP_TUNE_NONE) return false;
  gap_tune_setting_at(tune, history, better, &left);
  gap_tune_setting_at(tune, history, worse, &right);
  return gap_tune_gains(left.least_cap_bytes, right.least_cap_bytes);
}

static void put_named(json_t *object, const gap_tune *tune, uint32_t history, const gap_tune_history *facts) {
  const struct {
    const char *name;
    uint32_t index;
  } named[] = {{"recorded", facts->recorded},
               {"stock", facts->stock},
               {"best", facts->best},
               {"advised", facts->advised},
               {"gapless", facts->gapless},
               {"best_gapless", facts->best_gapless},
               {"advised_gapless", facts->advised_gapless}};
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    json_object_set_new(object, named[i].name, setting(tune, history, named[i].index, facts->ideal_bytes));
}

static json_t *one_history(const gap_tune *tune, uint32_t history) {
  gap_tune_history facts;
  gap_tune_at(tune, history, &facts);
  json_t *object =
      json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:f, s:b, s:b}", "file",
                gap__json_text(facts.file), "hash", facts.hash, "device", count(facts.device), "lag_us",
                count(facts.lag_us), "events", count(facts.events), "peak_live_bytes", count(facts.peak_live_bytes),
                "ideal_bytes", count(facts.ideal_bytes), "wrapped", facts.wrapped, "settings_tried", count(facts.count),
                "settings_known", count(facts.known), "replays", count(facts.replays), "seconds", facts.seconds,
                "torch_gains", gains(tune, history, facts.advised, facts.recorded), "gapless_gains",
                gains(tune, history, facts.gapless, facts.best));
  json_t *all = json_array();
  if (!object || !all) return NULL;
  put_named(object, tune, history, &facts);
  for (uint32_t i = 0; i < facts.count; i++) json_array_append_new(all, setting(tune, history, i, facts.ideal_bytes));
  json_object_set_new(object, "settings", all);
  return object;
}

static json_t *overall(const gap_tune *tune, bool torch) {
  uint64_t most;
  gap_tune_setting one;
  uint32_t index = gap_tune_best_of_all(tune, torch, &most);
  if (index == GAP_TUNE_NONE) return json_null();
  gap_tune_setting_at(tune, 0, index, &one);
  return json_pack("{s:s, s:s, s:o}", "policy", gap_policy_name(one.policy), "conf", one.conf, "most_bytes",
                   count(most));
}

static void put_limits(json_t *object, const gap_tune *tune) {
  gap_tune_limit limit;
  char *why = gap_tune_limits_words(tune, &limit);
  gap_tune_history facts;
  json_t *limits = json_null();
  if (limit.history != GAP_TUNE_NONE) {
    gap_tune_at(tune, limit.history, &facts);
    limits =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "file", gap__json_text(facts.file), "device", count(facts.device),
                  "most_bytes", count(limit.most_bytes), "next_bytes", count(limit.next_bytes), "live_bytes",
                  count(limit.live_bytes), "next_live_bytes", count(limit.next_live_bytes));
  }
  json_object_set_new(object, "limits", limits);
  json_object_set_new(object, "why", gap__json_text(why ? why : ""));
  free(why);
}

static json_t *all_histories(const gap_tune *tune) {
  gap_tune_history first;
  gap_tune_at(tune, 0, &first);
  json_t *object =
      json_pack("{s:o, s:o, s:o, s:o, s:o}", "histories", count(gap_tune_count(tune)), "best", overall(tune, true),
                "best_gapless", overall(tune, false), "stock_most_bytes", some(gap_tune_most(tune, first.stock)),
                "gapless_most_bytes", some(gap_tune_most(tune, first.gapless)));
  if (object) put_limits(object, tune);
  return object;
}

static void add_line(struct gap__text *text, json_t *object) {
  char *line = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
  if (line) gap__text_add(text, "%s\n", line);
  else text->failed = true;
  free(line);
  json_decref(object);
}

char *gap_tune_json(const gap_tune *tune) {
  struct gap__text text = {0};
  for (uint32_t i = 0; i < gap_tune_count(tune); i++) add_line(&text, one_history(tune, i));
  if (gap_tune_count(tune) > 1) add_line(&text, all_histories(tune));
  return gap__text_take(&text);
}
