/* Tuning for the public header: sessions, and the answers read off them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gapless/tune.h"
#include "replay/workers.h"
#include "tune/cache.h"
#include "tune/session.h"

/* ---- Sessions ---- */

void gap_tune_defaults(gap_tune_options *options) {
  gap_replay_options replay;
  gap_replay_defaults(&replay);
  *options = (gap_tune_options){.size = sizeof *options, .lag_us = replay.lag_us};
}

static const char *from_environment(const char *name) { return getenv(name); }

char *gap_tune_cache_default(void) { return gap__cache_default(from_environment); }

int gap_tune_open(const gap_tune_options *options, gap_tune **out, char *message, size_t bytes) {
  *out = NULL;
  message[0] = '\0';
  if (options->cache && gap__cache_open(options->cache, message, bytes) != 0) return GAP_EIO;
  gap_tune *tune = calloc(1, sizeof *tune);
  if (!tune) return GAP_ENOMETA;
  tune->threads = options->threads ? options->threads : gap__workers_processors();
  tune->lag_us = options->lag_us;
  tune->cache = options->cache ? strdup(options->cache) : NULL;
  int rc = options->cache && !tune->cache ? GAP_ENOMETA : gap__settings_make(&tune->settings);
  if (rc != 0) gap_tune_close(tune);
  else *out = tune;
  return rc;
}

void gap_tune_close(gap_tune *tune) {
  if (!tune) return;
  gap__tuned_list_free(&tune->list);
  gap__settings_free(&tune->settings);
  free(tune->cache);
  free(tune);
}

int gap_tune_file(gap_tune *tune, const char *path, gap_progress_fn progress, void *arg, char *message, size_t bytes) {
  return gap__session_file(tune, path, progress, arg, message, bytes);
}

int gap_tune_merge(gap_tune *tune, const char *path, char *message, size_t bytes) {
  return gap__session_merge(tune, path, message, bytes);
}

/* Beside the file first, so that whoever reads it finds a whole one. */
int gap_tune_write(const gap_tune *tune, const char *path, char *message, size_t bytes) {
  char fresh[4096];
  int length = snprintf(fresh, sizeof fresh, "%s.%ld.new", path, (long)getpid());
  FILE *file = length > 0 && (size_t)length < sizeof fresh ? fopen(fresh, "wxe") : NULL;
  if (!file) {
    snprintf(message, bytes, "%s", strerror(errno));
    return GAP_EIO;
  }
  int rc = gap__store_write(file, &tune->list);
  if (fclose(file) != 0 && rc == 0) rc = GAP_EIO;
  if (rc == 0 && rename(fresh, path) != 0) rc = GAP_EIO;
  if (rc == 0) return 0;
  snprintf(message, bytes, "%s", rc == GAP_EIO ? strerror(errno) : gap_strerror(rc));
  unlink(fresh);
  return rc;
}

/* ---- Answers ---- */

void gap_tune_conclude(gap_tune *tune) { gap__session_conclude(tune); }

uint32_t gap_tune_count(const gap_tune *tune) { return tune->list.count; }

static uint32_t known(const struct gap__tuned *tuned) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < tuned->count; i++) count += tuned->tried[i].known;
  return count;
}

void gap_tune_at(const gap_tune *tune, uint32_t history, gap_tune_history *out) {
  const struct gap__tuned *tuned = tune->list.at[history];
  const struct gap__tune_facts *facts = &tuned->facts;
  *out = (gap_tune_history){.file = facts->file,
                            .hash = facts->hash,
                            .device = facts->device,
                            .device_count = facts->busy_devices,
                            .lag_us = facts->lag_us,
                            .events = facts->events,
                            .peak_live_bytes = facts->peak_live_bytes,
                            .recorded_us = facts->recorded_us,
                            .wrapped = facts->wrapped != 0,
                            .ideal_bytes = gap__tuned_ideal(tuned),
                            .replays = tuned->replays,
                            .seconds = tuned->seconds,
                            .count = tuned->count,
                            .known = known(tuned),
                            .recorded = gap__tuned_recorded(tuned),
                            .stock = gap__settings_find(tuned->settings, GAP_POLICY_NATIVE, ""),
                            .best = gap__tuner_best(tuned, true),
                            .advised = gap__tuner_advised(tuned, true),
                            .gapless = gap__settings_find(tuned->settings, GAP_POLICY_GAPLESS, ""),
                            .best_gapless = gap__tuner_best(tuned, false),
                            .advised_gapless = gap__tuner_advised(tuned, false)};
}

void gap_tune_setting_at(const gap_tune *tune, uint32_t history, uint32_t setting, gap_tune_setting *out) {
  const struct gap__tuned *tuned = tune->list.at[history];
  const struct gap__tried *tried = &tuned->tried[setting];
  const struct gap__trial *spare = gap__trials_find(&tried->trials, 0), *least = gap__tried_least(tried);
  *out = (gap_tune_setting){.policy = gap__tuned_policy(tuned, setting),
                            .conf = gap__tuned_conf(tuned, setting),
                            .known = tried->known,
                            .least_cap_bytes = tried->least_bytes,
                            .fails_bytes = tried->fails_bytes};
  if (spare) {
    out->peak_reserved_bytes = spare->peak_reserved_bytes;
    out->driver_calls = spare->driver_calls;
    out->driver_time_us = spare->driver_time_us;
    out->stalls = spare->stalls;
  }
  if (least) {
    out->least_driver_calls = least->driver_calls;
    out->least_driver_time_us = least->driver_time_us;
    out->least_stalls = least->stalls;
    out->least_retries = least->num_alloc_retries;
  }
}

/* ---- One for all ---- */

uint64_t gap_tune_most(const gap_tune *tune, uint32_t setting) {
  uint64_t most = 0;
  if (setting >= tune->settings.count) return 0;
  for (uint32_t i = 0; i < tune->list.count; i++) {
    const struct gap__tried *tried = &tune->list.at[i]->tried[setting];
    if (!tried->known || tried->least_bytes == 0) return 0;
    if (tried->least_bytes > most) most = tried->least_bytes;
  }
  return most;
}

/* Over all histories, in peaks of live bytes. */
static double waste(const gap_tune *tune, uint32_t setting) {
  double sum = 0;
  for (uint32_t i = 0; i < tune->list.count; i++) {
    const struct gap__tuned *tuned = tune->list.at[i];
    sum += (double)tuned->tried[setting].least_bytes / (double)gap__tuned_ideal(tuned);
  }
  return sum;
}

static uint64_t least_most(const gap_tune *tune, bool torch) {
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < tune->settings.count; i++) {
    uint64_t most = gap__setting_is_torch(&tune->settings.at[i]) == torch ? gap_tune_most(tune, i) : 0;
    if (most > 0 && most < least) least = most;
  }
  return least;
}

uint32_t gap_tune_best_of_all(const gap_tune *tune, int torch, uint64_t *most_bytes) {
  uint64_t least = least_most(tune, torch != 0);
  uint32_t best = GAP_TUNE_NONE;
  double best_waste = 0, slack = GAP_TUNE_GAIN / 2 * tune->list.count;
  for (uint32_t i = 0; least != UINT64_MAX && i < tune->settings.count; i++) {
    uint64_t most = gap__setting_is_torch(&tune->settings.at[i]) == (torch != 0) ? gap_tune_most(tune, i) : 0;
    if (most == 0 || gap_tune_gains(least, most)) continue;
    double sum = waste(tune, i);
    if (best != GAP_TUNE_NONE && sum >= best_waste - slack) continue; /* so the simpler one stays */
    best = i;
    best_waste = sum;
  }
  if (most_bytes) *most_bytes = best == GAP_TUNE_NONE ? 0 : gap_tune_most(tune, best);
  return best;
}

int gap_tune_gains(uint64_t better_bytes, uint64_t worse_bytes) {
  if (better_bytes == 0) return 0;
  return worse_bytes == 0 || (double)better_bytes < (1 - GAP_TUNE_GAIN) * (double)worse_bytes;
}
