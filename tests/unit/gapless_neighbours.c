/* Neighbours without sockets: what a process gives when it is asked, and when and for how much it asks.  On the simulated card, with its
 * clock. */
#include "base/text.h"
#include "core/heap_state.h"
#include "support/gapless_try.h"

/* Lets `ms` pass in steps of 10 ms, as a program that does nothing would. */
static void pass(struct try *t, uint64_t ms) {
  for (uint64_t i = 0; i < ms; i += 10) {
    gap__sim_clock_advance(t->dev, 10000000);
    gap__heap_tick(t->heap, 0);
  }
  try_check(t);
}

static struct try begin(const char *conf) {
  struct try t = try_sim(conf);
  gap__heap_lend(t.heap, 0, true);
  return t;
}

static struct gap__given ask(struct try *t, uint64_t bytes) {
  struct gap__given given;
  uint64_t held = try_held(t);
  assert_int_equal(gap__heap_give(t->heap, 0, bytes, &given), 0);
  assert_int_equal(given.given, held - try_held(t)); /* what it says it has done */
  assert_int_equal(given.held, try_held(t));
  try_check(t);
  return given;
}

/* ---- asked ---- */

static void what_is_old_is_given(void **state) {
  (void)state;
  struct try t = begin("lend_after_ms:1000,page_maker:False");
  gap_addr live = try_get(&t, STREAM_A, 10 * MIB), early = try_get(&t, STREAM_A, 64 * MIB),
           late = try_get(&t, STREAM_B, 32 * MIB);
  try_give(&t, early);
  pass(&t, 700);
  try_give(&t, late);
  pass(&t, 200);
  struct gap__given given = ask(&t, GIB);
  assert_int_equal(given.given, 0); /* nothing is a second old */
  assert_int_equal(given.kept, 96 * MIB);
  assert_in_range(given.in_ms, 800, 1750);
  pass(&t, 500);
  given = ask(&t, 20 * MIB + 1);
  assert_int_equal(given.given, 22 * MIB); /* as much as was asked for, in whole pages */
  assert_int_equal(given.kept, 74 * MIB);
  given = ask(&t, GIB);
  assert_int_equal(given.given, 42 * MIB); /* what is younger stays */
  assert_int_equal(given.kept, 32 * MIB);
  pass(&t, given.in_ms); /* as it said */
  given = ask(&t, GIB);
  assert_int_equal(given.given, 32 * MIB);
  assert_int_equal(given.kept, 0);
  assert_int_equal(try_held(&t), 10 * MIB); /* what is live is nobody else's */
  const struct gap__stats *stats = try_stats(&t);
  assert_int_equal(stats->neighbour_requests, 4);
  assert_int_equal(stats->neighbour_given_bytes, 96 * MIB);
  assert_int_equal(stats->stalls, 0);
  try_give(&t, live);
  try_end(&t);
}

static void used_memory_stays(void **state) {
  (void)state;
  struct try t = begin("lend_after_ms:1000,page_maker:False");
  for (int step = 0; step < 40; step++) {
    gap_addr a = try_get(&t, STREAM_A, 64 * MIB);
    pass(&t, 100);
    try_give(&t, a);
    pass(&t, 100);
    struct gap__given given = ask(&t, GIB);
    assert_int_equal(given.given, 0);
    assert_true(given.in_ms >= 700); /* as long as it is at work the time does not come nearer */
  }
  assert_int_equal(try_stats(&t)->pages_grown, 32);
  try_end(&t);
}

static void at_once_where_that_is_wished(void **state) {
  (void)state;
  struct try t = begin("lend_after_ms:0,page_maker:False");
  gap_addr live = try_get(&t, STREAM_A, 10 * MIB);
  try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
  assert_int_equal(ask(&t, GIB).given, 64 * MIB);
  try_give(&t, live);
  try_end(&t);
}

/* What was made ahead of need goes first where there is need, and is not made anew at once. */
static void pages_made_ahead_go_too(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB}, "lend_after_ms:1000,grow_limit:2",
                              GAP__MAKER_STEPPED);
  gap__heap_lend(t.heap, 0, true);
  gap_addr live = try_get(&t, STREAM_A, 256 * MIB);
  pass(&t, 500);
  uint64_t ahead = try_held(&t) - 256 * MIB;
  assert_true(ahead >= 64 * MIB);
  pass(&t, 1000);
  assert_int_equal(ask(&t, 16 * MIB).given, 16 * MIB);
  assert_int_equal(ask(&t, GIB).given, ahead - 16 * MIB);
  pass(&t, 1000);
  assert_int_equal(try_held(&t), 256 * MIB);
  try_give(&t, live);
  try_end(&t);
}

/* A step of minutes: notes are kept for an age however long it is. */
static void a_long_age(void **state) {
  (void)state;
  struct try t = begin("lend_after_ms:60000,page_maker:False");
  try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
  pass(&t, 59000);
  struct gap__given given = ask(&t, GIB);
  assert_int_equal(given.given, 0);
  pass(&t, given.in_ms);
  assert_int_equal(ask(&t, GIB).given, 64 * MIB);
  try_end(&t);
}

static void what_cannot_go_is_not_waited_for(void **state) {
  (void)state;
  struct try t = begin("lend_after_ms:100,page_maker:False");
  gap_pool_id pool = {0, 5};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  try_give(&t, try_get_pool(&t, STREAM_A, pool, 64 * MIB)); /* a graph may know it */
  gap_addr busy = try_get(&t, STREAM_B, 32 * MIB);
  gap__sim_stream_hold(t.dev, STREAM_B);
  try_give(&t, busy);
  pass(&t, 2000);
  struct gap__given given = ask(&t, GIB);
  assert_int_equal(given.given, 0);
  assert_int_equal(given.kept, 0); /* nor is it promised */
  assert_int_equal(try_stats(&t)->stalls, 0);
  gap__sim_stream_release(t.dev, STREAM_B);
  assert_int_equal(ask(&t, GIB).given, 32 * MIB);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  try_end(&t);
}

static void no_neighbours_no_notes(void **state) {
  (void)state;
  struct try t = try_sim("lend_after_ms:100,page_maker:False,reserve:0");
  try_give(&t, try_get(&t, STREAM_A, 64 * MIB));
  uint64_t calls = (uint64_t)try_stats(&t)->driver_calls;
  pass(&t, 3000);
  assert_int_equal(try_stats(&t)->driver_calls, calls);
  try_end(&t);
}

/* ---- asking ---- */

/* A neighbour on a card of 4 GiB, as the socket's side would show it. */
static struct {
  struct try *t;
  uint64_t has, idle; /* bytes it holds, and of them it would give */
  uint64_t lies;      /* bytes that it only says it gave */
  int hopeful;        /* rounds for which more may come */
  void (*meanwhile)(void);
  uint64_t asked, welcome; /* bytes, the last time */
  int rounds;
} other;

static void ask_other(void *client, int ordinal, uint64_t bytes, struct gap__asked *out) {
  uint64_t gives = bytes < other.idle ? bytes : other.idle;
  (void)client;
  assert_int_equal(ordinal, 0);
  other.has -= gives, other.idle -= gives;
  other.asked = bytes;
  other.welcome = out->welcome;
  other.rounds++;
  gap__sim_neighbour_set(other.t->dev, other.has);
  out->got = gives + other.lies;
  out->neighbours = 2;
  out->silent = out->missed = 1;
  out->held = other.has, out->kept = other.idle;
  out->hope = other.rounds < other.hopeful;
  if (other.meanwhile) other.meanwhile();
}

static void meet(struct try *t, uint64_t has, uint64_t idle) {
  memset(&other, 0, sizeof other);
  other.t = t;
  other.has = has, other.idle = idle;
  gap__sim_neighbour_set(t->dev, has);
  t->heap->ask = ask_other;
}

static int64_t served(struct try *t) { return try_stats(t)->rung_count[GAP__RUNG_neighbours]; }

static void what_is_lacking_is_asked_for(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:0");
  gap_addr a = try_get(&t, STREAM_A, 1 * GIB), idle = try_get(&t, STREAM_A, 512 * MIB);
  meet(&t, 2 * GIB, 2 * GIB);
  try_give(&t, idle);
  gap_addr b = try_get(&t, STREAM_A, 1 * GIB); /* 512 MiB are idle, 512 MiB are free */
  assert_int_equal(other.rounds, 0);
  gap_addr c = try_get(&t, STREAM_A, 300 * MIB);
  assert_int_equal(other.rounds, 1);
  assert_int_equal(other.asked, 300 * MIB);
  assert_int_equal(other.welcome, 512 * MIB); /* a quarter of what it holds, at most this */
  try_give(&t, c);
  gap_addr d = try_get(&t, STREAM_A, 500 * MIB);
  assert_int_equal(other.rounds, 2);
  assert_int_equal(other.asked, 200 * MIB); /* the rest is its own */
  assert_int_equal(served(&t), 2);
  const struct gap__stats *stats = try_stats(&t);
  assert_int_equal(stats->neighbours, 2);
  assert_int_equal(stats->neighbour_asks, 2);
  assert_int_equal(stats->neighbour_got_bytes, 500 * MIB);
  assert_int_equal(stats->neighbour_silent, 2);
  assert_int_equal(stats->num_ooms, 0);
  struct gap__text summary = {0};
  assert_int_equal(gap__heap_summary(t.heap, 0, &summary), 0);
  assert_non_null(strstr(gap__text_str(&summary), ", 500 MiB came free, 2 without an answer; was asked 0 times"));
  gap__text_free(&summary);
  try_give(&t, a), try_give(&t, b), try_give(&t, d);
  try_end(&t);
}

static void the_reserve_is_asked_for_too(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:256M");
  meet(&t, 4 * GIB, 4 * GIB);
  gap_addr a = try_get(&t, STREAM_A, 100 * MIB);
  assert_int_equal(other.asked, 356 * MIB);
  assert_int_equal(try_stats(&t)->reserve_bytes, 256 * MIB);
  try_give(&t, a);
  try_end(&t);
}

static void others_cannot_help(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:0");
  meet(&t, 2 * GIB, 2 * GIB);
  try_cap(&t, 1 * GIB);
  try_refuse(&t, STREAM_A, 1100 * MIB, GAP_ENOMEM); /* its own cap; nothing could come of the rest */
  gap_addr a = try_get(&t, STREAM_A, 1 * GIB);
  try_refuse(&t, STREAM_A, 100 * MIB, GAP_ENOMEM);
  try_cap(&t, 0);
  try_refuse(&t, STREAM_A, 5 * GIB, GAP_ENOMEM); /* more than the card has */
  assert_int_equal(other.rounds, 0);
  gap__heap_lend(t.heap, 0, false);
  try_refuse(&t, STREAM_A, 2 * GIB, GAP_ENOMEM);
  assert_int_equal(other.rounds, 0);
  assert_int_equal(try_stats(&t)->num_ooms, 4);
  try_give(&t, a);
  try_end(&t);
}

static bool has_words(struct try *t, const char *words) {
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(t->heap, 0, text, sizeof text), 0);
  return strstr(text, words) != NULL;
}

static void a_refusal_names_them(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:0");
  meet(&t, 3 * GIB, 0);
  try_refuse(&t, STREAM_A, 2 * GIB, GAP_ENOMEM);
  assert_int_equal(other.rounds, 1);
  assert_true(has_words(
      &t, " 2 other gapless processes on the card: 3 GiB held by neighbours, 0 B of it idle but used of late; "
          "1 did not answer."));
  try_cap(&t, 64 * MIB);
  try_refuse(&t, STREAM_A, 128 * MIB, GAP_ENOMEM);
  assert_false(has_words(&t, "neighbours")); /* they were not asked */
  try_end(&t);
}

static gap_addr held_back;
static void becomes_idle(void) {
  if (other.rounds == 3) other.idle = GIB;
}
static void frees_here(void) {
  if (other.rounds == 3) try_give(other.t, held_back);
}

/* What comes later is waited for as long as there is hope, and what this process frees meanwhile serves as well. */
static void hope_is_waited_for(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:0");
  held_back = try_get(&t, STREAM_A, GIB);
  meet(&t, 3 * GIB, 0);
  other.hopeful = 6;
  try_refuse(&t, STREAM_A, 200 * MIB, GAP_ENOMEM);
  assert_int_equal(other.rounds, 6);
  other.rounds = 0;
  other.meanwhile = becomes_idle;
  gap_addr a = try_get(&t, STREAM_A, 200 * MIB);
  assert_int_equal(other.rounds, 4);
  other.rounds = 0;
  other.idle = 0;
  other.meanwhile = frees_here;
  gap_addr b = try_get(&t, STREAM_A, 300 * MIB);
  assert_int_equal(other.rounds, 3);
  assert_int_equal(served(&t), 2);
  assert_int_equal(try_stats(&t)->neighbour_asks, 3);
  try_give(&t, a), try_give(&t, b);
  try_end(&t);
}

/* One that says it has given and has not: asked a few times, then the request fails. */
static void lies_do_not_keep_it(void **state) {
  (void)state;
  struct try t = begin("page_maker:False,reserve:0");
  meet(&t, 4 * GIB, 0);
  other.lies = GIB;
  try_refuse(&t, STREAM_A, 100 * MIB, GAP_ENOMEM);
  assert_int_equal(other.rounds, 8);
  assert_int_equal(served(&t), 0);
  try_end(&t);
}

/* Many small pieces: what comes is used as it comes. */
static void a_program_that_lives_from_its_neighbour(void **state) {
  (void)state;
  enum { BLOCKS = 200 };
  struct try t = begin("page_maker:False,reserve:64M");
  gap_addr blocks[BLOCKS];
  meet(&t, 4 * GIB, 3 * GIB);
  uint64_t seed = 7, sum = 0;
  for (int i = 0; i < BLOCKS; i++) {
    uint64_t bytes = try_log_uniform(&seed, 4 * KIB, 64 * MIB);
    sum += bytes;
    blocks[i] = try_get(&t, i % 2 ? STREAM_A : STREAM_B, bytes);
    if (i % 16 == 0) try_check(&t);
  }
  assert_true(try_held(&t) < sum + sum / 10 + 64 * MIB);
  assert_true(4 * GIB - other.has < sum + sum / 10 + 128 * MIB); /* no more than was needed */
  for (int i = 0; i < BLOCKS; i++) try_give(&t, blocks[i]);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_old_is_given),
      cmocka_unit_test(used_memory_stays),
      cmocka_unit_test(at_once_where_that_is_wished),
      cmocka_unit_test(pages_made_ahead_go_too),
      cmocka_unit_test(a_long_age),
      cmocka_unit_test(what_cannot_go_is_not_waited_for),
      cmocka_unit_test(no_neighbours_no_notes),
      cmocka_unit_test(what_is_lacking_is_asked_for),
      cmocka_unit_test(the_reserve_is_asked_for_too),
      cmocka_unit_test(others_cannot_help),
      cmocka_unit_test(a_refusal_names_them),
      cmocka_unit_test(hope_is_waited_for),
      cmocka_unit_test(lies_do_not_keep_it),
      cmocka_unit_test(a_program_that_lives_from_its_neighbour),
  };
  return cmocka_run_group_tests_name("neighbours", tests, NULL, NULL);
}
