/* Limits: what they may look like, what they ask, what a missing figure does, and baselines that were saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare/check.h"

#define MIB ((double)(1 << 20))

static const char *path_of(const char *name, char out[512]) {
  snprintf(out, 512, "%s/%s", GAP_TEST_DATA, name);
  return out;
}

static gap_limits *limits_of(int allow_missing) {
  gap_limits_options options;
  gap_limits *limits;
  gap_limits_defaults(&options);
  options.allow_missing = allow_missing;
  assert_int_equal(gap_limits_new(&options, &limits), 0);
  return limits;
}

static void set(gap_limits *limits, enum gap__figure figure, const char *text) {
  char message[400];
  if (gap_limits_set(limits, figure, text, message, sizeof message)) fail_msg("%s", message);
}

static void check_file(gap_limits *limits, const char *name) {
  char path[512], message[512];
  if (gap_limits_file(limits, path_of(name, path), message, sizeof message)) fail_msg("%s", message);
}

static void set_baseline(gap_limits *limits, const char *name) {
  char path[512], message[512];
  if (gap_limits_baseline(limits, path_of(name, path), message, sizeof message)) fail_msg("%s", message);
}

static gap_limits_answer answer_for(const char *name, enum gap__figure figure, const char *limit) {
  gap_limits *limits = limits_of(0);
  set(limits, figure, limit);
  check_file(limits, name);
  gap_limits_answer answer = gap_limits_answer_of(limits);
  gap_limits_free(limits);
  return answer;
}

/* ---- what limits look like ----------------------------------------------------------------------------------------- */

static void expect_rule(enum gap__figure figure, const char *text, enum gap__rule_kind kind, double amount) {
  struct gap__rule rule;
  assert_int_equal(gap__rule_parse(figure, text, &rule), 0);
  assert_int_equal(rule.kind, kind);
  assert_true(rule.amount >= amount - 1e-9 && rule.amount <= amount + 1e-9);
}

static void limits_are_read(void **state) {
  (void)state;
  expect_rule(GAP__FIGURE_PEAK_LIVE, "26MiB", GAP__RULE_AT_MOST, 26 * MIB);
  expect_rule(GAP__FIGURE_PEAK_LIVE, "+5%", GAP__RULE_PART_OVER, 0.05);
  expect_rule(GAP__FIGURE_PEAK_LIVE, "+512MiB", GAP__RULE_AMOUNT_OVER, 512 * MIB);
  expect_rule(GAP__FIGURE_WASTE, "12.5%", GAP__RULE_AT_MOST, 12.5);
  expect_rule(GAP__FIGURE_WASTE, "12.5", GAP__RULE_AT_MOST, 12.5);
  expect_rule(GAP__FIGURE_WASTE, "+2%", GAP__RULE_AMOUNT_OVER, 2);
  expect_rule(GAP__FIGURE_CALLS, "300", GAP__RULE_AT_MOST, 300);
  expect_rule(GAP__FIGURE_CALLS, "+10%", GAP__RULE_PART_OVER, 0.1);
  expect_rule(GAP__FIGURE_GROWTH, "0", GAP__RULE_AT_MOST, 0);
}

static void other_texts_are_refused(void **state) {
  static const struct {
    enum gap__figure figure;
    const char *text;
  } bad[] = {
      {GAP__FIGURE_PEAK_LIVE, ""},       {GAP__FIGURE_PEAK_LIVE, "much"}, {GAP__FIGURE_PEAK_LIVE, "-1"},
      {GAP__FIGURE_PEAK_LIVE, "5%"},     {GAP__FIGURE_PEAK_LIVE, "+"},    {GAP__FIGURE_PEAK_LIVE, "+x%"},
      {GAP__FIGURE_WASTE, "1GiB"},       {GAP__FIGURE_WASTE, "-3%"},      {GAP__FIGURE_WASTE, "nan"},
      {GAP__FIGURE_CALLS, "3.5"},        {GAP__FIGURE_CALLS, "3MiB"},     {GAP__FIGURE_CALLS, "%"},
      {GAP__FIGURE_REFUSALS, "+-1"},     {GAP__FIGURE_WASTE, "1e300%"},   {GAP__FIGURE_CALLS, "18446744073709551615"},
      {GAP__FIGURE_PEAK_LIVE, "9000PiB"}};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct gap__rule rule = {GAP__RULE_AT_MOST, 7};
    if (gap__rule_parse(bad[i].figure, bad[i].text, &rule) != GAP_EVALUE) fail_msg("\"%s\" is taken", bad[i].text);
    assert_true(rule.amount == 7);
  }
}

static void every_figure_has_an_option(void **state) {
  (void)state;
  uint32_t count = 0;
  for (; gap_limits_name(count); count++) {
    assert_int_equal(strncmp(gap_limits_name(count), "max-", 4), 0);
    for (uint32_t i = 0; i < count; i++) assert_string_not_equal(gap_limits_name(i), gap_limits_name(count));
  }
  assert_int_equal(count, GAP__FIGURE_COUNT);
}

/* ---- what they ask ------------------------------------------------------------------------------------------------- */

/* One byte decides. */
static void at_most_means_at_most(void **state) {
  (void)state;
  gap_limits *limits = limits_of(0);
  set(limits, GAP__FIGURE_PEAK_LIVE, "1TiB");
  check_file(limits, "gnn.pickle.xz");
  char exact[32], less[32];
  uint64_t peak = (uint64_t)limits->files[0].figures.at[GAP__FIGURE_PEAK_LIVE].value;
  gap_limits_free(limits);
  snprintf(exact, sizeof exact, "%llu", (unsigned long long)peak);
  snprintf(less, sizeof less, "%llu", (unsigned long long)peak - 1);
  assert_int_equal(answer_for("gnn.pickle.xz", GAP__FIGURE_PEAK_LIVE, exact), GAP_LIMITS_PASSED);
  assert_int_equal(answer_for("gnn.pickle.xz", GAP__FIGURE_PEAK_LIVE, less), GAP_LIMITS_FAILED);
}

static void growth_and_refusals(void **state) {
  (void)state;
  assert_int_equal(answer_for("made/training.pickle", GAP__FIGURE_GROWTH, "1MiB"), GAP_LIMITS_PASSED);
  assert_int_equal(answer_for("made/training.pickle", GAP__FIGURE_GROWTH, "1023KiB"), GAP_LIMITS_FAILED);
  assert_int_equal(answer_for("llama_sft.pickle.xz", GAP__FIGURE_GROWTH, "0"), GAP_LIMITS_PASSED);
  assert_int_equal(answer_for("oom.pickle.xz", GAP__FIGURE_REFUSALS, "0"), GAP_LIMITS_FAILED);
  assert_int_equal(answer_for("oom.pickle.xz", GAP__FIGURE_REFUSALS, "1"), GAP_LIMITS_PASSED);
}

static void a_missing_figure_is_no_pass(void **state) {
  (void)state;
  for (int allow = 0; allow < 2; allow++) {
    gap_limits *limits = limits_of(allow);
    set(limits, GAP__FIGURE_CALLS, "1000000");
    check_file(limits, "flexgen_oom_snapshot.pickle.xz");
    assert_int_equal(gap_limits_answer_of(limits), allow ? GAP_LIMITS_PASSED : GAP_LIMITS_MISSING);
    set(limits, GAP__FIGURE_PEAK_LIVE, "1");
    check_file(limits, "flexgen_oom_snapshot.pickle.xz"); /* failed comes before missing */
    assert_int_equal(gap_limits_answer_of(limits), GAP_LIMITS_FAILED);
    gap_limits_free(limits);
  }
}

/* ---- baselines ----------------------------------------------------------------------------------------------------- */

static void the_default_rules_of_a_baseline(void **state) {
  (void)state;
  gap_limits *limits = limits_of(0);
  set_baseline(limits, "unet_multires.expandable.pickle.xz");
  check_file(limits, "unet_multires.pickle.xz"); /* as much live, half as much again held */
  const struct gap__checked *checked = &limits->files[0];
  assert_int_equal(checked->results[GAP__FIGURE_PEAK_LIVE].answer, GAP_LIMITS_PASSED);
  assert_int_equal(checked->results[GAP__FIGURE_PEAK_HELD].answer, GAP_LIMITS_FAILED);
  assert_int_equal(limits->rules[GAP__FIGURE_CALLS].kind, GAP__RULE_NONE);
  gap_limits_free(limits);
}

static void limits_over_a_baseline(void **state) {
  (void)state;
  char path[512], message[512];
  gap_limits *limits = limits_of(0);
  set(limits, GAP__FIGURE_PEAK_HELD, "+0");
  assert_int_equal(gap_limits_file(limits, path_of("gnn.pickle.xz", path), message, sizeof message), GAP_EINVAL);
  set_baseline(limits, "gnn.pickle.xz");
  check_file(limits, "gnn.pickle.xz");
  assert_int_equal(gap_limits_answer_of(limits), GAP_LIMITS_PASSED);
  assert_int_equal(limits->rules[GAP__FIGURE_PEAK_LIVE].kind, GAP__RULE_NONE); /* only what was asked */
  check_file(limits, "llama_sft.pickle.xz");
  assert_int_equal(limits->files[1].results[GAP__FIGURE_PEAK_HELD].answer, GAP_LIMITS_PASSED);
  check_file(limits, "unet_multires.pickle.xz");
  assert_int_equal(limits->files[2].results[GAP__FIGURE_PEAK_HELD].answer, GAP_LIMITS_FAILED);
  gap_limits_free(limits);
}

/* A file passes against its own saved figures, to the last bit. */
static void saved_figures_are_the_same(void **state) {
  static const char *const names[] = {"streams.pickle.xz", "flexgen_oom_snapshot.pickle.xz", "made/training.pickle"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char saved[] = "/tmp/gapless-figures-XXXXXX", message[512];
    int fd = mkstemp(saved);
    assert_true(fd >= 0);
    close(fd);
    gap_limits *limits = limits_of(0), *again = limits_of(1);
    check_file(limits, names[i]);
    assert_int_equal(gap_limits_save(limits, saved, message, sizeof message), 0);
    assert_int_equal(gap_limits_baseline(again, saved, message, sizeof message), 0);
    for (int j = 0; j < GAP__FIGURE_COUNT; j++) {
      assert_int_equal(again->baseline.at[j].known, limits->files[0].figures.at[j].known);
      assert_true(again->baseline.at[j].value == limits->files[0].figures.at[j].value);
      set(again, (enum gap__figure)j, "+0");
    }
    check_file(again, names[i]);
    assert_int_equal(gap_limits_answer_of(again), GAP_LIMITS_PASSED);
    gap_limits_free(limits);
    gap_limits_free(again);
    unlink(saved);
  }
}

static void refuses(const char *text, const char *words) {
  char saved[] = "/tmp/gapless-figures-XXXXXX", message[512];
  int fd = mkstemp(saved);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  gap_limits *limits = limits_of(0);
  assert_int_equal(gap_limits_baseline(limits, saved, message, sizeof message), GAP_EFORMAT);
  assert_non_null(strstr(message, words));
  gap_limits_free(limits);
  unlink(saved);
}

static void a_baseline_of_another_version(void **state) {
  (void)state;
  refuses("{\"gapless_figures\": 99, \"figures\": {}}", "figures of another version");
}

static void a_baseline_of_absurd_figures(void **state) {
  (void)state;
  refuses("{\"gapless_figures\": 1, \"figures\": {\"peak_live_bytes\": 1e300}}", "peak_live_bytes is beyond");
  refuses("{\"gapless_figures\": 1, \"figures\": {\"growth_bytes_per_step\": -1e19}}",
          "growth_bytes_per_step is beyond");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limits_are_read),
      cmocka_unit_test(other_texts_are_refused),
      cmocka_unit_test(every_figure_has_an_option),
      cmocka_unit_test(at_most_means_at_most),
      cmocka_unit_test(growth_and_refusals),
      cmocka_unit_test(a_missing_figure_is_no_pass),
      cmocka_unit_test(the_default_rules_of_a_baseline),
      cmocka_unit_test(limits_over_a_baseline),
      cmocka_unit_test(saved_figures_are_the_same),
      cmocka_unit_test(a_baseline_of_another_version),
      cmocka_unit_test(a_baseline_of_absurd_figures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
