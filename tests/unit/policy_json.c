/* The policy JSON form. */
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

#define BASE ((uint64_t)0x7F0000000000)
#define MIB ((uint64_t)1 << 20)

static struct gap__history *read_data(const char *name) {
  char path[512], *message;
  struct gap__history *history;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  return history;
}

static void check_made(const struct gap__history *history) {
  const struct gap__hist_device *device = history->devices;
  assert_int_equal(history->device_count, 1);
  assert_int_equal(device->event_count, 6);
  assert_int_equal(device->events[2].action, GAP__ACT_ALLOC);
  assert_true(device->events[2].addr == BASE + 3 * MIB && device->events[2].size == 4 * MIB);
  assert_int_equal(device->events[2].stream, 9);
  assert_int_equal(device->events[2].pool, 1);
  assert_int_equal(device->events[5].action, GAP__ACT_OOM);
  assert_int_equal(device->events[5].pool, 0);
  assert_int_equal(device->events[5].time_us, 0);
  assert_true(history->pools[1].id[0] == 0 && history->pools[1].id[1] == 2);
  assert_int_equal(history->segment_count, 1);
  assert_true(history->segments[0].active_size == 4 * MIB && history->segments[0].is_large);
  assert_true(history->blocks[2].addr == BASE + 7 * MIB && history->blocks[2].size == 13 * MIB);
  assert_int_equal(history->blocks[1].state, 1);
  assert_true(history->memory_fraction == 0.25);
  assert_true(history->total_bytes == (uint64_t)1 << 34);
  assert_true(history->has_stats && history->stat_reserved_peak == 20 * MIB);
  assert_int_equal(history->stat_alloc_retries, 2);
  assert_int_equal(history->stat_ooms, 1);
  assert_string_equal(history->settings_text, "expandable_segments:False");
  assert_false(device->wrapped);
}

static void plain_and_compressed(void **state) {
  (void)state;
  struct gap__history *plain = read_data("made/policy.json"), *gzip = read_data("made/policy.json.gz");
  check_made(plain);
  check_made(gzip);
  gap__history_free(plain);
  gap__history_free(gzip);
}

/* The figures were read off the files with Python. */
static void recorded_files(void **state) {
  static const struct {
    const char *name;
    uint64_t events, segments, reserved_peak, retries, ooms;
  } files[] = {{"tr_exp.json.gz", 9095, 32, 15890120704, 0, 0},
               {"tr_native_cap.json.gz", 9415, 9, 4494196736, 10, 7},
               {"tr_native_str.json.gz", 9609, 17, 7478444032, 18, 5}};
  (void)state;
  for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
    struct gap__history *history = read_data(files[i].name);
    assert_int_equal(history->devices[0].event_count, files[i].events);
    assert_int_equal(history->segment_count, files[i].segments);
    assert_true(history->stat_reserved_peak == files[i].reserved_peak);
    assert_int_equal(history->stat_alloc_retries, files[i].retries);
    assert_int_equal(history->stat_ooms, files[i].ooms);
    assert_true(history->total_bytes == 150109880320);
    gap__history_free(history);
  }
}

static void expect_error(const char *text, int code, const char *wanted) {
  struct gap__history *history;
  char *message;
  assert_int_equal(gap__history_read_memory(text, strlen(text), &history, &message), code);
  assert_null(history);
  if (!strstr(message, wanted)) fail_msg("'%s' is not in '%s'", wanted, message);
  free(message);
}

static void errors_name_the_byte_or_the_row(void **state) {
  (void)state;
  expect_error("{\"trace\": [1, }", GAP_EFORMAT, "byte 15: ");
  expect_error("{\"trace\": [", GAP_EFORMAT, "byte 11: ");
  expect_error("{}", GAP_EFORMAT, "no list 'trace'");
  expect_error("{\"trace\": [], \"trace\": []}", GAP_EFORMAT, "duplicate");
  expect_error("{\"trace\": [7]}", GAP_EFORMAT, "'trace' row 0: no list");
  expect_error("{\"trace\": [[\"alloc\",1,2,3],[\"alloc\",1,-2,3]]}", GAP_EFORMAT, "'trace' row 1: the size");
  expect_error("{\"trace\": [[\"alloc\",1.5,2,3]]}", GAP_EFORMAT, "'trace' row 0: the address");
  expect_error("{\"trace\": [[\"alloc\",1,2]]}", GAP_EFORMAT, "'trace' row 0: the stream");
  expect_error("{\"trace\": [[5,1,2,3]]}", GAP_EFORMAT, "'trace' row 0: the action");
  expect_error("{\"trace\": [[\"alloc\",99999999999999999999,2,3]]}", GAP_EFORMAT, "byte ");
  expect_error("{\"trace\": [], \"segments\": [[1,2]]}", GAP_EFORMAT, "'segments' row 0: a segment must be");
  expect_error("{\"trace\": [], \"segments\": [[0,512,0,\"small\",false,null,[[1024,1,\"inactive\"]]]]}", GAP_EFORMAT,
               "'segments' row 0: its blocks are larger");
  expect_error("{\"trace\": [], \"segments\": [[0,512,0,\"small\",false,null,[[512,1,\"gone\"]]]]}", GAP_EFORMAT,
               "'segments' row 0: a block must be");
  expect_error("{\"trace\": [], \"segments\": [[0,512,0,\"small\",false,[1],[]]]}", GAP_EFORMAT, "the pool must be");
}

static void unknown_actions_are_counted(void **state) {
  static const char text[] = "{\"trace\": [[\"shrink\",1,2,3],[\"alloc\",1,2,3]]}";
  struct gap__history *history;
  char *message;
  (void)state;
  assert_int_equal(gap__history_read_memory(text, sizeof text - 1, &history, &message), 0);
  assert_int_equal(history->unknown_actions, 1);
  assert_int_equal(history->devices[0].event_count, 1);
  gap__history_free(history);
}

static void deep_nesting_is_refused(void **state) {
  enum { DEEP = 100000 };
  char *text = malloc(DEEP + 1);
  (void)state;
  memset(text, '[', DEEP);
  memcpy(text, "{\"a\":", 5);
  text[DEEP] = 0;
  expect_error(text, GAP_EFORMAT, "byte ");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_and_compressed),
      cmocka_unit_test(recorded_files),
      cmocka_unit_test(errors_name_the_byte_or_the_row),
      cmocka_unit_test(unknown_actions_are_counted),
      cmocka_unit_test(deep_nesting_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
