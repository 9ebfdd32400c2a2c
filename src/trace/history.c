#include "trace/history.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "trace/formats.h"
#include "trace/input.h"
#include "trace/message.h"
#include "trace/pools.h"

const char *gap__action_name(enum gap__action action) {
  static const char *const names[GAP__ACT_COUNT] = {"alloc",         "free_requested", "free_completed",
                                                    "segment_alloc", "segment_free",   "segment_map",
                                                    "segment_unmap", "snapshot",       "oom"};
  return (unsigned)action < GAP__ACT_COUNT ? names[action] : "unknown";
}

/* Formats that do not say which pool an event belongs to leave it to the segments. */
static int complete(struct gap__history *history, const char *path, char **message) {
  bool tells_pools = gap__format_at(history->format)->tells_pools;
  history->path = strdup(path);
  if (!history->settings_text) history->settings_text = strdup("");
  bool lacks = !history->path || !history->settings_text || (!tells_pools && gap__pools_assign(history));
  if (lacks || gap__history_find_wrapped(history)) return gap__message_set(message, GAP_ENOMETA, "out of host memory");
  return 0;
}

static int read_format(struct gap__input *input, uint32_t format, struct gap__history **out, char **message) {
  if (input->next == input->end && input->at_end) return gap__message_set(message, GAP_EFORMAT, "it is empty");
  return gap__format_at(format)->read(input, out, message);
}

static int read_opened(struct gap__input *input, const char *path, struct gap__history **out, char **message) {
  uint32_t format = gap__format_of_input(input);
  int rc = read_format(input, format, out, message);
  if (!rc) (*out)->format = format;
  if (!rc) rc = gap__input_drain(input, message);
  if (!rc) rc = complete(*out, path, message);
  if (rc) {
    gap__history_free(*out);
    *out = NULL;
  }
  gap__input_close(input);
  return rc;
}

int gap__history_read_opened(struct gap__input *input, const char *path, struct gap__history **out, char **message) {
  *out = NULL;
  int rc = read_opened(input, path, out, message);
  return rc ? gap__message_settle(message, rc) : 0;
}

int gap__history_read(const char *path, gap__progress *progress, void *arg, struct gap__history **out, char **message) {
  struct gap__input input;
  *message = NULL;
  *out = NULL;
  int rc = gap__input_open(&input, path, progress, arg, message);
  if (!rc) rc = read_opened(&input, path, out, message);
  return rc ? gap__message_settle(message, rc) : 0;
}

int gap__history_read_memory(const void *bytes, size_t count, struct gap__history **out, char **message) {
  struct gap__input input;
  *message = NULL;
  *out = NULL;
  int rc = gap__input_open_memory(&input, bytes, count, message);
  if (!rc) rc = read_opened(&input, "", out, message);
  return rc ? gap__message_settle(message, rc) : 0;
}

bool gap__history_has_requests(const struct gap__history *history, uint32_t device) {
  const struct gap__hist_device *from = &history->devices[device];
  for (uint64_t i = 0; i < from->event_count; i++)
    if (from->events[i].action == GAP__ACT_ALLOC || from->events[i].action == GAP__ACT_OOM) return true;
  return false;
}

void gap__history_shift_times(struct gap__history *history) {
  int64_t first = INT64_MAX;
  for (uint32_t i = 0; i < history->device_count; i++)
    if (history->devices[i].event_count && history->devices[i].events[0].time_us < first)
      first = history->devices[i].events[0].time_us;
  if (first == INT64_MAX || first == 0) return;
  history->time_base_us += first;
  for (uint32_t i = 0; i < history->device_count; i++)
    for (uint64_t j = 0; j < history->devices[i].event_count; j++) history->devices[i].events[j].time_us -= first;
  for (uint32_t i = 0; i < history->annotation_count; i++) history->annotations[i].time_us -= first;
}

void gap__history_free(struct gap__history *history) {
  if (!history) return;
  free(history->path);
  free(history->devices);
  free(history->event_storage);
  free(history->segments);
  free(history->blocks);
  free(history->pools);
  free(history->stacks);
  free(history->stack_frames);
  free(history->frames);
  free(history->annotations);
  free(history->text);
  free(history->settings_text);
  free(history);
}
