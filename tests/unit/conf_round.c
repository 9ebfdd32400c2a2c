/* Rounding: torch 2.11's rule, against a second way to compute it. */
#include "conf_try.h"

static struct gap__conf values_of(const char *string) {
  struct try try = try_string(string);
  assert_int_equal(try.result, 0);
  struct gap__conf values = *gap__conf_values(try.set);
  try_end(&try);
  return values;
}

/* By search instead of by bits: the least multiple of the step that is not below the request. */
static uint64_t by_search(const struct gap__conf *conf, uint64_t bytes) {
  uint64_t floor = 1, slot = 0;
  if (bytes < 512) return 512;
  while (floor <= bytes / 2) floor *= 2;
  for (uint64_t boundary = 2 * MIB; boundary <= floor && slot < 15; boundary *= 2) slot++;
  uint64_t divisions = conf->roundup_power2_divisions[slot];
  uint64_t step = divisions > 1 && bytes > 512 * divisions ? floor / divisions : 512;
  return bytes % step ? bytes - bytes % step + step : bytes;
}

static void slots(void **state) {
  (void)state;
  struct gap__conf conf = values_of("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  const uint32_t expected[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
  assert_memory_equal(conf.roundup_power2_divisions, expected, sizeof expected);
  conf = values_of("roundup_power2_divisions:[>:8]");
  const uint32_t only_rest[16] = {0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  assert_memory_equal(conf.roundup_power2_divisions, only_rest, sizeof only_rest);
  conf = values_of("roundup_power2_divisions:[4:2,32:8]"); /* what lies between keeps 0 */
  const uint32_t gaps[16] = {2, 2, 2, 0, 0, 8};
  assert_memory_equal(conf.roundup_power2_divisions, gaps, sizeof gaps);
  conf = values_of("roundup_power2_divisions:[1048576:16]"); /* beyond the last slot: the last, and all below it */
  for (int i = 0; i < 16; i++) assert_int_equal(conf.roundup_power2_divisions[i], 16);
  conf = values_of("roundup_power2_divisions:[64:4,16:2,>:8]"); /* > counts from the boundary before it */
  const uint32_t backwards[16] = {4, 4, 4, 4, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  assert_memory_equal(conf.roundup_power2_divisions, backwards, sizeof backwards);
  conf = values_of("roundup_power2_divisions:4");
  for (int i = 0; i < 16; i++) assert_int_equal(conf.roundup_power2_divisions[i], 4);
}

static void plain(void **state) {
  (void)state;
  struct gap__conf conf = values_of("");
  const uint64_t cases[][2] = {{1, 512}, {511, 512}, {512, 512}, {513, 1024}, {MIB + 1, MIB + 512}, {GIB - 1, GIB}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(gap__conf_round(&conf, cases[i][0]), cases[i][1]);
}

static void divisions(void **state) {
  (void)state;
  struct gap__conf conf = values_of("roundup_power2_divisions:4");
  const uint64_t cases[][2] = {{1200, 1536}, {2048, 2048},           {2049, 2560},
                               {2561, 3072}, {3073, 3584},           {MIB + 1, MIB + MIB / 4},
                               {MIB, MIB},   {2 * MIB - 1, 2 * MIB}, {GIB + GIB / 2 + 1, GIB / 4 * 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(gap__conf_round(&conf, cases[i][0]), cases[i][1]);
}

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 11;
}

static void check_all(const char *string) {
  struct gap__conf conf = values_of(string);
  uint64_t seed = 1;
  for (int i = 0; i < 200000; i++) {
    uint64_t bytes = 1 + (next_random(&seed) >> (next_random(&seed) % 48));
    if (gap__conf_round(&conf, bytes) != by_search(&conf, bytes))
      fail_msg("%s: %llu becomes %llu", string, (unsigned long long)bytes,
               (unsigned long long)gap__conf_round(&conf, bytes));
  }
  for (int shift = 0; shift < 60; shift++)
    for (int64_t near = -1; near <= 1; near++) {
      uint64_t bytes = ((uint64_t)1 << shift) + (uint64_t)near;
      if (bytes) assert_int_equal(gap__conf_round(&conf, bytes), by_search(&conf, bytes));
    }
}

static void any_size_any_divisions(void **state) {
  (void)state;
  check_all("");
  check_all("roundup_power2_divisions:1");
  check_all("roundup_power2_divisions:2");
  check_all("roundup_power2_divisions:8");
  check_all("roundup_power2_divisions:2147483648");
  check_all("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  check_all("roundup_power2_divisions:[32:256,64:128,256:64,>:32]");
}

static void granularity(void **state) {
  (void)state;
  struct gap__conf conf = values_of("granularity:64K,roundup_power2_divisions:8");
  assert_int_equal(gap__conf_round(&conf, 1), 65536);
  assert_int_equal(gap__conf_round(&conf, 65537), 131072);
  assert_int_equal(gap__conf_round(&conf, 9 * MIB + 1), 10 * MIB);
}

static void sizes_near_the_end_do_not_wrap(void **state) {
  (void)state;
  struct gap__conf conf = values_of("");
  assert_true(gap__conf_round(&conf, UINT64_MAX) == UINT64_MAX);
  assert_true(gap__conf_round(&conf, UINT64_MAX - 510) == UINT64_MAX);
  assert_true(gap__conf_round(&conf, UINT64_MAX - 511) == UINT64_MAX - 511);
  conf = values_of("roundup_power2_divisions:2,granularity:2M");
  assert_true(gap__conf_round(&conf, UINT64_MAX - 5) == UINT64_MAX);
  assert_true(gap__conf_round(&conf, (uint64_t)1 << 63) == (uint64_t)1 << 63);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slots),       cmocka_unit_test(plain),
      cmocka_unit_test(divisions),   cmocka_unit_test(any_size_any_divisions),
      cmocka_unit_test(granularity), cmocka_unit_test(sizes_near_the_end_do_not_wrap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
