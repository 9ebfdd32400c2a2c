/* Sizes, durations and counts as text, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "gapless/gapless.h"

static void test_sizes(void **state) {
  (void)state;
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"},
      {512, "512 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.50 KiB"},
      {20u << 20, "20 MiB"},
      {1814623715, "1.69 GiB"},
      {((uint64_t)1 << 30) - 1, "1 GiB"},
      {((uint64_t)1 << 40) + ((uint64_t)1 << 38), "1.25 TiB"},
      {(uint64_t)3 << 59, "1.50 EiB"},
      {UINT64_MAX, "16.00 EiB"},
  };
  char out[GAP__TEXT_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(gap__text_size(cases[i].bytes, out), cases[i].text);
}

static void test_durations(void **state) {
  (void)state;
  static const struct {
    uint64_t ns;
    const char *text;
  } cases[] = {
      {0, "0 ns"},
      {870, "870 ns"},
      {1500, "1.50 us"},
      {999994, "999.99 us"},
      {999996, "1.00 ms"},
      {20000000, "20 ms"},
      {999999999, "1.00 s"},
      {3600000000, "3.60 s"},
      {119000000000, "119 s"},
      {725000000000, "12 min 05 s"},
      {7265000000000, "2 h 01 min"},
  };
  char out[GAP__TEXT_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(gap__text_duration(cases[i].ns, out), cases[i].text);
  assert_true(strlen(gap__text_duration(UINT64_MAX, out)) < GAP__TEXT_BYTES);
}

static void test_thousands(void **state) {
  (void)state;
  char out[GAP__TEXT_BYTES];
  assert_string_equal(gap__text_thousands(0, out), "0");
  assert_string_equal(gap__text_thousands(999, out), "999");
  assert_string_equal(gap__text_thousands(1000, out), "1,000");
  assert_string_equal(gap__text_thousands(1234567, out), "1,234,567");
  assert_string_equal(gap__text_thousands(UINT64_MAX, out), "18,446,744,073,709,551,615");
}

static int parse(const char *text, uint64_t *out) { return gap__text_parse_size(text, strlen(text), out); }

static void test_parse_sizes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } good[] = {
      {"0", 0},
      {"512", 512},
      {"512B", 512},
      {"24G", (uint64_t)24 << 30},
      {"24gb", (uint64_t)24 << 30},
      {"512MiB", 512u << 20},
      {"512mib", 512u << 20},
      {"0.5K", 512},
      {".5k", 512},
      {"1.K", 1024},
      {"1.69GiB", 1814623682},
      {"2TiB", (uint64_t)2 << 40},
      {"0.1", 0},
      {"1.0009765625K", 1025},
      {"00001k", 1024},
      {"18446744073709551615", UINT64_MAX},
      {"16777215.99999999999999999999T", UINT64_MAX},
      {"0.00000000000000000000000000000001T", 0},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    uint64_t bytes = 7;
    assert_int_equal(parse(good[i].text, &bytes), 0);
    assert_int_equal(bytes, good[i].bytes);
  }
  static const char *const bad[] = {"",    "K",     ".",   ".G", "1 G",  " 1G", "1G ",  "-1",   "+1",  "1..5",
                                    "1iB", "1KiBx", "1Ki", "1P", "0x10", "1e3", "1,5G", "1KBB", "nan", "1G1"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t bytes = 7;
    assert_int_equal(parse(bad[i], &bytes), GAP_EVALUE);
    assert_int_equal(bytes, 7);
  }
  static const char *const huge[] = {"18446744073709551616", "16777216T", "99999999999999999999999G"};
  for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
    uint64_t bytes = 7;
    assert_int_equal(parse(huge[i], &bytes), GAP_ELIMIT);
    assert_int_equal(bytes, 7);
  }
  uint64_t bytes;
  assert_int_equal(gap__text_parse_size("24Gjunk", 3, &bytes), 0); /* not NUL-terminated */
  assert_int_equal(bytes, (uint64_t)24 << 30);
}

/* What the printer writes exactly, the reader reads back. */
static void test_size_round_trip(void **state) {
  (void)state;
  for (unsigned shift = 0; shift < 44; shift++) {
    uint64_t bytes = (uint64_t)3 << shift, back = 0;
    char text[GAP__TEXT_BYTES];
    gap__text_size(bytes, text);
    char *space = strchr(text, ' ');
    memmove(space, space + 1, strlen(space));
    assert_int_equal(parse(text, &back), 0);
    assert_int_equal(back, bytes);
  }
}

static void test_parse_numbers(void **state) {
  (void)state;
  uint64_t number = 7;
  assert_int_equal(gap__text_parse_u64("20", 2, &number), 0);
  assert_int_equal(number, 20);
  assert_int_equal(gap__text_parse_u64("", 0, &number), GAP_EVALUE);
  assert_int_equal(gap__text_parse_u64("2k", 2, &number), GAP_EVALUE);
  assert_int_equal(gap__text_parse_u64("-2", 2, &number), GAP_EVALUE);
  assert_int_equal(gap__text_parse_u64("18446744073709551616", 20, &number), GAP_ELIMIT);
  assert_int_equal(number, 20);
}

static void test_parse_reals(void **state) {
  (void)state;
  static const char *const good[] = {"0",   "0.9", "0.05", "1.0", "-2.5", "1e-3",
                                     "3E2", "12.", ".25",  "+4",  "0.99", "1.005"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double value = 0;
    assert_int_equal(gap__text_parse_real(good[i], strlen(good[i]), &value), 0);
    assert_true(value == strtod(good[i], NULL));
  }
  static const char *const bad[] = {"",    ".",   "-",  "e3",  "1e",    "1e+",   "1.2.3",
                                    "nan", "inf", "1 ", "0x1", "1e999", "1e9999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    double value = 7;
    assert_int_equal(gap__text_parse_real(bad[i], strlen(bad[i]), &value), GAP_EVALUE);
    assert_true(value == 7);
  }
}

static void test_fit(void **state) {
  (void)state;
  static const struct {
    const char *in;
    int most, fits;
  } cases[] = {{"", 3, 0},
               {"abc", 3, 3},
               {"abcd", 3, 3},
               {"a\xc3\xa4", 2, 1},
               {"a\xc3\xa4", 3, 3},
               {"\xe2\x80\xae x", 1, 0},
               {"\xe2\x80\xae x", 2, 0},
               {"\xe2\x80\xae x", 3, 3},
               {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 7, 4},
               {"\x80\x80\x80\x80\x80\x80", 5, 2}}; /* no characters at all: few bytes are given up */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(gap__text_fit(cases[i].in, cases[i].most), cases[i].fits);
}

static void test_utf8(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {{"", ""},
               {"plain \x7f", "plain \x7f"},
               {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
               {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
               {"a\xff\xfe"
                "b",
                "a??b"},
               {"\x80\xbf", "??"},
               {"\xc0\xaf\xc1\xbf", "????"}, /* longer than needed */
               {"\xe0\x9f\xbf\xf0\x8f\xbf\xbf", "???????"},
               {"\xed\xa0\x80", "???"},           /* half of a pair */
               {"\xf4\x90\x80\x80\xf5", "?????"}, /* beyond the last character */
               {"\xe2\x82", "??"},                /* cut off */
               {"\xe2\x82 \xc3", "?? ?"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gap__text text = {0};
    gap__text_add_utf8(&text, cases[i].in, "?");
    assert_string_equal(gap__text_str(&text), cases[i].out);
    gap__text_free(&text);
  }
}

static void test_plain(void **state) {
  (void)state;
  char text[] = "a\x1b[2J\n\x7f \xc2\x9b"
                "1m \xc2\xa0\xc3\x9b\xff\xc2";
  gap__text_make_plain(text);
  assert_string_equal(text, "a?[2J?? ??1m \xc2\xa0\xc3\x9b\xff\xc2");
}

static void test_growing_string(void **state) {
  (void)state;
  struct gap__text text = {0};
  assert_string_equal(gap__text_str(&text), "");
  for (int i = 0; i < 1000; i++) gap__text_add(&text, "%d,", i);
  gap__text_add_char(&text, '!');
  gap__text_add_bytes(&text, "ab", 2);
  assert_false(text.failed);
  assert_int_equal(strlen(gap__text_str(&text)), text.length);
  assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 3);
  assert_string_equal(gap__text_str(&text) + text.length - 7, "999,!ab");
  gap__text_clear(&text);
  assert_string_equal(gap__text_str(&text), "");
  gap__text_add(&text, "%s", "again");
  char *taken = gap__text_take(&text);
  assert_string_equal(taken, "again");
  assert_string_equal(gap__text_str(&text), "");
  free(taken);
  taken = gap__text_take(&text);
  assert_string_equal(taken, "");
  free(taken);
  gap__text_add_bytes(&text, "x", SIZE_MAX / 2); /* cannot be had: refused before a byte is read */
  assert_true(text.failed);
  assert_null(gap__text_take(&text));
  gap__text_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes),       cmocka_unit_test(test_durations),       cmocka_unit_test(test_thousands),
      cmocka_unit_test(test_parse_sizes), cmocka_unit_test(test_size_round_trip), cmocka_unit_test(test_parse_numbers),
      cmocka_unit_test(test_parse_reals), cmocka_unit_test(test_growing_string),  cmocka_unit_test(test_utf8),
      cmocka_unit_test(test_fit),         cmocka_unit_test(test_plain),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
