#include "tune/tuner.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "replay/workers.h"
#include "tune/search.h"

struct job {
  const struct gap__tuner *tuner;
  struct gap__tuned *tuned;
  uint32_t *row; /* where each begins in the settings, and the end */
  uint32_t row_count;
  uint32_t best; /* the one to beat */
  _Atomic uint32_t done;
  _Atomic int worst; /* the first error */
};

static void note_error(struct job *job, int rc) {
  int none = 0;
  if (rc != 0) atomic_compare_exchange_strong(&job->worst, &none, rc);
}

static void tick(void *arg) {
  struct job *job = arg;
  if (job->tuner->progress) job->tuner->progress(job->tuner->progress_arg, atomic_load(&job->done), job->tuned->count);
}

/* ---- Every setting, to 1 % ---- */

static void run_row(void *arg, uint32_t row) {
  struct job *job = arg;
  uint32_t hint = GAP__STEP_UNKNOWN;
  for (uint32_t i = job->row[row]; i < job->row[row + 1]; i++) {
    int rc = gap__search_coarse(job->tuned, i, hint);
    note_error(job, rc);
    atomic_fetch_add(&job->done, 1);
    if (rc == 0) hint = job->tuned->tried[i].step;
  }
}

/* Rows of the table, and the recorded setting where it is none of them. */
static int find_rows(struct job *job) {
  const struct gap__settings *settings = job->tuned->settings;
  job->row = malloc((settings->row_count + 3) * sizeof *job->row);
  if (!job->row) return GAP_ENOMETA;
  for (uint32_t i = 0; i < job->tuned->count; i++)
    if (i == 0 || i == settings->count || settings->at[i].row != settings->at[i - 1].row)
      job->row[job->row_count++] = i;
  job->row[job->row_count] = job->tuned->count;
  return 0;
}

/* ---- The best, to 0.05 % ---- */

/* Of PyTorch, or of ours; and known to fit somewhere. */
static bool is_eligible(const struct gap__tuned *tuned, uint32_t index, bool torch) {
  const struct gap__tried *tried = &tuned->tried[index];
  return tried->known && tried->least_bytes != 0 && torch == (gap__tuned_policy(tuned, index) != GAP_POLICY_GAPLESS);
}

uint32_t gap__tuner_best(const struct gap__tuned *tuned, bool torch) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < tuned->count; i++) {
    if (!is_eligible(tuned, i, torch)) continue;
    if (best == UINT32_MAX || tuned->tried[i].least_bytes < tuned->tried[best].least_bytes) best = i;
  }
  return best;
}

static uint64_t price(const struct gap__tried *tried) {
  const struct gap__trial *trial = gap__tried_least(tried);
  return trial ? trial->driver_time_us + trial->stall_us : 0;
}

/* A tenth of the price is worth a setting that comes later in the table. */
static bool is_cheaper(const struct gap__tried *tried, const struct gap__tried *than) {
  return price(tried) < price(than) - price(than) / 10;
}

uint32_t gap__tuner_advised(const struct gap__tuned *tuned, bool torch) {
  uint32_t best = gap__tuner_best(tuned, torch), advised = UINT32_MAX;
  uint64_t most = best == UINT32_MAX ? 0 : (uint64_t)(GAP__TUNE_SLACK * (double)tuned->tried[best].least_bytes);
  for (uint32_t i = 0; i < tuned->count; i++) {
    const struct gap__tried *tried = &tuned->tried[i];
    if (!is_eligible(tuned, i, torch) || tried->least_bytes > most) continue;
    if (advised == UINT32_MAX || is_cheaper(tried, &tuned->tried[advised])) advised = i;
  }
  return advised;
}

/* An earlier, simpler setting beats the best when it does as well, a later one when it does better. */
static void challenge(void *arg, uint32_t index) {
  struct job *job = arg;
  struct gap__tuned *tuned = job->tuned;
  const struct gap__tried *best = &tuned->tried[job->best], *tried = &tuned->tried[index];
  bool torch = gap__tuned_policy(tuned, job->best) != GAP_POLICY_GAPLESS;
  if (index == job->best || !tried->known || tried->least_bytes == 0 ||
      torch != (gap__tuned_policy(tuned, index) != GAP_POLICY_GAPLESS))
    return;
  uint64_t cap = index < job->best ? best->least_bytes : best->least_bytes - gap__tuned_fine(tuned);
  if (cap >= gap__tuned_ideal(tuned)) note_error(job, gap__search_ask(tuned, index, cap));
}

/* Until nobody beats it: each round ends with a best that takes less, or is simpler. */
static void find_best(struct job *job, const struct gap__workers *workers, bool torch) {
  uint32_t before = UINT32_MAX;
  struct gap__workers challengers = *workers;
  challengers.run = challenge;
  for (job->best = gap__tuner_best(job->tuned, torch); job->best != before && job->best != UINT32_MAX;) {
    before = job->best;
    note_error(job, gap__search_fine(job->tuned, job->best));
    gap__workers_run(&challengers, job->tuned->count);
    job->best = gap__tuner_best(job->tuned, torch);
  }
}

/* What a person compares with the best: as recorded, PyTorch's defaults, ours. */
static void refine_usual(struct job *job) {
  const struct gap__tuned *tuned = job->tuned;
  const uint32_t usual[] = {gap__tuned_recorded(tuned), gap__settings_find(tuned->settings, GAP_POLICY_NATIVE, ""),
                            gap__settings_find(tuned->settings, GAP_POLICY_GAPLESS, "")};
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
    if (tuned->tried[usual[i]].known) note_error(job, gap__search_fine(job->tuned, usual[i]));
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t trial_count(const struct gap__tuned *tuned) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < tuned->count; i++) count += tuned->tried[i].trials.count;
  return count;
}

int gap__tuner_run(const struct gap__tuner *tuner, struct gap__tuned *tuned) {
  struct job job = {.tuner = tuner, .tuned = tuned};
  struct gap__workers workers = {.threads = tuner->threads, .run = run_row, .tick = tick, .arg = &job};
  double start = seconds_now();
  uint64_t before = trial_count(tuned);
  int rc = find_rows(&job);
  if (rc != 0) return rc;
  gap__workers_run(&workers, job.row_count);
  refine_usual(&job);
  find_best(&job, &workers, true);
  find_best(&job, &workers, false);
  free(job.row);
  tuned->replays += trial_count(tuned) - before;
  if (tuned->history) tuned->seconds += seconds_now() - start;
  return atomic_load(&job.worst);
}
