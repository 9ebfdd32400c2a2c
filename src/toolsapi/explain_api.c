/* Explanations for the public header: a file is read, studied and put into words; replays are those of this layer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/report.h"
#include "explain/subject.h"
#include "gapless/explain.h"
#include "toolsapi/ask.h"

struct gap_explanation {
  struct gap__subject subject;
};

enum { DEFAULT_BUDGET_MS = 12000 };

void gap_explain_defaults(gap_explain_options *options) {
  *options = (gap_explain_options){.size = sizeof *options, .device = -1, .budget_ms = DEFAULT_BUDGET_MS};
}

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

/* `path` is NULL where a process is asked. */
static int open_either(const char *path, long process, const gap_explain_options *options, gap_explanation **out,
                       char *message, size_t bytes) {
  gap_explanation *explanation = calloc(1, sizeof *explanation);
  *out = NULL;
  if (!explanation) return GAP_ENOMETA;
  struct gap__subject *subject = &explanation->subject;
  subject->options = *options;
  int rc = path ? read_file(path, subject, message, bytes) : ask_process(process, subject, message, bytes);
  if (!rc) rc = study(subject, message, bytes);
  if (rc) gap_explain_close(explanation);
  else *out = explanation;
  return rc;
}

int gap_explain_open(const char *path, const gap_explain_options *options, gap_explanation **out, char *message,
                     size_t bytes) {
  return open_either(path, 0, options, out, message, bytes);
}

int gap_explain_open_process(long process, const gap_explain_options *options, gap_explanation **out, char *message,
                             size_t bytes) {
  return open_either(NULL, process, options, out, message, bytes);
}

int gap_explain_advise(gap_explanation *explanation, gap_progress_fn progress, void *progress_arg) {
  static const struct gap__replayer replayer = {gap_replay, gap_replay_min_cap};
  return gap__advice_find(&explanation->subject, &replayer, progress, progress_arg);
}

void gap_explain_close(gap_explanation *explanation) {
  if (!explanation) return;
  gap__subject_free(&explanation->subject);
  free(explanation);
}

gap_explain_verdict gap_explain_verdict_of(const gap_explanation *explanation) { return explanation->subject.verdict; }

int gap_explain_can_be_had(const gap_explanation *explanation) {
  const struct gap__subject *subject = &explanation->subject;
  if (!subject->options.request_bytes) return 1;
  return subject->has_servable ? subject->servable.at_end : subject->options.request_bytes <= subject->largest_servable;
}

char *gap_explain_words(const gap_explanation *explanation, unsigned columns) {
  return gap__report_words(&explanation->subject, columns);
}

char *gap_explain_advice_words(const gap_explanation *explanation, unsigned columns) {
  return gap__report_advice(&explanation->subject, columns);
}

char *gap_explain_json(const gap_explanation *explanation, const char *file) {
  return gap__subject_json(&explanation->subject, file);
}
