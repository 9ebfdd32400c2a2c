/* Explanations for the public header: a file is read, studied and put into words; replays are those of this layer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/report.h"
#include "explain/subject.h"
#include "gapless/explain.h"

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
    snprintf(message, bytes, "there is no device %" PRId64 ": the file has %" PRIu32, subject->options.device,
             subject->history->device_count);
  else if (rc) snprintf(message, bytes, "%s", gap_strerror(rc));
  return rc;
}

int gap_explain_open(const char *path, const gap_explain_options *options, gap_explanation **out, char *message,
                     size_t bytes) {
  char *text = NULL;
  gap_explanation *explanation = calloc(1, sizeof *explanation);
  *out = NULL;
  if (!explanation) return GAP_ENOMETA;
  struct gap__subject *subject = &explanation->subject;
  subject->options = *options;
  int rc = gap__history_read(path, options->progress, options->progress_arg, &subject->history, &text);
  if (rc) snprintf(message, bytes, "%s", text ? text : gap_strerror(rc));
  free(text);
  if (!rc) rc = study(subject, message, bytes);
  if (rc) gap_explain_close(explanation);
  else *out = explanation;
  return rc;
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
