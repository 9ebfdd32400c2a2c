#include "tune/tuned.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"
#include "dev/dev.h"
#include "replay/replay.h"
#include "replay/verify_native.h"

enum { TOP = 64 };                   /* x P: nothing wastes more */
static const double STRIDE = 0.0095; /* with the rounding to pages less than 1 % */

/* ---- The grid ---- */

static uint64_t whole_pages(uint64_t bytes) { return (bytes + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE; }

static uint64_t next_cap(uint64_t cap) {
  uint64_t stride = (uint64_t)(STRIDE * (double)cap) / GAP__PAGE * GAP__PAGE;
  return cap + (stride > GAP__PAGE ? stride : GAP__PAGE);
}

static int make_grid(struct gap__tuned *tuned) {
  uint64_t first = whole_pages(tuned->facts.peak_live_bytes ? tuned->facts.peak_live_bytes : 1), last = first * TOP;
  uint32_t count = 1;
  for (uint64_t cap = first; cap < last; cap = next_cap(cap)) count++;
  tuned->grid = malloc(count * sizeof *tuned->grid);
  if (!tuned->grid) return GAP_ENOMETA;
  uint64_t cap = first;
  for (uint32_t i = 0; i < count; i++, cap = next_cap(cap)) tuned->grid[i] = cap;
  tuned->grid_count = count;
  return 0;
}

uint64_t gap__tuned_ideal(const struct gap__tuned *tuned) { return tuned->grid[0]; }

uint64_t gap__tuned_fine(const struct gap__tuned *tuned) {
  uint64_t step = tuned->facts.peak_live_bytes / 2000 / GAP__PAGE * GAP__PAGE;
  return step > GAP__PAGE ? step : GAP__PAGE;
}

/* ---- Making one ---- */

int gap__tuned_new(const struct gap__settings *settings, struct gap__tune_facts *facts, struct gap__tuned **out) {
  *out = NULL;
  if (facts->peak_live_bytes > GAP__TUNE_PEAK_MAX) return GAP_ELIMIT;
  struct gap__tuned *tuned = calloc(1, sizeof *tuned);
  if (!tuned) return GAP_ENOMETA;
  tuned->settings = settings;
  tuned->facts = *facts;
  *facts = (struct gap__tune_facts){0};
  tuned->count = settings->count + (tuned->facts.recorded_index == settings->count);
  tuned->tried = calloc(tuned->count, sizeof *tuned->tried);
  if (!tuned->tried || make_grid(tuned) != 0) {
    gap__tuned_free(tuned);
    return GAP_ENOMETA;
  }
  *out = tuned;
  return 0;
}

void gap__tuned_free(struct gap__tuned *tuned) {
  if (!tuned) return;
  for (uint32_t i = 0; tuned->tried && i < tuned->count; i++) gap__trials_free(&tuned->tried[i].trials);
  free(tuned->tried);
  free(tuned->grid);
  free(tuned->facts.file);
  free(tuned);
}

static int apply(const char *string, struct gap__conf *out) {
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  int rc = gap__conf_apply(set, GAP__CONF_RUNTIME, "setting", string, NULL);
  if (rc == 0) *out = *gap__conf_values(set);
  gap__conf_free(set);
  return rc;
}

static bool same_for_torch(const struct gap__conf *left, const struct gap__conf *right) {
  return left->expandable_segments == right->expandable_segments && left->max_split_size == right->max_split_size &&
         left->max_non_split_rounding == right->max_non_split_rounding &&
         left->garbage_collection_threshold == right->garbage_collection_threshold &&
         left->large_segment_size == right->large_segment_size && left->torch == right->torch &&
         memcmp(left->roundup_power2_divisions, right->roundup_power2_divisions,
                sizeof left->roundup_power2_divisions) == 0;
}

/* The configuration of the recorded program; the policy is what the events say. */
static int recorded_conf(const struct gap__history *history, enum gap_policy policy, struct gap__conf *out) {
  struct gap__conf defaults;
  int rc = apply("", &defaults);
  if (rc != 0) return rc;
  gap__verify_conf(history, &defaults, out);
  out->expandable_segments = policy == GAP_POLICY_EXPANDABLE;
  return 0;
}

static int find_recorded(const struct gap__history *history, const struct gap__settings *settings,
                         struct gap__tune_facts *facts) {
  struct gap__conf recorded, conf;
  int rc = recorded_conf(history, facts->recorded_policy, &recorded);
  facts->recorded_index = settings->count;
  for (uint32_t i = 0; rc == 0 && i < settings->count; i++) {
    if (settings->at[i].policy != facts->recorded_policy) continue;
    rc = apply(settings->at[i].conf, &conf);
    if (rc != 0 || !same_for_torch(&recorded, &conf)) continue;
    facts->recorded_index = i;
    break;
  }
  return rc;
}

int gap__tuned_facts(const struct gap__history *history, uint32_t device, uint64_t lag_us,
                     const struct gap__settings *settings, const char *file, const char *hash,
                     struct gap__tune_facts *out, struct gap__live *peaks) {
  const struct gap__hist_device *events = &history->devices[device];
  uint64_t over;
  int rc = gap__live_peaks(history, device, UINT64_MAX, peaks, &over);
  if (rc != 0) return rc;
  *out = (struct gap__tune_facts){
      .device = device,
      .lag_us = lag_us,
      .events = events->event_count,
      .peak_live_bytes = peaks->bytes_peak,
      .recorded_us = events->event_count ? (uint64_t)events->events[events->event_count - 1].time_us : 0,
      .wrapped = events->wrapped,
      .recorded_policy = gap__verify_policy(history, device),
  };
  for (uint32_t i = 0; i < history->device_count; i++) out->busy_devices += gap__history_has_requests(history, i);
  snprintf(out->hash, sizeof out->hash, "%s", hash);
  snprintf(out->recorded_conf, sizeof out->recorded_conf, "%s", history->settings_text ? history->settings_text : "");
  rc = find_recorded(history, settings, out);
  if (rc == 0 && !(out->file = strdup(file))) rc = GAP_ENOMETA;
  return rc;
}

/* The least cap itself may not have been tried: a run under more that held no more is the same run. */
const struct gap__trial *gap__tried_least(const struct gap__tried *tried) {
  const struct gap__trials *trials = &tried->trials;
  for (uint32_t i = 0; tried->least_bytes > 0 && i < trials->count; i++)
    if (trials->at[i].fitted && trials->at[i].cap_bytes >= tried->least_bytes) return &trials->at[i];
  return tried->least_bytes > 0 ? gap__trials_find(trials, 0) : NULL;
}

/* ---- Names ---- */

enum gap_policy gap__tuned_policy(const struct gap__tuned *tuned, uint32_t index) {
  return index < tuned->settings->count ? tuned->settings->at[index].policy : tuned->facts.recorded_policy;
}

const char *gap__tuned_conf(const struct gap__tuned *tuned, uint32_t index) {
  return index < tuned->settings->count ? tuned->settings->at[index].conf : tuned->facts.recorded_conf;
}

/* Of the recorded setting the string may not say everything.  With expandable segments the limit is asked about whole segments, but
 * only what is missing of one is taken. */
bool gap__tuned_minds_limit(const struct gap__tuned *tuned, uint32_t index) {
  return index >= tuned->settings->count || gap__tuned_policy(tuned, index) != GAP_POLICY_NATIVE ||
         gap__setting_collects(&tuned->settings->at[index]);
}

uint32_t gap__tuned_recorded(const struct gap__tuned *tuned) { return (uint32_t)tuned->facts.recorded_index; }

/* ---- Trials ---- */

static int configure(const struct gap__tuned *tuned, uint32_t index, struct gap__conf *out) {
  enum gap_policy policy = gap__tuned_policy(tuned, index);
  if (index == tuned->settings->count) return recorded_conf(tuned->history, policy, out);
  int rc = apply(gap__tuned_conf(tuned, index), out);
  out->strategy = gap__replay_strategy(policy);
  out->expandable_segments = policy == GAP_POLICY_EXPANDABLE;
  return rc;
}

static struct gap__trial summary(uint64_t cap_bytes, const gap_replay_result *result) {
  if (!result->fitted) return (struct gap__trial){.cap_bytes = cap_bytes};
#define GAP__FIGURE(name) .name = result->name,
  return (struct gap__trial){.cap_bytes = cap_bytes, .fitted = 1, GAP__TRIAL_FIGURES(GAP__FIGURE)};
#undef GAP__FIGURE
}

static int replay(struct gap__tuned *tuned, uint32_t index, uint64_t cap_bytes, struct gap__trial *out) {
  gap_replay_options options = {.size = sizeof options,
                                .device = tuned->facts.device,
                                .policy = gap__tuned_policy(tuned, index),
                                .cap_bytes = cap_bytes,
                                .lag_us = tuned->facts.lag_us,
                                .speed = 1,
                                .backend = GAP_BACKEND_SIM,
                                .check = GAP_CHECK_OFF};
  gap_replay_result result = {.size = sizeof result, .cap_bytes = cap_bytes, .recorded_us = tuned->facts.recorded_us};
  struct gap__conf conf;
  char message[256];
  int rc = configure(tuned, index, &conf);
  if (rc == 0) rc = gap__replay_run(tuned->history, &options, &conf, &tuned->peaks, &result, message, sizeof message);
  *out = summary(cap_bytes, &result);
  return rc;
}

int gap__tuned_try(struct gap__tuned *tuned, uint32_t index, uint64_t cap_bytes, const struct gap__trial **out) {
  struct gap__trials *trials = &tuned->tried[index].trials;
  struct gap__trial trial;
  *out = gap__trials_find(trials, cap_bytes);
  if (*out) return 0;
  if (!tuned->history) return GAP_ESTATE;
  int rc = replay(tuned, index, cap_bytes, &trial);
  if (rc == 0) rc = gap__trials_add(trials, &trial);
  *out = rc == 0 ? gap__trials_find(trials, cap_bytes) : NULL;
  return rc;
}
