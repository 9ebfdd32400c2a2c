/* A job as one JSON object. */
#include <jansson.h>

#include "explain/job.h"
#include "trace/json_text.h"

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *rank(const struct gap__rank *from) {
  const struct gap__subject *subject = from->subject;
  return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o}", "file", gap__json_text(from->file), "device",
                   number(subject->device), "verdict", gap_explain_verdict_name(subject->verdict), "need_bytes",
                   number(gap__rank_need(subject)), "peak_live_bytes", number(gap__subject_peak(subject)), "refusals",
                   number(subject->refusal.count));
}

static json_t *ranks(const struct gap__job *job) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < job->count; i++) json_array_append_new(array, rank(&job->ranks[i]));
  return array;
}

static json_t *excess(const struct gap__job *job) {
  json_t *object = json_object();
  for (int i = 0; i < GAP__CAT_COUNT; i++)
    json_object_set_new(object, gap__category_name((enum gap__category)i), json_integer((json_int_t)job->excess[i]));
  return object;
}

static json_t *site(const struct gap__job *job) {
  if (!*job->site) return json_null();
  return json_pack("{s:o, s:I}", "site", gap__json_text(job->site), "excess_bytes", (json_int_t)job->site_excess);
}

char *gap__job_json(const struct gap__job *job) {
  const struct gap__rank *limits = &job->ranks[job->limits];
  struct gap__text why = {0};
  gap__job_say(job, &why);
  json_t *object = json_pack("{s:o, s:{s:o, s:o}, s:b, s:o, s:o, s:o, s:o, s:o}", "ranks", ranks(job), "limits", "file",
                             gap__json_text(limits->file), "device", number(limits->subject->device), "even",
                             job->is_even, "why", gap__json_text(gap__text_str(&why)), "need_bytes", number(job->need),
                             "usual_bytes", number(job->usual), "excess_bytes", excess(job), "call_site", site(job));
  gap__text_free(&why);
  return gap__json_take(object, JSON_COMPACT);
}
