/* Explanations for the public header: a file is read, studied and put into words; replays are those of this layer. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/job.h"
#include "explain/phrase.h"
#include "explain/report.h"
#include "explain/subject.h"
#include "gapless/explain.h"
#include "toolsapi/ask.h"

struct gap_explanation {
  struct gap__subject subject;
  bool borrows; /* the history is another explanation's */
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

/* Files keep a place for devices that nothing happened on. */
static bool has_memory(const struct gap__history *history, uint32_t device) {
  if (history->devices[device].event_count) return true;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) return true;
  return false;
}

int gap_explain_other_device(const gap_explanation *first, uint32_t device, gap_explanation **out) {
  struct gap__history *history = first->subject.history;
  *out = NULL;
  if (device >= history->device_count || !has_memory(history, device)) return GAP_EINVAL;
  gap_explanation *explanation = calloc(1, sizeof *explanation);
  if (!explanation) return GAP_ENOMETA;
  explanation->subject =
      (struct gap__subject){.history = history, .is_live = first->subject.is_live, .options = first->subject.options};
  explanation->subject.options.device = device;
  explanation->borrows = true;
  int rc = gap__subject_study(&explanation->subject);
  if (rc) gap_explain_close(explanation);
  else *out = explanation;
  return rc;
}

uint32_t gap_explain_device(const gap_explanation *explanation) { return explanation->subject.device; }
uint32_t gap_explain_device_count(const gap_explanation *explanation) {
  return explanation->subject.history->device_count;
}

int gap_explain_advise(gap_explanation *explanation, gap_progress_fn progress, void *progress_arg) {
  static const struct gap__replayer replayer = {gap_replay, gap_replay_min_cap};
  return gap__advice_find(&explanation->subject, &replayer, progress, progress_arg);
}

void gap_explain_close(gap_explanation *explanation) {
  if (!explanation) return;
  if (explanation->borrows) explanation->subject.history = NULL;
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

/* ---- the ranks of one job ---- */

struct gap_explain_job {
  struct gap__job job;
  struct gap__rank *ranks;
};

int gap_explain_job_open(gap_explain_rank *ranks, uint32_t count, gap_explain_job **out) {
  *out = NULL;
  if (count < 2) return GAP_EINVAL;
  gap_explain_job *job = calloc(1, sizeof *job);
  if (job) job->ranks = calloc(count, sizeof *job->ranks);
  if (!job || !job->ranks) {
    free(job);
    return GAP_ENOMETA;
  }
  for (uint32_t i = 0; i < count; i++) {
    const struct gap__subject *subject = &ranks[i].explanation->subject;
    job->ranks[i] = (struct gap__rank){subject, ranks[i].file};
    ranks[i].need_bytes = gap__rank_need(subject);
    ranks[i].peak_live_bytes = gap__subject_peak(subject);
    ranks[i].refusals = subject->refusal.count;
  }
  int rc = gap__job_find(job->ranks, count, &job->job);
  if (rc) gap_explain_job_close(job);
  else *out = job;
  return rc;
}

void gap_explain_job_close(gap_explain_job *job) {
  if (job) free(job->ranks);
  free(job);
}

uint32_t gap_explain_job_limits(const gap_explain_job *job) { return job->job.limits; }

char *gap_explain_job_words(const gap_explain_job *job, unsigned columns) {
  struct gap__text line = {0}, out = {0};
  gap__job_say(&job->job, &line);
  gap__phrase_paragraph(&out, gap__text_str(&line), columns, 0, 0);
  gap__text_free(&line);
  return gap__text_take(&out);
}

char *gap_explain_job_json(const gap_explain_job *job) { return gap__job_json(&job->job); }
