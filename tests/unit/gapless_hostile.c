/* Wrong calls on `gapless`: each gets a clear code, and the heap is as good as before. */
#include "support/gapless_try.h"

static void sizes(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:64MiB");
  gap_addr addr = 7;
  assert_int_equal(gap__heap_alloc(t.heap, 0, 0, DEFAULT, 0, &addr), 0);
  assert_int_equal(addr, 0);
  try_give(&t, 0);
  gap_addr one = try_get(&t, 0, 1);
  assert_int_equal(try_stats(&t)->allocated_bytes[0].current, 512);
  assert_int_equal(try_stats(&t)->requested_bytes[0].current, 1);
  try_give(&t, one);
  for (int shift = 60; shift < 64; shift++) try_refuse(&t, 0, (uint64_t)1 << shift, GAP_ETOOBIG);
  try_refuse(&t, 0, UINT64_MAX, GAP_ETOOBIG);
  try_refuse(&t, 0, UINT64_MAX - 511, GAP_ETOOBIG);
  for (int shift = 27; shift < 60; shift++) try_refuse(&t, 0, (uint64_t)1 << shift, GAP_ENOMEM);
  try_end(&t);
}

/* The lengths of these requests, in 512 B, do not fit into 32 bits: nothing may be taken for what is left of them. */
static void sizes_that_wrap(void **state) {
  (void)state;
  static const uint64_t rest[] = {0, 512, 64 * KIB, 2 * MIB, 3 * MIB};
  struct try t = try_sim("max_memory:64MiB");
  gap_addr small = try_get(&t, 0, 512), middle = try_get(&t, 0, 64 * KIB), large = try_get(&t, 0, 3 * MIB);
  gap_addr keep = try_get(&t, 0, 2 * MIB);
  try_give(&t, small), try_give(&t, middle), try_give(&t, large);
  int64_t held = (int64_t)try_held(&t);
  for (int shift = 41; shift < 60; shift += 3)
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
      try_refuse(&t, 0, ((uint64_t)1 << shift) + rest[i], GAP_ENOMEM);
      try_check(&t);
    }
  assert_int_equal(try_stats(&t)->allocation[0].current, 1);
  assert_true((int64_t)try_held(&t) <= held);
  try_give(&t, keep);
  try_give(&t, try_get(&t, 0, 60 * MIB)); /* nothing was lost */
  try_end(&t);
}

/* A card with more than a block can have: the request fails, and is not served by the longest block there is. */
static void longer_than_a_block(void **state) {
  (void)state;
  const uint64_t tib = GIB << 10, lengths[] = {tib - 511, tib - 1, tib, tib + 512, 2 * tib, 2 * tib + 512, 8 * tib};
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 16 * tib}, "chunk_max:1GiB", GAP__MAKER_OFF);
  gap_addr keep = try_get(&t, 0, 2 * MIB);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    try_refuse(&t, 0, lengths[i], GAP_ENOMEM);
    try_check(&t);
  }
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(t.heap, 0, text, sizeof text), 0);
  assert_non_null(strstr(text, "no block can have a TiB or more"));
  try_give(&t, keep);
  try_end(&t);
}

/* A request that can never be served fails without touching what others hold. */
static void too_large_for_the_cap(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:64MiB");
  gap_addr a = try_get(&t, 0, 32 * MIB);
  try_refuse(&t, 0, 64 * MIB + 1, GAP_ENOMEM);
  try_refuse(&t, 0, 33 * MIB, GAP_ENOMEM);
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(t.heap, 0, text, sizeof text), 0);
  assert_non_null(strstr(text, "33"));
  assert_int_equal(try_stats(&t)->num_ooms, 2);
  try_give(&t, a);
  try_give(&t, try_get(&t, 0, 64 * MIB));
  try_end(&t);
}

static void addresses(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr large = try_get(&t, 0, 8 * MIB), small = try_get(&t, 0, 4096), first = try_get(&t, 0, 700);
  gap_addr never[] = {large + 512,          large + 1,   large + 4 * MIB, large + 8 * MIB, small + 512, small + 3,
                      small + 4096 + 65536, first + 512, first + 1};
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    assert_int_equal(gap__heap_free(t.heap, never[i]), GAP_EFREED);
  gap_addr foreign[] = {1,          511,        4096,       1ull << 39,      1ull << 48, (1ull << 49) - 1,
                        1ull << 49, 1ull << 63, UINT64_MAX, UINT64_MAX - 511};
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    assert_int_equal(gap__heap_free(t.heap, foreign[i]), GAP_ENOTMINE);
    assert_int_equal(gap__heap_record_stream(t.heap, foreign[i], STREAM_A), GAP_ENOTMINE);
  }
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    assert_int_equal(gap__heap_record_stream(t.heap, never[i], STREAM_A), GAP_EFREED);
  try_give(&t, large), try_give(&t, small), try_give(&t, first);
  assert_int_equal(gap__heap_free(t.heap, large), GAP_EFREED);
  assert_int_equal(gap__heap_free(t.heap, small), GAP_EFREED);
  assert_int_equal(gap__heap_record_stream(t.heap, large, STREAM_A), GAP_EFREED);
  try_trim(&t);
  assert_int_equal(gap__heap_free(t.heap, large), GAP_EFREED); /* its memory is gone, its address still ours */
  assert_int_equal(try_stats(&t)->allocation[0].freed, 3);
  try_end(&t);
}

/* A pending block is freed already. */
static void pending_is_freed(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = GIB, .lag_us = 100}, "", GAP__MAKER_OFF);
  gap_addr a = try_get(&t, 0, MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  assert_int_equal(gap__heap_free(t.heap, a), GAP_EFREED);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), GAP_EFREED);
  try_end(&t);
}

/* To give memory back, trimming waits for the streams that still use what was freed. */
static void trim_waits_for_pending(void **state) {
  (void)state;
  const char *strategies[] = {"", "strategy:caching_allocator"};
  for (int i = 0; i < 2; i++) {
    struct gap__sim_params card = {.total_bytes = GIB, .lag_us = 100};
    struct try t = try_sim_with(&card, strategies[i], GAP__MAKER_OFF);
    gap_addr a = try_get(&t, 0, 20 * MIB);
    assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
    try_give(&t, a);
    assert_int_equal(try_trim(&t), 20 * MIB);
    assert_int_equal(try_stats(&t)->active_bytes[0].current, 0);
    try_end(&t);
  }
}

static void devices(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr addr;
  struct gap__stats stats;
  uint64_t bytes;
  int wrong[] = {-1, 1, 1 << 30};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gap__heap_alloc(t.heap, wrong[i], 0, DEFAULT, 512, &addr), GAP_EINVAL);
    assert_int_equal(gap__heap_stats(t.heap, wrong[i], &stats), GAP_EINVAL);
    assert_int_equal(gap__heap_trim(t.heap, wrong[i], DEFAULT, &bytes), GAP_EINVAL);
    assert_int_equal(gap__heap_set_cap(t.heap, wrong[i], 1), GAP_EINVAL);
  }
  try_end(&t);
}

static void pools(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_pool_id pool = {3, 4};
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), GAP_ESTATE);
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, DEFAULT), GAP_EINVAL);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, DEFAULT), GAP_EINVAL);
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), GAP_ESTATE);
  try_end(&t);
}

/* An old driver maps no pages: whole driver allocations serve instead, whatever strategy is asked for. */
static void no_vmm(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = GIB, .no_vmm = true};
  const char *strategies[] = {"", "strategy:caching_allocator"};
  for (int i = 0; i < 2; i++) {
    struct try t = try_sim_with(&card, strategies[i], GAP__MAKER_OFF);
    try_give(&t, try_get(&t, 0, 30 * MIB));
    assert_int_equal(try_calls(&t, GAP__CALL_segment_alloc), 1);
    try_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes),
      cmocka_unit_test(sizes_that_wrap),
      cmocka_unit_test(longer_than_a_block),
      cmocka_unit_test(too_large_for_the_cap),
      cmocka_unit_test(addresses),
      cmocka_unit_test(pending_is_freed),
      cmocka_unit_test(trim_waits_for_pending),
      cmocka_unit_test(devices),
      cmocka_unit_test(pools),
      cmocka_unit_test(no_vmm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
