/* A comparison as one JSON object. */
#include <jansson.h>
#include <stdlib.h>

#include "compare/diff.h"
#include "trace/json_text.h"

static json_t *figure_json(enum gap__figure figure, const struct gap__figure_value *value) {
  if (!value->known) return json_null();
  bool whole = gap__figure_info(figure)->kind != GAP__FIGURE_PERCENT;
  return whole ? json_integer((json_int_t)value->value) : json_real(value->value);
}

static json_t *side(const struct gap__measure *measure) {
  const struct gap__subject *subject = &measure->subject;
  json_t *object = json_object();
  json_object_set_new(object, "file", gap__json_text(measure->file));
  json_object_set_new(object, "device", json_integer(subject->device));
  json_object_set_new(object, "step", measure->step < 0 ? json_null() : json_integer(measure->step));
  json_object_set_new(object, "steps", json_integer(subject->steps.count));
  json_object_set_new(object, "events", json_integer((json_int_t)(measure->end - measure->first)));
  json_object_set_new(object, "conf", gap__json_text(subject->history->settings_text));
  json_object_set_new(object, "has_history", json_boolean(subject->honest.has_events));
  json_object_set_new(object, "has_stacks", json_boolean(subject->honest.has_stacks));
  json_object_set_new(object, "wrapped", json_boolean(subject->honest.wrapped));
  json_object_set_new(object, "torn", json_boolean(subject->history->is_torn));
  json_object_set_new(object, "contradictions", json_integer(subject->honest.contradictions));
  return object;
}

static json_t *figures(const struct gap_diff *diff) {
  json_t *object = json_object();
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    const struct gap__figure_value *a = &diff->sides[0].figures[i], *b = &diff->sides[1].figures[i];
    struct gap__figure_value change = {a->known && b->known, b->value - a->value};
    json_t *one = json_object();
    json_object_set_new(one, "a", figure_json((enum gap__figure)i, a));
    json_object_set_new(one, "b", figure_json((enum gap__figure)i, b));
    json_object_set_new(one, "change", figure_json((enum gap__figure)i, &change));
    json_object_set_new(one, "differs", change.known ? json_boolean(diff->figure_differs[i]) : json_null());
    json_object_set_new(object, gap__figure_info((enum gap__figure)i)->name, one);
  }
  return object;
}

static json_t *pair(const struct gap__pair *pair) {
  static const char *const names[2][3] = {{"a_name", "a_bytes", "a_count"}, {"b_name", "b_bytes", "b_count"}};
  json_t *object = json_object();
  for (int i = 0; i < 2; i++) {
    const struct gap__part *part = pair->side[i];
    json_object_set_new(object, names[i][0], gap__json_text(part ? part->name : NULL));
    json_object_set_new(object, names[i][1], json_integer(part ? (json_int_t)part->bytes : 0));
    json_object_set_new(object, names[i][2], json_integer(part ? (json_int_t)part->blocks : 0));
  }
  json_object_set_new(object, "change_bytes", json_integer((json_int_t)gap__pair_change(pair)));
  json_object_set_new(object, "differs", json_boolean(pair->differs));
  return object;
}

static uint32_t shown(const struct gap__pairs *pairs, uint32_t rows) {
  return rows && rows < pairs->count ? rows : pairs->count;
}

static json_t *pairs(const struct gap__pairs *pairs, uint32_t rows) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < shown(pairs, rows); i++) json_array_append_new(array, pair(&pairs->at[i]));
  return array;
}

static json_t *left_out(const struct gap_diff *diff, uint32_t rows) {
  json_t *object = json_object();
  for (int cut = 0; cut < GAP__CUT_COUNT; cut++)
    json_object_set_new(object, gap__cut_name((enum gap__cut)cut),
                        json_integer(diff->pairs[cut].count - shown(&diff->pairs[cut], rows)));
  return object;
}

char *gap__diff_json(const struct gap_diff *diff, uint32_t rows) {
  json_t *object = json_object();
  struct gap__text summary = {0};
  if (!object) return NULL;
  gap__diff_say(diff, &summary);
  json_object_set_new(object, "same", json_boolean(diff->is_same));
  json_object_set_new(object, "tolerance", json_real(diff->options.tolerance));
  json_object_set_new(object, "summary", gap__json_text(gap__text_str(&summary)));
  json_object_set_new(object, "a", side(&diff->sides[0]));
  json_object_set_new(object, "b", side(&diff->sides[1]));
  json_object_set_new(object, "figures", figures(diff));
  for (int cut = 0; cut < GAP__CUT_COUNT; cut++)
    json_object_set_new(object, gap__cut_name((enum gap__cut)cut), pairs(&diff->pairs[cut], rows));
  if (rows) json_object_set_new(object, "left_out", left_out(diff, rows));
  bool failed = summary.failed;
  gap__text_free(&summary);
  char *text = gap__json_take(object, JSON_COMPACT | JSON_REAL_PRECISION(8));
  if (!failed) return text;
  free(text);
  return NULL;
}
