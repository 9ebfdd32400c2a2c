/* Explanations for the public header: a file is read, studied and put into words; replays are those of this layer. */
#include <stdbool.h>
#include <stdlib.h>

#include "explain/job.h"
#include "explain/phrase.h"
#include "explain/report.h"
#include "explain/subject.h"
#include "gapless/explain.h"
#include "toolsapi/open.h"

struct gap_explanation {
  struct gap__subject subject;
  bool borrows; /* the history is another explanation's */
};

enum { DEFAULT_BUDGET_MS = 12000 };

void gap_explain_defaults(gap_explain_options *options) {
  *options = (gap_explain_options){.size = sizeof *options, .device = -1, .budget_ms = DEFAULT_BUDGET_MS};
}

/* `path` is NULL where a process is asked. */
static int open_either(const char *path, long process, const gap_explain_options *options, gap_explanation **out,
                       char *message, size_t bytes) {
  gap_explanation *explanation = calloc(1, sizeof *explanation);
  *out = NULL;
  if (!explanation) return GAP_ENOMETA;
  explanation->subject.options = *options;
  int rc = gap__open_subject(&explanation->subject, path, process, message, bytes);
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

int gap_explain_other_device(const gap_explanation *first, uint32_t device, gap_explanation **out) {
  struct gap__history *history = first->subject.history;
  *out = NULL;
  if (device >= history->device_count || !gap__open_has_memory(history, device)) return GAP_EINVAL;
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
