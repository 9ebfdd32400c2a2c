/* What is computed from a history: contradictions, peaks, and whether it starts at the beginning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "trace/history.h"

#define A GAP__ACT_ALLOC
#define FR GAP__ACT_FREE_REQUESTED
#define FC GAP__ACT_FREE_COMPLETED

static struct gap__history *read_data(const char *name) {
  char path[512], *message;
  struct gap__history *history;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  return history;
}

/* A history of one device around events that the test owns. */
struct local {
  struct gap__history history;
  struct gap__hist_device device;
};

static const struct gap__history *around(struct local *local, struct gap__hist_event *events, uint64_t count,
                                         bool wrapped) {
  *local = (struct local){.device = {.events = events, .event_count = count, .wrapped = wrapped}};
  local->history = (struct gap__history){.devices = &local->device, .device_count = 1};
  return &local->history;
}

static void expect_peaks(const struct gap__history *history, uint64_t live, uint64_t requested, uint64_t event) {
  uint64_t got_live, got_requested, got_event;
  gap__history_peaks(history, 0, &got_live, &got_requested, &got_event);
  assert_true(got_live == live);
  assert_true(got_requested == requested);
  assert_true(got_event == event);
}

#define EVENT(what, at, bytes) \
  { .action = what, .addr = at, .size = bytes }
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void peaks_round_and_wait_for_completion(void **state) {
  struct gap__hist_event events[] = {EVENT(A, 1024, 1),   EVENT(A, 4096, 513), EVENT(FR, 1024, 1),
                                     EVENT(A, 8192, 100), EVENT(FC, 1024, 1),  EVENT(A, 16384, 10)};
  struct local local;
  (void)state;
  /* live: 512, 1536, 1536, 2048, 1536, 2048; requested: 1, 514, 513, 613, 613, 623 */
  expect_peaks(around(&local, events, COUNT(events), false), 2048, 623, 3);
  expect_peaks(around(&local, events, 0, false), 0, 0, 0);
}

/* 3000 bytes at 1024 and 100 at 8192 were there before; the second is never freed here. */
static void peaks_count_what_was_there_before(void **state) {
  struct gap__hist_event events[] = {EVENT(A, 65536, 512),  EVENT(FR, 65536, 512),  EVENT(FC, 65536, 512),
                                     EVENT(FR, 1024, 3000), EVENT(A, 131072, 1024), EVENT(FC, 1024, 3000)};
  struct gap__hist_block blocks[] = {{.addr = 8192, .size = 512, .requested = 100, .state = 1},
                                     {.addr = 131072, .size = 1024, .requested = 1024, .state = 1},
                                     {.addr = 200000, .size = 4096, .state = 0}};
  struct gap__hist_segment segment = {.block_count = 3};
  struct local local;
  (void)state;
  struct gap__history *history = (struct gap__history *)around(&local, events, COUNT(events), true);
  history->segments = &segment;
  history->segment_count = 1;
  history->blocks = blocks;
  expect_peaks(history, 3072 + 512 + 1024, 3000 + 100 + 512, 4);
}

/* The peaks that PyTorch itself counted (active_bytes.all.peak) where the file has them. */
static void peaks_of_recorded_files(void **state) {
  (void)state;
  struct gap__history *history = read_data("tr_exp.json.gz");
  uint64_t live, requested, event;
  gap__history_peaks(history, 0, &live, &requested, &event);
  assert_true(live == 12812324864); /* expandable segments leave no unsplit remainder: equal to the byte */
  gap__history_free(history);
  history = read_data("oom.pickle.xz");
  gap__history_peaks(history, 0, &live, &requested, &event);
  assert_true(live == 25331068928 && event == 10278);
  gap__history_free(history);
}

static void expect_contradiction(const struct gap__history *history, uint64_t event, const char *wanted) {
  uint64_t at;
  char *message;
  assert_int_equal(gap__history_check(history, 0, &at, &message), GAP_EFORMAT);
  assert_int_equal(at, event);
  if (!strstr(message, wanted)) fail_msg("'%s' is not in '%s'", wanted, message);
  free(message);
}

#define CONTRADICTS(event, wanted, ...) \
  do { \
    struct gap__hist_event events[] = {__VA_ARGS__}; \
    struct local local; \
    expect_contradiction(around(&local, events, COUNT(events), false), event, wanted); \
  } while (0)

static void contradictions_are_found(void **state) {
  (void)state;
  CONTRADICTS(1, "over a live block", EVENT(A, 1024, 512), EVENT(A, 1024, 512));
  CONTRADICTS(1, "over a live block of 2048 bytes", EVENT(A, 1024, 2048), EVENT(A, 2048, 10));
  CONTRADICTS(1, "over a live block of 10 bytes", EVENT(A, 2048, 10), EVENT(A, 1024, 2048));
  CONTRADICTS(0, "free_requested of 0x400: no live block", EVENT(FR, 1024, 512));
  CONTRADICTS(3, "free_completed of 0x400: no live block", EVENT(A, 1024, 5), EVENT(FR, 1024, 5), EVENT(FC, 1024, 5),
              EVENT(FC, 1024, 5));
  CONTRADICTS(1, "no live block begins there", EVENT(A, 1024, 2048), EVENT(FR, 1536, 2048));
  CONTRADICTS(1, "512 bytes, but 513 were allocated", EVENT(A, 1024, 513), EVENT(FR, 1024, 512));
  CONTRADICTS(2, "requested already", EVENT(A, 1024, 5), EVENT(FR, 1024, 5), EVENT(FR, 1024, 5));
  CONTRADICTS(0, "no device has that much", EVENT(A, 0, UINT64_MAX - 5));
  CONTRADICTS(0, "no device has that much", EVENT(A, UINT64_MAX - 4, 100));
  CONTRADICTS(1, "before the first event", EVENT(A, 1024, 5), {.action = FR, .addr = 1024, .size = 5, .time_us = -1});
}

static void neighbours_do_not_contradict(void **state) {
  struct gap__hist_event events[] = {EVENT(A, 1024, 512),  EVENT(A, 2048, 512),  EVENT(A, 1536, 512),
                                     EVENT(FR, 1536, 512), EVENT(FC, 1536, 512), EVENT(A, 1536, 300)};
  struct local local;
  uint64_t at;
  char *message;
  (void)state;
  assert_int_equal(gap__history_check(around(&local, events, COUNT(events), false), 0, &at, &message), 0);
  assert_null(message);
}

/* Tolerated are frees of what was never allocated here, not of what was. */
static void a_wrapped_history_may_free_the_unknown_once(void **state) {
  struct gap__hist_event events[] = {EVENT(FR, 1024, 5), EVENT(FC, 1024, 5), EVENT(A, 1024, 7),
                                     EVENT(FR, 1024, 7), EVENT(FC, 1024, 7), EVENT(FC, 1024, 7)};
  struct local local;
  uint64_t at;
  char *message;
  (void)state;
  assert_int_equal(gap__history_check(around(&local, events, 5, true), 0, &at, &message), 0);
  expect_contradiction(around(&local, events, 6, true), 5, "no live block");
}

static void recorded_files_do_not_contradict_themselves(void **state) {
  static const char *const names[] = {"gnn.pickle.xz",
                                      "graphs.pickle.xz",
                                      "oom.pickle.xz",
                                      "ring.pickle.xz",
                                      "streams.pickle.xz",
                                      "rlhf_cut.pickle.xz",
                                      "tr_exp.json.gz",
                                      "tr_exp_cap.json.gz",
                                      "tr_native.json.gz",
                                      "tr_native_cap.json.gz",
                                      "tr_native_str.json.gz",
                                      "unet_multires.expandable.pickle.xz",
                                      "cs336_medium_1024_training.pickle.xz"};
  (void)state;
  for (unsigned i = 0; i < COUNT(names); i++) {
    struct gap__history *history = read_data(names[i]);
    uint64_t at;
    char *message;
    if (gap__history_check(history, 0, &at, &message))
      fail_msg("%s: event %llu: %s", names[i], (unsigned long long)at, message);
    gap__history_free(history);
  }
}

/* One address, one size, one order altered in a recorded history: each is found where it was altered. */
static void an_altered_recording_is_found(void **state) {
  (void)state;
  struct gap__history *history = read_data("gnn.pickle.xz");
  struct gap__hist_event *events = history->devices[0].events, kept;
  uint64_t at = 4000;
  while (events[at].action != FR) at++;
  kept = events[at];
  events[at].addr += 512;
  expect_contradiction(history, at, "no live block begins there");
  events[at] = kept;
  events[at].size++;
  expect_contradiction(history, at, "were allocated");
  events[at] = events[at + 1];
  events[at + 1] = kept;
  assert_int_equal(events[at].action, FC);
  expect_contradiction(history, at + 1, "no live block begins there");
  gap__history_free(history);
}

static void actions_have_their_names(void **state) {
  (void)state;
  assert_string_equal(gap__action_name(GAP__ACT_ALLOC), "alloc");
  assert_string_equal(gap__action_name(GAP__ACT_SEGMENT_UNMAP), "segment_unmap");
  assert_string_equal(gap__action_name(GAP__ACT_OOM), "oom");
  assert_string_equal(gap__action_name(GAP__ACT_COUNT), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peaks_round_and_wait_for_completion),
      cmocka_unit_test(peaks_count_what_was_there_before),
      cmocka_unit_test(peaks_of_recorded_files),
      cmocka_unit_test(contradictions_are_found),
      cmocka_unit_test(neighbours_do_not_contradict),
      cmocka_unit_test(a_wrapped_history_may_free_the_unknown_once),
      cmocka_unit_test(recorded_files_do_not_contradict_themselves),
      cmocka_unit_test(an_altered_recording_is_found),
      cmocka_unit_test(actions_have_their_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
