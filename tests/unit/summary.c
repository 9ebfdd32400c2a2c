/* The text summary, usage by stream and pool, and driver calls by kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "core/heap.h"
#include "dev/sim/sim.h"

#define MIB ((uint64_t)1 << 20)

struct fixture {
  gap_heap *heap;
  struct gap__dev *dev;
};

static int set_up(void **state) {
  static struct fixture f;
  struct gap__sim_params params = {.total_bytes = (uint64_t)8 << 30};
  assert_int_equal(gap__sim_create(0, &params, &f.dev), 0);
  struct gap__heap_params heap = {.devs = &f.dev, .dev_count = 1};
  assert_int_equal(gap__heap_create(&heap, &f.heap), 0);
  *state = &f;
  return 0;
}

static int tear_down(void **state) {
  gap__heap_destroy(((struct fixture *)*state)->heap);
  return 0;
}

static gap_addr take(struct fixture *f, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  gap_addr addr;
  assert_int_equal(gap__heap_alloc(f->heap, 0, stream, pool, bytes, &addr), 0);
  return addr;
}

static void test_usage_tells_streams_and_pools_apart(void **state) {
  struct fixture *f = *state;
  gap_pool_id none = {0, 0}, graph = {3, 0};
  assert_int_equal(gap__heap_pool_retain(f->heap, 0, graph), 0);
  take(f, 0, none, 10 * MIB);
  take(f, 0, none, 20 * MIB);
  gap_addr freed = take(f, 7, none, 6 * MIB);
  take(f, 7, graph, 4 * MIB);
  assert_int_equal(gap__heap_free(f->heap, freed), 0);

  struct gap__usage usage[8];
  uint32_t count;
  assert_int_equal(gap__heap_usage(f->heap, 0, usage, 8, &count), 0);
  assert_int_equal(count, 3);
  for (uint32_t i = 0; i < count; i++) {
    const struct gap__usage *u = &usage[i];
    if (u->stream == 0) assert_int_equal(u->live_bytes, 30 * MIB), assert_int_equal(u->live_blocks, 2);
    else if (u->pool.first) assert_int_equal(u->live_bytes, 4 * MIB);
    else assert_int_equal(u->live_bytes, 0), assert_true(u->idle_bytes >= 6 * MIB);
  }
  assert_int_equal(gap__heap_usage(f->heap, 0, usage, 2, &count), GAP_ELIMIT);
}

static void test_driver_calls_by_kind_sum_up(void **state) {
  struct fixture *f = *state;
  struct gap__stats s;
  take(f, 0, (gap_pool_id){0, 0}, 64 * MIB);
  assert_int_equal(gap__heap_stats(f->heap, 0, &s), 0);
  int64_t calls = 0, ns = 0;
  for (int call = 0; call < GAP__CALL_COUNT; call++) {
    calls += s.driver[call].calls + s.driver[call].background_calls;
    ns += s.driver[call].ns;
  }
  assert_int_equal(calls, s.driver_calls);
  assert_int_equal(ns / 1000, s.driver_time_us);
  assert_int_equal(s.driver[GAP__CALL_chunk_create].calls, 32);
  assert_int_equal(s.driver[GAP__CALL_map].calls, 32);

  assert_int_equal(gap__heap_reset_accumulated(f->heap, 0), 0);
  assert_int_equal(gap__heap_stats(f->heap, 0, &s), 0);
  assert_int_equal(s.driver[GAP__CALL_chunk_create].calls, 0);
}

static void test_summary_says_what_matters(void **state) {
  struct fixture *f = *state;
  struct gap__text text = {0};
  gap_addr addr = take(f, 0, (gap_pool_id){0, 0}, 64 * MIB);
  take(f, 5, (gap_pool_id){0, 0}, 2 * MIB);
  assert_int_equal(gap__heap_free(f->heap, addr), 0);
  assert_int_equal(gap__heap_summary(f->heap, 0, &text), 0);
  const char *page = gap__text_str(&text);
  assert_non_null(strstr(page, "device 0"));
  assert_non_null(strstr(page, "idle: 64 MiB could be moved or given back"));
  assert_non_null(strstr(page, "held (reserved)              66 MiB"));
  assert_non_null(strstr(page, "rung grow"));
  assert_non_null(strstr(page, "driver chunk_create"));
  assert_non_null(strstr(page, "0x5"));
  gap__text_free(&text);
  assert_int_equal(gap__heap_summary(f->heap, 9, &text), GAP_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_usage_tells_streams_and_pools_apart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_driver_calls_by_kind_sum_up, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_summary_says_what_matters, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
