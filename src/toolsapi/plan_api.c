/* Plans for the public header: a file is read by its content, placed, checked; plan files are written and read. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "trace/formats.h"
#include "trace/input.h"
#include "trace/json_text.h"
#include "trace/output.h"

enum { DEFAULT_LIMIT_MS = 10000, PLAN_BYTES_MAX = 1 << 30 };

void gap_plan_defaults(gap_plan_options *options) {
  *options = (gap_plan_options){
      .size = sizeof *options, .device = -1, .step_first = -1, .step_last = -1, .time_limit_ms = DEFAULT_LIMIT_MS};
}

static void hand_over(char *from, int rc, char *message, size_t bytes) {
  if (rc) snprintf(message, bytes, "%s", from ? from : gap_strerror(rc));
  free(from);
}

/* All of a file, as far as it is no larger than `most`; malloc'ed. */
static int read_whole(const char *path, size_t most, unsigned char **out, size_t *bytes, char **message) {
  struct gap__input input;
  size_t room = (size_t)1 << 16, got = 0, more = 1;
  unsigned char *data = NULL;
  int rc = gap__input_open(&input, path, NULL, NULL, message);
  if (rc) return rc;
  for (*bytes = 0; !rc && more; *bytes += more) {
    unsigned char *grown = realloc(data, room *= 2);
    if (grown) data = grown;
    rc = !grown            ? GAP_ENOMETA
         : room > 2 * most ? GAP_ELIMIT
                           : gap__input_take(&input, data + *bytes, room - *bytes, &got, message);
    more = rc ? 0 : got;
  }
  gap__input_close(&input);
  if (rc) free(data);
  else *out = data;
  return rc;
}

static int load_csv(struct gap__input *input, gap_plan *plan, char **message) {
  int rc = gap__plan_from_csv(input, plan, message);
  gap__input_close(input);
  return rc;
}

static int load_history(struct gap__input *input, const char *path, const gap_plan_options *options, gap_plan *plan,
                        char **message) {
  char text[1024] = "";
  gap_history *history = NULL;
  int rc = gap__history_read_opened(input, path, &history, message);
  if (rc) return rc;
  rc = gap_history_check(history, text, sizeof text);
  if (rc) *message = strdup(text[0] ? text : gap_strerror(rc));
  else rc = gap__plan_from_history(history, options, plan, message);
  gap_history_close(history);
  return rc;
}

/* Opened once, since standard input and pipes can be read once only. */
static int load(const char *path, const gap_plan_options *options, gap_plan *plan, char **message) {
  struct gap__input input;
  int rc = gap__input_open(&input, path, options->progress, options->progress_arg, message);
  if (rc) return rc;
  return gap__is_minimalloc(&input) ? load_csv(&input, plan, message)
                                    : load_history(&input, path, options, plan, message);
}

static int make(const char *path, const gap_plan_options *options, gap_plan *plan, char **message) {
  int rc = load(path, options, plan, message);
  struct gap__plan_clock clock = {gap__plan_now_ms(), options->time_limit_ms, options->progress, options->progress_arg};
  if (!rc && options->apart) rc = gap__plan_place_apart(plan, &clock, message);
  else if (!rc) rc = gap__plan_place(plan, options->capacity_bytes, &clock, message);
  return rc ? rc : gap__plan_verify(plan, message);
}

int gap_plan_make(const char *path, const gap_plan_options *options, gap_plan **out, char *message, size_t bytes) {
  gap_plan *plan = calloc(1, sizeof *plan);
  char *text = NULL;
  *out = NULL;
  int rc = plan ? make(path, options, plan, &text) : GAP_ENOMETA;
  if (rc) gap_plan_close(plan);
  else *out = plan;
  hand_over(text, rc, message, bytes);
  return rc;
}

int gap_plan_write(const gap_plan *plan, const char *path, char *message, size_t bytes) {
  unsigned char *data = NULL;
  char *text = NULL;
  size_t length = 0;
  int rc = gap__plan_encode(plan, &data, &length);
  if (!rc) rc = gap__output_write(path, data, length, &text);
  free(data);
  hand_over(text, rc, message, bytes);
  return rc;
}

int gap_plan_read(const char *path, gap_plan **out, char *message, size_t bytes) {
  gap_plan *plan = calloc(1, sizeof *plan);
  unsigned char *data = NULL;
  char *text = NULL;
  size_t length = 0;
  *out = NULL;
  int rc = plan ? read_whole(path, PLAN_BYTES_MAX, &data, &length, &text) : GAP_ENOMETA;
  if (!rc) rc = gap__plan_decode(data, length, plan, &text);
  free(data);
  if (rc) gap_plan_close(plan);
  else *out = plan;
  hand_over(text, rc, message, bytes);
  return rc;
}

void gap_plan_close(gap_plan *plan) {
  if (!plan) return;
  gap__plan_release(plan);
  free(plan);
}

void gap_plan_info_get(const gap_plan *plan, gap_plan_info *out) { *out = plan->info; }

int gap_plan_request_at(const gap_plan *plan, uint64_t index, gap_plan_request *out) {
  if (index >= plan->count) return GAP_EINVAL;
  const struct gap__plan_entry *entry = &plan->at[index];
  *out = (gap_plan_request){entry->bytes, entry->offset, plan->streams[entry->stream], entry->from, entry->to};
  return 0;
}

char *gap_plan_json(const gap_plan *plan, const char *file) {
  const gap_plan_info *info = &plan->info;
  double gap = info->bound_bytes ? (double)info->plan_bytes / (double)info->bound_bytes - 1 : 0;
  json_t *json = json_pack(
      "{s:o s:I s:I s:I s:I s:I s:I s:f s:b s:I s:s s:s s:I s:I s:I s:I s:I s:s s:b}", "file", gap__json_text(file),
      "requests", (json_int_t)info->requests, "left_out", (json_int_t)info->left_out, "streams",
      (json_int_t)info->streams, "plan_bytes", (json_int_t)info->plan_bytes, "bound_bytes",
      (json_int_t)info->bound_bytes, "total_bytes", (json_int_t)info->total_bytes, "gap", gap, "proved", info->proved,
      "greedy_bytes", (json_int_t)info->greedy_bytes, "greedy_order", info->order, "method", info->method,
      "resident_bytes", (json_int_t)info->resident_bytes, "search_ms", (json_int_t)info->search_ms, "steps_found",
      (json_int_t)info->steps_found, "step_first", (json_int_t)info->step_first, "step_last",
      (json_int_t)info->step_last, "steps_from", info->steps_from, "wrapped", info->wrapped);
  char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}
