/* An explanation as one JSON object. */
#include <jansson.h>

#include "explain/phrase.h"
#include "explain/report.h"
#include "trace/json_text.h"

enum { NAME_BYTES = 160 };

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static void put(json_t *object, const char *name, uint64_t value) { json_object_set_new(object, name, number(value)); }
/* A figure that may be unknown. */
static void put_some(json_t *object, const char *name, uint64_t value) {
  json_object_set_new(object, name, value ? number(value) : json_null());
}

/* NULL: the host has no memory. */
static json_t *text_of(struct gap__text *text) {
  json_t *string = text->failed ? NULL : gap__json_text(gap__text_str(text));
  gap__text_free(text);
  return string;
}

static json_t *site_text(const struct gap__subject *subject, uint32_t site) {
  char name[NAME_BYTES];
  if (!site) return json_null();
  gap__sites_name(&subject->sites, site, name, sizeof name);
  return gap__json_text(name);
}

static json_t *categories(const struct gap__subject *subject) {
  json_t *object = json_object();
  for (int i = 0; i < GAP__CAT_COUNT; i++) {
    json_t *one = json_object();
    put(one, "bytes", subject->categories.most[i]);
    put(one, "peak_bytes", subject->categories.at_peak[i]);
    json_object_set_new(object, gap__category_name((enum gap__category)i), one);
  }
  return object;
}

static json_t *holders(const struct gap__subject *subject) {
  static const char *const scaling[] = {NULL, "constant", "less", "linear", "more"};
  json_t *array = json_array();
  for (uint32_t i = 0; i < subject->holders.count; i++) {
    const struct gap__holder *holder = &subject->holders.at[i];
    json_t *one = json_object();
    json_object_set_new(one, "site", site_text(subject, holder->site));
    json_object_set_new(one, "category", json_string(gap__category_name((enum gap__category)holder->category)));
    put(one, "bytes", holder->bytes);
    put(one, "blocks", holder->blocks);
    json_object_set_new(one, "scaling", scaling[holder->scaling] ? json_string(scaling[holder->scaling]) : json_null());
    json_array_append_new(array, one);
  }
  return array;
}

static json_t *refusal(const struct gap__subject *subject) {
  const struct gap__refusal *from = &subject->refusal;
  if (!from->recorded) return json_null();
  json_t *object = json_object();
  put(object, "event", from->event);
  put(object, "count", from->count);
  put(object, "request_bytes", from->request);
  put(object, "segment_bytes", from->segment);
  put(object, "driver_free_bytes", from->driver_free);
  json_object_set_new(object, "by_limit", json_boolean(from->by_limit));
  put_some(object, "other_bytes", from->others);
  return object;
}

static json_t *growth(const struct gap__subject *subject) {
  const struct gap__growth *from = &subject->growth;
  json_t *object = json_object();
  put(object, "steps", from->steps);
  json_object_set_new(object, "bytes_per_step", from->steps ? json_integer((json_int_t)from->per_step) : json_null());
  json_object_set_new(object, "grows", from->steps ? json_boolean(from->grows) : json_null());
  json_object_set_new(object, "site", site_text(subject, from->grows ? from->site : 0));
  return object;
}

static json_t *complete(const struct gap__subject *subject) {
  const struct gap__honest *honest = &subject->honest;
  json_t *object = json_object();
  json_object_set_new(object, "has_history", json_boolean(honest->has_events));
  json_object_set_new(object, "has_segments", json_boolean(honest->has_segments));
  json_object_set_new(object, "has_stacks", json_boolean(honest->has_stacks));
  json_object_set_new(object, "wrapped", json_boolean(honest->wrapped));
  json_object_set_new(object, "torn", json_boolean(subject->history->is_torn));
  put(object, "lost_events", subject->history->lost_events);
  put(object, "overwritten_events", subject->history->earlier_events);
  put(object, "contradictions", honest->contradictions);
  json_object_set_new(object, "first_contradiction",
                      honest->contradictions ? gap__json_text(gap__text_str(&honest->first)) : json_null());
  return object;
}

static json_t *servable(const struct gap__subject *subject) {
  const struct gap__servable *from = &subject->servable;
  if (!subject->has_servable) return json_null();
  json_t *object = json_object();
  put(object, "size_bytes", subject->options.request_bytes);
  put(object, "limit_bytes", subject->servable_limit);
  json_object_set_new(object, "limit_is_most_held", json_boolean(subject->servable_implied));
  json_object_set_new(object, "at_start", json_boolean(from->at_start));
  json_object_set_new(object, "at_end", json_boolean(from->at_end));
  bool lost = from->first_lost != GAP__LIFE_NEVER;
  json_object_set_new(object, "first_lost_event", lost ? number(from->first_lost) : json_null());
  json_object_set_new(object, "held_then_bytes", lost ? number(from->held_then) : json_null());
  json_object_set_new(object, "live_then_bytes", lost ? number(from->live_then) : json_null());
  return object;
}

/* Of traces and processes of gapless. */
static json_t *process(const struct gap__subject *subject) {
  const struct gap__history *history = subject->history;
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  if (!history->process) return json_null();
  json_t *object = json_object();
  put(object, "number", history->process);
  json_object_set_new(object, "program", gap__json_text(history->text + history->program));
  json_object_set_new(object, "live", json_boolean(subject->is_live));
  put_some(object, "free_bytes", facts ? facts->free_bytes : 0);
  put_some(object, "peak_held_bytes", facts ? facts->peak_held_bytes : 0);
  put(object, "refusals", facts ? facts->refusals : 0);
  json_object_set_new(object, "last_refusal", gap__json_text(facts ? history->text + facts->refusal : ""));
  return object;
}

/* NULL: the host has no memory. */
static json_t *questions(const struct gap__subject *subject) {
  json_t *array = json_array();
  int rc = 0;
  for (uint32_t i = 0; i < GAP__QUESTIONS; i++) {
    struct gap__text answer = {0};
    gap__words_answer(subject, i, &answer);
    json_t *one = json_object();
    put(one, "number", i + 1);
    json_object_set_new(one, "question", json_string(gap__words_question(i)));
    rc |= json_object_set_new(one, "answer", text_of(&answer));
    json_array_append_new(array, one);
  }
  if (rc == 0) return array;
  json_decref(array);
  return NULL;
}

static json_t *advice(const struct gap__subject *subject) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < subject->advice_count; i++) {
    const struct gap__advice *from = &subject->advice[i];
    json_t *one = json_object();
    json_object_set_new(one, "kind", json_string(gap__advice_kind_name(from->kind)));
    json_object_set_new(one, "change", gap__json_text(from->change));
    json_object_set_new(one, "text", gap__json_text(from->text));
    json_object_set_new(one, "checked", json_boolean(from->checked));
    json_object_set_new(one, "works", from->checked ? json_boolean(from->works) : json_null());
    put_some(one, "peak_reserved_bytes", from->reserved);
    json_array_append_new(array, one);
  }
  return array;
}

static void put_memory(json_t *object, const struct gap__subject *subject) {
  const struct gap__figures *figures = &subject->figures;
  put(object, "held_bytes", figures->held);
  put(object, "live_bytes", figures->live);
  put(object, "pending_bytes", figures->pending);
  put(object, "idle_bytes", figures->idle);
  put(object, "idle_returnable_bytes", figures->returnable);
  put(object, "idle_stuck_bytes", figures->stuck);
  put(object, "pool_held_bytes", figures->pool_held);
  put(object, "pool_idle_bytes", figures->pool_idle);
  put(object, "stream_idle_bytes", figures->stream_idle);
  put(object, "largest_idle_piece_bytes", figures->largest_own);
  put(object, "largest_servable_bytes", subject->largest_servable);
  put(object, "peak_live_bytes", gap__subject_peak(subject));
  json_object_set_new(object, "peak_event",
                      subject->honest.has_events ? number(subject->lives.peak_event) : json_null());
  put_some(object, "card_bytes", subject->bounds.total);
  put_some(object, "limit_bytes", subject->bounds.limit);
  put_some(object, "bound_bytes", subject->bounds.target);
}

char *gap__subject_json(const struct gap__subject *subject, const char *file) {
  json_t *object = json_object();
  struct gap__text verdict = {0};
  if (!object) return NULL;
  gap__verdict_say(subject, &verdict);
  json_object_set_new(object, "file", gap__json_text(file));
  put(object, "device", subject->device);
  put(object, "events", subject->history->devices[subject->device].event_count);
  json_object_set_new(object, "verdict", json_string(gap_explain_verdict_name(subject->verdict)));
  int rc = json_object_set_new(object, "verdict_text", text_of(&verdict));
  put_memory(object, subject);
  json_object_set_new(object, "refusal", refusal(subject));
  json_object_set_new(object, "categories", categories(subject));
  json_object_set_new(object, "call_sites", holders(subject));
  put(object, "steps", subject->steps.count);
  json_object_set_new(object, "growth", growth(subject));
  json_object_set_new(object, "size", servable(subject));
  json_object_set_new(object, "process", process(subject));
  json_object_set_new(object, "completeness", complete(subject));
  rc |= json_object_set_new(object, "questions", questions(subject));
  json_object_set_new(object, "advice", subject->advised ? advice(subject) : json_null());
  if (rc == 0) return gap__json_take(object, JSON_COMPACT);
  json_decref(object);
  return NULL;
}
