/* Explanations of recorded files against what is known of them otherwise: the model that was trained, sums over the segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "explain/altered.h"
#include "explain/report.h"
#include "explain/subject.h"
#include "replay/live.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static struct gap__subject *open_data(const char *name) {
  struct gap__subject *subject = calloc(1, sizeof *subject);
  char path[512], *message;
  assert_non_null(subject);
  gap_explain_defaults(&subject->options);
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &subject->history, &message)) fail_msg("%s: %s", name, message);
  assert_int_equal(gap__subject_study(subject), 0);
  return subject;
}

static void close_data(struct gap__subject *subject) {
  gap__subject_free(subject);
  free(subject);
}

static void expect_near(uint64_t got, uint64_t wanted, double tolerance) {
  double off = (double)got - (double)wanted;
  if (off > tolerance * (double)wanted || -off > tolerance * (double)wanted)
    fail_msg("%llu is not within %g of %llu", (unsigned long long)got, tolerance, (unsigned long long)wanted);
}

/* ---- what blocks are for ------------------------------------------------------------------------------------------- */

/* The Llama of the recordings: 12 layers of width 2048 with 16 heads, an MLP of 5632, 32000 words, untied; in bfloat16. */
static uint64_t llama_parameter_bytes(void) {
  uint64_t width = 2048, inner = 5632, layers = 12, words = 32000;
  uint64_t attention = 4 * width * width, mlp = 3 * width * inner, norms = 2 * width;
  return 2 * (layers * (attention + mlp + norms) + 2 * words * width + width);
}

static void expect_llama(const char *name, double unknown_part) {
  struct gap__subject *subject = open_data(name);
  const struct gap__categories *categories = &subject->categories;
  uint64_t parameters = llama_parameter_bytes(), sum = 0;
  expect_near(categories->most[GAP__CAT_WEIGHTS], parameters, 0.02);
  expect_near(categories->most[GAP__CAT_GRADIENTS], parameters, 0.02);
  expect_near(categories->most[GAP__CAT_OPTIMISER], 2 * parameters, 0.02); /* AdamW keeps two of each */
  assert_true((double)categories->at_peak[GAP__CAT_UNKNOWN] <= unknown_part * (double)subject->lives.peak_bytes);
  for (int i = 0; i < GAP__CAT_COUNT; i++) sum += categories->at_peak[i];
  assert_true(sum == subject->lives.peak_bytes);
  close_data(subject);
}

static void parts_of_a_training(void **state) {
  (void)state;
  expect_llama("llama_sft.stacks.pickle.xz", 0.05);
  expect_llama("oom.pickle.xz", 0.05);
  expect_llama("llama_sft.pickle.xz", 0.05); /* without stacks, by lives alone */
}

/* The same file with its stacks taken away: what remains is told from lives, and the turn of each step is a guess. */
static void lives_alone_say_nearly_the_same(void **state) {
  (void)state;
  struct gap__subject *with = open_data("llama_sft.stacks.pickle.xz"), *without = calloc(1, sizeof *without);
  assert_non_null(without);
  without->options = with->options;
  without->history = with->history;
  for (uint64_t i = 0; i < with->history->devices[0].event_count; i++) with->history->devices[0].events[i].stack = 0;
  for (uint64_t i = 0; i < with->history->block_count; i++) with->history->blocks[i].stack = 0;
  assert_int_equal(gap__subject_study(without), 0);
  assert_false(without->honest.has_stacks);
  expect_near(without->categories.at_peak[GAP__CAT_ACTIVATIONS], with->categories.at_peak[GAP__CAT_ACTIVATIONS], 0.2);
  expect_near(without->categories.at_peak[GAP__CAT_TEMPORARY], with->categories.at_peak[GAP__CAT_TEMPORARY], 0.6);
  without->history = NULL; /* it is the other's */
  close_data(without);
  close_data(with);
}

/* make.py says what each block is for. */
static void parts_of_a_made_training(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("made/training.pickle");
  const struct gap__categories *categories = &subject->categories;
  assert_true(categories->most[GAP__CAT_WEIGHTS] == 32 * MIB && categories->most[GAP__CAT_GRADIENTS] == 32 * MIB);
  assert_true(categories->most[GAP__CAT_OPTIMISER] == 64 * MIB && categories->most[GAP__CAT_UNKNOWN] == 8 * MIB);
  assert_true(categories->at_peak[GAP__CAT_ACTIVATIONS] == 4 * 4 * 8 * MIB); /* of the largest step */
  assert_int_equal(subject->steps.optimiser_count, 8);
  assert_int_equal(subject->verdict, GAP_EXPLAIN_FRAGMENTED);
  assert_int_equal(subject->holders.at[0].category, GAP__CAT_ACTIVATIONS);
  assert_int_equal(subject->holders.at[0].scaling, GAP__SCALES_LINEAR);
  close_data(subject);
}

static void the_line_that_grows(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("made/training.pickle");
  char name[128];
  assert_true(subject->growth.grows);
  assert_int_equal(subject->growth.per_step, MIB);
  gap__sites_name(&subject->sites, subject->growth.site, name, sizeof name);
  assert_string_equal(name, "train.py:77 log");
  close_data(subject);
}

static void a_steady_training_does_not_grow(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("llama_sft.pickle.xz");
  assert_true(subject->growth.steps > 10);
  assert_false(subject->growth.grows);
  close_data(subject);
}

/* ---- moments ------------------------------------------------------------------------------------------------------- */

/* Undone to the beginning nothing is left, of native and of expandable segments. */
static void undone_to_the_beginning(void **state) {
  static const char *const files[] = {"llama_sft.pickle.xz", "unet_multires.expandable.pickle.xz",
                                      "graphs.pickle.xz",    "streams.pickle.xz",
                                      "tr_exp_cap.json.gz",  "tr_native_str.json.gz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__subject *subject = open_data(files[i]);
    struct gap__picture picture;
    assert_int_equal(gap__picture_begin(subject->history, subject->device, &picture), 0);
    for (uint32_t event = subject->lives.event_count; event-- > 0;)
      assert_int_equal(gap__picture_undo(&picture, &subject->lives, event), 0);
    assert_true(picture.held == 0 && picture.live == 0 && picture.pending == 0);
    assert_int_equal(picture.segment_count, 0);
    gap__picture_end(&picture);
    close_data(subject);
  }
}

/* At the refusal of oom.pickle: 26 GiB were allowed, 24.44 would have been needed. */
static void a_recorded_refusal(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("oom.pickle.xz");
  assert_int_equal(subject->verdict, GAP_EXPLAIN_FRAGMENTED);
  assert_true(subject->refusal.by_limit && subject->refusal.request == 1811840000);
  assert_true(subject->figures.held <= 26 * GIB && subject->figures.held + subject->refusal.segment > 26 * GIB);
  assert_true(subject->figures.returnable == 0);
  assert_true(subject->figures.live + subject->refusal.request < subject->figures.held);
  close_data(subject);
}

/* The sums that a look at the file's segments gives. */
static void a_snapshot_with_two_kinds_of_idle_memory(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("cs336_medium_1024_training.pickle.xz");
  uint64_t whole = 0, idle = 0;
  for (uint64_t i = 0; i < subject->history->segment_count; i++) {
    const struct gap__hist_segment *segment = &subject->history->segments[i];
    idle += segment->total_size - segment->active_size;
    if (segment->active_size == 0) whole += segment->total_size;
  }
  assert_true(subject->figures.idle == idle && subject->figures.returnable == whole &&
              subject->figures.stuck == idle - whole);
  char *words = gap__report_words(subject, 0);
  assert_non_null(strstr(
      words,
      "Of 17.05 GiB idle, 10.787 GiB can be returned to the driver at once and 6.260 GiB lies between live blocks"));
  free(words);
  assert_true(subject->honest.wrapped);
  close_data(subject);
}

static void a_full_card_without_a_history(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("flexgen_oom_snapshot.pickle.xz");
  assert_int_equal(subject->verdict, GAP_EXPLAIN_FULL);
  assert_false(subject->honest.has_events);
  char *words = gap__report_words(subject, 100), *json = gap__subject_json(subject, "x");
  assert_null(strstr(words, "ragment"));
  assert_null(strstr(json, "ragment"));
  free(words);
  free(json);
  close_data(subject);
}

static void a_file_that_contradicts_itself(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("mosaic_output.pickle.xz");
  assert_int_equal(subject->verdict, GAP_EXPLAIN_CONTRADICTORY);
  close_data(subject);
}

static void recorded_files_do_not(void **state) {
  static const char *const files[] = {"cs336_medium_1024_training.pickle.xz",
                                      "cs336b_mem_snapshot.pickle.xz",
                                      "diffusion_serve.pickle.xz",
                                      "flexgen_oom_snapshot.pickle.xz",
                                      "gnn.pickle.xz",
                                      "graphs.pickle.xz",
                                      "ring.pickle.xz",
                                      "rlhf_cut.pickle.xz",
                                      "tr_exp.json.gz",
                                      "tr_native_cap.json.gz",
                                      "made/small.4.pickle",
                                      "made/old_layout.pickle"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__subject *subject = open_data(files[i]);
    if (subject->honest.contradictions) fail_msg("%s: %s", files[i], gap__text_str(&subject->honest.first));
    close_data(subject);
  }
}

/* ---- altered histories --------------------------------------------------------------------------------------------- */

/* Each is one that an allocator could have met. */
static uint64_t peak_of(const struct gap__subject *subject, struct gap__altered *altered) {
  struct gap__live live;
  uint64_t event;
  char *message = NULL;
  if (gap__history_check(&altered->history, subject->device, &event, &message))
    fail_msg("event %llu: %s", (unsigned long long)event, message);
  assert_int_equal(gap__live_peaks(&altered->history, subject->device, UINT64_MAX, &live, &event), 0);
  gap__altered_free(altered);
  return live.bytes_peak;
}

static void altered_histories_are_histories(void **state) {
  static const char *const files[] = {
      "llama_sft.stacks.pickle.xz", "oom.pickle.xz",        "gnn.pickle.xz",
      "unet_multires.pickle.xz",    "made/training.pickle", "cs336_medium_1024_training.pickle.xz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__subject *subject = open_data(files[i]);
    struct gap__altered altered = {0};
    assert_int_equal(gap__altered_none(subject, &altered), 0);
    uint64_t peak = peak_of(subject, &altered);
    assert_int_equal(gap__altered_scale(subject, 0.5, &altered), 0);
    assert_true(peak_of(subject, &altered) < peak);
    assert_int_equal(gap__altered_checkpoint(subject, 8, &altered), 0);
    assert_true(peak_of(subject, &altered) <= peak);
    assert_int_equal(gap__altered_offload(subject, &altered), 0);
    assert_true(peak_of(subject, &altered) <= peak);
    close_data(subject);
  }
}

/* Where states are there at the peak, a peak without them is lower by just as much. */
static void without_optimiser_states(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("llama_sft.stacks.pickle.xz");
  struct gap__altered altered = {0};
  assert_int_equal(gap__altered_offload(subject, &altered), 0);
  uint64_t peak = peak_of(subject, &altered), states = subject->categories.at_peak[GAP__CAT_OPTIMISER];
  assert_true(peak >= subject->lives.peak_bytes - states && peak < subject->lives.peak_bytes - states / 2);
  close_data(subject);
}

static void checkpoints_of_a_training(void **state) {
  (void)state;
  struct gap__subject *subject = open_data("llama_sft.stacks.pickle.xz");
  struct gap__altered altered = {0};
  assert_int_equal(gap__altered_checkpoint(subject, 8, &altered), 0);
  uint64_t peak = peak_of(subject, &altered), fixed = subject->categories.at_peak[GAP__CAT_WEIGHTS];
  assert_true(peak < subject->lives.peak_bytes * 7 / 10 && peak > fixed);
  close_data(subject);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_of_a_training),
      cmocka_unit_test(lives_alone_say_nearly_the_same),
      cmocka_unit_test(parts_of_a_made_training),
      cmocka_unit_test(the_line_that_grows),
      cmocka_unit_test(a_steady_training_does_not_grow),
      cmocka_unit_test(undone_to_the_beginning),
      cmocka_unit_test(a_recorded_refusal),
      cmocka_unit_test(a_snapshot_with_two_kinds_of_idle_memory),
      cmocka_unit_test(a_full_card_without_a_history),
      cmocka_unit_test(a_file_that_contradicts_itself),
      cmocka_unit_test(recorded_files_do_not),
      cmocka_unit_test(altered_histories_are_histories),
      cmocka_unit_test(without_optimiser_states),
      cmocka_unit_test(checkpoints_of_a_training),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
