/* The simulated card: prices, lag and holds, the worker's timeline, neighbours, windows, recorded segments. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/sim/sim.h"

#define PAGE GAP__PAGE
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static struct gap__dev *card_with(struct gap__sim_params params) {
  struct gap__dev *dev = NULL;
  if (params.total_bytes == 0) params.total_bytes = 80 * GIB;
  assert_int_equal(gap__sim_create(0, &params, &dev), 0);
  return dev;
}
#define card(...) card_with((struct gap__sim_params){__VA_ARGS__})

static gap_addr window(struct gap__dev *dev, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__dev_reserve(dev, bytes, PAGE, &addr), 0);
  return addr;
}
static gap__chunk chunk(struct gap__dev *dev, uint64_t bytes) {
  gap__chunk made = 0;
  assert_int_equal(gap__dev_chunk_create(dev, bytes, GAP__PLACE_DEVICE, &made), 0);
  return made;
}
static gap__event recorded(struct gap__dev *dev, gap_stream stream) {
  gap__event event = 0;
  assert_int_equal(gap__dev_event_create(dev, stream, &event), 0);
  assert_int_equal(gap__dev_event_record(dev, event, stream), 0);
  return event;
}

/* The time of one call in ns, by the clock. */
static uint64_t last_ns;
static uint64_t elapsed(struct gap__dev *dev) {
  uint64_t now = gap__dev_now_ns(dev), ns = now - last_ns;
  last_ns = now;
  return ns;
}

static void test_idle_prices(void **state) {
  (void)state;
  static const struct {
    uint64_t mib;
    unsigned create_ns, map_ns, access_ns, unmap_ns, release_ns;
  } cases[] = {
      {2, 12000, 1300, 26000, 18000, 12000},       {20, 11000, 1000, 26000, 17000, 28000},
      {64, 12000, 1100, 43000, 25000, 64000},      {256, 18000, 1500, 49000, 26000, 143000},
      {1024, 112000, 2300, 89000, 39000, 558000},  {42, 11500, 1050, 34500, 21000, 46000},
      {1792, 206000, 3100, 129000, 52000, 973000},
  };
  struct gap__dev *dev = card(.prices = &gap__sim_prices_idle);
  gap_addr addr = window(dev, 2 * GIB);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t bytes = cases[i].mib * MIB;
    elapsed(dev);
    gap__chunk c = chunk(dev, bytes);
    assert_int_equal(elapsed(dev), cases[i].create_ns);
    assert_int_equal(gap__dev_map(dev, addr, bytes, c), 0);
    assert_int_equal(elapsed(dev), cases[i].map_ns);
    assert_int_equal(gap__dev_set_access(dev, addr, bytes), 0);
    assert_int_equal(elapsed(dev), cases[i].access_ns);
    assert_int_equal(gap__dev_unmap(dev, addr, bytes), 0);
    assert_int_equal(elapsed(dev), cases[i].unmap_ns);
    assert_int_equal(gap__dev_chunk_release(dev, c), 0);
    assert_int_equal(elapsed(dev), cases[i].release_ns);
  }
  gap__dev_destroy(dev);
}

enum { QUERY_NS = 2400 }; /* of the live prices */

static void test_live_prices_of_a_page(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap_addr addr = window(dev, PAGE);
  elapsed(dev);
  gap__chunk c = chunk(dev, PAGE);
  assert_int_equal(elapsed(dev), 19000);
  gap__dev_map(dev, addr, PAGE, c);
  assert_int_equal(elapsed(dev), 2800);
  gap__dev_set_access(dev, addr, PAGE);
  assert_int_equal(elapsed(dev), 40000);
  gap__dev_unmap(dev, addr, PAGE);
  assert_int_equal(elapsed(dev), 27000);
  gap__dev_chunk_release(dev, c);
  assert_int_equal(elapsed(dev), 18000);
  gap__event event = recorded(dev, 5);
  assert_int_equal(elapsed(dev), 2000 + 2700);
  gap__dev_event_query(dev, event);
  assert_int_equal(elapsed(dev), QUERY_NS);
  assert_int_equal(dev->counters.ns[GAP__CALL_set_access], 40000);
  gap__dev_destroy(dev);
}

static void test_access_is_paid_per_chunk(void **state) {
  (void)state;
  struct gap__dev *dev = card(.prices = &gap__sim_prices_idle);
  gap_addr addr = window(dev, GIB);
  for (unsigned i = 0; i < 512; i++) gap__dev_map(dev, addr + i * PAGE, PAGE, chunk(dev, PAGE));
  elapsed(dev);
  assert_int_equal(gap__dev_set_access(dev, addr, GIB), 0);
  assert_int_equal(elapsed(dev), 512 * 26000);
  gap__dev_destroy(dev);
}

static void test_a_failing_create_costs(void **state) {
  (void)state;
  struct gap__dev *dev = card(.total_bytes = GIB, .context_bytes = GIB / 2);
  gap__chunk c = chunk(dev, GIB / 2);
  elapsed(dev);
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &c), GAP_ENOMEM);
  assert_int_equal(elapsed(dev), 58000);
  gap__dev_destroy(dev);
}

static void test_clock_moves_forward_only(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap__sim_clock_set(dev, 1000);
  gap__sim_clock_set(dev, 500);
  assert_int_equal(gap__dev_now_ns(dev), 1000);
  gap__sim_clock_advance(dev, 10);
  assert_int_equal(gap__dev_now_ns(dev), 1010);
  gap__dev_destroy(dev);
}

static void test_lag(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 100);
  gap__event event = recorded(dev, 5);
  uint64_t done = gap__dev_now_ns(dev) + 100000;
  gap__sim_clock_set(dev, done - QUERY_NS - 1); /* the query itself takes time */
  assert_int_equal(gap__dev_event_query(dev, event), GAP_EAGAIN);
  assert_int_equal(gap__dev_event_query(dev, event), 0);
  gap__event waited = recorded(dev, 5);
  done = gap__dev_now_ns(dev) + 100000;
  assert_int_equal(gap__dev_event_wait(dev, waited), 0);
  assert_int_equal(gap__dev_now_ns(dev), done);
  elapsed(dev);
  assert_int_equal(gap__dev_event_wait(dev, waited), 0); /* no second lag */
  assert_int_equal(elapsed(dev), QUERY_NS);
  gap__dev_destroy(dev);
}

static void test_a_shorter_lag_keeps_stream_order(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 1000);
  gap__event first = recorded(dev, 5);
  gap__sim_lag_set(dev, 0);
  gap__event second = recorded(dev, 5), other = recorded(dev, 6);
  assert_int_equal(gap__dev_event_query(dev, other), 0);
  assert_int_equal(gap__dev_event_query(dev, second), GAP_EAGAIN);
  gap__dev_event_wait(dev, second);
  assert_int_equal(gap__dev_event_query(dev, first), 0);
  gap__dev_destroy(dev);
}

static void test_hold_and_release(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 10);
  gap__event before = recorded(dev, 5);
  gap__sim_stream_hold(dev, 5);
  gap__event held = recorded(dev, 5), other = recorded(dev, 6);
  gap__sim_clock_advance(dev, GIB);
  assert_int_equal(gap__dev_event_query(dev, before), 0);
  assert_int_equal(gap__dev_event_query(dev, other), 0);
  assert_int_equal(gap__dev_event_query(dev, held), GAP_EAGAIN);
  gap__sim_stream_release(dev, 5);
  assert_int_equal(gap__dev_event_query(dev, held), 0);
  gap__dev_destroy(dev);
}

static void test_waiting_lets_a_held_event_through(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 10);
  gap__sim_stream_hold(dev, 5);
  gap__event first = recorded(dev, 5), second = recorded(dev, 5), third = recorded(dev, 5);
  gap__sim_clock_advance(dev, GIB);
  elapsed(dev);
  assert_int_equal(gap__dev_event_wait(dev, second), 0);
  assert_int_equal(elapsed(dev), 10000 + QUERY_NS);
  assert_int_equal(gap__dev_event_query(dev, first), 0);
  assert_int_equal(gap__dev_event_query(dev, third), GAP_EAGAIN); /* still held */
  gap__dev_destroy(dev);
}

static void test_worker_has_its_own_time(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap__sim_clock_set(dev, 1000000);
  gap__dev_background_ask(dev);
  assert_false(gap__dev_background_idle(dev)); /* no time has passed since */
  gap__sim_clock_advance(dev, 40000);
  unsigned made = 0;
  for (; gap__dev_background_idle(dev); made++) {
    gap__dev_background(dev, true);
    chunk(dev, PAGE);
    gap__dev_background(dev, false);
  }
  assert_int_equal(made, 3); /* begun at 0, 19 and 38 us of 40 */
  assert_int_equal(gap__dev_now_ns(dev), 1040000);
  assert_int_equal(dev->counters.background_calls[GAP__CALL_chunk_create], 3);
  assert_int_equal(dev->counters.background_ns[GAP__CALL_chunk_create], 57000);
  assert_int_equal(dev->counters.calls[GAP__CALL_chunk_create], 0);
  gap__sim_clock_advance(dev, 17000); /* exactly up to the worker */
  assert_false(gap__dev_background_idle(dev));
  gap__sim_clock_advance(dev, GIB);
  assert_true(gap__dev_background_idle(dev));
  gap__dev_background_ask(dev); /* time without work is gone */
  assert_false(gap__dev_background_idle(dev));
  gap__dev_destroy(dev);
}

static void test_neighbour(void **state) {
  (void)state;
  struct gap__dev *dev = card(.total_bytes = 10 * PAGE, .context_bytes = 2 * PAGE);
  gap__chunk c = chunk(dev, 3 * PAGE);
  uint64_t left = 0, total = 0;
  gap__sim_neighbour_set(dev, 4 * PAGE);
  gap__dev_mem_info(dev, &left, &total);
  assert_int_equal(left, PAGE);
  assert_int_equal(total, 10 * PAGE);
  assert_int_equal(gap__dev_chunk_create(dev, 2 * PAGE, GAP__PLACE_DEVICE, &c), GAP_ENOMEM);
  gap__sim_neighbour_set(dev, UINT64_MAX);
  gap__dev_mem_info(dev, &left, &total);
  assert_int_equal(left, 0);
  gap__sim_neighbour_set(dev, 0);
  chunk(dev, 5 * PAGE);
  assert_int_equal(gap__sim_chunk_bytes(dev), 8 * PAGE);
  gap__dev_destroy(dev);
}

static void test_window_limits(void **state) {
  (void)state;
  gap_addr addr = 0;
  struct gap__dev *dev = card(.window_max_bytes = GIB, .address_budget_bytes = 3 * GIB);
  assert_int_equal(gap__dev_reserve(dev, 2 * GIB, PAGE, &addr), GAP_ENOTSUP);
  for (int i = 0; i < 3; i++) addr = window(dev, GIB);
  assert_int_equal(gap__dev_reserve(dev, PAGE, PAGE, &addr), GAP_ENOMEM);
  assert_int_equal(gap__dev_unreserve(dev, addr, GIB), 0);
  window(dev, GIB);
  gap__dev_destroy(dev);
  dev = card(.window_max_bytes = 1);
  assert_int_equal(gap__dev_reserve(dev, PAGE, PAGE, &addr), GAP_ENOTSUP);
  gap__dev_destroy(dev);
}

static void test_windows_come_back(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap_addr seen[100];
  for (int i = 0; i < 100; i++) seen[i] = window(dev, (uint64_t)1 << 40);
  for (int i = 0; i < 100; i += 2) assert_int_equal(gap__dev_unreserve(dev, seen[i], (uint64_t)1 << 40), 0);
  for (int i = 0; i < 50; i++) window(dev, (uint64_t)1 << 40);
  for (int i = 0; i < 11; i++) window(dev, (uint64_t)1 << 40);
  gap_addr none = 0;
  assert_int_equal(gap__dev_reserve(dev, (uint64_t)1 << 40, PAGE, &none), GAP_ENOMEM); /* 111 TiB are all there is */
  gap__dev_destroy(dev);
}

static void test_without_vmm(void **state) {
  (void)state;
  struct gap__dev *dev = card(.no_vmm = true);
  gap_addr addr = 0;
  gap__chunk c = 0;
  assert_false(dev->caps.vmm);
  assert_int_equal(gap__dev_reserve(dev, PAGE, PAGE, &addr), GAP_ENOTSUP);
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &c), GAP_ENOTSUP);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), 0);
  assert_int_equal(gap__dev_segment_free(dev, addr), 0);
  gap__dev_destroy(dev);
}

static void test_segment_addresses(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap_addr last = 0, addr = 0;
  for (int i = 0; i < 20; i++, last = addr) {
    assert_int_equal(gap__dev_segment_alloc(dev, PAGE + 512, &addr), 0);
    assert_true(addr > last && addr % PAGE == 0);
  }
  assert_int_equal(gap__sim_chunk_bytes(dev), 40 * PAGE);
  gap__dev_destroy(dev);
}

static void test_recorded_segments(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  const gap_addr recorded_addr = 0x7f99cc000000;
  gap_addr addr = 0;
  assert_int_equal(gap__sim_next_segment(dev, recorded_addr), 0);
  assert_int_equal(gap__dev_segment_alloc(dev, 10 * PAGE, &addr), 0);
  assert_int_equal(addr, recorded_addr);
  assert_int_equal(gap__sim_next_segment(dev, recorded_addr + 9 * PAGE), GAP_EINVAL);
  assert_int_equal(gap__sim_next_segment(dev, recorded_addr + 512), GAP_EINVAL);
  assert_int_equal(gap__sim_next_segment(dev, recorded_addr - PAGE), 0);
  assert_int_equal(gap__dev_segment_alloc(dev, 2 * PAGE, &addr), GAP_EINVAL); /* reaches into the first */
  assert_int_equal(gap__dev_segment_alloc(dev, 2 * PAGE, &addr), 0);          /* fed once: now its own choice */
  assert_true(addr != recorded_addr - PAGE);
  assert_int_equal(gap__dev_segment_free(dev, recorded_addr), 0);
  assert_int_equal(gap__sim_next_segment(dev, recorded_addr), 0);
  gap__dev_destroy(dev);
}

static void test_segment_free_waits_once(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 1000, .prices = &gap__sim_prices_idle);
  gap_addr one = 0, two = 0;
  gap__dev_segment_alloc(dev, PAGE, &one);
  gap__dev_segment_alloc(dev, PAGE, &two);
  gap__sim_clock_advance(dev, 1); /* the program has been running */
  elapsed(dev);
  gap__dev_segment_free(dev, one);
  assert_int_equal(elapsed(dev), 1000000 + 35000);
  gap__dev_segment_free(dev, two);
  assert_int_equal(elapsed(dev), 35000);
  gap__dev_destroy(dev);
}

static void test_recycled_streams_are_others(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  uint64_t before = 0, after = 0;
  gap__dev_stream_id(dev, 5, &before);
  gap__sim_stream_hold(dev, 5);
  gap__event event = recorded(dev, 5);
  assert_int_equal(gap__dev_event_query(dev, event), GAP_EAGAIN);
  gap__sim_stream_recycle(dev, 5);
  gap__dev_stream_id(dev, 5, &after);
  assert_true(before != after);
  assert_int_equal(gap__dev_event_query(dev, event), 0); /* the old stream's work ends all the same */
  gap__dev_destroy(dev);
}

struct walked {
  unsigned count;
  gap_addr last;
  uint64_t bytes;
  unsigned segments, accessible;
};

static int look(void *arg, const struct gap__dev_mapping *mapping) {
  struct walked *walked = arg;
  assert_true(mapping->addr >= walked->last);
  walked->last = mapping->addr + mapping->bytes;
  walked->bytes += mapping->bytes;
  walked->segments += mapping->chunk == 0;
  walked->accessible += mapping->accessible;
  return ++walked->count == 4 ? 99 : 0;
}

static void test_walk(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 0);
  gap_addr addr = window(dev, 64 * GIB), segment = 0;
  gap__dev_segment_alloc(dev, PAGE, &segment);
  gap__dev_map(dev, addr + 40 * GIB, GIB, chunk(dev, GIB));
  gap__dev_map(dev, addr, PAGE, chunk(dev, PAGE));
  gap__dev_set_access(dev, addr, PAGE);
  struct walked walked = {0};
  assert_int_equal(gap__sim_walk(dev, look, &walked), 0);
  assert_int_equal(walked.count, 3);
  assert_int_equal(walked.bytes, GIB + 2 * PAGE);
  assert_int_equal(walked.segments, 1);
  assert_int_equal(walked.accessible, 2);
  walked = (struct walked){.count = 1};
  assert_int_equal(gap__sim_walk(dev, look, &walked), 99); /* the visitor ends the walk */
  gap__dev_destroy(dev);
}

static void *use_card(void *arg) {
  struct gap__dev *dev = arg;
  gap_addr addr = window(dev, PAGE), segment = 0;
  for (int i = 0; i < 500; i++) {
    gap__dev_background(dev, i % 2);
    gap__chunk c = chunk(dev, PAGE);
    gap__dev_map(dev, addr, PAGE, c);
    gap__dev_set_access(dev, addr, PAGE);
    gap__event event = recorded(dev, 2);
    gap__dev_event_wait(dev, event);
    gap__dev_event_destroy(dev, event);
    gap__dev_unmap(dev, addr, PAGE);
    gap__dev_chunk_release(dev, c);
    gap__dev_segment_alloc(dev, PAGE, &segment);
    gap__dev_segment_free(dev, segment);
  }
  gap__dev_background(dev, false);
  gap__dev_unreserve(dev, addr, PAGE);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  struct gap__dev *dev = card(.lag_us = 3, .prices = &gap__sim_prices_idle);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_card, dev), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  assert_int_equal(gap__sim_chunk_bytes(dev), 0);
  assert_int_equal(dev->counters.calls[GAP__CALL_unmap] + dev->counters.background_calls[GAP__CALL_unmap], 1500);
  struct walked walked = {0};
  assert_int_equal(gap__sim_walk(dev, look, &walked), 0);
  assert_int_equal(walked.count, 0);
  gap__dev_destroy(dev);
}

static void test_parameters(void **state) {
  (void)state;
  struct gap__dev *dev = NULL;
  assert_int_equal(gap__sim_create(0, &(struct gap__sim_params){0}, &dev), GAP_EINVAL);
  assert_int_equal(gap__sim_create(0, &(struct gap__sim_params){.total_bytes = 1, .context_bytes = 2}, &dev),
                   GAP_EINVAL);
}

/* Two cards of one heap never hand out the same address: frees name nothing but the address. */
static void test_cards_share_no_address(void **state) {
  (void)state;
  enum { CARDS = 64, TIMES = 4 };
  static struct gap__dev *cards[CARDS];
  static gap_addr at[CARDS][2 * TIMES];
  for (int i = 0; i < CARDS; i++) {
    assert_int_equal(gap__sim_create(i, &(struct gap__sim_params){.total_bytes = 80 * GIB}, &cards[i]), 0);
    for (int k = 0; k < TIMES; k++) {
      at[i][2 * k] = window(cards[i], 32 * GIB);
      assert_int_equal(gap__dev_segment_alloc(cards[i], 16 * GIB, &at[i][2 * k + 1]), 0);
    }
  }
  for (int i = 0; i < CARDS; i++)
    for (int k = 0; k < 2 * TIMES; k++)
      for (int other = 0; other < CARDS; other++)
        for (int l = 0; l < 2 * TIMES && other != i; l++)
          if (at[i][k] < at[other][l] + 32 * GIB && at[other][l] < at[i][k] + 32 * GIB && k % 2 == l % 2)
            fail_msg("cards %d and %d share 0x%llx", i, other, (unsigned long long)at[i][k]);
  for (int i = 0; i < CARDS; i++) gap__dev_destroy(cards[i]);
}

/* A card's segments come again from the beginning of its own part of the addresses. */
static void test_segments_stay_in_their_part(void **state) {
  (void)state;
  struct gap__dev *cards[2];
  gap_addr least[2] = {UINT64_MAX, UINT64_MAX}, most[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(gap__sim_create(i, &(struct gap__sim_params){.total_bytes = 80 * GIB}, &cards[i]), 0);
    for (int k = 0; k < 40; k++) {
      gap_addr addr;
      assert_int_equal(gap__dev_segment_alloc(cards[i], 16 * GIB, &addr), 0);
      if (addr < least[i]) least[i] = addr;
      if (addr > most[i]) most[i] = addr;
      assert_int_equal(gap__dev_segment_free(cards[i], addr), 0);
    }
    gap__dev_destroy(cards[i]);
  }
  assert_true(most[0] + 16 * GIB <= least[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_idle_prices),
      cmocka_unit_test(test_live_prices_of_a_page),
      cmocka_unit_test(test_access_is_paid_per_chunk),
      cmocka_unit_test(test_a_failing_create_costs),
      cmocka_unit_test(test_clock_moves_forward_only),
      cmocka_unit_test(test_lag),
      cmocka_unit_test(test_a_shorter_lag_keeps_stream_order),
      cmocka_unit_test(test_hold_and_release),
      cmocka_unit_test(test_waiting_lets_a_held_event_through),
      cmocka_unit_test(test_worker_has_its_own_time),
      cmocka_unit_test(test_neighbour),
      cmocka_unit_test(test_window_limits),
      cmocka_unit_test(test_windows_come_back),
      cmocka_unit_test(test_without_vmm),
      cmocka_unit_test(test_segment_addresses),
      cmocka_unit_test(test_recorded_segments),
      cmocka_unit_test(test_segment_free_waits_once),
      cmocka_unit_test(test_recycled_streams_are_others),
      cmocka_unit_test(test_walk),
      cmocka_unit_test(test_cards_share_no_address),
      cmocka_unit_test(test_segments_stay_in_their_part),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_parameters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
