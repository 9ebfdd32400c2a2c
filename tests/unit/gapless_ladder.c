/* Each rung of the ladder is reached, serves, and is counted. */
#include "base/text.h"
#include "core/lane.h"
#include "core/place.h"
#include "core/reclaim.h"
#include "support/gapless_try.h"

#define LAG_US 20000

static struct try lagging(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB, .lag_us = LAG_US}, conf, GAP__MAKER_OFF);
}

static void pass(struct try *t) { gap__sim_clock_advance(t->dev, 2ull * LAG_US * 1000); }

static int64_t rung(struct try *t, enum gap__rung rung) { return try_stats(t)->rung_count[rung]; }

/* Two neighbours kept whole for their own size merge when a larger request finds nothing. */
static void fit(void **state) {
  (void)state;
  struct try t = lagging("max_memory:2MiB");
  gap_addr at[64];
  for (int i = 0; i < 64; i++) at[i] = try_get(&t, 0, 32 * KIB);
  try_give(&t, at[10]), try_give(&t, at[11]);
  int64_t before = rung(&t, GAP__RUNG_fit);
  assert_true(try_get(&t, 0, 64 * KIB) == at[10]);
  /* the statistics above have merged them already: once more without looking in between */
  try_give(&t, at[20]), try_give(&t, at[21]);
  assert_true(try_get(&t, 0, 64 * KIB) == at[20]);
  assert_int_equal(rung(&t, GAP__RUNG_fit), before + 1);
  assert_int_equal(rung(&t, GAP__RUNG_grow), 1);
  try_end(&t);
}

/* A small request takes a corner of the large arena where a page of its own cannot be had. */
static void fit_in_a_corner(void **state) {
  (void)state;
  struct try t = lagging("max_memory:4MiB");
  gap_addr a = try_get(&t, 0, 3 * MIB);
  int64_t before = rung(&t, GAP__RUNG_fit);
  gap_addr b = try_get(&t, 0, 512);
  assert_true(b / (4 * MIB) == a / (4 * MIB));
  assert_int_equal(rung(&t, GAP__RUNG_fit), before + 1);
  try_end(&t);
}

static void pending(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  assert_int_equal(try_stats(&t)->active_bytes[0].current, 20 * MIB);
  assert_int_equal(try_stats(&t)->allocated_bytes[0].current, 0);
  pass(&t);
  assert_true(try_get(&t, STREAM_A, 20 * MIB) == a);
  assert_int_equal(rung(&t, GAP__RUNG_pending), 1);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_end(&t);
}

/* Chunks of two pages, half used, lie at both ends of the idle memory: what lies between them moves all the same. */
static void steal_from_inside(void **state) {
  (void)state;
  struct try t = lagging("max_memory:96MiB,chunk_max:4MiB");
  try_give(&t, try_get(&t, STREAM_A, 96 * MIB));
  gap_addr low = try_get(&t, STREAM_A, 6 * MIB), middle = try_get(&t, STREAM_A, 84 * MIB);
  gap_addr high = try_get(&t, STREAM_A, 6 * MIB);
  assert_true(low + 6 * MIB == middle && middle + 84 * MIB == high);
  try_give(&t, middle);
  pass(&t);
  assert_true(try_get(&t, STREAM_B, 80 * MIB) != 0);
  assert_int_equal(try_stats(&t)->pages_stolen, 40);
  assert_int_equal(rung(&t, GAP__RUNG_steal), 1);
  try_end(&t);
}

static void grow(void **state) {
  (void)state;
  struct try t = lagging("");
  try_get(&t, 0, 20 * MIB);
  try_get(&t, 0, 20 * MIB);
  assert_int_equal(rung(&t, GAP__RUNG_grow), 2);
  assert_int_equal(try_stats(&t)->pages_grown, 20);
  try_end(&t);
}

/* Beyond grow_limit x live, ready pages of another stream serve before new ones. */
static void steal_ready(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr a = try_get(&t, STREAM_A, 100 * MIB);
  try_give(&t, a);
  try_get(&t, STREAM_A, 512); /* a slow path closes the epoch */
  pass(&t);
  try_get(&t, STREAM_B, 100 * MIB);
  assert_int_equal(rung(&t, GAP__RUNG_steal_ready), 1);
  assert_int_equal(rung(&t, GAP__RUNG_steal), 0);
  assert_true(try_held(&t) <= 108 * MIB);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_end(&t);
}

static void steal(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  try_give(&t, a);
  try_refuse(&t, STREAM_A, 21 * MIB, GAP_ENOMEM); /* closes the epoch */
  pass(&t);
  try_get(&t, STREAM_B, 20 * MIB);
  assert_int_equal(rung(&t, GAP__RUNG_steal), 1);
  assert_int_equal(try_stats(&t)->pages_stolen, 10);
  assert_int_equal(try_stats(&t)->pages_stolen_alias, 0);
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_int_equal(try_held(&t), 20 * MIB);
  try_end(&t);
}

/* Work of the other stream does not end by itself: the caller waits, once, and only for that. */
static void wait_for_an_epoch(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  gap__sim_stream_hold(t.dev, STREAM_A);
  try_give(&t, a);
  try_get(&t, STREAM_B, 20 * MIB);
  assert_int_equal(rung(&t, GAP__RUNG_wait), 1);
  assert_int_equal(rung(&t, GAP__RUNG_steal), 1);
  assert_int_equal(try_stats(&t)->stalls, 1);
  assert_true(try_stats(&t)->stall_us >= LAG_US);
  try_end(&t);
}

static void wait_for_a_pending_free(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_addr a = try_get(&t, STREAM_A, 20 * MIB);
  gap__sim_stream_hold(t.dev, STREAM_B);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  assert_true(try_get(&t, STREAM_A, 20 * MIB) == a);
  assert_int_equal(rung(&t, GAP__RUNG_wait), 1);
  assert_int_equal(try_stats(&t)->stalls, 1);
  try_end(&t);
}

/* The first pending block is used by a stream that is being captured, which nobody can wait for; the second one serves. */
static void wait_past_a_capture(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  gap_stream captured = 4096;
  gap_addr a = try_get(&t, STREAM_A, 10 * MIB), b = try_get(&t, STREAM_A, 10 * MIB);
  gap__sim_stream_capture(t.dev, captured, true);
  assert_int_equal(gap__heap_record_stream(t.heap, a, captured), 0);
  assert_int_equal(gap__heap_record_stream(t.heap, b, STREAM_B), 0);
  try_give(&t, a), try_give(&t, b);
  assert_true(try_get(&t, STREAM_A, 10 * MIB) == b);
  gap__sim_stream_capture(t.dev, captured, false);
  try_refuse(&t, STREAM_A, 11 * MIB, GAP_ENOMEM);
  assert_true(try_get(&t, STREAM_A, 10 * MIB) == a);
  try_end(&t);
}

struct giver {
  struct try *t;
  gap_addr addr;
  int called;
};

static bool give_one(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct giver *giver = arg;
  giver->called++;
  assert_int_equal(device, 0);
  assert_int_equal(stream, STREAM_A);
  assert_int_equal(bytes, 12 * MIB);
  if (!giver->addr) return false;
  try_give(giver->t, giver->addr);
  giver->addr = 0;
  gap_addr inside; /* it may even allocate */
  assert_int_equal(gap__heap_alloc(giver->t->heap, 0, STREAM_B, DEFAULT, 512, &inside), 0);
  try_give(giver->t, inside);
  return true;
}

static void callbacks(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  struct giver giver = {.t = &t, .addr = try_get(&t, STREAM_A, 18 * MIB)};
  gap__heap_set_oom_callback(t.heap, give_one, &giver);
  gap_addr a = try_get(&t, STREAM_A, 12 * MIB);
  assert_int_equal(giver.called, 1);
  assert_int_equal(rung(&t, GAP__RUNG_callbacks), 1);
  assert_int_equal(rung(&t, GAP__RUNG_fail), 0);
  gap_addr other;
  assert_int_equal(gap__heap_alloc(t.heap, 0, STREAM_A, DEFAULT, 12 * MIB, &other), GAP_ENOMEM);
  assert_int_equal(giver.called, 2);
  assert_int_equal(rung(&t, GAP__RUNG_callbacks), 1);
  assert_int_equal(rung(&t, GAP__RUNG_fail), 1);
  try_give(&t, a);
  try_end(&t);
}

static void failure(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(t.heap, 0, text, sizeof text), 0);
  assert_string_equal(text, "");
  gap_addr a = try_get(&t, 0, 11 * MIB), b = try_get(&t, 0, 5 * MIB);
  try_give(&t, b);
  try_refuse(&t, 0, 10 * MIB, GAP_ENOMEM);
  assert_int_equal(rung(&t, GAP__RUNG_fail), 1);
  assert_int_equal(try_stats(&t)->num_ooms, 1);
  assert_int_equal(gap__heap_diagnosis(t.heap, 0, text, sizeof text), 0);
  static const char *const words[] = {"asked for", "10", "in use", "11", "is live", "held", "20", "the cap"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (!strstr(text, words[i])) print_error("no '%s' in: %s\n", words[i], text);
    assert_non_null(strstr(text, words[i]));
  }
  assert_int_equal(rung(&t, GAP__RUNG_convert), 0);
  assert_int_equal(rung(&t, GAP__RUNG_overflow), 0);
  try_give(&t, a);
  try_end(&t);
}

static void said(struct try *t, const char *words) {
  char text[1280];
  assert_int_equal(gap__heap_diagnosis(t->heap, 0, text, sizeof text), 0);
  if (!strstr(text, words)) print_error("no '%s' in: %s\n", words, text);
  assert_non_null(strstr(text, words));
}

/* Each reason of a failure is told apart, with what would help. */
static void reasons(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB");
  try_refuse(&t, 0, 30 * MIB, GAP_ENOMEM);
  said(&t, "larger than all that may be held");
  said(&t, "the most that would be served is 20 MiB. What would help: raise the cap");
  gap_addr a = try_get_pool(&t, 0, (gap_pool_id){1, 1}, 20 * MIB);
  try_give(&t, a);
  try_refuse(&t, 0, 10 * MIB, GAP_ENOMEM);
  said(&t, "private pools");
  said(&t, "What would help: release pools and graphs");
  try_end(&t);

  t = lagging("max_memory:20MiB");
  a = try_get(&t, 0, 20 * MIB);
  gap__sim_stream_capture(t.dev, STREAM_B, true);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  try_refuse(&t, 0, 10 * MIB, GAP_ENOMEM);
  said(&t, "other streams");
  said(&t, "What would help: let those streams end");
  try_end(&t);
}

/* A block of 3 MiB in every 4: what is idle would do, in one piece. */
static void broken_up(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:40MiB");
  gap_addr kept[9], gone[9];
  for (int i = 0; i < 9; i++) {
    kept[i] = try_get(&t, STREAM_A, 3 * MIB);
    gone[i] = try_get(&t, STREAM_A, MIB + 512);
  }
  for (int i = 0; i < 9; i++) try_give(&t, gone[i]);
  const struct gap__stats *s = try_stats(&t);
  uint64_t servable = (uint64_t)s->largest_servable_bytes;
  assert_true(s->idle_stuck_bytes >= 4 * (int64_t)MIB && servable < 8 * MIB);
  try_refuse(&t, STREAM_A, servable + 2 * MIB, GAP_ENOMEM);
  said(&t, "enough is idle, but broken up between live blocks");
  said(&t, "What would help: give what lives long a pool of its own");
  try_refuse(&t, STREAM_A, 30 * MIB, GAP_ENOMEM);
  said(&t, "the memory is in use");
  said(&t, "What would help: raise the cap, ask for less at a time");
  for (int i = 0; i < 9; i++) try_give(&t, kept[i]);
  try_end(&t);
}

/* Without a cap the card limits, and what others have of it is told. */
static void others_on_the_card(void **state) {
  (void)state;
  struct try t = try_sim("reserve:0");
  gap__sim_neighbour_set(t.dev, 3 * GIB);
  try_refuse(&t, STREAM_A, 2 * GIB, GAP_ENOMEM);
  said(&t, "3 GiB");
  said(&t, "other programs");
  try_end(&t);

  t = try_sim("reserve:256MiB");
  gap__sim_neighbour_set(t.dev, 3 * GIB);
  try_refuse(&t, STREAM_A, 2 * GIB, GAP_ENOMEM);
  said(&t, "the request is larger than what the card has left");
  said(&t, "of at most 768 MiB (what the card has left beside 3 GiB of other programs and contexts)");
  said(&t, "the most that would be served is 768 MiB. What would help: ask for less at a time, or let other programs "
           "use less.");
  try_give(&t, try_get(&t, STREAM_A, 768 * MIB));
  try_end(&t);
}

/* What is named as the most that would be served is. */
static void the_most_that_is_named(void **state) {
  (void)state;
  for (uint64_t round = 1; round < 20; round++) {
    struct try t = try_sim("max_memory:100MiB");
    uint64_t seed = round, most = 0;
    gap_addr at[40] = {0};
    char text[1280], size[GAP__TEXT_BYTES];
    for (int i = 0; i < 300; i++) {
      gap_addr *slot = &at[try_random(&seed, 40)];
      try_give(&t, *slot);
      *slot = try_random(&seed, 3) ? try_get(&t, STREAM_A, try_log_uniform(&seed, 1, 2 * MIB)) : 0;
    }
    try_refuse(&t, STREAM_A, 100 * MIB, GAP_ENOMEM);
    assert_int_equal(gap__heap_diagnosis(t.heap, 0, text, sizeof text), 0);
    const char *said_most = strstr(text, "the most that would be served is ");
    assert_non_null(said_most);
    most = (uint64_t)try_stats(&t)->largest_servable_bytes;
    assert_memory_equal(said_most + strlen("the most that would be served is "), size,
                        strlen(gap__text_size(most, size)));
    if (most) try_give(&t, try_get(&t, STREAM_A, most));
    try_end(&t);
  }
}

/* nmalloc:3 climbs three times, and says so. */
static void nmalloc(void **state) {
  (void)state;
  struct try t = lagging("max_memory:20MiB,nmalloc:3");
  gap_addr a = try_get(&t, 0, 20 * MIB);
  try_refuse(&t, 0, 2 * MIB, GAP_ENOMEM);
  assert_int_equal(try_stats(&t)->num_alloc_retries, 2);
  assert_int_equal(rung(&t, GAP__RUNG_fail), 1);
  try_give(&t, a);
  try_end(&t);
}

/* Between the ladder and the hand-out no lock is held: whoever looks then finds the block on its way. */
static void checked_before_it_is_handed_out(void **state) {
  (void)state;
  struct try t = lagging("");
  char text[200] = "";
  try_give(&t, try_get(&t, STREAM_A, 4 * MIB));
  struct gap__lane *lane = try_state(&t)->lanes;
  struct gap__request req = {.units = 8 * MIB >> GAP__UNIT_SHIFT, .bytes = 8 * MIB, .aligned = true};
  uint32_t block;
  lane->visitors++;
  assert_int_equal(gap__reclaim(lane, &req, &block), 0);
  assert_int_equal(gap__block(lane, block)->state, GAP__RESERVED);
  try_check(&t);
  lane->visitors--;
  assert_int_not_equal(gap__heap_check(t.heap, 0, text, sizeof text), 0);
  assert_non_null(strstr(text, "at rest"));
  gap__lock(&lane->lock);
  gap__place_dissolve(&lane->arena[GAP__ARENA_LARGE], block);
  gap__unlock(&lane->lock);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fit),
      cmocka_unit_test(fit_in_a_corner),
      cmocka_unit_test(pending),
      cmocka_unit_test(steal_from_inside),
      cmocka_unit_test(grow),
      cmocka_unit_test(steal_ready),
      cmocka_unit_test(steal),
      cmocka_unit_test(callbacks),
      cmocka_unit_test(wait_for_an_epoch),
      cmocka_unit_test(wait_for_a_pending_free),
      cmocka_unit_test(failure),
      cmocka_unit_test(wait_past_a_capture),
      cmocka_unit_test(reasons),
      cmocka_unit_test(broken_up),
      cmocka_unit_test(others_on_the_card),
      cmocka_unit_test(the_most_that_is_named),
      cmocka_unit_test(nmalloc),
      cmocka_unit_test(checked_before_it_is_handed_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
