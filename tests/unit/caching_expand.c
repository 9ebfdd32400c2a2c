/* Expandable segments of caching_allocator, one test a rule; sizes and outcomes as torch 2.11 showed them on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/heap.h"
#include "dev/sim/sim.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define DEFAULT ((gap_pool_id){0, 0})

struct fixture {
  struct gap__conf_set *set;
  struct gap__dev *dev;
  gap_heap *heap;
};

static void open_card(struct fixture *f, const char *string, const struct gap__sim_params *card) {
  char whole[256];
  f->set = gap__conf_new();
  snprintf(whole, sizeof whole, "strategy:caching_allocator,expandable_segments:True%s%s", *string ? "," : "", string);
  assert_int_equal(gap__conf_apply(f->set, GAP__CONF_RUNTIME, "test", whole, NULL), 0);
  assert_int_equal(gap__sim_create(0, card, &f->dev), 0);
  struct gap__heap_params params = {.devs = &f->dev, .dev_count = 1, .conf = gap__conf_values(f->set)};
  assert_int_equal(gap__heap_create(&params, &f->heap), 0);
}

static void open_heap(struct fixture *f, const char *string) {
  open_card(f, string, &(struct gap__sim_params){.total_bytes = 80 * GIB, .lag_us = 50});
}

/* A change at run time, for the requests to come. */
static void set(struct fixture *f, const char *string) {
  char whole[256];
  snprintf(whole, sizeof whole, "strategy:caching_allocator,%s", string);
  assert_int_equal(gap__conf_apply(f->set, GAP__CONF_RUNTIME, "test", whole, NULL), 0);
  assert_int_equal(gap__heap_configure(f->heap, gap__conf_values(f->set)), 0);
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

static gap_addr take_from(struct fixture *f, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f->heap, 0, stream, pool, bytes, &addr), 0);
  return addr;
}
static gap_addr take(struct fixture *f, uint64_t bytes) { return take_from(f, 0, DEFAULT, bytes); }
static void give(struct fixture *f, gap_addr addr) { assert_int_equal(gap__heap_free(f->heap, addr), 0); }
static int refused(struct fixture *f, uint64_t bytes) {
  gap_addr addr = 0;
  return gap__heap_alloc(f->heap, 0, 0, DEFAULT, bytes, &addr);
}
static uint64_t trim(struct fixture *f) {
  uint64_t returned = 0;
  assert_int_equal(gap__heap_trim(f->heap, 0, DEFAULT, &returned), 0);
  check(f);
  return returned;
}

static struct gap__stats stats_of(struct fixture *f) {
  struct gap__stats stats;
  assert_int_equal(gap__heap_stats(f->heap, 0, &stats), 0);
  return stats;
}
static int64_t reserved(struct fixture *f) { return stats_of(f).reserved_bytes[GAP__KIND_ALL].current; }

/* ---- growth ---- */

static void growth_maps_what_is_missing_in_whole_pages(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr first = take(&f, 15 * MIB);
  assert_int_equal(reserved(&f), 20 * MIB);
  assert_int_equal(take(&f, 15 * MIB), first + 15 * MIB);
  assert_int_equal(reserved(&f), 40 * MIB);
  assert_int_equal(take(&f, 33 * MIB), first + 30 * MIB);
  assert_int_equal(reserved(&f), 80 * MIB);
  assert_int_equal(stats_of(&f).num_device_alloc, 3);
  close_heap(&f);
}

static void small_requests_grow_by_2_mib(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr first = take(&f, MIB), large = take(&f, MIB + 1);
  assert_int_equal(reserved(&f), 22 * MIB);
  assert_int_equal(take(&f, MIB), first + MIB);
  assert_int_equal(take(&f, 1), first + 2 * MIB);
  assert_int_equal(reserved(&f), 24 * MIB);
  assert_true(large > first + 80 * GIB || large + 80 * GIB < first); /* a segment of its own */
  close_heap(&f);
}

/* Nothing is left over that a caller would get beside what it asked. */
static void blocks_are_cut_to_512_bytes(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  take(&f, 11 * MIB);
  take(&f, 20 * MIB - 511);
  assert_int_equal(stats_of(&f).allocated_bytes[GAP__KIND_ALL].current, 31 * MIB);
  close_heap(&f);
}

static void segment_statistics_stay_zero(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr a = take(&f, 5 * MIB);
  take(&f, 5 * MIB);
  give(&f, a);
  struct gap__stats stats = stats_of(&f);
  assert_int_equal(stats.segment[GAP__KIND_ALL].allocated, 0);
  assert_int_equal(stats.inactive_split[GAP__KIND_ALL].allocated, 0);
  assert_int_equal(stats.inactive_split_bytes[GAP__KIND_ALL].allocated, 0);
  assert_int_equal(stats.idle_stuck_bytes, 15 * MIB);
  close_heap(&f);
}

static void streams_and_pools_have_segments_of_their_own(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {1, 0};
  open_heap(&f, "");
  assert_int_equal(gap__heap_pool_retain(f.heap, 0, pool), 0);
  give(&f, take(&f, 20 * MIB));
  gap_addr other = take_from(&f, 7, DEFAULT, 20 * MIB), own = take_from(&f, 0, pool, 20 * MIB);
  assert_int_equal(reserved(&f), 60 * MIB);
  assert_int_equal(take_from(&f, 7, DEFAULT, 4 * MIB), other + 20 * MIB);
  assert_int_equal(take_from(&f, 0, pool, 4 * MIB), own + 20 * MIB);
  close_heap(&f);
}

static void the_page_of_a_segment_stays(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  take(&f, 30 * MIB);
  set(&f, "expandable_segments:True,large_segment_size_mb:64");
  take(&f, 30 * MIB);
  assert_int_equal(reserved(&f), 60 * MIB);
  take_from(&f, 7, DEFAULT, 2 * MIB); /* a new one has the new page */
  assert_int_equal(reserved(&f), 124 * MIB);
  close_heap(&f);
}

/* ---- which idle block ---- */

/* The block at the end of the mapped range counts with all that can still be mapped behind it, so one in the middle is the
 * better fit although it is larger. */
static void a_block_counts_with_what_it_can_grow_to(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr first = take(&f, 30 * MIB);
  take(&f, 2 * MIB);
  take(&f, 18 * MIB); /* 10 MiB of the last page stay idle */
  give(&f, first);
  assert_int_equal(take(&f, 9 * MIB), first);
  close_heap(&f);
}

/* ---- unmapping ---- */

static void whole_pages_inside_an_idle_block_go_back(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr low = take(&f, 7 * MIB), middle = take(&f, 21 * MIB), high = take(&f, 12 * MIB);
  give(&f, middle); /* 7 to 28 MiB: no whole page */
  assert_int_equal(trim(&f), 0);
  give(&f, high); /* 7 to 40 MiB */
  assert_int_equal(trim(&f), 20 * MIB);
  assert_int_equal(reserved(&f), 20 * MIB);
  assert_int_equal(take(&f, 13 * MIB), middle); /* the start of it stayed, idle */
  assert_int_equal(reserved(&f), 20 * MIB);
  give(&f, low);
  close_heap(&f);
}

/* The hole in the middle is filled before the segment grows at its end. */
static void the_lowest_hole_is_filled_first(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr low = take(&f, 20 * MIB), middle = take(&f, 40 * MIB), high = take(&f, 20 * MIB);
  give(&f, middle);
  assert_int_equal(trim(&f), 40 * MIB);
  assert_int_equal(take(&f, 60 * MIB), high + 20 * MIB); /* too large for it */
  assert_int_equal(take(&f, 30 * MIB), middle);
  assert_int_equal(take(&f, 10 * MIB), low + 50 * MIB);
  assert_int_equal(reserved(&f), 140 * MIB);
  close_heap(&f);
}

/* Two holes with an idle block between them serve one request. */
static void several_holes_serve_one_request(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr a = take(&f, 40 * MIB), b = take(&f, 5 * MIB), c = take(&f, 35 * MIB), d = take(&f, 20 * MIB);
  give(&f, a);
  give(&f, c);
  assert_int_equal(trim(&f), 60 * MIB); /* the page of b stays */
  give(&f, b);
  assert_int_equal(take(&f, 80 * MIB), a);
  assert_int_equal(reserved(&f), 100 * MIB);
  assert_int_equal(stats_of(&f).num_device_alloc, 4 + 2);
  give(&f, d);
  close_heap(&f);
}

static void an_empty_segment_is_given_up(void **state) {
  (void)state;
  struct fixture f;
  open_card(&f, "", &(struct gap__sim_params){.total_bytes = 80 * GIB, .address_budget_bytes = 100 * GIB});
  give(&f, take(&f, 50 * MIB));
  assert_int_equal(trim(&f), 60 * MIB);
  assert_int_equal(reserved(&f), 0);
  assert_int_equal(gap__heap_held(f.heap, 0), 0);
  take_from(&f, 7, DEFAULT, 50 * MIB); /* the addresses, too: there are enough for one segment only */
  close_heap(&f);
}

/* Work of the stream may still use what is idle in its order. */
static void unmapping_waits_for_the_stream(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap__sim_lag_set(f.dev, 3000);
  give(&f, take(&f, 50 * MIB));
  uint64_t before = gap__dev_now_ns(f.dev);
  trim(&f);
  assert_true(gap__dev_now_ns(f.dev) - before >= 3000000);
  close_heap(&f);
}

static void nothing_is_unmapped_while_the_stream_captures(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  give(&f, take_from(&f, 7, DEFAULT, 50 * MIB));
  gap__sim_stream_capture(f.dev, 7, true);
  uint64_t returned = 1;
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_int_equal(returned, 0);
  gap__sim_stream_capture(f.dev, 7, false);
  assert_int_equal(trim(&f), 60 * MIB);
  close_heap(&f);
}

static void a_released_pool_gives_its_pages_back(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {1, 0};
  open_heap(&f, "");
  assert_int_equal(gap__heap_pool_retain(f.heap, 0, pool), 0);
  gap_addr kept = take_from(&f, 0, pool, 30 * MIB), idle = take_from(&f, 0, pool, 50 * MIB);
  give(&f, idle);
  assert_int_equal(trim(&f), 0); /* in use */
  assert_int_equal(gap__heap_pool_release(f.heap, 0, pool), 0);
  assert_int_equal(trim(&f), 40 * MIB);
  give(&f, kept);
  assert_int_equal(trim(&f), 40 * MIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, pool, MIB, &kept), GAP_EINVAL); /* gone */
  close_heap(&f);
}

/* ---- limits ---- */

/* The limit is asked about the segment's size (20 MiB up to 10 MiB, whole 2 MiB from there), not about pages. */
static void the_last_page_may_end_beyond_the_cap(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap__heap_set_cap(f.heap, 0, 52 * MIB);
  take(&f, 40 * MIB);
  take(&f, 12 * MIB);
  assert_int_equal(reserved(&f), 60 * MIB);
  assert_int_equal(gap__heap_held(f.heap, 0), 60 * MIB);
  take(&f, 8 * MIB); /* idle already */
  assert_int_equal(refused(&f, 2 * MIB), GAP_ENOMEM);
  close_heap(&f);
}

static void a_refused_request_gives_back_and_tries_again(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap__heap_set_cap(f.heap, 0, 100 * MIB);
  gap_addr low = take(&f, 40 * MIB);
  take(&f, 40 * MIB);
  give(&f, low);
  take(&f, 60 * MIB); /* behind the second: the pages of the first were given back for it */
  struct gap__stats stats = stats_of(&f);
  assert_int_equal(stats.num_alloc_retries, 1);
  assert_int_equal(stats.reserved_bytes[GAP__KIND_ALL].current, 100 * MIB);
  assert_int_equal(stats.num_sync_all_streams, 1);
  assert_int_equal(refused(&f, 20 * MIB), GAP_ENOMEM);
  assert_int_equal(stats_of(&f).num_ooms, 1);
  close_heap(&f);
}

/* The driver has 7 pages: what was mapped before the refusal stays, idle; the call that failed leaves nothing. */
static void holes_that_were_filled_before_a_refusal_stay(void **state) {
  (void)state;
  struct fixture f;
  open_card(&f, "", &(struct gap__sim_params){.total_bytes = 140 * MIB});
  gap_addr a = take(&f, 20 * MIB), b = take(&f, 20 * MIB), c = take(&f, 60 * MIB);
  give(&f, a);
  assert_int_equal(trim(&f), 20 * MIB);
  give(&f, b);
  assert_int_equal(refused(&f, 90 * MIB), GAP_ENOMEM);
  check(&f);
  assert_int_equal(reserved(&f), gap__heap_held(f.heap, 0));
  assert_int_equal(gap__sim_chunk_bytes(f.dev), gap__heap_held(f.heap, 0));
  give(&f, c);
  take(&f, 140 * MIB); /* all of the card */
  close_heap(&f);
}

/* ---- with other settings ---- */

/* max_split_size bars an oversize block from the search, yet growth starts from it, and it is split all the same. */
static void growth_uses_an_oversize_block(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "max_split_size_mb:64");
  gap_addr whole = take(&f, 200 * MIB);
  give(&f, whole);
  assert_int_equal(take(&f, 100 * MIB), whole);
  assert_int_equal(reserved(&f), 200 * MIB);
  assert_int_equal(stats_of(&f).allocated_bytes[GAP__KIND_ALL].current, 100 * MIB);
  close_heap(&f);
}

static void both_sorts_live_side_by_side(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, "");
  gap_addr first = take(&f, 30 * MIB);
  take(&f, 5 * MIB);
  give(&f, first);
  set(&f, "expandable_segments:False");
  gap_addr native = take(&f, 6 * MIB); /* not from the idle 30 MiB */
  assert_int_equal(reserved(&f), 60 * MIB);
  assert_int_equal(stats_of(&f).segment[GAP__KIND_ALL].current, 1);
  check(&f);
  set(&f, "expandable_segments:True");
  assert_int_equal(take(&f, 9 * MIB), native + 6 * MIB); /* the best fit, whatever it lies in */
  assert_int_equal(take(&f, 20 * MIB), first);
  close_heap(&f);
}

static void contiguous_pools_have_driver_allocations(void **state) {
  (void)state;
  struct fixture f;
  struct gap__pool_about about = {.id = {3, 3}, .flags = GAP_POOL_CONTIGUOUS};
  open_heap(&f, "");
  assert_int_equal(gap__heap_pool_create(f.heap, 0, &about), 0);
  take_from(&f, 0, about.id, 30 * MIB);
  assert_int_equal(stats_of(&f).segment[GAP__KIND_ALL].current, 1);
  assert_int_equal(reserved(&f), 30 * MIB);
  close_heap(&f);
}

static void without_mapping_there_are_driver_allocations(void **state) {
  (void)state;
  struct fixture f;
  open_card(&f, "", &(struct gap__sim_params){.total_bytes = 80 * GIB, .no_vmm = true});
  take(&f, 30 * MIB);
  assert_int_equal(stats_of(&f).segment[GAP__KIND_ALL].current, 1);
  assert_int_equal(reserved(&f), 30 * MIB);
  close_heap(&f);
}

/* Where only small windows can be reserved, a request that fits in one is served. */
static void small_windows_will_do(void **state) {
  (void)state;
  struct fixture f;
  open_card(&f, "", &(struct gap__sim_params){.total_bytes = 80 * GIB, .window_max_bytes = 100 * MIB});
  take(&f, 60 * MIB);
  take(&f, 60 * MIB); /* in a second one */
  assert_int_equal(refused(&f, 200 * MIB), GAP_ENOMEM);
  close_heap(&f);
}

/* ---- what others see ---- */

struct seen {
  uint32_t blocks;
  struct gap__block_info last;
};

static int see(void *arg, const struct gap__block_info *block) {
  struct seen *seen = arg;
  assert_true(block->state != GAP__BLOCK_HOLE);
  seen->blocks++;
  seen->last = *block;
  return 0;
}

/* As in torch's snapshots a segment is a contiguous mapped range. */
static void a_walk_shows_mapped_ranges(void **state) {
  (void)state;
  struct fixture f;
  struct seen seen = {0};
  struct gap__block_info found;
  int device;
  open_heap(&f, "");
  gap_addr low = take(&f, 20 * MIB), middle = take(&f, 20 * MIB), high = take(&f, 30 * MIB);
  give(&f, middle);
  trim(&f);
  assert_int_equal(gap__heap_walk(f.heap, 0, see, &seen), 0);
  assert_int_equal(seen.blocks, 3); /* low, high, and the rest of the last page */
  assert_int_equal(seen.last.segment, high);
  assert_int_equal(seen.last.segment_bytes, 40 * MIB);
  assert_int_equal(gap__heap_find(f.heap, high + MIB, &found, &device), 0);
  assert_int_equal(found.segment, high);
  assert_int_equal(gap__heap_find(f.heap, low, &found, &device), 0);
  assert_int_equal(found.segment_bytes, 20 * MIB);
  assert_int_equal(gap__heap_find(f.heap, middle, &found, &device), GAP_EFREED);
  assert_int_equal(gap__heap_free(f.heap, middle), GAP_EFREED);
  close_heap(&f);
}

struct heard {
  gap_event_kind kind[8];
  uint64_t bytes[8];
  uint32_t count;
};

static void hear(void *arg, const gap_event *event) {
  struct heard *heard = arg;
  if (event->kind != GAP_EVENT_SEGMENT_MAP && event->kind != GAP_EVENT_SEGMENT_UNMAP) return;
  heard->kind[heard->count] = event->kind;
  heard->bytes[heard->count++] = event->bytes;
}

static void a_listener_hears_of_pages(void **state) {
  (void)state;
  struct fixture f;
  struct heard heard = {0};
  open_heap(&f, "");
  gap__heap_set_events(f.heap, GAP__TAP_PROGRAM, hear, &heard);
  gap_addr a = take(&f, 30 * MIB);
  take(&f, 30 * MIB);
  give(&f, a);
  trim(&f);
  assert_int_equal(heard.count, 3);
  assert_int_equal(heard.bytes[0], 40 * MIB);
  assert_int_equal(heard.bytes[1], 20 * MIB);
  assert_int_equal(heard.kind[2], GAP_EVENT_SEGMENT_UNMAP);
  assert_int_equal(heard.bytes[2], 20 * MIB);
  close_heap(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(growth_maps_what_is_missing_in_whole_pages),
      cmocka_unit_test(small_requests_grow_by_2_mib),
      cmocka_unit_test(blocks_are_cut_to_512_bytes),
      cmocka_unit_test(segment_statistics_stay_zero),
      cmocka_unit_test(streams_and_pools_have_segments_of_their_own),
      cmocka_unit_test(the_page_of_a_segment_stays),
      cmocka_unit_test(a_block_counts_with_what_it_can_grow_to),
      cmocka_unit_test(whole_pages_inside_an_idle_block_go_back),
      cmocka_unit_test(the_lowest_hole_is_filled_first),
      cmocka_unit_test(several_holes_serve_one_request),
      cmocka_unit_test(an_empty_segment_is_given_up),
      cmocka_unit_test(unmapping_waits_for_the_stream),
      cmocka_unit_test(nothing_is_unmapped_while_the_stream_captures),
      cmocka_unit_test(a_released_pool_gives_its_pages_back),
      cmocka_unit_test(the_last_page_may_end_beyond_the_cap),
      cmocka_unit_test(a_refused_request_gives_back_and_tries_again),
      cmocka_unit_test(holes_that_were_filled_before_a_refusal_stay),
      cmocka_unit_test(growth_uses_an_oversize_block),
      cmocka_unit_test(both_sorts_live_side_by_side),
      cmocka_unit_test(contiguous_pools_have_driver_allocations),
      cmocka_unit_test(without_mapping_there_are_driver_allocations),
      cmocka_unit_test(small_windows_will_do),
      cmocka_unit_test(a_walk_shows_mapped_ranges),
      cmocka_unit_test(a_listener_hears_of_pages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
