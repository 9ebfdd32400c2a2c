/* Histories for the public header: read, checked against themselves, counted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "gapless/tools.h"
#include "replay/verify_native.h"
#include "trace/history.h"

/* Moves the reader's message into the caller's buffer. */
static void hand_over(char *from, char *message, size_t bytes) {
  snprintf(message, bytes, "%s", from ? from : "");
  free(from);
}

int gap_history_check(const gap_history *history, char *message, size_t bytes) {
  for (uint32_t device = 0; device < history->device_count; device++) {
    uint64_t event = 0;
    char *text = NULL, line[400];
    int rc = gap__history_check(history, device, &event, &text);
    if (rc == 0) continue;
    hand_over(text, line, sizeof line);
    snprintf(message, bytes, "the history contradicts itself at event %" PRIu64 " of device %" PRIu32 ": %s", event,
             device, line);
    return rc;
  }
  return 0;
}

int gap_history_read(const char *path, gap_progress_fn progress, void *arg, gap_history **out, char *message,
                     size_t bytes) {
  char *text = NULL;
  int rc = gap__history_read(path, progress, arg, out, &text);
  if (rc != 0) hand_over(text, message, bytes);
  return rc;
}

int gap_history_open(const char *path, gap_progress_fn progress, void *arg, gap_history **out, char *message,
                     size_t bytes) {
  struct gap__history *history = NULL;
  int rc = gap_history_read(path, progress, arg, &history, message, bytes);
  if (rc != 0) return rc;
  rc = gap_history_check(history, message, bytes);
  if (rc != 0) {
    gap__history_free(history);
    return rc;
  }
  *out = history;
  return 0;
}

void gap_history_close(gap_history *history) {
  if (history) gap__history_free(history);
}

uint32_t gap_history_device_count(const gap_history *history) { return history->device_count; }

uint64_t gap_history_event_count(const gap_history *history, uint32_t device) {
  return device < history->device_count ? history->devices[device].event_count : 0;
}

int gap_history_has_requests(const gap_history *history, uint32_t device) {
  return device < history->device_count && gap__history_has_requests(history, device);
}

enum gap_policy gap_history_policy(const gap_history *history, uint32_t device) {
  return gap__verify_policy(history, device);
}
