/* The result of a check: for a person, as JSON, and in the form of JUnit that build servers read. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "compare/check.h"
#include "explain/phrase.h"
#include "trace/json_text.h"

enum { NAME = 33, ASKED = 36 };

static const char *const answer_names[] = {"pass", "fail", "unknown"};

struct counts {
  uint32_t rules, failed, missing;
};

static struct counts count_of(const struct gap_limits *check) {
  struct counts counts = {0};
  for (uint32_t i = 0; i < check->count; i++)
    for (int j = 0; j < GAP__FIGURE_COUNT; j++) {
      if (check->rules[j].kind == GAP__RULE_NONE) continue;
      counts.rules++;
      counts.failed += check->files[i].results[j].answer == GAP_LIMITS_FAILED;
      counts.missing += check->files[i].results[j].answer == GAP_LIMITS_MISSING;
    }
  return counts;
}

/* ---- words --------------------------------------------------------------------------------------------------------- */

static void put_rule(const struct gap_limits *check, const struct gap__checked *checked, enum gap__figure figure,
                     struct gap__text *out) {
  static const char *const marks[] = {"pass", "FAIL", "?"};
  const char *unknown = gap__result_unknown(check, checked, figure);
  struct gap__text asked = {0};
  char reached[GAP__TEXT_BYTES];
  gap__rule_say(check, checked, figure, &asked);
  gap__text_add(out, "  %-4s  %-*s%-*s", marks[checked->results[figure].answer], NAME, gap__figure_info(figure)->words,
                ASKED, gap__text_str(&asked));
  if (checked->figures.at[figure].known)
    gap__text_add(out, "%s%s", gap__figure_text(figure, checked->figures.at[figure].value, false, reached),
                  unknown ? ", but " : "");
  if (unknown) gap__text_add(out, "%s%s", checked->figures.at[figure].known ? "" : "unknown: ", unknown);
  gap__text_add_char(out, '\n');
  gap__text_free(&asked);
}

static void put_file(const struct gap_limits *check, const struct gap__checked *checked, struct gap__text *out) {
  gap__text_add(out, "%s", checked->figures.file);
  if (checked->figures.devices > 1)
    gap__text_add(out, "; device %" PRIu32 " alone, of %" PRIu32 " in use (--device N)", checked->figures.device,
                  checked->figures.devices);
  gap__text_add(out, "%s%s%s\n",
                checked->figures.wrapped ? "; its beginning is missing: the figures are of what is left" : "",
                checked->figures.torn ? "; its end is missing: the figures are of what came before" : "",
                checked->figures.contradictory ? "; it contradicts itself: see gapless explain" : "");
  gap__text_add(out, "  %-4s  %-*s%-*s%s\n", "", NAME, "rule", ASKED, "at most", "reached");
  for (int i = 0; i < GAP__FIGURE_COUNT; i++)
    if (check->rules[i].kind != GAP__RULE_NONE) put_rule(check, checked, (enum gap__figure)i, out);
}

static void put_sum(const struct gap_limits *check, struct gap__text *out) {
  struct counts counts = count_of(check);
  gap__text_add(out, "%" PRIu32 " of %" PRIu32 " rule%s passed", counts.rules - counts.failed - counts.missing,
                counts.rules, GAP__PLURAL(counts.rules));
  if (counts.failed) gap__text_add(out, ", %" PRIu32 " failed", counts.failed);
  if (counts.missing)
    gap__text_add(out, ", %" PRIu32 " could not be checked (%s)", counts.missing,
                  check->options.allow_missing ? "allowed" : "which is no pass, unless --allow-missing is given");
  gap__text_add(out, ".\n");
}

char *gap__limits_words(const struct gap_limits *check) {
  struct gap__text out = {0};
  for (uint32_t i = 0; i < check->count; i++) put_file(check, &check->files[i], &out);
  put_sum(check, &out);
  return gap__text_take(&out);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *number(enum gap__figure figure, const struct gap__figure_value *value) {
  if (!value->known) return json_null();
  return gap__figure_info(figure)->kind == GAP__FIGURE_PERCENT ? json_real(value->value)
                                                               : json_integer((json_int_t)value->value);
}

static json_t *rule_json(const struct gap_limits *check, const struct gap__checked *checked, enum gap__figure figure) {
  const struct gap__result *result = &checked->results[figure];
  const char *unknown = gap__result_unknown(check, checked, figure);
  json_t *object = json_object();
  json_object_set_new(object, "rule", json_string(gap__figure_info(figure)->option));
  json_object_set_new(object, "figure", json_string(gap__figure_info(figure)->name));
  json_object_set_new(object, "at_most", number(figure, &result->limit));
  json_object_set_new(object, "baseline", number(figure, &check->baseline.at[figure]));
  json_object_set_new(object, "reached", number(figure, &checked->figures.at[figure]));
  json_object_set_new(object, "result", json_string(answer_names[result->answer]));
  json_object_set_new(object, "why_unknown", unknown ? json_string(unknown) : json_null());
  return object;
}

char *gap__limits_json(const struct gap_limits *check, const struct gap__checked *checked) {
  json_t *object = json_object(), *rules = json_array(), *figures = json_object();
  bool passed = true;
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    gap_limits_answer answer = checked->results[i].answer;
    json_object_set_new(figures, gap__figure_info((enum gap__figure)i)->name,
                        number((enum gap__figure)i, &checked->figures.at[i]));
    if (check->rules[i].kind == GAP__RULE_NONE) continue;
    json_array_append_new(rules, rule_json(check, checked, (enum gap__figure)i));
    passed &= answer == GAP_LIMITS_PASSED || (answer == GAP_LIMITS_MISSING && check->options.allow_missing);
  }
  json_object_set_new(object, "file", gap__json_text(checked->figures.file));
  json_object_set_new(object, "device", json_integer(checked->figures.device));
  json_object_set_new(object, "baseline", gap__json_text(check->baseline.file));
  json_object_set_new(object, "passed", json_boolean(passed));
  json_object_set_new(object, "wrapped", json_boolean(checked->figures.wrapped));
  json_object_set_new(object, "torn", json_boolean(checked->figures.torn));
  json_object_set_new(object, "contradictory", json_boolean(checked->figures.contradictory));
  json_object_set_new(object, "rules", rules);
  json_object_set_new(object, "figures", figures);
  return gap__json_take(object, JSON_COMPACT | JSON_REAL_PRECISION(8));
}

/* ---- JUnit --------------------------------------------------------------------------------------------------------- */

/* Text of an attribute; what XML cannot hold becomes a question mark. */
static void put_xml(const char *text, struct gap__text *out) {
  struct gap__text clean = {0};
  gap__text_add_utf8(&clean, text, "?");
  for (const char *at = gap__text_str(&clean); *at; at++) {
    if (*at == '<') gap__text_add(out, "&lt;");
    else if (*at == '&') gap__text_add(out, "&amp;");
    else if (*at == '"') gap__text_add(out, "&quot;");
    else gap__text_add_char(out, (unsigned char)*at < ' ' ? '?' : *at);
  }
  gap__text_free(&clean);
}

static void put_case(const struct gap_limits *check, const struct gap__checked *checked, enum gap__figure figure,
                     struct gap__text *out) {
  gap_limits_answer answer = checked->results[figure].answer;
  const char *unknown = gap__result_unknown(check, checked, figure);
  struct gap__text asked = {0};
  char reached[GAP__TEXT_BYTES];
  gap__text_add(out, "    <testcase classname=\"");
  put_xml(checked->figures.file, out);
  gap__text_add(out, "\" name=\"%s\"", gap__figure_info(figure)->option);
  gap__rule_say(check, checked, figure, &asked);
  if (answer == GAP_LIMITS_PASSED) gap__text_add(out, "/>\n");
  else if (answer == GAP_LIMITS_FAILED)
    gap__text_add(out, ">\n      <failure message=\"%s: %s, at most %s is asked\"/>\n    </testcase>\n",
                  gap__figure_info(figure)->words,
                  gap__figure_text(figure, checked->figures.at[figure].value, false, reached), gap__text_str(&asked));
  else
    gap__text_add(out, ">\n      <%s message=\"%s: unknown, %s\"/>\n    </testcase>\n",
                  check->options.allow_missing ? "skipped" : "error", gap__figure_info(figure)->words, unknown);
  gap__text_free(&asked);
}

char *gap__limits_junit(const struct gap_limits *check) {
  struct gap__text out = {0};
  struct counts counts = count_of(check);
  gap__text_add(&out,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"gapless check\" "
                "tests=\"%" PRIu32 "\" failures=\"%" PRIu32 "\" errors=\"%" PRIu32 "\" skipped=\"%" PRIu32 "\">\n",
                counts.rules, counts.failed, check->options.allow_missing ? 0 : counts.missing,
                check->options.allow_missing ? counts.missing : 0);
  for (uint32_t i = 0; i < check->count; i++)
    for (int j = 0; j < GAP__FIGURE_COUNT; j++)
      if (check->rules[j].kind != GAP__RULE_NONE) put_case(check, &check->files[i], (enum gap__figure)j, &out);
  gap__text_add(&out, "  </testsuite>\n</testsuites>\n");
  return gap__text_take(&out);
}
