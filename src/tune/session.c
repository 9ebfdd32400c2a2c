#include "tune/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tune/cache.h"

struct visit {
  struct gap_tune *tune;
  const char *path;
  char hash[GAP__SHA256_TEXT_BYTES];
  struct gap__tuned_list known; /* of this file, whatever the lag */
  struct gap__history *history; /* read only when something is missing */
  struct gap__tuner tuner;
  char *message;
  size_t bytes;
};

static int complain(struct visit *visit, int rc) {
  snprintf(visit->message, visit->bytes, "%s", gap_strerror(rc));
  return rc;
}

static bool from_file(const struct visit *visit) { return strcmp(visit->path, "-") != 0; }
static bool has_cache(const struct visit *visit) { return visit->tune->cache && from_file(visit); }

/* ---- What the cache knows ---- */

/* A cache that cannot be read is as good as an empty one; the message stays as a warning. */
static void load(struct visit *visit) {
  if (!has_cache(visit)) return;
  if (gap__cache_load(visit->tune->cache, visit->hash, &visit->tune->settings, &visit->known, visit->message,
                      visit->bytes) != 0)
    gap__tuned_list_free(&visit->known);
}

/* The answers follow from what is known alone. */
static bool suffices(struct visit *visit) {
  uint32_t found = 0, wanted = 1;
  for (uint32_t i = 0; i < visit->known.count; i++) {
    struct gap__tuned *tuned = visit->known.at[i];
    if (tuned->facts.lag_us != visit->tune->lag_us) continue;
    if (gap__tuner_run(&visit->tuner, tuned) != 0) return false;
    wanted = tuned->facts.busy_devices;
    found++;
  }
  return found == wanted;
}

/* ---- The history itself ---- */

static int check(struct visit *visit) {
  uint64_t event = 0;
  bool has_requests = false;
  for (uint32_t i = 0; i < visit->history->device_count; i++) {
    char *text = NULL;
    int rc = gap__history_check(visit->history, i, &event, &text);
    has_requests |= gap__history_has_requests(visit->history, i);
    if (rc != 0)
      snprintf(visit->message, visit->bytes,
               "the history contradicts itself at event %" PRIu64 " of device %" PRIu32 ": %s", event, i,
               text ? text : "");
    free(text);
    if (rc != 0) return rc;
  }
  if (has_requests) return 0;
  snprintf(visit->message, visit->bytes, "no requests were recorded: there is nothing to try");
  return GAP_EFORMAT;
}

static int read_history(struct visit *visit) {
  char *text = NULL;
  int rc = gap__history_read(visit->path, NULL, NULL, &visit->history, &text);
  if (rc != 0) snprintf(visit->message, visit->bytes, "%s", text ? text : gap_strerror(rc));
  free(text);
  return rc == 0 ? check(visit) : rc;
}

/* Standard input is named by its events: there is no file to look at. */
static void name_by_events(struct visit *visit) {
  struct gap__sha256 sha;
  gap__sha256_begin(&sha);
  for (uint32_t i = 0; i < visit->history->device_count; i++) {
    const struct gap__hist_device *device = &visit->history->devices[i];
    gap__sha256_add(&sha, device->events, device->event_count * sizeof *device->events);
  }
  gap__sha256_end(&sha, visit->hash);
}

static struct gap__tuned *find(const struct visit *visit, uint32_t device) {
  for (uint32_t i = 0; i < visit->known.count; i++) {
    struct gap__tuned *tuned = visit->known.at[i];
    if (tuned->facts.device == device && tuned->facts.lag_us == visit->tune->lag_us) return tuned;
  }
  return NULL;
}

/* Joined with what is known of it; a cache that calls it something else is not to be trusted with anything. */
static int prepare(struct visit *visit, uint32_t device, struct gap__live *peaks) {
  struct gap__tune_facts facts;
  struct gap__tuned *fresh = NULL;
  int rc = gap__tuned_facts(visit->history, device, visit->tune->lag_us, &visit->tune->settings, visit->path,
                            visit->hash, &facts, peaks);
  if (rc == 0) rc = gap__tuned_new(&visit->tune->settings, &facts, &fresh);
  if (rc != 0) {
    free(facts.file);
    return rc;
  }
  return gap__tuned_list_add(&visit->known, fresh);
}

static int try_device(struct visit *visit, uint32_t device) {
  struct gap__live peaks = {0};
  int rc = prepare(visit, device, &peaks);
  if (rc == GAP_EMISMATCH) {
    snprintf(visit->message, visit->bytes, "what the cache holds of it is not of this file, and was not used");
    gap__tuned_list_free(&visit->known);
    rc = prepare(visit, device, &peaks);
  }
  if (rc != 0) return complain(visit, rc);
  struct gap__tuned *tuned = find(visit, device);
  tuned->history = visit->history;
  tuned->peaks = peaks;
  rc = gap__tuner_run(&visit->tuner, tuned);
  tuned->history = NULL;
  return rc == 0 ? 0 : complain(visit, rc);
}

static int try_history(struct visit *visit) {
  int rc = read_history(visit);
  if (rc == 0 && !from_file(visit)) name_by_events(visit);
  for (uint32_t i = 0; rc == 0 && i < visit->history->device_count; i++)
    if (gap__history_has_requests(visit->history, i)) rc = try_device(visit, i);
  if (rc == 0 && has_cache(visit) &&
      gap__cache_save(visit->tune->cache, visit->hash, &visit->known, visit->message, visit->bytes) != 0)
    rc = 0; /* the answer is there all the same; the message warns */
  gap__history_free(visit->history);
  return rc;
}

/* ---- Handing over ---- */

static int rename_to(struct gap__tuned *tuned, const char *path) {
  char *file = strdup(path);
  if (!file) return GAP_ENOMETA;
  free(tuned->facts.file);
  tuned->facts.file = file;
  return 0;
}

static int hand_over(struct visit *visit) {
  int rc = 0;
  for (uint32_t i = 0; rc == 0 && i < visit->known.count; i++) {
    struct gap__tuned *tuned = visit->known.at[i];
    if (tuned->facts.lag_us != visit->tune->lag_us) continue;
    rc = rename_to(tuned, visit->path);
    if (rc != 0) break;
    visit->known.at[i] = NULL;
    rc = gap__tuned_list_add(&visit->tune->list, tuned);
  }
  return rc == 0 ? 0 : complain(visit, rc);
}

void gap__session_conclude(struct gap_tune *tune) {
  struct gap__tuner tuner = {.threads = 1};
  for (uint32_t i = 0; i < tune->list.count; i++) gap__tuner_run(&tuner, tune->list.at[i]);
}

int gap__session_file(struct gap_tune *tune, const char *path, gap_progress_fn progress, void *arg, char *message,
                      size_t bytes) {
  struct visit visit = {.tune = tune,
                        .path = path,
                        .tuner = {.threads = tune->threads, .progress = progress, .progress_arg = arg},
                        .message = message,
                        .bytes = bytes};
  message[0] = '\0';
  int rc = from_file(&visit) ? gap__sha256_file(path, visit.hash, message, bytes) : 0;
  if (rc == 0) load(&visit);
  if (rc == 0 && !suffices(&visit)) rc = try_history(&visit);
  if (rc == 0) rc = hand_over(&visit);
  gap__tuned_list_free(&visit.known);
  return rc;
}

int gap__session_merge(struct gap_tune *tune, const char *path, char *message, size_t bytes) {
  FILE *file = fopen(path, "re");
  if (!file) {
    snprintf(message, bytes, "%s", strerror(errno));
    return GAP_EIO;
  }
  int rc = gap__store_read(file, &tune->settings, &tune->list, message, bytes);
  fclose(file);
  return rc;
}
