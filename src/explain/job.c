#include "explain/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/phrase.h"

/* ---- what a rank needs ---- */

uint64_t gap__rank_need(const struct gap__subject *subject) {
  uint64_t peak = gap__subject_peak(subject), wanted = subject->figures.live + subject->refusal.request;
  return subject->refusal.recorded && wanted > peak ? wanted : peak;
}

/* A figure of a rank; `key` says which. */
typedef uint64_t figure_fn(const struct gap__subject *, const void *key);

static uint64_t need_of(const struct gap__subject *subject, const void *key) {
  (void)key;
  return gap__rank_need(subject);
}

static uint64_t category_of(const struct gap__subject *subject, const void *key) {
  return subject->categories.at_peak[*(const int *)key];
}

/* Files number their call sites each in its own way: a site is known by its name. */
static uint64_t site_of(const struct gap__subject *subject, const void *key) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < subject->holders.count; i++) {
    char name[GAP__JOB_SITE_BYTES];
    gap__sites_name(&subject->sites, subject->holders.at[i].site, name, sizeof name);
    if (strcmp(name, key) == 0) bytes += subject->holders.at[i].bytes;
  }
  return bytes;
}

/* ---- against the others ---- */

static int by_size(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return (left > right) - (left < right);
}

/* Of the ranks but the limiting one; of an even number the lower of the two in the middle. */
static uint64_t median_of_others(const struct gap__job *job, uint64_t *room, figure_fn *figure, const void *key) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->count; i++)
    if (i != job->limits) room[count++] = figure(job->ranks[i].subject, key);
  qsort(room, count, sizeof *room, by_size);
  return room[(count - 1) / 2];
}

static int64_t excess_of(const struct gap__job *job, uint64_t *room, figure_fn *figure, const void *key) {
  return (int64_t)(figure(job->ranks[job->limits].subject, key) - median_of_others(job, room, figure, key));
}

static bool limits_more(const struct gap__subject *one, const struct gap__subject *other) {
  if (one->refusal.recorded != other->refusal.recorded) return one->refusal.recorded;
  return gap__rank_need(one) > gap__rank_need(other);
}

static void find_site(struct gap__job *job, uint64_t *room) {
  const struct gap__subject *subject = job->ranks[job->limits].subject;
  for (uint32_t i = 0; i < subject->holders.count; i++) {
    char name[GAP__JOB_SITE_BYTES];
    if (!subject->holders.at[i].site) continue;
    gap__sites_name(&subject->sites, subject->holders.at[i].site, name, sizeof name);
    int64_t excess = excess_of(job, room, site_of, name);
    if (excess <= job->site_excess) continue;
    job->site_excess = excess;
    memcpy(job->site, name, sizeof name);
  }
}

int gap__job_find(const struct gap__rank *ranks, uint32_t count, struct gap__job *job) {
  *job = (struct gap__job){.ranks = ranks, .count = count};
  uint64_t *room = calloc(count, sizeof *room);
  if (!room) return GAP_ENOMETA;
  for (uint32_t i = 1; i < count; i++)
    if (limits_more(ranks[i].subject, ranks[job->limits].subject)) job->limits = i;
  const struct gap__subject *subject = ranks[job->limits].subject;
  job->need = gap__rank_need(subject);
  job->usual = median_of_others(job, room, need_of, NULL);
  job->is_even = !subject->refusal.recorded && job->need - job->usual < job->need / 100;
  for (int i = 0; i < GAP__CAT_COUNT; i++) job->excess[i] = excess_of(job, room, category_of, &i);
  find_site(job, room);
  free(room);
  return 0;
}

/* ---- in words ---- */

static const char *others(const struct gap__job *job) {
  return job->count == 2 ? "the other" : "the median of the others";
}

static void say_need(const struct gap__job *job, struct gap__text *out) {
  const struct gap__subject *subject = job->ranks[job->limits].subject;
  if (subject->refusal.recorded)
    gap__text_add(out, "%s were refused there (%s: %s), and with them %s have to live",
                  GAP__SIZE(subject->refusal.request), subject->refusal.count == 1 ? "once" : "the last time",
                  gap_explain_verdict_name(subject->verdict), GAP__SIZE(job->need));
  else gap__text_add(out, "nobody was refused, and it needs most, %s live at its peak", GAP__SIZE(job->need));
  if (job->need / 10 > job->usual) gap__text_add(out, ", where %s needs %s", others(job), GAP__SIZE(job->usual));
  else if (job->need > job->usual + job->usual / 100)
    gap__text_add(out, ", %s (%s) more than %s", GAP__PART(job->need - job->usual),
                  GAP__PERCENT(job->need - job->usual, job->usual), others(job));
  else if (job->need + job->need / 100 < job->usual)
    gap__text_add(out, ", %s less than %s", GAP__PART(job->usual - job->need), others(job));
  else gap__text_add(out, ", as much as %s", others(job));
  gap__text_add(out, ".");
}

/* What makes up a tenth of the difference or more. */
static void say_excess(const struct gap__job *job, struct gap__text *out) {
  static const char *const words[GAP__CAT_COUNT] = {"weights",          "gradients",         "activations",
                                                    "optimiser states", "temporary buffers", "unknown"};
  int64_t least = (int64_t)((job->need - job->usual) / 10), said = 0;
  if (job->need <= job->usual + job->usual / 100) return;
  for (int i = 0; i < GAP__CAT_COUNT; i++) {
    if (job->excess[i] < least || job->excess[i] == 0) continue;
    gap__text_add(out, "%s %s %s more", said++ ? "," : " It has", words[i], GAP__PART((uint64_t)job->excess[i]));
  }
  if (said) gap__text_add(out, ".");
  if (job->site_excess >= least && *job->site)
    gap__text_add(out, " Most of it is from %s: %s more.", job->site, GAP__PART((uint64_t)job->site_excess));
}

void gap__job_say(const struct gap__job *job, struct gap__text *out) {
  const struct gap__rank *rank = &job->ranks[job->limits];
  if (job->is_even) {
    gap__text_add(out, "No rank limits the job by itself: nobody was refused, and all need as much, %s live at most.",
                  GAP__SIZE(job->need));
    return;
  }
  gap__text_add(out, "%s, device %" PRIu32 ", limits the job: ", rank->file, rank->subject->device);
  say_need(job, out);
  say_excess(job, out);
}
