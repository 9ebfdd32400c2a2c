/* Comparisons: parts add up to the whole, nothing differs from itself, both directions say the same, moved lines are found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare/diff.h"

#define MIB ((uint64_t)1 << 20)

static const char *path_of(const char *name, char out[512]) {
  snprintf(out, 512, "%s/%s", GAP_TEST_DATA, name);
  return out;
}

static void measure(struct gap__measure *side, const char *name, int64_t step) {
  struct gap__measure_options options = {.device = -1, .step = step};
  char path[512], message[512];
  if (gap__measure_file(side, path_of(name, path), &options, message, sizeof message))
    fail_msg("%s: %s", name, message);
}

static struct gap_diff *compare_steps(const char *first, int64_t first_step, const char *second, int64_t second_step) {
  struct gap_diff *diff = calloc(1, sizeof *diff);
  assert_non_null(diff);
  gap_diff_defaults(&diff->options);
  measure(&diff->sides[0], first, first_step);
  measure(&diff->sides[1], second, second_step);
  assert_int_equal(gap__diff_find(diff), 0);
  return diff;
}

static struct gap_diff *compare(const char *first, const char *second) { return compare_steps(first, -1, second, -1); }

static double value(const struct gap_diff *diff, int side, enum gap__figure figure) {
  assert_true(diff->sides[side].figures[figure].known);
  return diff->sides[side].figures[figure].value;
}

static const struct gap__pair *pair_named(const struct gap_diff *diff, enum gap__cut cut, const char *name) {
  for (uint32_t i = 0; i < diff->pairs[cut].count; i++)
    for (int side = 0; side < 2; side++) {
      const struct gap__part *part = diff->pairs[cut].at[i].side[side];
      if (part && strcmp(part->name, name) == 0) return &diff->pairs[cut].at[i];
    }
  return NULL;
}

static const char *const files[] = {"gnn.pickle.xz",
                                    "llama_sft.stacks.pickle.xz",
                                    "oom.pickle.xz",
                                    "streams.pickle.xz",
                                    "streams.expandable.pickle.xz",
                                    "graphs.pickle.xz",
                                    "ring.pickle.xz",
                                    "tr_exp_cap.json.gz",
                                    "made/training.pickle",
                                    "flexgen_oom_snapshot.pickle.xz",
                                    "cs336_medium_1024_training.pickle.xz"};
enum { FILES = sizeof files / sizeof files[0] };

/* ---- figures ------------------------------------------------------------------------------------------------------- */

/* The walk of the whole history meets the peak that the reader's own count finds. */
static void figures_agree_with_the_readers(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    struct gap__measure side;
    measure(&side, files[i], -1);
    const struct gap__subject *subject = &side.subject;
    double held = 0, allocated = 0;
    for (uint64_t j = 0; j < subject->history->segment_count; j++) {
      if ((uint32_t)subject->history->segments[j].device != subject->device) continue;
      held += (double)subject->history->segments[j].total_size;
      allocated += (double)subject->history->segments[j].active_size;
    }
    assert_true(side.figures[GAP__FIGURE_END_HELD].value == held);
    assert_true(side.figures[GAP__FIGURE_PEAK_HELD].value >= held);
    assert_true(side.figures[GAP__FIGURE_PEAK_LIVE].value == (double)subject->lives.peak_bytes);
    assert_true(side.figures[GAP__FIGURE_PEAK_HELD].value >= side.figures[GAP__FIGURE_PEAK_IDLE].value);
    /* native blocks may be larger than what was asked; never smaller */
    assert_true(side.figures[GAP__FIGURE_END_LIVE].value <= allocated);
    gap__measure_free(&side);
  }
}

/* The recorder's own statistics. */
static void most_held_is_what_torch_counted(void **state) {
  static const char *const counted[] = {"tr_native.json.gz", "tr_exp.json.gz", "tr_native_cap.json.gz",
                                        "tr_exp_cap.json.gz"};
  (void)state;
  for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
    struct gap__measure side;
    measure(&side, counted[i], -1);
    assert_true(side.subject.history->has_stats);
    assert_true(side.figures[GAP__FIGURE_PEAK_HELD].value == (double)side.subject.history->stat_reserved_peak);
    assert_true(side.figures[GAP__FIGURE_REFUSALS].value == (double)side.subject.history->stat_ooms);
    gap__measure_free(&side);
  }
}

static void the_steps_cover_the_whole(void **state) {
  (void)state;
  struct gap__measure whole;
  double allocs = 0, calls = 0, peak = 0;
  measure(&whole, "llama_sft.stacks.pickle.xz", -1);
  for (int64_t step = 0; step < (int64_t)whole.subject.steps.count; step++) {
    struct gap__measure side;
    measure(&side, "llama_sft.stacks.pickle.xz", step);
    allocs += side.figures[GAP__FIGURE_ALLOCS].value;
    calls += side.figures[GAP__FIGURE_CALLS].value;
    if (side.figures[GAP__FIGURE_PEAK_LIVE].value > peak) peak = side.figures[GAP__FIGURE_PEAK_LIVE].value;
    assert_false(side.figures[GAP__FIGURE_GROWTH].known);
    gap__measure_free(&side);
  }
  assert_true(allocs == whole.figures[GAP__FIGURE_ALLOCS].value);
  assert_true(calls == whole.figures[GAP__FIGURE_CALLS].value);
  assert_true(peak == whole.figures[GAP__FIGURE_PEAK_LIVE].value);
  gap__measure_free(&whole);
}

static void what_a_file_does_not_tell_is_unknown(void **state) {
  (void)state;
  struct gap__measure side;
  measure(&side, "flexgen_oom_snapshot.pickle.xz", -1);
  assert_true(side.figures[GAP__FIGURE_PEAK_HELD].known && side.figures[GAP__FIGURE_PEAK_LIVE].known);
  assert_false(side.figures[GAP__FIGURE_CALLS].known || side.figures[GAP__FIGURE_ALLOCS].known);
  assert_false(side.figures[GAP__FIGURE_GROWTH].known || side.figures[GAP__FIGURE_REFUSALS].known);
  gap__measure_free(&side);
}

/* ---- parts --------------------------------------------------------------------------------------------------------- */

static int64_t sum_of(const struct gap_diff *diff, enum gap__cut cut, int side) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < diff->pairs[cut].count; i++)
    if (diff->pairs[cut].at[i].side[side]) sum += (int64_t)diff->pairs[cut].at[i].side[side]->bytes;
  return sum;
}

static void parts_add_up(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    struct gap_diff *diff = compare(files[i], files[(i + 1) % FILES]);
    for (int cut = 0; cut < GAP__CUT_CALLS; cut++) {
      if (!diff->pairs[cut].count) continue;
      for (int side = 0; side < 2; side++)
        assert_true(sum_of(diff, (enum gap__cut)cut, side) == (int64_t)diff->sides[side].peak_bytes);
      for (uint32_t j = 1; j < diff->pairs[cut].count; j++)
        assert_true(llabs(gap__pair_change(&diff->pairs[cut].at[j])) <=
                    llabs(gap__pair_change(&diff->pairs[cut].at[j - 1])));
    }
    gap_diff_close(diff);
  }
}

static void nothing_differs_from_itself(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    struct gap_diff *diff = calloc(1, sizeof *diff);
    assert_non_null(diff);
    measure(&diff->sides[0], files[i], -1);
    measure(&diff->sides[1], files[i], -1); /* the tolerance is 0 */
    assert_int_equal(gap__diff_find(diff), 0);
    assert_true(diff->is_same);
    gap_diff_close(diff);
  }
}

static void both_directions_say_the_same(void **state) {
  (void)state;
  for (size_t i = 0; i + 1 < FILES; i++) {
    struct gap_diff *there = compare(files[i], files[i + 1]), *back = compare(files[i + 1], files[i]);
    assert_int_equal(there->is_same, back->is_same);
    for (int cut = 0; cut < GAP__CUT_COUNT; cut++) {
      assert_int_equal(there->pairs[cut].count, back->pairs[cut].count);
      if (cut == GAP__CUT_SIZES) continue; /* the nearest of several depends on where one begins */
      for (uint32_t j = 0; j < there->pairs[cut].count; j++)
        assert_true(llabs(gap__pair_change(&there->pairs[cut].at[j])) ==
                    llabs(gap__pair_change(&back->pairs[cut].at[j])));
    }
    gap_diff_close(there);
    gap_diff_close(back);
  }
}

static void the_tolerance_decides(void **state) {
  (void)state;
  struct gap_diff *diff = compare("llama_sft.pickle.xz", "llama_sft.stacks.pickle.xz");
  double change = value(diff, 0, GAP__FIGURE_PEAK_LIVE) - value(diff, 1, GAP__FIGURE_PEAK_LIVE);
  assert_true(change > 0 && !diff->figure_differs[GAP__FIGURE_PEAK_LIVE]);
  gap_diff_options options = diff->options;
  options.tolerance = change / value(diff, 0, GAP__FIGURE_PEAK_LIVE) * 0.99;
  gap_diff_close(diff);
  char a[512], b[512], message[512];
  const char *const two[2] = {path_of("llama_sft.pickle.xz", a), path_of("llama_sft.stacks.pickle.xz", b)};
  assert_int_equal(gap_diff_open(two, &options, &diff, message, sizeof message), 0);
  assert_true(diff->figure_differs[GAP__FIGURE_PEAK_LIVE] && !gap_diff_is_same(diff));
  gap_diff_close(diff);
}

/* ---- causes -------------------------------------------------------------------------------------------------------- */

/* make.py: step 3 has activations of twice the size of step 0's, and 1 MiB a step is kept. */
static void two_steps_of_a_made_training(void **state) {
  (void)state;
  struct gap_diff *diff = compare_steps("made/training.pickle", 1, "made/training.pickle", 3);
  const struct gap__pair *forward = pair_named(diff, GAP__CUT_SITES, "model.py:20 forward");
  const struct gap__pair *leak = pair_named(diff, GAP__CUT_SITES, "train.py:77 log");
  assert_true(gap__pair_change(forward) == 4 * 4 * 2 * (int64_t)MIB && gap__pair_change(leak) == 2 * (int64_t)MIB);
  assert_int_equal(forward->side[1]->category, GAP__CAT_ACTIVATIONS);
  struct gap__text text = {0};
  gap__diff_say(diff, &text);
  assert_non_null(strstr(gap__text_str(&text), "32 MiB of it (94 %) is model.py:20 forward (activations)"));
  gap__text_free(&text);
  gap_diff_close(diff);
}

static void lines_that_moved(void **state) {
  (void)state;
  struct gap_diff *diff = calloc(1, sizeof *diff);
  assert_non_null(diff);
  measure(&diff->sides[0], "llama_sft.stacks.pickle.xz", -1);
  measure(&diff->sides[1], "llama_sft.stacks.pickle.xz", -1);
  struct gap__history *history = diff->sides[1].subject.history;
  for (uint32_t i = 0; i < history->frame_count; i++) history->frames[i].line += 7;
  assert_int_equal(gap__diff_find(diff), 0);
  assert_true(diff->is_same && diff->pairs[GAP__CUT_SITES].count > 20);
  for (uint32_t i = 0; i < diff->pairs[GAP__CUT_SITES].count; i++)
    assert_true(gap__pair_change(&diff->pairs[GAP__CUT_SITES].at[i]) == 0);
  gap_diff_close(diff);
}

static void sizes_that_vary_a_little(void **state) {
  (void)state;
  struct gap_diff *diff = compare("llama_sft.pickle.xz", "llama_sft.stacks.pickle.xz");
  const struct gap__pair *pair = pair_named(diff, GAP__CUT_SIZES, "176 MiB (184549376)");
  assert_non_null(pair);
  assert_true(pair->side[0]->blocks == 48 && pair->side[1] && pair->side[1]->blocks == 48);
  assert_string_equal(pair->side[1]->name, "175.36 MiB (183873536)");
  gap_diff_close(diff);
}

static void refused_with_a_reason(void **state) {
  (void)state;
  struct gap__measure_options options = {.device = -1, .step = 99};
  struct gap__measure side;
  char path[512], message[512];
  assert_int_equal(gap__measure_file(&side, path_of("gnn.pickle.xz", path), &options, message, sizeof message),
                   GAP_EINVAL);
  assert_string_equal(message, "there is no step 99: 17 steps were recognised, counted from 0");
  gap__measure_free(&side);
  options = (struct gap__measure_options){.device = 5, .step = -1};
  assert_int_equal(gap__measure_file(&side, path, &options, message, sizeof message), GAP_EINVAL);
  assert_string_equal(message, "there is no device 5: the file has 1");
  gap__measure_free(&side);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(figures_agree_with_the_readers),
      cmocka_unit_test(most_held_is_what_torch_counted),
      cmocka_unit_test(the_steps_cover_the_whole),
      cmocka_unit_test(what_a_file_does_not_tell_is_unknown),
      cmocka_unit_test(parts_add_up),
      cmocka_unit_test(nothing_differs_from_itself),
      cmocka_unit_test(both_directions_say_the_same),
      cmocka_unit_test(the_tolerance_decides),
      cmocka_unit_test(two_steps_of_a_made_training),
      cmocka_unit_test(lines_that_moved),
      cmocka_unit_test(sizes_that_vary_a_little),
      cmocka_unit_test(refused_with_a_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
