/* Replays for the public header: options become a configuration and a cap, and a result says what came out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conf/conf.h"
#include "dev/dev.h"
#include "gapless/tools.h"
#include "replay/cap.h"
#include "replay/live.h"
#include "replay/replay.h"
#include "replay/verify_native.h"
#include "trace/history.h"

enum { DEFAULT_LAG_US = 20000 };

static const char *const policy_names[GAP_POLICY_COUNT] = {"gapless", "native",    "expandable",
                                                           "pooled",  "heuristic", "ideal"};

const char *gap_policy_name(enum gap_policy policy) { return policy_names[policy]; }

int gap_policy_parse(const char *name, size_t bytes, enum gap_policy *out) {
  for (int i = 0; i < GAP_POLICY_COUNT; i++)
    if (strlen(policy_names[i]) == bytes && memcmp(policy_names[i], name, bytes) == 0) {
      *out = (enum gap_policy)i;
      return 0;
    }
  return GAP_EVALUE;
}

static const char *const backend_names[] = {
    [GAP_BACKEND_CUDA] = "cuda", [GAP_BACKEND_HOST] = "host", [GAP_BACKEND_SIM] = "sim"};

const char *gap_backend_name(gap_backend backend) { return backend_names[backend]; }

int gap_backend_parse(const char *text, gap_backend *out, int *ordinal) {
  size_t length = strcspn(text, ":");
  uint64_t number = 0;
  if (text[length] && (gap__text_parse_u64(text + length + 1, strlen(text + length + 1), &number) || number > 63))
    return GAP_EVALUE;
  for (size_t i = 0; i < sizeof backend_names / sizeof backend_names[0]; i++)
    if (strlen(backend_names[i]) == length && memcmp(backend_names[i], text, length) == 0) {
      *out = (gap_backend)i;
      *ordinal = (int)number;
      return 0;
    }
  return GAP_EVALUE;
}

void gap_replay_defaults(gap_replay_options *options) {
  *options = (gap_replay_options){.size = sizeof *options,
                                  .lag_us = DEFAULT_LAG_US,
                                  .speed = 1,
                                  .backend = GAP_BACKEND_SIM,
                                  .check = GAP_CHECK_AUTO};
}

int gap_card_parse(const char *name, uint64_t *card_bytes, uint64_t *usable_bytes) {
  const struct gap__card_preset *card = gap__card_find(name);
  if (!card) return GAP_EVALUE;
  *card_bytes = card->total_bytes;
  *usable_bytes = card->total_bytes - GAP__CARD_CONTEXT_BYTES;
  return 0;
}

const char *gap_card_name(uint32_t index) { return index < gap__card_count() ? gap__card_at(index)->name : NULL; }

const char *gap_card_example(uint32_t index) { return index < gap__card_count() ? gap__card_at(index)->example : NULL; }

int gap_cap_parse(const char *text, uint64_t peak_live_bytes, uint64_t *out) {
  return gap__cap_parse(text, peak_live_bytes, out);
}

/* ---- One replay ---- */

static bool is_torch(enum gap_policy policy) { return policy == GAP_POLICY_NATIVE || policy == GAP_POLICY_EXPANDABLE; }

/* What a result calls its configuration: the caller's string, or for torch's policies what the recorded program had set. */
static const char *conf_string(const struct gap__history *history, const gap_replay_options *options) {
  if (options->conf) return options->conf;
  bool recorded = is_torch(options->policy) && history->settings_text && !history->by_gapless;
  return recorded ? history->settings_text : "";
}

static int first_error(const struct gap__conf_report *report, int rc, char *message, size_t bytes) {
  snprintf(message, bytes, "%s", gap_strerror(rc));
  for (uint32_t i = 0; i < report->count; i++)
    if (report->messages[i].level == 0) {
      snprintf(message, bytes, "%s", report->messages[i].line);
      break;
    }
  return rc;
}

static int configure(const struct gap__history *history, const gap_replay_options *options, struct gap__conf *out,
                     char *message, size_t bytes) {
  struct gap__conf_report *report = calloc(1, sizeof *report);
  struct gap__conf_set *set = gap__conf_new();
  int rc = report && set ? 0 : GAP_ENOMETA;
  if (rc == 0) rc = gap__conf_apply(set, GAP__CONF_RUNTIME, "--conf", options->conf ? options->conf : "", report);
  if (rc == 0) {
    *out = *gap__conf_values(set);
    if (is_torch(options->policy) && !options->conf) gap__verify_conf(history, gap__conf_values(set), out);
    out->strategy = gap__replay_strategy(options->policy);
    /* native: only a string that says so switches it on */
    if (!options->conf || options->policy == GAP_POLICY_EXPANDABLE)
      out->expandable_segments = options->policy == GAP_POLICY_EXPANDABLE;
  } else if (report) {
    first_error(report, rc, message, bytes);
  }
  if (set) gap__conf_free(set);
  free(report);
  return rc;
}

/* What a result says before anything has run. */
static int prepare(const struct gap__history *history, const gap_replay_options *options, struct gap__live *peaks,
                   gap_replay_result *result, char *message, size_t bytes) {
  if (options->device >= history->device_count) {
    snprintf(message, bytes, "there is no device %" PRIu32 ": the history has %" PRIu32, options->device,
             history->device_count);
    return GAP_EINVAL;
  }
  const struct gap__hist_device *device = &history->devices[options->device];
  uint64_t over;
  int rc = gap__live_peaks(history, options->device, UINT64_MAX, peaks, &over);
  if (rc != 0) {
    snprintf(message, bytes, "the history contradicts itself: %s", gap_strerror(rc));
    return rc;
  }
  *result = (gap_replay_result){.size = sizeof *result,
                                .policy = options->policy,
                                .device = options->device,
                                .cap_bytes = options->cap_bytes,
                                .card_bytes = options->card_bytes,
                                .lag_us = options->lag_us,
                                .backend = options->backend,
                                .speed = options->speed,
                                .wrapped = device->wrapped,
                                .peak_live_bytes = peaks->bytes_peak,
                                .peak_requested_live_bytes = peaks->requested_peak};
  snprintf(result->conf, sizeof result->conf, "%s", conf_string(history, options));
  if (device->event_count > 0) result->recorded_us = (uint64_t)device->events[device->event_count - 1].time_us;
  return 0;
}

/* No allocator: whole pages for the peak of live bytes. */
static int be_ideal(const struct gap__history *history, gap_replay_result *result) {
  const struct gap__hist_device *device = &history->devices[result->device];
  result->peak_reserved_bytes = (result->peak_live_bytes + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE;
  result->events = device->event_count;
  result->fitted = result->cap_bytes == 0 || result->peak_live_bytes <= result->cap_bytes;
  if (result->fitted) return 0;
  struct gap__live peaks;
  uint64_t over = 0;
  int rc = gap__live_peaks(history, result->device, result->cap_bytes, &peaks, &over);
  if (rc != 0) return rc;
  const struct gap__hist_event *event = &device->events[over];
  result->failed = (gap_replay_failure){.event = over,
                                        .action = gap__action_name(event->action),
                                        .size = event->size,
                                        .stream = event->stream,
                                        .time_us = event->time_us};
  char asked[GAP__TEXT_BYTES], most[GAP__TEXT_BYTES];
  snprintf(result->failed.reason, sizeof result->failed.reason,
           "%s asked, and live blocks alone need more than the cap, at their peak %s",
           gap__text_size(event->size, asked), gap__text_size(result->peak_live_bytes, most));
  return 0;
}

struct trial {
  const struct gap__history *history;
  gap_replay_options options;
  struct gap__conf conf;
  struct gap__live peaks;
  gap_replay_result result; /* of the last try */
  uint64_t tries;
  gap_progress_fn progress;
  void *progress_arg;
  char *message;
  size_t message_bytes;
};

static int try_cap(void *arg, uint64_t cap_bytes, bool *fitted) {
  struct trial *trial = arg;
  trial->options.cap_bytes = cap_bytes;
  int rc = gap__replay_run(trial->history, &trial->options, &trial->conf, &trial->peaks, &trial->result, trial->message,
                           trial->message_bytes);
  *fitted = trial->result.fitted != 0;
  if (trial->progress) trial->progress(trial->progress_arg, ++trial->tries, 0);
  return rc;
}

/* The search alone: no checker, no progress inside a run. */
static int search(const struct gap__history *history, const gap_replay_options *options, const struct gap__conf *conf,
                  const struct gap__live *peaks, uint64_t *least, char *message, size_t bytes) {
  struct trial *trial = calloc(1, sizeof *trial);
  if (!trial) return GAP_ENOMETA;
  *trial = (struct trial){.history = history,
                          .options = *options,
                          .conf = *conf,
                          .peaks = *peaks,
                          .progress = options->progress,
                          .progress_arg = options->progress_arg,
                          .message = message,
                          .message_bytes = bytes};
  trial->options.card_bytes = 0;
  trial->options.check = GAP_CHECK_OFF;
  trial->options.progress = NULL;
  int rc = gap__mincap_search(peaks->bytes_peak, try_cap, trial, least);
  free(trial);
  return rc;
}

static int replay(const struct gap__history *history, const gap_replay_options *options, bool find_least,
                  gap_replay_result *result, char *message, size_t bytes) {
  struct gap__live peaks;
  struct gap__conf conf;
  int rc = prepare(history, options, &peaks, result, message, bytes);
  if (rc != 0) return rc;
  if (options->policy == GAP_POLICY_IDEAL) {
    result->least_cap_bytes = find_least ? (result->peak_live_bytes + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE : 0;
    return be_ideal(history, result);
  }
  rc = configure(history, options, &conf, message, bytes);
  if (rc == 0) rc = gap__replay_run(history, options, &conf, &peaks, result, message, bytes);
  if (rc == 0 && find_least) rc = search(history, options, &conf, &peaks, &result->least_cap_bytes, message, bytes);
  return rc;
}

int gap_replay(const gap_history *history, const gap_replay_options *options, gap_replay_result *result, char *message,
               size_t bytes) {
  return replay(history, options, false, result, message, bytes);
}

int gap_replay_min_cap(const gap_history *history, const gap_replay_options *options, gap_replay_result *result,
                       char *message, size_t bytes) {
  return replay(history, options, true, result, message, bytes);
}

static enum gap_verdict verdict(int rc) {
  return rc == 0 ? GAP_VERDICT_AGREES : rc == GAP_EMISMATCH ? GAP_VERDICT_DIFFERS : GAP_VERDICT_CANNOT;
}

int gap_replay_verify(const gap_history *history, uint32_t device, gap_replay_result *result, char *message,
                      size_t bytes) {
  gap_replay_options options;
  struct gap__conf conf;
  struct gap__verify_result verified = {0};
  gap_replay_defaults(&options);
  if (device >= history->device_count) return GAP_EINVAL;
  options.policy = gap_history_policy(history, device);
  int rc = configure(history, &options, &conf, message, bytes);
  if (rc != 0) return rc;
  rc = gap__verify_native(history, device, &conf, 0, &verified);
  if (rc != 0 && rc != GAP_EMISMATCH && rc != GAP_ENOTSUP) {
    snprintf(message, bytes, "%s", verified.text[0] ? verified.text : gap_strerror(rc));
    return rc;
  }
  result->verdict = verdict(rc);
  result->verified_events = verified.events;
  if (rc == GAP_EMISMATCH)
    snprintf(result->difference, sizeof result->difference, "event %" PRIu64 ": %s", verified.event, verified.text);
  if (rc == GAP_ENOTSUP) snprintf(result->difference, sizeof result->difference, "%s", verified.text);
  return 0;
}
