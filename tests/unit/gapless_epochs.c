/* When may an address be unmapped, and when may a page serve another stream? */
#include <pthread.h>

#include "support/gapless_try.h"

#define LAG_US 20000

static struct try lagging(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB, .lag_us = LAG_US}, conf, GAP__MAKER_OFF);
}
static void pass(struct try *t) { gap__sim_clock_advance(t->dev, 2ull * LAG_US * 1000); }

/* Frees the first of two blocks and asks for one that fits into no hole: its pages move. */
static gap_addr move_own_pages(struct try *t, gap_addr *barrier) {
  gap_addr a = try_get(t, STREAM_A, 8 * MIB);
  *barrier = try_get(t, STREAM_A, 4 * MIB);
  try_give(t, a);
  return try_get(t, STREAM_A, 16 * MIB);
}

/* The same stream takes its own pages at once: mapped at the new address first, the old mapping stays. */
static void alias_first(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr barrier;
  move_own_pages(&t, &barrier);
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  assert_int_equal(try_calls(&t, GAP__CALL_event_wait), 0);
  assert_int_equal(try_stats(&t)->pages_stolen, 4);
  assert_int_equal(try_stats(&t)->pages_stolen_alias, 4);
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(try_held(&t), 20 * MIB);
  try_end(&t);
}

/* Pages that come back to where they are still mapped cost no driver call. */
static void lent_mappings_come_back(void **state) {
  (void)state;
  struct try t = lagging("max_memory:26MiB");
  gap_addr a = try_get(&t, STREAM_A, 8 * MIB), barrier = try_get(&t, STREAM_A, 4 * MIB),
           wall = try_get(&t, STREAM_A, 2 * MIB);
  try_give(&t, a);
  gap_addr big = try_get(&t, STREAM_A, 20 * MIB); /* begins with the four pages of a */
  try_give(&t, big);
  uint64_t maps = try_calls(&t, GAP__CALL_map), access = try_calls(&t, GAP__CALL_set_access);
  gap_addr front = try_get(&t, STREAM_A, 8 * MIB), rest = try_get(&t, STREAM_A, 12 * MIB);
  assert_true(front == a && rest == big + 8 * MIB);
  try_give(&t, front), try_give(&t, barrier);
  assert_true(try_get(&t, STREAM_A, 12 * MIB) == a); /* four pages that came back and the barrier's two */
  assert_int_equal(try_calls(&t, GAP__CALL_map), maps);
  assert_int_equal(try_calls(&t, GAP__CALL_set_access), access);
  assert_int_equal(try_stats(&t)->pages_reclaimed_mapping, 4);
  try_give(&t, a), try_give(&t, rest), try_give(&t, wall);
  try_end(&t);
}

/* Another stream's pages: not before their epoch, unless the asking stream is ordered behind it. */
static void other_stream_is_ordered_behind(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_B, 20 * MIB);
  assert_true(try_calls(&t, GAP__CALL_stream_wait) >= 1);
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  try_give(&t, b);
  try_end(&t);
}

static void other_stream_when_its_epoch_is_complete(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  try_refuse(&t, STREAM_A, 22 * MIB, GAP_ENOMEM);
  pass(&t);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 0);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_end(&t);
}

/* Real bytes, queues run by hand.  Pages that moved for a request which then failed are still used, at their old address, by
 * the stream that freed them: no other stream may have them before that work is done. */
static void pages_of_a_failed_request(void **state) {
  (void)state;
  struct gap__host_params card = {.total_bytes = 64 * MIB, .manual = true};
  struct try t = try_host(&card, "max_memory:24MiB", GAP__MAKER_OFF);
  gap_addr a = try_get(&t, STREAM_A, 6 * MIB), next = try_get(&t, STREAM_A, 6 * MIB),
           wall = try_get(&t, STREAM_A, 2 * MIB);
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_A, 16 * MIB); /* begins with all three pages of a, which stay mapped there */
  gap__host_run_all(t.dev);
  try_give(&t, b);
  gap_addr front = try_get(&t, STREAM_A, 8 * MIB), rest = try_get(&t, STREAM_A, 8 * MIB);
  assert_true(front == b);
  try_give(&t, next);
  gap__host_run_all(t.dev);
  gap_addr other = try_get(&t, STREAM_B, 6 * MIB); /* has the pages of `next`: behind them none is idle */
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_fill(t.dev, front, 8 * MIB, 0xbbbbbbbb, STREAM_A), 0);
  try_give(&t, front);
  try_refuse(&t, STREAM_A, 12 * MIB, GAP_ENOMEM); /* takes three pages back to a's place, and finds one more */
  assert_int_equal(try_stats(&t)->pages_reclaimed_mapping > 0, 1);
  gap_addr c = try_get(&t, STREAM_B, 6 * MIB);
  assert_int_equal(gap__host_fill(t.dev, c, 6 * MIB, 0xcccccccc, STREAM_B), 0);
  gap__host_run(t.dev, STREAM_B, UINT64_MAX);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_expect(t.dev, c, 6 * MIB, 0xcccccccc, STREAM_B), 0);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_give(&t, c), try_give(&t, other), try_give(&t, rest), try_give(&t, wall);
  gap__host_run_all(t.dev);
  try_end(&t);
}

static void record_stream(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 4 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_A), 0); /* its own stream: nothing to wait for */
  try_give(&t, a);
  assert_true(try_get(&t, STREAM_A, 4 * MIB) == a);
  for (int i = 0; i < 3; i++) assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0); /* once is enough */
  assert_int_equal(gap__heap_record_stream(t.heap, a, 4096), 0);
  uint64_t records = try_calls(&t, GAP__CALL_event_record);
  try_give(&t, a);
  assert_int_equal(try_calls(&t, GAP__CALL_event_record), records + 2);
  gap_addr b = try_get(&t, STREAM_A, 4 * MIB);
  assert_true(b != a);
  assert_int_equal(try_stats(&t)->active[0].current, 2);
  assert_int_equal(try_stats(&t)->allocation[0].current, 1);
  pass(&t);
  try_trim(&t);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  try_give(&t, b);
  try_end(&t);
}

/* The default stream has two names. */
static void stream_one_is_stream_zero(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, 0, 4 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, 1), 0);
  try_give(&t, a);
  assert_true(try_get(&t, 1, 4 * MIB) == a);
  try_give(&t, a);
  try_end(&t);
}

static void retired_stream(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  assert_int_equal(gap__heap_retire_stream(t.heap, 0, STREAM_A), 0);
  assert_int_equal(gap__heap_retire_stream(t.heap, 0, 999 * 64), 0); /* never seen: nothing to do */
  pass(&t);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), 0);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_end(&t);
}

/* The handle names a new stream: what the old one left is ready, and the lane serves on. */
static void recycled_handle(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  gap__sim_stream_recycle(t.dev, STREAM_A);
  gap_addr b = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, b);
  for (int i = 0; i < 3; i++) {
    gap__sim_stream_recycle(t.dev, STREAM_A);
    try_give(&t, try_get(&t, STREAM_A, (uint64_t)(i + 1) * 3 * MIB));
    try_give(&t, try_get(&t, STREAM_B, (uint64_t)(i + 1) * 4 * MIB));
    try_check(&t);
  }
  assert_true(try_held(&t) <= 20 * MIB);
  try_end(&t);
}

/* What the new stream of a reused handle has freed is not ready because the old stream's work is. */
static void recycled_handle_is_busy(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  gap__sim_stream_recycle(t.dev, STREAM_A);
  a = try_get(&t, STREAM_A, 20 * MIB);
  gap__sim_stream_hold(t.dev, STREAM_A);
  try_give(&t, a);
  try_give(&t, try_get(&t, STREAM_B, 20 * MIB));
  assert_int_equal(try_stats(&t)->stalls, 1);
  try_end(&t);
}

/* A request that cannot be served ends, also after a handle was reused. */
static void recycled_handle_does_not_hold_up(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 4 * MIB);
  try_give(&t, a);
  try_refuse(&t, STREAM_A, 20 * MIB + 1, GAP_ENOMEM);
  try_give(&t, try_get(&t, STREAM_A, 4 * MIB));
  gap__sim_stream_recycle(t.dev, STREAM_A);
  gap_addr b = try_get(&t, STREAM_B, 8 * MIB);
  try_refuse(&t, STREAM_B, 20 * MIB, GAP_ENOMEM);
  try_give(&t, b);
  try_end(&t);
}

struct asking {
  struct try *t;
  gap_addr addr, other;
};

static void *ask_per_thread(void *arg) {
  struct asking *asking = arg;
  asking->addr = try_get(asking->t, 2, 4 * MIB);
  try_give(asking->t, asking->addr);
  asking->other = try_get(asking->t, 2, 4 * MIB);
  try_give(asking->t, asking->other);
  return NULL;
}

/* Stream 2 is another stream in each thread. */
static void per_thread_default_stream(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr mine = try_get(&t, 2, 4 * MIB);
  try_give(&t, mine);
  struct asking asking = {.t = &t};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, ask_per_thread, &asking), 0);
  pthread_join(thread, NULL);
  assert_true(asking.addr != mine);
  assert_true(asking.addr == asking.other);
  assert_true(try_get(&t, 2, 4 * MIB) == mine);
  try_end(&t);
}

/* No event on a stream that is being captured, no query of one, nothing unmapped in the pool. */
static void capture(void **state) {
  (void)state;
  struct try t = lagging("max_memory:40MiB");
  gap_pool_id pool = {1, 7};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  gap__sim_stream_capture(t.dev, STREAM_A, true);
  uint64_t records = try_calls(&t, GAP__CALL_event_record), waits = try_calls(&t, GAP__CALL_stream_wait);
  gap_addr at[6];
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 6; i++) at[i] = try_get_pool(&t, STREAM_A, pool, (uint64_t)(i + 1 + round % 3) * MIB);
    for (int i = 0; i < 6; i++) try_give(&t, at[i]);
  }
  assert_int_equal(try_calls(&t, GAP__CALL_event_record), records);
  assert_int_equal(try_calls(&t, GAP__CALL_event_query) + try_calls(&t, GAP__CALL_event_wait), 0);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), waits);
  assert_int_equal(try_calls(&t, GAP__CALL_unmap), 0);
  gap__sim_stream_capture(t.dev, STREAM_A, false);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  try_end(&t);
}

/* Many epochs in flight: the ring of marks fills, nothing is lost. */
static void many_epochs_in_flight(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = GIB, .lag_us = 1000000}, "max_memory:32MiB",
                              GAP__MAKER_OFF);
  try_get(&t, STREAM_B, 512);
  for (int i = 0; i < 20000; i++) try_give(&t, try_get(&t, STREAM_A, (uint64_t)(i % 60 + 1) * 4096));
  try_check(&t);
  gap__sim_clock_advance(t.dev, 2000000000);
  try_give(&t, try_get(&t, STREAM_B, 30 * MIB));
  assert_true(try_stats(&t)->stalls <= 1);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alias_first),
      cmocka_unit_test(lent_mappings_come_back),
      cmocka_unit_test(other_stream_is_ordered_behind),
      cmocka_unit_test(other_stream_when_its_epoch_is_complete),
      cmocka_unit_test(pages_of_a_failed_request),
      cmocka_unit_test(record_stream),
      cmocka_unit_test(stream_one_is_stream_zero),
      cmocka_unit_test(retired_stream),
      cmocka_unit_test(recycled_handle),
      cmocka_unit_test(recycled_handle_is_busy),
      cmocka_unit_test(recycled_handle_does_not_hold_up),
      cmocka_unit_test(per_thread_default_stream),
      cmocka_unit_test(capture),
      cmocka_unit_test(many_epochs_in_flight),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
