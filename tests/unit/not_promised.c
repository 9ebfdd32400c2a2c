/* What docs/reliability.md says is not promised: that it is so, and what helps. */
#include "support/tier_try.h"

#define QUIET "page_maker:False,reserve:0"
#define BYTES (20 * MIB)

/* Another stream reads a block after it was freed, and a third one writes what has its memory then: only if the heap was told does it wait. */
static uint64_t faults_of_a_late_reader(bool told) {
  struct try t = try_host(&(struct gap__host_params){.total_bytes = 64 * MIB, .manual = true}, QUIET, GAP__MAKER_OFF);
  gap_addr a = try_get(&t, STREAM_A, BYTES);
  assert_int_equal(gap__host_fill(t.dev, a, BYTES, 1, STREAM_A), 0);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_expect(t.dev, a, BYTES, 1, STREAM_B), 0);
  if (told) assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_A, BYTES);
  assert_int_equal(gap__host_fill(t.dev, b, BYTES, 2, STREAM_A), 0);
  gap__host_run(t.dev, STREAM_A, UINT64_MAX); /* the late reader has not run yet */
  gap__host_run_all(t.dev);
  uint64_t faults = gap__host_faults(t.dev);
  try_give(&t, b);
  try_end(&t);
  return faults;
}

static void work_that_the_heap_never_heard_of(void **state) {
  (void)state;
  assert_int_equal(faults_of_a_late_reader(true), 0);
  assert_true(faults_of_a_late_reader(false) > 0);
}

/* What was written although it was declared unchanged is lost: the earlier copy comes back. */
static void memory_that_was_not_unchanged(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(128 * MIB, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, BYTES);
  for (int told = 0; told < 2; told++) {
    tier_try_fill(a, BYTES, 1);
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    assert_int_equal(tier_try_wake(&s, "weights", GAP_WAKE_KEEP), 0);
    tier_try_fill(a, BYTES, 2);
    assert_int_equal(tier_try_sleep(&s, "weights", told ? 0 : GAP_SLEEP_UNCHANGED), 0);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    assert_true(tier_try_filled(a, BYTES, told ? 2 : 1));
  }
  try_give(&s.t, a);
  tier_try_close(&s);
}

/* Who gets a block sees what the last one left in it. */
static void idle_memory_keeps_its_bytes(void **state) {
  (void)state;
  struct try t = try_host(&(struct gap__host_params){.total_bytes = 64 * MIB}, QUIET, GAP__MAKER_OFF);
  gap_addr a = try_get(&t, STREAM_A, BYTES);
  tier_try_fill(a, BYTES, 1);
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_A, BYTES);
  assert_true(tier_try_filled(b, BYTES, 1));
  try_give(&t, b);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(work_that_the_heap_never_heard_of),
      cmocka_unit_test(memory_that_was_not_unchanged),
      cmocka_unit_test(idle_memory_keeps_its_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
