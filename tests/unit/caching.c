/* The rules of torch 2.11's native policy, one test a rule; sizes and outcomes as torch showed them on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/heap.h"
#include "dev/sim/sim.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define DEFAULT ((gap_pool_id){0, 0})

struct fixture {
  struct gap__conf_set *set;
  struct gap__dev *dev;
  gap_heap *heap;
};

static void open_heap(struct fixture *f, const char *string, uint64_t total_bytes) {
  f->set = gap__conf_new();
  char whole[256];
  snprintf(whole, sizeof whole, "strategy:caching_allocator%s%s", *string ? "," : "", string);
  assert_int_equal(gap__conf_apply(f->set, GAP__CONF_RUNTIME, "test", whole, NULL), 0);
  assert_int_equal(gap__sim_create(0, &(struct gap__sim_params){.total_bytes = total_bytes, .lag_us = 50}, &f->dev), 0);
  struct gap__heap_params params = {.devs = &f->dev, .dev_count = 1, .conf = gap__conf_values(f->set)};
  assert_int_equal(gap__heap_create(&params, &f->heap), 0);
}

static void check(struct fixture *f) {
  char text[300] = "";
  int rc = gap__heap_check(f->heap, 0, text, sizeof text);
  if (rc) print_error("%s\n", text);
  assert_int_equal(rc, 0);
}

static void close_heap(struct fixture *f) {
  check(f);
  gap__heap_destroy(f->heap);
  gap__conf_free(f->set);
}

static gap_addr take_on(struct fixture *f, gap_stream stream, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f->heap, 0, stream, DEFAULT, bytes, &addr), 0);
  return addr;
}
static gap_addr take(struct fixture *f, uint64_t bytes) { return take_on(f, 0, bytes); }
static void give(struct fixture *f, gap_addr addr) { assert_int_equal(gap__heap_free(f->heap, addr), 0); }

static struct gap__stats stats_of(struct fixture *f) {
  struct gap__stats stats;
  assert_int_equal(gap__heap_stats(f->heap, 0, &stats), 0);
  return stats;
}
static int64_t reserved(struct fixture *f) { return stats_of(f).reserved_bytes[GAP__KIND_ALL].current; }
static int64_t allocated(struct fixture *f) { return stats_of(f).allocated_bytes[GAP__KIND_ALL].current; }

/* What one request holds from an empty heap, and how much of it the caller gets. */
static void expect_segment(uint64_t bytes, uint64_t segment, uint64_t block) {
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  take(&f, bytes);
  assert_int_equal(reserved(&f), segment);
  assert_int_equal(allocated(&f), block);
  close_heap(&f);
}

static void segment_sizes(void **state) {
  (void)state;
  expect_segment(1, 2 * MIB, 512);
  expect_segment(MIB, 2 * MIB, MIB);
  expect_segment(MIB + 1, 20 * MIB, MIB + 512);
  expect_segment(10 * MIB - 1, 10 * MIB, 10 * MIB);
  expect_segment(10 * MIB - 512, 20 * MIB, 10 * MIB - 512);
  expect_segment(10 * MIB, 10 * MIB, 10 * MIB);
  expect_segment(11 * MIB, 12 * MIB, 12 * MIB); /* the rest of 1 MiB is not worth a split */
  expect_segment(11 * MIB - 512, 12 * MIB, 11 * MIB - 512);
}

static void large_segment_size(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "large_segment_size_mb:40", 80 * GIB);
  take(&f, 5 * MIB);
  assert_int_equal(reserved(&f), 40 * MIB);
  close_heap(&f);
}

static void a_rest_of_one_mib_is_not_split(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  give(&f, take(&f, 20 * MIB));
  gap_addr whole = take(&f, 19 * MIB);
  assert_int_equal(allocated(&f), 20 * MIB);
  give(&f, whole);
  take(&f, 19 * MIB - 512);
  assert_int_equal(allocated(&f), 19 * MIB - 512);
  assert_int_equal(reserved(&f), 20 * MIB);
  close_heap(&f);
}

static void small_blocks_split_down_to_512(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr first = take(&f, MIB - 512), second = take(&f, MIB), third = take(&f, 512);
  assert_int_equal(second, first + MIB - 512);
  assert_int_equal(third, second + MIB);
  assert_int_equal(reserved(&f), 2 * MIB);
  close_heap(&f);
}

/* Of the blocks that fit the smallest serves, of equals the lowest. */
static void best_fit_lowest_address(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block[8];
  for (int i = 0; i < 8; i++) block[i] = take(&f, (i == 3 ? 64 : 100) * KIB);
  give(&f, block[5]);
  give(&f, block[1]);
  give(&f, block[3]);
  assert_int_equal(take(&f, 60 * KIB), block[3]);
  assert_int_equal(take(&f, 100 * KIB), block[1]);
  assert_int_equal(take(&f, 100 * KIB), block[5]);
  close_heap(&f);
}

static void neighbours_merge(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr a = take(&f, 2 * MIB), b = take(&f, 2 * MIB), c = take(&f, 2 * MIB), d = take(&f, 2 * MIB);
  give(&f, a);
  give(&f, c);
  check(&f);
  assert_int_equal(stats_of(&f).inactive_split[GAP__KIND_LARGE].current, 3);
  give(&f, b);
  assert_int_equal(stats_of(&f).inactive_split[GAP__KIND_LARGE].current, 2);
  assert_int_equal(take(&f, 6 * MIB), a);
  give(&f, d);
  give(&f, a);
  assert_int_equal(stats_of(&f).inactive_split[GAP__KIND_LARGE].current, 0);
  close_heap(&f);
}

static void kinds_and_streams_do_not_mix(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  give(&f, take_on(&f, 7, 20 * MIB));
  take_on(&f, 8, 20 * MIB);
  take_on(&f, 7, MIB);
  assert_int_equal(reserved(&f), 42 * MIB);
  take_on(&f, 7, 20 * MIB);
  assert_int_equal(reserved(&f), 42 * MIB);
  close_heap(&f);
}

static void rounding_to_powers_of_two(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "roundup_power2_divisions:4", 80 * GIB);
  take(&f, 1200 * MIB);
  assert_int_equal(reserved(&f), 1280 * MIB);
  close_heap(&f);
}

/* max_split_size 100 MiB: an oversize block serves an oversize request up to 20 MiB smaller, and nothing else. */
static void max_split_size(void **state) {
  (void)state;
  static const struct {
    uint64_t cached, asked;
    bool reused;
  } cases[] = {{200, 180, false}, {200, 181, true}, {120, 99, false}, {101, 99, false}, {97, 60, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fixture f;
    open_heap(&f, "max_split_size_mb:100", 80 * GIB);
    gap_addr cached = take(&f, cases[i].cached * MIB);
    give(&f, cached);
    assert_int_equal(take(&f, cases[i].asked * MIB) == cached, cases[i].reused);
    close_heap(&f);
  }
}

static void oversize_blocks_are_not_split(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "max_split_size_mb:100", 80 * GIB);
  give(&f, take(&f, 200 * MIB));
  take(&f, 190 * MIB);
  assert_int_equal(allocated(&f), 200 * MIB);
  assert_int_equal(stats_of(&f).oversize_allocations_current, 1);
  assert_int_equal(stats_of(&f).oversize_segments_current, 1);
  assert_int_equal(stats_of(&f).max_split_size, 100 * MIB);
  close_heap(&f);
}

/* Under pressure one oversize block that is large enough goes before everything does. */
static void oversize_release_takes_the_least_that_suffices(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "max_split_size_mb:100", 80 * GIB);
  assert_int_equal(gap__heap_set_cap(f.heap, 0, 600 * MIB), 0);
  gap_addr big = take(&f, 300 * MIB), middle = take(&f, 180 * MIB), small = take(&f, 110 * MIB);
  give(&f, big);
  give(&f, middle);
  give(&f, small);
  take(&f, 150 * MIB);
  assert_int_equal(reserved(&f), (300 + 110 + 150) * MIB);
  assert_int_equal(stats_of(&f).num_alloc_retries, 0);
  assert_int_equal(stats_of(&f).rung_count[GAP__RUNG_grow], 4);
  close_heap(&f);
}

static void oversize_release_from_the_largest_down(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "max_split_size_mb:100", 80 * GIB);
  assert_int_equal(gap__heap_set_cap(f.heap, 0, 600 * MIB), 0);
  gap_addr big = take(&f, 200 * MIB), middle = take(&f, 180 * MIB), small = take(&f, 110 * MIB);
  give(&f, big);
  give(&f, middle);
  give(&f, small);
  take(&f, 350 * MIB);
  assert_int_equal(reserved(&f), (350 + 110) * MIB);
  close_heap(&f);
}

/* Everything idle and whole is given back, the driver asked once more. */
static void release_all_and_retry(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  assert_int_equal(gap__heap_set_cap(f.heap, 0, 100 * MIB), 0);
  gap_addr whole = take(&f, 40 * MIB), part = take(&f, 2 * MIB);
  take(&f, 2 * MIB);
  give(&f, whole);
  give(&f, part);
  take(&f, 60 * MIB);
  struct gap__stats stats = stats_of(&f);
  assert_int_equal(stats.reserved_bytes[GAP__KIND_ALL].current, 80 * MIB);
  assert_int_equal(stats.num_alloc_retries, 1);
  assert_int_equal(stats.num_sync_all_streams, 1);
  assert_int_equal(stats.rung_count[GAP__RUNG_wait], 1);
  assert_int_equal(stats.stalls, 1);
  assert_int_equal(stats.num_device_free, 1);
  close_heap(&f);
}

/* Idle 20 MiB segments of another size do not help: gaps.  The text says why. */
static void refusal_and_diagnosis(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  assert_int_equal(gap__heap_set_cap(f.heap, 0, GIB), 0);
  take(&f, 900 * MIB);
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 300 * MIB, &addr), GAP_ENOMEM);
  struct gap__stats stats = stats_of(&f);
  assert_int_equal(stats.num_ooms, 1);
  assert_int_equal(stats.num_alloc_retries, 1);
  assert_int_equal(stats.rung_count[GAP__RUNG_fail], 1);
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(f.heap, 0, text, sizeof text), 0);
  assert_non_null(strstr(text, "300 MiB asked"));
  assert_non_null(strstr(text, "900 MiB live"));
  assert_non_null(strstr(text, "cap is 1 GiB"));
  take(&f, 100 * MIB);
  close_heap(&f);
}

static void nmalloc_tries_whole_ladders(void **state) {
  (void)state;
  struct fixture f;
  gap_addr addr = 0;
  open_heap(&f, "nmalloc:3", GIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 2 * GIB, &addr), GAP_ENOMEM);
  assert_int_equal(stats_of(&f).num_alloc_retries, 3);
  assert_int_equal(stats_of(&f).num_ooms, 1);
  close_heap(&f);
}

static void the_card_is_full(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", GIB);
  give(&f, take(&f, 600 * MIB));
  take(&f, 700 * MIB); /* the driver refuses first: retry after giving 600 back */
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 700 * MIB, &addr), GAP_ENOMEM);
  char text[1024];
  gap__heap_diagnosis(f.heap, 0, text, sizeof text);
  assert_non_null(strstr(text, "the driver has no memory left"));
  close_heap(&f);
}

static void record_stream_waits_for_the_other_stream(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take_on(&f, 1024, 20 * MIB);
  gap__sim_stream_hold(f.dev, 2048);
  assert_int_equal(gap__heap_record_stream(f.heap, block, 2048), 0);
  assert_int_equal(gap__heap_record_stream(f.heap, block, 2048), 0);
  give(&f, block);
  check(&f);
  assert_int_equal(stats_of(&f).active[GAP__KIND_ALL].current, 1);
  assert_int_equal(stats_of(&f).allocation[GAP__KIND_ALL].current, 0);
  assert_int_not_equal(take_on(&f, 1024, 20 * MIB), block);
  gap__sim_stream_release(f.dev, 2048);
  gap__sim_clock_advance(f.dev, 1000000);
  assert_int_equal(take_on(&f, 1024, 20 * MIB), block);
  close_heap(&f);
}

static void record_stream_on_the_own_stream_is_nothing(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take_on(&f, 1024, 20 * MIB);
  assert_int_equal(gap__heap_record_stream(f.heap, block, 1024), 0);
  give(&f, block);
  assert_int_equal(take_on(&f, 1024, 20 * MIB), block);
  close_heap(&f);
}

/* A queue is looked at from the front: a block behind one that is not ready waits too. */
static void two_streams_use_one_block(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take(&f, 20 * MIB);
  gap__sim_stream_hold(f.dev, 2048);
  gap__heap_record_stream(f.heap, block, 2048);
  gap__heap_record_stream(f.heap, block, 4096);
  give(&f, block);
  gap__sim_clock_advance(f.dev, 1000000);
  gap_addr other = take(&f, 20 * MIB);
  assert_int_not_equal(other, block);
  gap__sim_stream_release(f.dev, 2048);
  gap__sim_clock_advance(f.dev, 1000000);
  assert_int_equal(take(&f, 20 * MIB), block);
  close_heap(&f);
}

static void capture_defers(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take(&f, 20 * MIB);
  gap__heap_record_stream(f.heap, block, 2048);
  gap__sim_stream_capture(f.dev, 2048, true);
  give(&f, block);
  gap__sim_clock_advance(f.dev, 1000000);
  assert_int_not_equal(take(&f, 20 * MIB), block);
  gap__sim_stream_capture(f.dev, 2048, false);
  give(&f, take(&f, 512)); /* records the event now */
  gap__sim_clock_advance(f.dev, 1000000);
  assert_int_equal(take(&f, 20 * MIB), block);
  close_heap(&f);
}

static void empty_cache_waits_and_gives_back(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take(&f, 20 * MIB);
  gap__heap_record_stream(f.heap, block, 2048);
  give(&f, block);
  uint64_t returned = 0;
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_int_equal(returned, 20 * MIB);
  assert_int_equal(reserved(&f), 0);
  close_heap(&f);
}

static gap_addr take_from(struct fixture *f, gap_pool_id pool, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f->heap, 0, 0, pool, bytes, &addr), 0);
  return addr;
}

static void private_pools(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {1, 0};
  gap_addr addr = 0;
  uint64_t returned = 1;
  open_heap(&f, "", 80 * GIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, pool, MIB, &addr), GAP_EINVAL);
  assert_int_equal(gap__heap_pool_release(f.heap, 0, pool), GAP_ESTATE);
  assert_int_equal(gap__heap_pool_retain(f.heap, 0, DEFAULT), GAP_EINVAL);
  assert_int_equal(gap__heap_pool_retain(f.heap, 0, pool), 0);
  give(&f, take(&f, 20 * MIB));
  gap_addr own = take_from(&f, pool, 20 * MIB); /* not from the default pool's idle block */
  assert_int_equal(reserved(&f), 40 * MIB);
  give(&f, own);
  assert_int_equal(take_from(&f, pool, 20 * MIB), own);
  give(&f, own);
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_int_equal(returned, 20 * MIB); /* a pool in use keeps its memory */
  assert_int_equal(gap__heap_pool_release(f.heap, 0, pool), 0);
  assert_int_equal(gap__heap_trim(f.heap, 0, pool, &returned), 0);
  assert_int_equal(returned, 20 * MIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, pool, MIB, &addr), GAP_EINVAL); /* gone */
  close_heap(&f);
}

static void a_released_pool_lives_while_its_blocks_do(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {0, 9};
  uint64_t returned = 0;
  open_heap(&f, "", 80 * GIB);
  gap__heap_pool_retain(f.heap, 0, pool);
  gap_addr block = take_from(&f, pool, 20 * MIB);
  gap__heap_pool_release(f.heap, 0, pool);
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_int_equal(returned, 0);
  give(&f, block);
  assert_int_equal(reserved(&f), 20 * MIB);
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_int_equal(returned, 20 * MIB);
  close_heap(&f);
}

/* Inside a private pool nothing is given back to make room. */
static void no_release_inside_a_pool(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {1, 0};
  gap_addr addr = 0;
  open_heap(&f, "", 80 * GIB);
  gap__heap_set_cap(f.heap, 0, 60 * MIB);
  gap__heap_pool_retain(f.heap, 0, pool);
  give(&f, take(&f, 40 * MIB));
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, pool, 40 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(reserved(&f), 40 * MIB);
  assert_int_equal(stats_of(&f).num_alloc_retries, 0);
  close_heap(&f);
}

/* What is idle in such a pool serves a request of the default pool that the driver refuses, before anything is given back; the
 * rest of the block stays the pool's. */
static void a_pool_may_serve_before_a_request_fails(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {0, 1};
  gap_addr addr = 0;
  open_heap(&f, "", 80 * GIB);
  assert_int_equal(gap__heap_pool_behave(f.heap, 0, pool, GAP_POOL_USE_ON_OOM), GAP_ESTATE);
  gap__heap_pool_retain(f.heap, 0, pool);
  assert_int_equal(gap__heap_pool_behave(f.heap, 0, pool, GAP_POOL_USE_ON_OOM), 0);
  gap_addr own = take_from(&f, pool, 100 * MIB);
  take_from(&f, pool, 40 * MIB);
  give(&f, own);
  gap__heap_set_cap(f.heap, 0, 260 * MIB);
  assert_true(take(&f, 100 * MIB) != own); /* there is room */
  assert_int_equal(take(&f, 60 * MIB), own);
  assert_int_equal(stats_of(&f).num_alloc_retries, 0);
  assert_int_equal(take_from(&f, pool, 40 * MIB), own + 60 * MIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 300 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(stats_of(&f).num_alloc_retries, 1);
  assert_int_equal(gap__heap_pool_behave(f.heap, 0, pool, 0), 0);
  give(&f, own + 60 * MIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 40 * MIB, &addr), GAP_ENOMEM);
  close_heap(&f);
}

static void a_pool_may_hand_out_whole_blocks(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {0, 2};
  open_heap(&f, "", 80 * GIB);
  gap__heap_pool_retain(f.heap, 0, pool);
  gap__heap_pool_behave(f.heap, 0, pool, GAP_POOL_NO_SPLIT);
  gap_addr large = take_from(&f, pool, 3 * MIB);
  take_from(&f, pool, 100);
  take_from(&f, pool, 3 * MIB);
  assert_int_equal(reserved(&f), (20 + 2 + 20) * MIB);
  assert_int_equal(allocated(&f), (20 + 2 + 20) * MIB);
  give(&f, large);
  assert_int_equal(take_from(&f, pool, 2 * MIB), large);
  assert_int_equal(allocated(&f), (20 + 2 + 20) * MIB);
  close_heap(&f);
}

/* Of equal blocks torch 2.11 takes the lowest, 2.12 the one whose record was made first. */
static gap_addr first_of_equals(const char *string) {
  struct fixture f;
  open_heap(&f, string, 80 * GIB);
  gap_addr block[4], first = take(&f, 512), got;
  for (int i = 0; i < 4; i++) block[i] = take(&f, 64 * KIB);
  give(&f, block[0]);
  block[0] = take(&f, 32 * KIB); /* the rest is cut off, the youngest of all */
  gap_addr low = take(&f, 32 * KIB);
  assert_int_equal(low, block[0] + 32 * KIB);
  give(&f, block[2]);
  gap_addr halves[2] = {take(&f, 32 * KIB), take(&f, 32 * KIB)};
  assert_int_equal(halves[0], block[2]);
  give(&f, low);
  give(&f, halves[0]);
  got = take(&f, 32 * KIB);
  close_heap(&f);
  return got - first;
}

static void ties_by_address_or_age(void **state) {
  (void)state;
  assert_int_equal(first_of_equals(""), 512 + 32 * KIB);
  assert_int_equal(first_of_equals("torch:2.12"), 512 + 128 * KIB); /* the lower half is the older record */
}

/* Above threshold x limit the segments older than the mean go; the fresh ones stay. */
static void garbage_collection(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "garbage_collection_threshold:0.5", 80 * GIB);
  gap__heap_set_cap(f.heap, 0, 400 * MIB);
  gap_addr old = take(&f, 100 * MIB), fresh = take(&f, 110 * MIB);
  give(&f, old);
  for (int i = 0; i < 10; i++) give(&f, take(&f, 100 * MIB)); /* keeps the first young: it is served again and again */
  gap_addr keeper = take(&f, 100 * MIB);
  give(&f, fresh);
  give(&f, keeper);
  take(&f, 50 * MIB); /* fits: no collection */
  assert_int_equal(stats_of(&f).num_device_free, 0);
  take(&f, 120 * MIB); /* does not fit; 210 of 200 allowed: the oldest whole idle segment goes */
  assert_int_equal(stats_of(&f).num_device_free, 1);
  assert_int_equal(stats_of(&f).num_alloc_retries, 0);
  close_heap(&f);
}

static void garbage_collection_needs_a_cap(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "garbage_collection_threshold:0.1", 80 * GIB);
  for (uint64_t i = 1; i < 20; i++) give(&f, take(&f, 100 * i * MIB));
  assert_int_equal(stats_of(&f).num_device_free, 0);
  close_heap(&f);
}

static void bad_frees(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap_addr block = take(&f, 2 * MIB);
  take(&f, 2 * MIB);
  assert_int_equal(gap__heap_free(f.heap, 0), 0);
  assert_int_equal(gap__heap_free(f.heap, block + 512), GAP_EFREED);
  assert_int_equal(gap__heap_free(f.heap, (gap_addr)1 << 20), GAP_ENOTMINE);
  assert_int_equal(gap__heap_free(f.heap, block + 20 * MIB), GAP_ENOTMINE);
  give(&f, block);
  assert_int_equal(gap__heap_free(f.heap, block), GAP_EFREED);
  assert_int_equal(gap__heap_record_stream(f.heap, block, 2048), GAP_EFREED);
  close_heap(&f);
}

static bool give_one(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct fixture *f = ((void **)arg)[0];
  gap_addr *held = ((void **)arg)[1];
  assert_int_equal(device, 0);
  assert_int_equal(stream, 0);
  assert_int_equal(bytes, 80 * MIB);
  if (!*held) return false;
  give(f, *held); /* the callback may free: our lock is not held */
  *held = 0;
  return true;
}

static void the_program_may_help(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  gap__heap_set_cap(f.heap, 0, 100 * MIB);
  gap_addr held = take(&f, 60 * MIB), addr = 0;
  void *arg[] = {&f, &held};
  gap__heap_set_oom_callback(f.heap, give_one, arg);
  take(&f, 80 * MIB);
  assert_int_equal(stats_of(&f).rung_count[GAP__RUNG_callbacks], 1);
  assert_int_equal(stats_of(&f).num_ooms, 0);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 80 * MIB, &addr), GAP_ENOMEM);
  close_heap(&f);
}

/* The same operations give the same addresses. */
static uint64_t trail(unsigned seed) {
  struct fixture f;
  uint64_t hash = 0;
  gap_addr live[64] = {0};
  open_heap(&f, "", 80 * GIB);
  gap__heap_set_cap(f.heap, 0, 700 * MIB);
  srand(seed);
  for (int i = 0; i < 5000; i++) {
    gap_addr *slot = &live[rand() % 64];
    uint64_t bytes = (uint64_t)1 << (rand() % 26);
    if (*slot) give(&f, *slot), *slot = 0;
    else if (gap__heap_alloc(f.heap, 0, (gap_stream)(rand() % 3) * 1024, DEFAULT, bytes + (uint64_t)(rand() % 4096),
                             slot))
      *slot = 0;
    hash = hash * 31 + (*slot - 1);
    if (i % 97 == 0) check(&f);
  }
  close_heap(&f);
  return hash;
}

static void deterministic(void **state) {
  (void)state;
  assert_int_equal(trail(1), trail(1));
  assert_int_not_equal(trail(1), trail(2));
}

static void resets(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "", 80 * GIB);
  give(&f, take(&f, 200 * MIB));
  take(&f, 10 * MIB);
  gap__heap_reset_peaks(f.heap, 0);
  gap__heap_reset_accumulated(f.heap, 0);
  struct gap__stats stats = stats_of(&f);
  assert_int_equal(stats.active_bytes[GAP__KIND_ALL].peak, 10 * MIB);
  assert_int_equal(stats.live_bytes_peak, 10 * MIB);
  assert_int_equal(stats.reserved_bytes[GAP__KIND_ALL].peak, 200 * MIB);
  assert_int_equal(stats.allocation[GAP__KIND_ALL].allocated, 0);
  assert_int_equal(stats.num_device_alloc, 0);
  assert_int_equal(stats.idle_stuck_bytes, 190 * MIB);
  assert_int_equal(stats.idle_extents, 1);
  close_heap(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(segment_sizes),
      cmocka_unit_test(large_segment_size),
      cmocka_unit_test(a_rest_of_one_mib_is_not_split),
      cmocka_unit_test(small_blocks_split_down_to_512),
      cmocka_unit_test(best_fit_lowest_address),
      cmocka_unit_test(neighbours_merge),
      cmocka_unit_test(kinds_and_streams_do_not_mix),
      cmocka_unit_test(rounding_to_powers_of_two),
      cmocka_unit_test(max_split_size),
      cmocka_unit_test(oversize_blocks_are_not_split),
      cmocka_unit_test(oversize_release_takes_the_least_that_suffices),
      cmocka_unit_test(oversize_release_from_the_largest_down),
      cmocka_unit_test(release_all_and_retry),
      cmocka_unit_test(refusal_and_diagnosis),
      cmocka_unit_test(nmalloc_tries_whole_ladders),
      cmocka_unit_test(the_card_is_full),
      cmocka_unit_test(record_stream_waits_for_the_other_stream),
      cmocka_unit_test(record_stream_on_the_own_stream_is_nothing),
      cmocka_unit_test(two_streams_use_one_block),
      cmocka_unit_test(capture_defers),
      cmocka_unit_test(empty_cache_waits_and_gives_back),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(a_released_pool_lives_while_its_blocks_do),
      cmocka_unit_test(no_release_inside_a_pool),
      cmocka_unit_test(a_pool_may_serve_before_a_request_fails),
      cmocka_unit_test(a_pool_may_hand_out_whole_blocks),
      cmocka_unit_test(ties_by_address_or_age),
      cmocka_unit_test(garbage_collection),
      cmocka_unit_test(garbage_collection_needs_a_cap),
      cmocka_unit_test(bad_frees),
      cmocka_unit_test(the_program_may_help),
      cmocka_unit_test(deterministic),
      cmocka_unit_test(resets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
