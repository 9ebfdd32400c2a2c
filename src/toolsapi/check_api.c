/* Checks for the public header: limits are collected, files measured and held against them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/check.h"
#include "trace/output.h"

void gap_limits_defaults(gap_limits_options *options) {
  *options = (gap_limits_options){.size = sizeof *options, .device = -1, .tolerance = 0.05};
}

int gap_limits_new(const gap_limits_options *options, gap_limits **out) {
  gap_limits *check = calloc(1, sizeof *check);
  if (check) check->options = *options;
  *out = check;
  return check ? 0 : GAP_ENOMETA;
}

void gap_limits_free(gap_limits *check) {
  if (!check) return;
  for (uint32_t i = 0; i < check->count; i++) gap__figures_set_free(&check->files[i].figures);
  gap__figures_set_free(&check->baseline);
  free(check->files);
  free(check);
}

/* ---- limits -------------------------------------------------------------------------------------------------------- */

const char *gap_limits_name(uint32_t index) {
  return index < GAP__FIGURE_COUNT ? gap__figure_info((enum gap__figure)index)->option : NULL;
}

const char *gap_limits_words_of(uint32_t index) {
  return index < GAP__FIGURE_COUNT ? gap__figure_info((enum gap__figure)index)->words : NULL;
}

static const char *wanted(enum gap__figure figure) {
  switch (gap__figure_info(figure)->kind) {
    case GAP__FIGURE_PERCENT: return "a percentage is wanted (12%), or points over the baseline (+2%)";
    case GAP__FIGURE_COUNTED: return "a whole number is wanted (300), or what it may be over the baseline (+10%, +3)";
    default: return "a size is wanted (26GiB), or what it may be over the baseline (+5%, +512MiB)";
  }
}

int gap_limits_set(gap_limits *check, uint32_t index, const char *text, char *message, size_t bytes) {
  if (index >= GAP__FIGURE_COUNT) return GAP_EINVAL;
  int rc = gap__rule_parse((enum gap__figure)index, text, &check->rules[index]);
  if (rc) snprintf(message, bytes, "--%s %s: %s", gap_limits_name(index), text, wanted((enum gap__figure)index));
  return rc;
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

static uint32_t devices_in_use(const struct gap__history *history) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < history->device_count; i++) {
    bool used = gap__history_has_requests(history, i);
    for (uint64_t j = 0; !used && j < history->segment_count; j++) used = (uint32_t)history->segments[j].device == i;
    count += used;
  }
  return count;
}

static int measure(const gap_limits *check, const char *path, struct gap__figures_set *set, char *message,
                   size_t bytes) {
  const gap_limits_options *options = &check->options;
  struct gap__measure_options one = {options->device, -1, options->progress, options->progress_arg};
  struct gap__measure side;
  char reason[800];
  int rc = gap__measure_file(&side, path, &one, reason, sizeof reason);
  if (rc) snprintf(message, bytes, "%s: %s", path, reason);
  else {
    *set = (struct gap__figures_set){.file = strdup(path),
                                     .device = side.subject.device,
                                     .devices = devices_in_use(side.subject.history),
                                     .wrapped = side.subject.honest.wrapped,
                                     .torn = side.subject.history->is_torn,
                                     .contradictory = side.subject.honest.contradictions > 0};
    memcpy(set->at, side.figures, sizeof set->at);
    if (!set->file) rc = GAP_ENOMETA;
  }
  gap__measure_free(&side);
  return rc;
}

int gap_limits_baseline(gap_limits *check, const char *path, char *message, size_t bytes) {
  char reason[200] = "";
  int rc = gap__baseline_read(path, &check->baseline, reason, sizeof reason);
  if (rc && reason[0]) snprintf(message, bytes, "%s: %s", path, reason);
  return rc == GAP_ENOTSUP ? measure(check, path, &check->baseline, message, bytes) : rc;
}

static struct gap__checked *add_file(gap_limits *check) {
  if (check->count == check->room) {
    uint32_t room = 2 * check->room + 8;
    void *grown = realloc(check->files, room * sizeof *check->files);
    if (!grown) return NULL;
    check->files = grown;
    check->room = room;
  }
  check->files[check->count] = (struct gap__checked){0};
  return &check->files[check->count];
}

int gap_limits_file(gap_limits *check, const char *path, char *message, size_t bytes) {
  struct gap__checked *checked = add_file(check);
  if (gap__rules_need_baseline(check) && !check->baseline.file) {
    snprintf(message, bytes, "a limit over the baseline (+) needs a baseline");
    return GAP_EINVAL;
  }
  gap__rules_default(check);
  int rc = checked ? measure(check, path, &checked->figures, message, bytes) : GAP_ENOMETA;
  if (rc) return rc;
  gap__rules_judge(check, checked);
  check->count++;
  return 0;
}

int gap_limits_save(const gap_limits *check, const char *path, char *message, size_t bytes) {
  if (!check->count) return GAP_EINVAL;
  char *text = gap__baseline_json(&check->files[check->count - 1].figures), *why = NULL;
  struct gap__text line = {0};
  gap__text_add(&line, "%s\n", text ? text : "");
  int rc = !text || line.failed ? GAP_ENOMETA : gap__output_write(path, line.bytes, line.length, &why);
  if (rc) snprintf(message, bytes, "%s", why ? why : gap_strerror(rc));
  gap__text_free(&line);
  free(why);
  free(text);
  return rc;
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

gap_limits_answer gap_limits_answer_of(const gap_limits *check) {
  gap_limits_answer answer = GAP_LIMITS_PASSED;
  for (uint32_t i = 0; i < check->count; i++)
    for (int j = 0; j < GAP__FIGURE_COUNT; j++) {
      gap_limits_answer one = check->files[i].results[j].answer;
      if (one == GAP_LIMITS_FAILED) return one;
      if (one == GAP_LIMITS_MISSING && !check->options.allow_missing) answer = one;
    }
  return answer;
}

uint32_t gap_limits_file_count(const gap_limits *check) { return check->count; }

char *gap_limits_words(const gap_limits *check) { return gap__limits_words(check); }

char *gap_limits_json(const gap_limits *check, uint32_t index) {
  return index < check->count ? gap__limits_json(check, &check->files[index]) : NULL;
}

char *gap_limits_junit(const gap_limits *check) { return gap__limits_junit(check); }
