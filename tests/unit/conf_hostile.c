/* Strings that nobody writes in good faith: long, deep, huge, in other alphabets, under other locales. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/nearest.h"
#include "conf_try.h"

static char *repeat(const char *piece, size_t bytes) {
  char *string = malloc(bytes + 1);
  size_t length = strlen(piece);
  for (size_t i = 0; i < bytes; i++) string[i] = piece[i % length];
  string[bytes] = 0;
  return string;
}

static int try_repeated(const char *piece, struct gap__conf_report *out) {
  char *string = repeat(piece, 65536);
  struct try try = try_string(string);
  *out = try.report;
  try_end(&try);
  free(string);
  return try.result;
}

static void long_strings(void **state) {
  (void)state;
  static const struct {
    const char *piece;
    int result;
  } cases[] = {{"a", 0},
               {",", 0},
               {" ", 0},
               {"[", 0},
               {"[[[[,", 0},
               {"]", 0},
               {":", 0},
               {"a,", 0},
               {"=,", 0},
               {"nmalloc:2,", 0},
               {"nmalloc:", GAP_EVALUE},
               {"\"", 0},
               {"no_such_key:1,", 0},
               {"nmalloc:[[", GAP_EVALUE},
               {"roundup_power2_divisions:[1:2,", GAP_EVALUE},
               {"1", 0}};
  struct gap__conf_report report;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (try_repeated(cases[i].piece, &report) != cases[i].result) fail_msg("64 KiB of \"%s\"", cases[i].piece);
}

static void a_flood_of_messages_is_counted(void **state) {
  (void)state;
  struct gap__conf_report report;
  assert_int_equal(try_repeated("a,", &report), 0);
  assert_int_equal(report.count, 32);
  assert_int_equal(report.unknown, 32768);
  assert_int_equal(report.warnings, 32768);
  assert_int_equal(report.dropped, 32768 - 32);
}

static void a_very_long_value_is_refused_short(void **state) {
  (void)state;
  char *digits = repeat("9", 60000), *string = malloc(70000);
  sprintf(string, "nmalloc:%s", digits);
  struct try try = try_string(string);
  assert_int_equal(try.result, GAP_EVALUE);
  assert_true(try_said(&try.report, 0, "99999..."));
  assert_true(try_said(&try.report, 0, "longer than any value can be"));
  try_end(&try);
  sprintf(string, "plan:/%.*s", 300, digits);
  try = try_string(string);
  assert_int_equal(try.result, GAP_EVALUE);
  assert_true(try_said(&try.report, 0, "at most 255 bytes"));
  try_end(&try);
  free(digits);
  free(string);
}

/* What stoull would wrap, cut or clamp. */
static void numbers_are_never_wrapped(void **state) {
  (void)state;
  static const char *const keys[] = {"max_split_size_mb", "large_segment_size_mb",    "pinned_num_register_threads",
                                     "max_memory",        "roundup_power2_divisions", "nmalloc",
                                     "granularity"};
  static const char *const numbers[] = {"-1",
                                        "-0",
                                        "+1",
                                        "1.5",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "17592186044416",
                                        "17592186044436",
                                        "1e30",
                                        "0x10",
                                        "1_000",
                                        "nan",
                                        "inf",
                                        "-inf",
                                        "\xd9\xa1"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
      char string[128];
      bool meant = !strcmp(keys[k], "max_memory") && !strncmp(numbers[n], "175921860444", 12); /* bytes there: 16 TiB */
      snprintf(string, sizeof string, "%s:%s", keys[k], numbers[n]);
      struct try try = try_string(string);
      if (try.result != (meant ? 0 : GAP_EVALUE)) fail_msg("%s: %d", string, try.result);
      assert_int_equal(try.report.errors, !meant);
      try_end(&try);
    }
}

static void other_alphabets_are_quoted_in_ascii(void **state) {
  (void)state;
  struct try try = try_string("expandable\xe2\x80\x8bsegments:True,\x01\x7f:\xff");
  assert_int_equal(try.result, 0);
  assert_true(try_said(&try.report, 1, "expandable\\xe2\\x80\\x8bsegments"));
  assert_true(try_said(&try.report, 1, "\\x01\\x7f"));
  for (uint32_t i = 0; i < try.report.count; i++)
    for (const char *c = try.report.messages[i].line; *c; c++) assert_true(*c >= 0x20 && *c < 0x7f);
  try_end(&try);
}

static void quotes_around_everything(void **state) {
  (void)state;
  struct try try = try_string(" 'nmalloc:2' ");
  assert_int_equal(gap__conf_values(try.set)->nmalloc, 2);
  assert_true(try_said(&try.report, 2, "the quotes are part of the value"));
  try_end(&try);
  try = try_string("'nmalloc:2");
  assert_int_equal(gap__conf_values(try.set)->nmalloc, 1);
  assert_true(try_said(&try.report, 1, "unknown key ''nmalloc'"));
  try_end(&try);
}

static void white_space_anywhere(void **state) {
  (void)state;
  struct try try =
      try_string("\t max_split\n_size_mb \r:\v 1 2 8 , roundup_power2_divisions : [ 256 : 1 , > : 8 ] ,, ");
  assert_int_equal(try.result, 0);
  assert_int_equal(try.report.count, 0);
  assert_int_equal(gap__conf_values(try.set)->max_split_size, 128 * MIB);
  assert_int_equal(gap__conf_values(try.set)->roundup_power2_divisions[15], 8);
  try_end(&try);
}

static void brackets(void **state) {
  (void)state;
  static const char *const bad[] = {"roundup_power2_divisions:[[1:2]]",
                                    "roundup_power2_divisions:[1:2]]",
                                    "roundup_power2_divisions:[1:2",
                                    "roundup_power2_divisions:]",
                                    "roundup_power2_divisions:[1:2][4:8]",
                                    "roundup_power2_divisions:[1:,2:4]",
                                    "roundup_power2_divisions:[:2]",
                                    "roundup_power2_divisions:[>]",
                                    "roundup_power2_divisions:[,]",
                                    "nmalloc:[2]",
                                    "max_split_size_mb:[100]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct try try = try_string(bad[i]);
    if (try.result != GAP_EVALUE) fail_msg("%s: %d", bad[i], try.result);
    try_end(&try);
  }
}

/* A comma as decimal point, wherever such a locale is installed, and the plain C locale anyway. */
static void numbers_do_not_depend_on_the_locale(void **state) {
  (void)state;
  static const char *const names[] = {"C", "de_DE.UTF-8", "de_DE", "fr_FR.UTF-8"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!setlocale(LC_ALL, names[i])) continue;
    struct try try = try_string("grow_limit:1.25,max_memory:12.5%");
    char text[1280];
    assert_int_equal(try.result, 0);
    assert_true(gap__conf_values(try.set)->grow_limit == 1.25);
    assert_string_equal(try_text(try.set, "grow_limit", text), "1.25");
    assert_string_equal(try_text(try.set, "max_memory", text), "12.5%");
    try_end(&try);
  }
  setlocale(LC_ALL, "C");
}

static void the_nearest_key(void **state) {
  (void)state;
  static const struct {
    const char *key, *nearest;
    bool close;
  } cases[] = {
      {"expandable_segment", "expandable_segments", true},
      {"Expandable-Segments", "expandable_segments", true},
      {"max_split_size", "max_split_size_mb", true},
      {"garbage_collection_treshold", "garbage_collection_threshold", true},
      {"poled", "pooled", true},
      {"release_lock_on_hipmaloc", "release_lock_on_hipmalloc", true},
      {"trce", "trace", true},
      {"foo", "log", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool close;
    assert_string_equal(gap__conf_nearest_key(cases[i].key, &close), cases[i].nearest);
    assert_int_equal(close, cases[i].close);
  }
  static const char *const words[] = {"replay", "conf", "demo"};
  assert_string_equal(gap__conf_nearest("relpay", words, 3), "replay");
  assert_null(gap__conf_nearest("quit", words, 3));
  assert_null(gap__conf_nearest("x", words, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(long_strings),
      cmocka_unit_test(a_flood_of_messages_is_counted),
      cmocka_unit_test(a_very_long_value_is_refused_short),
      cmocka_unit_test(numbers_are_never_wrapped),
      cmocka_unit_test(other_alphabets_are_quoted_in_ascii),
      cmocka_unit_test(quotes_around_everything),
      cmocka_unit_test(white_space_anywhere),
      cmocka_unit_test(brackets),
      cmocka_unit_test(numbers_do_not_depend_on_the_locale),
      cmocka_unit_test(the_nearest_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
