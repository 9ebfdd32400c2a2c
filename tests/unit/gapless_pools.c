/* Private pools, trimming, several devices, the page maker. */
#include "support/gapless_try.h"

static const gap_pool_id POOL = {5, 6};

/* What a pinned pool holds stays mapped where it is, whatever anybody asks for. */
static void pinned(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:40MiB");
  uint64_t bytes;
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 20 * MIB);
  try_give(&t, a);
  assert_int_equal(try_trim(&t), 0);
  assert_int_equal(gap__heap_trim(t.heap, 0, POOL, &bytes), 0);
  assert_int_equal(bytes, 0);
  try_refuse(&t, STREAM_A, 22 * MIB, GAP_ENOMEM);
  try_refuse(&t, STREAM_B, 22 * MIB, GAP_ENOMEM);
  try_cap(&t, 10 * MIB);
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  assert_int_equal(try_held(&t), 20 * MIB);
  assert_int_equal(try_stats(&t)->idle_stuck_bytes, 20 * MIB);
  assert_true(try_get_pool(&t, STREAM_A, POOL, 20 * MIB) == a);
  try_give(&t, a);
  try_cap(&t, 40 * MIB);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, POOL), 0);
  try_get(&t, STREAM_B, 40 * MIB);
  try_end(&t);
}

/* Moving inside a pinned pool leaves every old address mapped. */
static void pinned_pool_moves_inside(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:20MiB");
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 8 * MIB), barrier = try_get_pool(&t, STREAM_A, POOL, 4 * MIB);
  try_give(&t, a);
  gap_addr b = try_get_pool(&t, STREAM_A, POOL, 16 * MIB);
  for (int i = 0; i < 20; i++) {
    try_give(&t, b);
    b = try_get_pool(&t, STREAM_A, POOL, (uint64_t)(10 + i % 3 * 3) * MIB);
  }
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  try_give(&t, b), try_give(&t, barrier);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, POOL), 0);
  try_trim(&t);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* Small windows: no address of a pinned pool is vacated, even when there is no better place. */
static void pinned_pool_in_small_windows(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = GIB, .window_max_bytes = 64 * MIB, .address_budget_bytes = 192 * MIB};
  struct try t = try_sim_with(&card, "max_memory:60MiB", GAP__MAKER_OFF);
  uint64_t seed = 4;
  gap_addr at[8] = {0};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  for (int i = 0; i < 3000; i++) {
    gap_addr *slot = &at[try_random(&seed, 8)];
    try_give(&t, *slot);
    uint64_t bytes = try_random(&seed, 24) * MIB + 512;
    int rc = gap__heap_alloc(t.heap, 0, STREAM_A, POOL, bytes, slot);
    assert_true(rc == 0 || rc == GAP_ENOMEM);
    if (rc) *slot = 0;
    if (i % 100 == 0) try_check(&t);
  }
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  try_end(&t);
}

/* What is live in a released pool goes on; once freed it is anybody's. */
static void release_with_live_blocks(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:20MiB");
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 10 * MIB), b = try_get_pool(&t, STREAM_A, POOL, 10 * MIB);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, POOL), 0);
  try_give(&t, a);
  try_refuse(&t, STREAM_A, 10 * MIB, GAP_ENOMEM);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, POOL), 0);
  gap_addr c = try_get(&t, STREAM_A, 10 * MIB);
  try_give(&t, b);
  gap_addr d = try_get(&t, STREAM_B, 10 * MIB);
  assert_int_equal(try_held(&t), 20 * MIB);
  try_give(&t, c), try_give(&t, d);
  try_end(&t);
}

/* A program that makes a pool for each of many graphs, one after the other, never runs out of pools. */
static void many_pools_in_turn(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:64MiB");
  for (uint64_t i = 1; i <= 600; i++) {
    gap_pool_id pool = {i, 0};
    assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
    gap_addr a = try_get_pool(&t, STREAM_A, pool, 5 * MIB);
    try_give(&t, a);
    assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  }
  try_end(&t);
}

static void pools_do_not_mix(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 4 * MIB);
  try_give(&t, a);
  assert_true(try_get(&t, STREAM_A, 4 * MIB) != a);
  assert_true(try_get_pool(&t, STREAM_B, POOL, 4 * MIB) != a);
  assert_true(try_get_pool(&t, STREAM_A, (gap_pool_id){6, 5}, 4 * MIB) != a);
  assert_true(try_get_pool(&t, STREAM_A, POOL, 4 * MIB) == a);
  try_end(&t);
}

/* ---- trim ---- */

static void trim_returns_all_idle_pages(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB, .lag_us = 1000}, "", GAP__MAKER_OFF);
  gap_addr at[30];
  for (int i = 0; i < 30; i++) at[i] = try_get(&t, (gap_stream)(i % 3) * 64, (uint64_t)(i + 1) * MIB);
  for (int i = 0; i < 30; i += 2) try_give(&t, at[i]);
  int64_t returnable = try_stats(&t)->idle_returnable_bytes;
  assert_true(returnable > 100 * (int64_t)MIB);
  uint64_t held = try_held(&t);
  assert_int_equal(try_trim(&t), returnable);
  assert_int_equal(try_held(&t), held - (uint64_t)returnable);
  assert_int_equal(gap__sim_chunk_bytes(t.dev), try_held(&t));
  assert_int_equal(try_stats(&t)->idle_returnable_bytes, 0);
  assert_int_equal(try_stats(&t)->pages_trimmed * (int64_t)PAGE, returnable);
  assert_int_equal(try_trim(&t), 0);
  for (int i = 1; i < 30; i += 2) try_give(&t, at[i]);
  try_trim(&t);
  assert_int_equal(gap__sim_chunk_bytes(t.dev), 0);
  try_end(&t);
}

/* ---- devices ---- */

static void several_devices(void **state) {
  (void)state;
  enum { DEVICES = 4 };
  struct gap__dev *devs[DEVICES];
  gap_heap *heap;
  gap_addr at[DEVICES];
  char text[300];
  for (int i = 0; i < DEVICES; i++)
    assert_int_equal(gap__sim_create(i, &(struct gap__sim_params){.total_bytes = (uint64_t)(i + 2) * GIB}, &devs[i]),
                     0);
  assert_int_equal(gap__heap_create(&(struct gap__heap_params){.devs = devs, .dev_count = DEVICES}, &heap), 0);
  for (int i = 0; i < DEVICES; i++)
    assert_int_equal(gap__heap_alloc(heap, i, 0, DEFAULT, (uint64_t)(i + 1) * 700 * MIB, &at[i]), 0);
  for (int i = 0; i < DEVICES; i++) {
    struct gap__stats stats;
    assert_int_equal(gap__heap_stats(heap, i, &stats), 0);
    assert_int_equal(stats.allocated_bytes[0].current, (int64_t)(i + 1) * 700 * (int64_t)MIB);
    assert_int_equal(gap__sim_chunk_bytes(devs[i]), (uint64_t)(i + 1) * 700 * MIB);
    for (int k = 0; k < i; k++) assert_true(at[i] != at[k]);
  }
  assert_int_equal(gap__heap_set_cap(heap, 1, 1400 * MIB), 0);
  gap_addr more;
  assert_int_equal(gap__heap_alloc(heap, 1, 0, DEFAULT, MIB, &more), GAP_ENOMEM);
  assert_int_equal(gap__heap_alloc(heap, 2, 0, DEFAULT, MIB, &more), 0);
  assert_int_equal(gap__heap_free(heap, more), 0);
  for (int i = DEVICES; i-- > 0;) {
    assert_int_equal(gap__heap_record_stream(heap, at[i], STREAM_B), 0);
    assert_int_equal(gap__heap_free(heap, at[i]), 0);
    assert_int_equal(gap__heap_free(heap, at[i]), GAP_EFREED);
    assert_int_equal(gap__heap_check(heap, i, text, sizeof text), 0);
  }
  gap__heap_destroy(heap);
}

/* ---- the page maker ---- */

static void maker_stepped(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB}, "", GAP__MAKER_STEPPED);
  gap_addr at[300];
  for (int i = 0; i < 300; i++) {
    at[i] = try_get(&t, STREAM_A, 4 * MIB);
    gap__sim_clock_advance(t.dev, 1000000);
    gap__heap_tick(t.heap, 0);
  }
  const struct gap__stats *stats = try_stats(&t);
  assert_true(stats->pages_made_ahead > 300);
  assert_true(stats->pages_made_ahead <= stats->pages_grown);
  assert_true(stats->background_time_us > stats->driver_time_us);
  assert_true(stats->reserved_bytes[0].peak <= (int64_t)(300 * 4 * MIB * 105 / 100));
  int64_t made = stats->pages_made_ahead;
  for (int i = 0; i < 300; i++) try_give(&t, at[i]);
  gap__sim_clock_advance(t.dev, 1000000000);
  for (int i = 0; i < 10; i++) gap__heap_tick(t.heap, 0);
  assert_int_equal(try_stats(&t)->pages_made_ahead, made); /* nothing grows: nothing is made */
  try_end(&t);
}

static void maker_keeps_the_cap(void **state) {
  (void)state;
  struct try t =
      try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB}, "max_memory:100MiB", GAP__MAKER_STEPPED);
  for (int i = 0; i < 20; i++) {
    try_get(&t, STREAM_A, 4 * MIB);
    gap__sim_clock_advance(t.dev, 100000000);
    gap__heap_tick(t.heap, 0);
    assert_true(gap__sim_chunk_bytes(t.dev) <= 100 * MIB);
  }
  try_get(&t, STREAM_B, 20 * MIB); /* what was made ahead serves others at once */
  try_end(&t);
}

/* A step that has grown frees all of it at its end: that lies idle at the arena's end, and is not what the next, larger step
 * waits for. */
static void maker_works_between_steps(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB}, "max_memory:2GiB", GAP__MAKER_STEPPED);
  gap_addr at[20];
  for (int i = 0; i < 20; i++) at[i] = try_get(&t, STREAM_A, 30 * MIB);
  for (int i = 0; i < 20; i++) try_give(&t, at[i]);
  try_get(&t, STREAM_A, 2 * MIB); /* what was freed is one idle block now */
  for (int i = 0; i < 100; i++) {
    gap__sim_clock_advance(t.dev, 1000000);
    gap__heap_tick(t.heap, 0);
  }
  assert_true(try_held(&t) >= 1100 * MIB);
  uint64_t created = try_calls(&t, GAP__CALL_chunk_create), held = try_held(&t);
  try_get(&t, STREAM_A, 1100 * MIB);
  assert_int_equal(try_calls(&t, GAP__CALL_chunk_create), created);
  assert_int_equal(try_held(&t), held);
  try_end(&t);
}

/* A program that gives memory back does not find it made anew a moment later. */
static void trim_ends_making_ahead(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB}, "", GAP__MAKER_STEPPED);
  gap_addr a = try_get(&t, STREAM_A, 200 * MIB);
  gap__sim_clock_advance(t.dev, 1000000);
  gap__heap_tick(t.heap, 0);
  assert_true(try_stats(&t)->pages_made_ahead > 0);
  try_give(&t, a);
  try_trim(&t);
  for (int i = 0; i < 20; i++) {
    gap__sim_clock_advance(t.dev, 1000000);
    gap__heap_tick(t.heap, 0);
  }
  assert_int_equal(try_held(&t), 0);
  try_get(&t, STREAM_A, 4 * MIB); /* the next growth starts it again */
  gap__sim_clock_advance(t.dev, 1000000);
  gap__heap_tick(t.heap, 0);
  assert_true(try_held(&t) > 4 * MIB);
  try_end(&t);
}

static void maker_off(void **state) {
  (void)state;
  struct try t =
      try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB}, "page_maker:False", GAP__MAKER_STEPPED);
  for (int i = 0; i < 50; i++) {
    try_get(&t, STREAM_A, 4 * MIB);
    gap__sim_clock_advance(t.dev, 1000000);
    gap__heap_tick(t.heap, 0);
  }
  assert_int_equal(try_stats(&t)->pages_made_ahead, 0);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pinned),
      cmocka_unit_test(pinned_pool_moves_inside),
      cmocka_unit_test(pinned_pool_in_small_windows),
      cmocka_unit_test(release_with_live_blocks),
      cmocka_unit_test(many_pools_in_turn),
      cmocka_unit_test(pools_do_not_mix),
      cmocka_unit_test(trim_returns_all_idle_pages),
      cmocka_unit_test(several_devices),
      cmocka_unit_test(maker_stepped),
      cmocka_unit_test(maker_keeps_the_cap),
      cmocka_unit_test(maker_works_between_steps),
      cmocka_unit_test(trim_ends_making_ahead),
      cmocka_unit_test(maker_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
