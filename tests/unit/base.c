/* Errors, log and slabs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/meta.h"
#include "gapless/gapless.h"

static void test_every_error_has_a_sentence(void **state) {
  (void)state;
  for (int code = GAP_OK; code >= GAP_EFORKED; code--) {
    assert_true(strlen(gap_strerror(code)) > 5);
    for (int other = GAP_OK; other > code; other--) assert_string_not_equal(gap_strerror(code), gap_strerror(other));
  }
  assert_string_equal(gap_strerror(GAP_OK), "success");
  assert_string_equal(gap_strerror(1), "unknown error code");
  assert_string_equal(gap_strerror(GAP_EFORKED - 1), "unknown error code");
}

static void test_version(void **state) {
  (void)state;
  char expected[32];
  snprintf(expected, sizeof expected, "%d.%d.%d", GAP_VERSION_MAJOR, GAP_VERSION_MINOR, GAP_VERSION_PATCH);
  assert_string_equal(gap_version(), expected);
}

struct heard {
  int count, level;
  char line[600];
};

static void hear(void *arg, int level, const char *line) {
  struct heard *heard = arg;
  heard->count++;
  heard->level = level;
  snprintf(heard->line, sizeof heard->line, "%s", line);
}

static void test_log(void **state) {
  (void)state;
  struct heard heard = {0};
  gap__log(GAP__LOG_ERROR, "nobody listens");
  gap_set_log(hear, &heard);
  gap__log(GAP__LOG_WARNING, "%d pages", 3);
  assert_int_equal(heard.count, 1);
  assert_int_equal(heard.level, GAP__LOG_WARNING);
  assert_string_equal(heard.line, "3 pages");
  gap__log(GAP__LOG_INFO, "below the level");
  assert_int_equal(heard.count, 1);
  gap__log_level_set(GAP__LOG_DEBUG);
  gap__log(GAP__LOG_DEBUG, "%600s", "cut");
  assert_int_equal(heard.count, 2);
  assert_int_equal(strlen(heard.line), 500);
  gap__log_level_set(GAP__LOG_WARNING);
  gap_set_log(NULL, NULL);
  gap__log(GAP__LOG_ERROR, "nobody listens any more");
  assert_int_equal(heard.count, 2);
}

static void test_slab(void **state) {
  (void)state;
  struct gap__slab slab;
  assert_int_equal(gap__slab_init(&slab, 16, 4), 0);
  uint32_t one = gap__slab_take(&slab), two = gap__slab_take(&slab), three = gap__slab_take(&slab);
  assert_true(one && two && three && one != two && two != three && one != three);
  assert_int_equal(gap__slab_take(&slab), 0); /* index 0 is never handed out: three of four */
  assert_int_equal(slab.in_use, 3);
  gap__slab_give(&slab, one);
  gap__slab_give(&slab, three);
  assert_int_equal(gap__slab_take(&slab), three); /* last in, first out */
  assert_int_equal(gap__slab_take(&slab), one);
  gap__slab_destroy(&slab);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_error_has_a_sentence),
      cmocka_unit_test(test_version),
      cmocka_unit_test(test_log),
      cmocka_unit_test(test_slab),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
