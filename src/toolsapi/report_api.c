/* Reports for the public header: files are opened, their panels made, replays run on all processors, and all of it put into a page. */
#include "gapless/report.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "replay/workers.h"
#include "report/document.h"
#include "report/page.h"
#include "toolsapi/open.h"
#include "trace/output.h"

enum { DEFAULT_BUDGET_MS = 2000, DEFAULT_TOP = 50 };

struct entry { /* a device of a file */
  struct gap__measure measure;
  struct gap__panel panel;
  bool borrows; /* the history is that of an entry before */
  bool is_studied;
};

struct gap_report {
  gap_report_options options;
  struct entry *entries[GAP_REPORT_PANELS_MAX];
  uint32_t count, files;
  uint32_t first_of_file[2]; /* the entries of the first two files */
  struct gap_diff diff;
  bool has_diff, has_job;
  struct gap__job job;
  struct gap__rank ranks[GAP_REPORT_PANELS_MAX];
};

void gap_report_defaults(gap_report_options *options) {
  *options =
      (gap_report_options){.size = sizeof *options, .device = -1, .budget_ms = DEFAULT_BUDGET_MS, .top = DEFAULT_TOP};
}

int gap_report_new(const gap_report_options *options, gap_report **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return GAP_ENOMETA;
  (*out)->options = *options;
  return 0;
}

static void free_entry(struct entry *entry) {
  gap__panel_free(&entry->panel);
  if (entry->borrows) entry->measure.subject.history = NULL;
  gap__measure_free(&entry->measure);
  free(entry);
}

void gap_report_free(gap_report *report) {
  if (!report) return;
  if (report->has_diff) gap__diff_free_parts(&report->diff);
  while (report->count) free_entry(report->entries[--report->count]);
  free(report);
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static int add_entry(struct gap_report *report, const char *name, struct entry **out, char *message, size_t bytes) {
  if (report->count == GAP_REPORT_PANELS_MAX) {
    snprintf(message, bytes, "more than %d devices do not fit one page", GAP_REPORT_PANELS_MAX);
    return GAP_EINVAL;
  }
  struct entry *entry = calloc(1, sizeof *entry);
  if (entry) entry->measure.file = strdup(name);
  if (!entry || !entry->measure.file) {
    free(entry);
    snprintf(message, bytes, "%s", gap_strerror(GAP_ENOMETA));
    return GAP_ENOMETA;
  }
  report->entries[report->count++] = *out = entry;
  return 0;
}

static gap_explain_options explain_options(const gap_report_options *from) {
  gap_explain_options options;
  gap_explain_defaults(&options);
  options.device = from->device;
  options.cap_bytes = from->cap_bytes;
  options.progress = from->progress;
  options.progress_arg = from->progress_arg;
  return options;
}

static int add_device(struct gap_report *report, const struct entry *first, uint32_t device, char *message,
                      size_t bytes) {
  struct entry *entry;
  int rc = add_entry(report, first->measure.file, &entry, message, bytes);
  if (rc) return rc;
  struct gap__subject *subject = &entry->measure.subject;
  *subject = (struct gap__subject){.history = first->measure.subject.history,
                                   .is_live = first->measure.subject.is_live,
                                   .options = explain_options(&report->options)};
  subject->options.device = device;
  entry->borrows = true;
  rc = gap__subject_study(subject);
  if (rc) snprintf(message, bytes, "%s", gap_strerror(rc));
  return rc;
}

/* The device of which most is to be said comes first. */
static int add_other_devices(struct gap_report *report, const struct entry *first, char *message, size_t bytes) {
  const struct gap__history *history = first->measure.subject.history;
  int rc = 0;
  for (uint32_t i = 0; !rc && i < history->device_count; i++)
    if (i != first->measure.subject.device && gap__open_has_memory(history, i))
      rc = add_device(report, first, i, message, bytes);
  return rc;
}

static int add(struct gap_report *report, const char *name, long process, char *message, size_t bytes) {
  struct entry *entry;
  int rc = add_entry(report, name, &entry, message, bytes);
  if (rc) return rc;
  entry->measure.subject.options = explain_options(&report->options);
  if (report->files < 2) report->first_of_file[report->files] = report->count - 1;
  report->files++;
  rc = gap__open_subject(&entry->measure.subject, process ? NULL : name, process, message, bytes);
  return rc || report->options.device >= 0 ? rc : add_other_devices(report, entry, message, bytes);
}

int gap_report_file(gap_report *report, const char *path, char *message, size_t bytes) {
  return add(report, path, 0, message, bytes);
}

int gap_report_process(gap_report *report, long process, char *message, size_t bytes) {
  char name[32];
  snprintf(name, sizeof name, "process %ld", process);
  return add(report, name, process, message, bytes);
}

/* ---- side by side -------------------------------------------------------------------------------------------------- */

/* Two files, or the two devices of one. */
static bool has_two(const struct gap_report *report, uint32_t out[2]) {
  out[0] = report->first_of_file[0];
  out[1] = report->files == 2 ? report->first_of_file[1] : 1;
  if (report->files != 2 && !(report->files == 1 && report->count == 2)) return false;
  return !report->entries[out[0]]->measure.subject.honest.is_empty &&
         !report->entries[out[1]]->measure.subject.honest.is_empty;
}

/* The sides are those of the entries, which keep what they point to. */
static int compare(struct gap_report *report) {
  uint32_t two[2];
  if (!has_two(report, two)) return 0;
  gap_diff_defaults(&report->diff.options);
  report->has_diff = true;
  for (int i = 0; i < 2; i++) {
    int rc = gap__measure_studied(&report->entries[two[i]]->measure);
    if (rc) return rc;
    report->diff.sides[i] = report->entries[two[i]]->measure;
  }
  return gap__diff_find(&report->diff);
}

/* Two files are before and after rather than two ranks. */
static int find_job(struct gap_report *report) {
  if (report->count < 2 || (report->files == 2 && report->count == 2)) return 0;
  for (uint32_t i = 0; i < report->count; i++)
    report->ranks[i] = (struct gap__rank){&report->entries[i]->measure.subject, report->entries[i]->measure.file};
  report->has_job = true;
  return gap__job_find(report->ranks, report->count, &report->job);
}

/* ---- replays ------------------------------------------------------------------------------------------------------- */

struct crew {
  struct gap_report *report;
  struct gap__subject *advised[2];
  uint32_t advised_count;
  struct gap__what_if_job *jobs;
  uint32_t job_count, first_jobs; /* first_jobs of them come before the advice */
  uint64_t began_ms;
  _Atomic uint32_t done;
  gap_progress_fn progress;
  void *progress_arg;
};

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t time_left(const struct crew *crew) {
  uint64_t spent = now_ms() - crew->began_ms, budget = crew->report->options.budget_ms;
  return spent < budget ? (uint32_t)(budget - spent) : 0;
}

static void advise(const struct crew *crew, struct gap__subject *subject) {
  static const struct gap__replayer replayer = {gap_replay, gap_replay_min_cap};
  subject->options.budget_ms = time_left(crew);
  gap__advice_find(subject, &replayer, NULL, NULL);
}

static void run_one(void *arg, uint32_t index) {
  struct crew *crew = arg;
  bool is_advice = index >= crew->first_jobs && index < crew->first_jobs + crew->advised_count;
  uint32_t job = index < crew->first_jobs ? index : index - crew->advised_count;
  if (is_advice) advise(crew, crew->advised[index - crew->first_jobs]);
  else if (time_left(crew)) gap__what_if_run(&crew->jobs[job], gap_replay);
  atomic_fetch_add(&crew->done, 1);
}

static void tick(void *arg) {
  struct crew *crew = arg;
  if (crew->progress)
    crew->progress(crew->progress_arg, atomic_load(&crew->done), crew->job_count + crew->advised_count);
}

/* Advice is for the device that the page opens with, and for what it is compared with. */
static void choose_advised(struct crew *crew) {
  struct gap_report *report = crew->report;
  uint32_t first = report->has_job ? report->job.limits : 0, two[2];
  crew->advised[crew->advised_count++] = &report->entries[first]->measure.subject;
  if (has_two(report, two) && two[1] != first)
    crew->advised[crew->advised_count++] = &report->entries[two[1]]->measure.subject;
}

/* The jobs of all panels, each panel's k-th beside the others' k-th. */
static int list_jobs(struct crew *crew) {
  enum { EACH = GAP__WHAT_IF_POLICIES * GAP__WHAT_IF_CAPS };
  struct gap_report *report = crew->report;
  struct gap__what_if_job(*of)[EACH] = calloc(report->count, sizeof *of);
  uint32_t counts[GAP_REPORT_PANELS_MAX];
  crew->jobs = calloc((size_t)report->count * EACH, sizeof *crew->jobs);
  if (of && crew->jobs) {
    for (uint32_t i = 0; i < report->count; i++)
      counts[i] = gap__what_if_jobs(&report->entries[i]->panel.what_if, of[i]);
    for (uint32_t k = 0; k < EACH; k++)
      for (uint32_t i = 0; i < report->count; i++)
        if (k < counts[i]) crew->jobs[crew->job_count++] = of[i][k];
  }
  free(of);
  return crew->jobs ? 0 : GAP_ENOMETA;
}

/* What is held without a limit and with the given one comes first; then advice; then the other caps. */
static int replay(struct gap_report *report, gap_progress_fn progress, void *arg) {
  struct crew crew = {.report = report, .began_ms = now_ms(), .progress = progress, .progress_arg = arg};
  if (report->options.no_what_if) return 0;
  int rc = list_jobs(&crew);
  if (rc) return rc;
  choose_advised(&crew);
  crew.first_jobs = 2 * GAP__WHAT_IF_POLICIES * report->count;
  if (crew.first_jobs > crew.job_count) crew.first_jobs = crew.job_count;
  struct gap__workers workers = {
      .threads = report->options.threads ? report->options.threads : gap__workers_processors(),
      .run = run_one,
      .tick = tick,
      .arg = &crew};
  gap__workers_run(&workers, crew.job_count + crew.advised_count);
  free(crew.jobs);
  return 0;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int make_panels(struct gap_report *report) {
  struct gap__panel_limits limits = gap__panel_limits(report->count, report->options.top);
  int rc = 0;
  limits.no_what_if = report->options.no_what_if != 0;
  for (uint32_t i = 0; !rc && i < report->count; i++) {
    struct gap__measure *measure = &report->entries[i]->measure;
    rc = gap__panel_make(&report->entries[i]->panel, measure->file, &measure->subject, &limits);
  }
  return rc;
}

int gap_report_make(gap_report *report, gap_progress_fn progress, void *progress_arg) {
  if (!report->count) return GAP_EINVAL;
  int rc = make_panels(report);
  if (!rc) rc = compare(report);
  if (!rc) rc = find_job(report);
  return rc ? rc : replay(report, progress, progress_arg);
}

char *gap_report_json(const gap_report *report) {
  struct gap__panel *panels[GAP_REPORT_PANELS_MAX];
  struct gap__document document = {.panels = panels,
                                   .panel_count = report->count,
                                   .diff = report->has_diff ? &report->diff : NULL,
                                   .diff_rows = report->options.top,
                                   .job = report->has_job ? &report->job : NULL};
  char *json = NULL;
  if (report->has_diff) has_two(report, document.diff_panels);
  for (uint32_t i = 0; i < report->count; i++) panels[i] = &report->entries[i]->panel;
  return gap__document_json(&document, &json) ? NULL : json;
}

static int write_json(const char *json, const char *path, char **text) {
  struct gap__output output;
  uint64_t written;
  int rc = gap__output_open(&output, path, GAP__ENC_PLAIN, text);
  if (rc) return rc;
  gap__output_put(&output, json, strlen(json));
  gap__output_byte(&output, '\n');
  return gap__output_close(&output, 0, &written, text);
}

static int write_out(const gap_report *report, bool only_json, const char *path, char *message, size_t bytes) {
  char *json = gap_report_json(report), *text = NULL;
  int rc = json ? 0 : GAP_ENOMETA;
  if (!rc) rc = only_json ? write_json(json, path, &text) : gap__page_write(gap__page(), json, path, &text);
  if (rc) snprintf(message, bytes, "%s", text ? text : gap_strerror(rc));
  free(text);
  free(json);
  return rc;
}

int gap_report_write(const gap_report *report, const char *path, char *message, size_t bytes) {
  return write_out(report, false, path, message, bytes);
}

int gap_report_write_json(const gap_report *report, const char *path, char *message, size_t bytes) {
  return write_out(report, true, path, message, bytes);
}
