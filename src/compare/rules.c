/* Limits: read, applied, put into words. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/check.h"
#include "explain/phrase.h"

/* ---- reading ------------------------------------------------------------------------------------------------------- */

/* "5%" */
static bool parse_percent(const char *text, double *out) {
  size_t length = strlen(text);
  if (length && text[length - 1] == '%') length--;
  return gap__text_parse_real(text, length, out) == 0 && *out >= 0 && *out <= GAP__FIGURE_MOST;
}

static bool parse_amount(enum gap__figure figure, const char *text, double *out) {
  uint64_t number = 0;
  enum gap__figure_kind kind = gap__figure_info(figure)->kind;
  if (kind == GAP__FIGURE_PERCENT) return parse_percent(text, out);
  int rc = kind == GAP__FIGURE_COUNTED ? gap__text_parse_u64(text, strlen(text), &number)
                                       : gap__text_parse_size(text, strlen(text), &number);
  *out = (double)number;
  return rc == 0 && *out <= GAP__FIGURE_MOST;
}

int gap__rule_parse(enum gap__figure figure, const char *text, struct gap__rule *rule) {
  bool over = text[0] == '+', percent = strchr(text, '%') != NULL;
  bool points = gap__figure_info(figure)->kind == GAP__FIGURE_PERCENT;
  struct gap__rule parsed = {over ? GAP__RULE_AMOUNT_OVER : GAP__RULE_AT_MOST, 0};
  if (over && percent && !points) {
    parsed.kind = GAP__RULE_PART_OVER;
    if (!parse_percent(text + 1, &parsed.amount)) return GAP_EVALUE;
    parsed.amount /= 100;
  } else if (!parse_amount(figure, text + over, &parsed.amount)) {
    return GAP_EVALUE;
  }
  *rule = parsed;
  return 0;
}

static bool refers_to_baseline(const struct gap__rule *rule) {
  return rule->kind == GAP__RULE_PART_OVER || rule->kind == GAP__RULE_AMOUNT_OVER;
}

bool gap__rules_need_baseline(const struct gap_limits *check) {
  for (int i = 0; i < GAP__FIGURE_COUNT; i++)
    if (refers_to_baseline(&check->rules[i])) return true;
  return false;
}

void gap__rules_default(struct gap_limits *check) {
  static const enum gap__figure figures[] = {GAP__FIGURE_PEAK_LIVE, GAP__FIGURE_PEAK_HELD};
  if (!check->baseline.file || gap__rules_need_baseline(check)) return;
  for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
    if (check->rules[figures[i]].kind == GAP__RULE_NONE && check->baseline.at[figures[i]].known)
      check->rules[figures[i]] = (struct gap__rule){GAP__RULE_PART_OVER, check->options.tolerance};
}

/* ---- judging ------------------------------------------------------------------------------------------------------- */

static struct gap__figure_value limit_of(const struct gap_limits *check, enum gap__figure figure) {
  const struct gap__rule *rule = &check->rules[figure];
  struct gap__figure_value base = check->baseline.at[figure];
  if (rule->kind == GAP__RULE_AT_MOST) return (struct gap__figure_value){true, rule->amount};
  if (rule->kind == GAP__RULE_AMOUNT_OVER) base.value += rule->amount;
  else base.value = floor(base.value * (1 + rule->amount));
  base.value = fmax(fmin(base.value, GAP__FIGURE_MOST), -GAP__FIGURE_MOST);
  return base;
}

void gap__rules_judge(const struct gap_limits *check, struct gap__checked *checked) {
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    struct gap__result *result = &checked->results[i];
    const struct gap__figure_value *reached = &checked->figures.at[i];
    if (check->rules[i].kind == GAP__RULE_NONE) continue;
    result->limit = limit_of(check, (enum gap__figure)i);
    if (!result->limit.known || !reached->known) result->answer = GAP_LIMITS_MISSING;
    else result->answer = reached->value <= result->limit.value ? GAP_LIMITS_PASSED : GAP_LIMITS_FAILED;
  }
}

const char *gap__result_unknown(const struct gap_limits *check, const struct gap__checked *checked,
                                enum gap__figure figure) {
  if (check->rules[figure].kind == GAP__RULE_NONE || checked->results[figure].answer != GAP_LIMITS_MISSING) return NULL;
  return checked->figures.at[figure].known ? "the baseline does not tell it" : gap__figure_info(figure)->unknown;
}

/* ---- words --------------------------------------------------------------------------------------------------------- */

void gap__rule_say(const struct gap_limits *check, const struct gap__checked *checked, enum gap__figure figure,
                   struct gap__text *text) {
  const struct gap__rule *rule = &check->rules[figure];
  const struct gap__figure_value *limit = &checked->results[figure].limit;
  char one[GAP__TEXT_BYTES];
  gap__text_add(text, "%s", limit->known ? gap__figure_text(figure, limit->value, false, one) : "unknown");
  if (!refers_to_baseline(rule) || !limit->known) return;
  gap__text_add(text, " (%s", gap__figure_text(figure, check->baseline.at[figure].value, false, one));
  if (rule->kind == GAP__RULE_PART_OVER) gap__text_add(text, " + %g %%)", 100 * rule->amount);
  else gap__text_add(text, " + %s)", gap__figure_text(figure, rule->amount, false, one));
}
