/* Tuning against plain replays: each least cap fits, a little less does not, and nothing beats the best. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "gapless/tune.h"

#define PAGE ((uint64_t)2 << 20)

enum { MESSAGE_BYTES = 1024 };

static gap_tune *tuned(const char *path) {
  gap_tune_options options;
  char message[MESSAGE_BYTES];
  gap_tune *tune;
  gap_tune_defaults(&options);
  options.threads = 2;
  assert_int_equal(gap_tune_open(&options, &tune, message, sizeof message), 0);
  assert_int_equal(gap_tune_file(tune, path, NULL, NULL, message, sizeof message), 0);
  gap_tune_conclude(tune);
  return tune;
}

static bool fits(const gap_history *history, const gap_tune_setting *one, uint64_t cap_bytes) {
  gap_replay_options options;
  gap_replay_result result;
  char message[MESSAGE_BYTES];
  gap_replay_defaults(&options);
  options.policy = one->policy;
  options.conf = one->conf;
  options.cap_bytes = cap_bytes;
  options.check = GAP_CHECK_OFF;
  assert_int_equal(gap_replay(history, &options, &result, message, sizeof message), 0);
  return result.fitted;
}

static uint64_t fine_step(uint64_t peak) { return peak / 2000 > PAGE ? peak / 2000 : PAGE; }

/* Every least cap fits, 1 % or a page less does not, none is below the ideal, and none of PyTorch's beats the best. */
static void check_by_brute_force(const char *path) {
  gap_tune *tune = tuned(path);
  gap_history *history;
  gap_tune_history facts;
  gap_tune_setting one, best;
  char message[MESSAGE_BYTES];
  assert_int_equal(gap_history_open(path, NULL, NULL, &history, message, sizeof message), 0);
  gap_tune_at(tune, 0, &facts);
  gap_tune_setting_at(tune, 0, facts.best, &best);
  assert_int_equal(facts.known, facts.count);
  for (uint32_t i = 0; i < facts.count; i++) {
    gap_tune_setting_at(tune, 0, i, &one);
    assert_true(one.least_cap_bytes >= facts.ideal_bytes && one.peak_reserved_bytes >= facts.peak_live_bytes);
    assert_true(fits(history, &one, one.least_cap_bytes));
    assert_true(one.fails_bytes < facts.ideal_bytes || !fits(history, &one, one.fails_bytes));
    uint64_t open = one.least_cap_bytes - one.fails_bytes;
    assert_true(open <= PAGE || open <= one.least_cap_bytes / 100);
    uint64_t less = best.least_cap_bytes - fine_step(facts.peak_live_bytes);
    bool is_ours = one.policy == GAP_POLICY_GAPLESS;
    /* One that fails under more has no say: its least cap is one from which all larger ones fit. */
    assert_true(is_ours || less < facts.ideal_bytes || less <= one.fails_bytes || !fits(history, &one, less));
  }
  gap_history_close(history);
  gap_tune_close(tune);
}

static void agrees_on_a_ring(void **state) {
  (void)state;
  check_by_brute_force(GAP_TEST_DATA "/ring.pickle.xz");
}

static void agrees_on_graphs(void **state) {
  (void)state;
  check_by_brute_force(GAP_TEST_DATA "/graphs.pickle.xz");
}

static void agrees_on_training(void **state) {
  (void)state;
  check_by_brute_force(GAP_TEST_DATA "/made/training.pickle");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_on_a_ring),
      cmocka_unit_test(agrees_on_graphs),
      cmocka_unit_test(agrees_on_training),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
