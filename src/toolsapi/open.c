#include "toolsapi/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "toolsapi/ask.h"

static int study(struct gap__subject *subject, char *message, size_t bytes) {
  int rc = gap__subject_study(subject);
  if (rc == GAP_EINVAL)
    snprintf(message, bytes, "there is no device %" PRId64 ": the %s has %" PRIu32, subject->options.device,
             gap__subject_source(subject), subject->history->device_count);
  else if (rc) snprintf(message, bytes, "%s", gap_strerror(rc));
  return rc;
}

/* Moves the reader's message into the caller's buffer. */
static int said(int rc, char *text, char *message, size_t bytes) {
  if (rc) snprintf(message, bytes, "%s", text ? text : gap_strerror(rc));
  free(text);
  return rc;
}

static int read_file(const char *path, struct gap__subject *subject, char *message, size_t bytes) {
  const gap_explain_options *options = &subject->options;
  char *text = NULL;
  int rc = gap__history_read(path, options->progress, options->progress_arg, &subject->history, &text);
  return said(rc, text, message, bytes);
}

static int ask_process(long process, struct gap__subject *subject, char *message, size_t bytes) {
  struct gap__text reply = {0};
  char *text = NULL;
  subject->is_live = true;
  int rc = gap__ask_state((pid_t)process, &reply, message, bytes);
  if (!rc) {
    rc = gap__history_read_memory(reply.bytes, reply.length, &subject->history, &text);
    said(rc, text, message, bytes);
  }
  gap__text_free(&reply);
  if (rc || !subject->history->is_torn) return rc;
  snprintf(message, bytes, "its answer ends in the middle: it may just have ended");
  return GAP_EFORMAT;
}

int gap__open_subject(struct gap__subject *subject, const char *path, long process, char *message, size_t bytes) {
  int rc = path ? read_file(path, subject, message, bytes) : ask_process(process, subject, message, bytes);
  return rc ? rc : study(subject, message, bytes);
}

bool gap__open_has_memory(const struct gap__history *history, uint32_t device) {
  if (history->devices[device].event_count) return true;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) return true;
  return false;
}
