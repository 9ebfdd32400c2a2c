/* What is given back without a call that asks for it: to neighbours on the card, and what nobody has used for long. */
#include <time.h>

#include "support/gapless_try.h"

/* Lets `ms` pass in steps of 10 ms, as a program that does nothing would. */
static void pass(struct try *t, unsigned ms) {
  for (unsigned i = 0; i < ms; i += 10) {
    gap__sim_clock_advance(t->dev, 10000000);
    gap__heap_tick(t->heap, 0);
  }
  try_check(t);
}

static uint64_t free_bytes(struct try *t) {
  uint64_t left = 0, total;
  assert_int_equal(gap__dev_mem_info(t->dev, &left, &total), 0);
  return left;
}

static void neighbours_get_the_reserve_back(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = 4 * GIB};
  struct try t = try_sim_with(&card, "reserve:512MiB", GAP__MAKER_OFF);
  gap_addr a = try_get(&t, STREAM_A, 1 * GIB), b = try_get(&t, STREAM_B, 2 * GIB);
  try_give(&t, b);
  pass(&t, 1000);
  assert_int_equal(try_held(&t), 3 * GIB); /* nobody needs it */
  gap__sim_neighbour_set(t.dev, 1 * GIB);
  assert_int_equal(free_bytes(&t), 0);
  pass(&t, 300);
  assert_int_equal(free_bytes(&t), 512 * MIB);
  assert_int_equal(try_held(&t), 2560 * MIB); /* no more than it takes */
  gap__sim_neighbour_set(t.dev, 3 * GIB);
  pass(&t, 2000);
  assert_int_equal(try_held(&t), 1 * GIB); /* what lives stays, though the reserve is not free */
  try_give(&t, a);
  try_end(&t);
}

static void no_reserve_no_question(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:1GiB");
  try_give(&t, try_get(&t, STREAM_A, 100 * MIB));
  uint64_t asked = try_calls(&t, GAP__CALL_mem_info);
  pass(&t, 2000);
  assert_int_equal(try_calls(&t, GAP__CALL_mem_info), asked);
  assert_int_equal(try_held(&t), 100 * MIB);
  try_end(&t);
}

static void idle_memory_goes_by_age(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:1000,page_maker:False");
  gap_addr kept = try_get(&t, STREAM_A, 10 * MIB), early = try_get(&t, STREAM_A, 64 * MIB),
           late = try_get(&t, STREAM_A, 32 * MIB);
  try_give(&t, early);
  pass(&t, 600);
  try_give(&t, late);
  pass(&t, 350);
  assert_int_equal(try_held(&t), 106 * MIB); /* nothing is a second old */
  pass(&t, 350);
  assert_int_equal(try_held(&t), 42 * MIB); /* at most a quarter late */
  pass(&t, 600);
  assert_int_equal(try_held(&t), 10 * MIB);
  pass(&t, 3000);
  assert_int_equal(try_held(&t), 10 * MIB);
  try_give(&t, kept);
  try_end(&t);
}

/* However long the program has run, and while it goes on: between once and 1.25 times the age. */
static void at_any_time(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = 4 * GIB, .lag_us = 20000};
  struct try t = try_sim_with(&card, "trim_after_ms:1000,page_maker:False", GAP__MAKER_OFF);
  gap_addr busy = try_get(&t, STREAM_A, 20 * MIB);
  for (unsigned round = 0; round < 12; round++) {
    gap_addr once = try_get(&t, STREAM_A, 64 * MIB), apart = try_get(&t, STREAM_A, 2 * MIB);
    try_give(&t, once);
    unsigned gone = 0;
    for (unsigned ms = 0; ms < 1700; ms += 10) {
      try_give(&t, busy);
      busy = try_get(&t, STREAM_A, 20 * MIB);
      gap__sim_clock_advance(t.dev, 10000000);
      gap__heap_tick(t.heap, 0);
      if (!gone && try_held(&t) < 80 * MIB) gone = ms + 10;
    }
    if (gone < 1000 || gone > 1280) fail_msg("round %u: gone after %u ms", round, gone);
    try_give(&t, apart);
  }
  try_give(&t, busy);
  try_end(&t);
}

/* An age of many looks: the notes reach back as far as it does. */
static void a_long_age(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:60000,page_maker:False");
  try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
  pass(&t, 59000);
  assert_int_equal(try_held(&t), 64 * MIB);
  pass(&t, 17000);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* Old memory between younger pages. */
static void the_middle_of_an_idle_stretch(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:1000,page_maker:False");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB), b = try_get(&t, STREAM_A, 30 * MIB),
           c = try_get(&t, STREAM_A, 40 * MIB);
  try_give(&t, b);
  pass(&t, 600);
  try_give(&t, a), try_give(&t, c);
  pass(&t, 700);
  assert_int_equal(try_held(&t), 60 * MIB);
  pass(&t, 600);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

static void used_memory_stays(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:400,page_maker:False");
  for (int i = 0; i < 30; i++) {
    try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
    pass(&t, 200);
  }
  assert_int_equal(try_held(&t), 64 * MIB);
  assert_int_equal(try_stats(&t)->pages_grown, 32);
  pass(&t, 600);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* Small blocks share a page: it goes when the last of them is old. */
static void pages_of_small_blocks(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:100,page_maker:False");
  gap_addr a = try_get(&t, STREAM_A, 4096), b = try_get(&t, STREAM_A, 4096);
  try_give(&t, a);
  pass(&t, 500);
  assert_int_equal(try_held(&t), 2 * MIB);
  try_give(&t, b);
  pass(&t, 200);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* What the device still uses is not waited for. */
static void work_is_not_waited_for(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:100,page_maker:False");
  gap_addr a = try_get(&t, STREAM_A, 64 * MIB);
  gap__sim_stream_hold(t.dev, STREAM_A);
  try_give(&t, a);
  pass(&t, 1000);
  assert_int_equal(try_held(&t), 64 * MIB);
  assert_int_equal(try_stats(&t)->stalls, 0);
  gap__sim_stream_release(t.dev, STREAM_A);
  pass(&t, 200);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

static void private_pools_keep_theirs(void **state) {
  (void)state;
  struct try t = try_sim("trim_after_ms:100,page_maker:False");
  gap_pool_id pool = {0, 5};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  try_give(&t, try_get_pool(&t, STREAM_A, pool, 64 * MIB));
  pass(&t, 1000);
  assert_int_equal(try_held(&t), 64 * MIB);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  pass(&t, 200);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* With real time the page maker's thread watches. */
static void by_the_thread(void **state) {
  (void)state;
  struct gap__host_params card = {.total_bytes = 256 * MIB};
  struct try t = try_host(&card, "trim_after_ms:40", GAP__MAKER_THREAD);
  try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
  for (int i = 0; i < 400 && try_held(&t); i++) nanosleep(&(struct timespec){0, 10000000}, NULL);
  assert_int_equal(try_held(&t), 0);
  assert_true(try_stats(&t)->pages_trimmed >= 32);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_get_the_reserve_back),
      cmocka_unit_test(no_reserve_no_question),
      cmocka_unit_test(idle_memory_goes_by_age),
      cmocka_unit_test(used_memory_stays),
      cmocka_unit_test(at_any_time),
      cmocka_unit_test(a_long_age),
      cmocka_unit_test(the_middle_of_an_idle_stretch),
      cmocka_unit_test(pages_of_small_blocks),
      cmocka_unit_test(work_is_not_waited_for),
      cmocka_unit_test(private_pools_keep_theirs),
      cmocka_unit_test(by_the_thread),
  };
  return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
