/* Two processes that work on one card, each with more idle memory in its hands than the card has for both: neither starves.
 *
 * What is asked of them: contents are what they were written; both do steps at rates that are within a factor of each other, and of what one
 * does alone, as said beside each test; and where the card is large enough for what both need at once, no request is refused. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "support/actor.h"

#define MIB ((uint64_t)1 << 20)
#define CARD (128 * MIB) /* of which 8 MiB are left free */

/* Actors have threads, and are made by fork: the thread sanitizer would rather end them. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void report_on(const char *who, const struct actor_report *r) {
  print_message("  %s: %lld steps, %lld requests refused\n", who, (long long)r->steps, (long long)r->refused);
}

/* The one does at least so many percent of the steps of the other; a machine on which they are few, as under a sanitizer, says no more than that both
 * do some. */
static void expect_even(int64_t a, int64_t b, int64_t percent) {
  assert_true(a > 0 && b > 0);
  if (a + b < 40) print_message("  too few steps to compare\n");
  else assert_true(100 * a >= percent * b && 100 * b >= percent * a);
}

static void print_exchange(struct actor *actor, const char *who) {
  print_message("  %s: asked %lld times, %lld MiB came free; gave %lld MiB\n", who,
                (long long)actor_stat(actor, "neighbour_asks"),
                (long long)(actor_stat(actor, "neighbour_got_bytes") >> 20),
                (long long)(actor_stat(actor, "neighbour_given_bytes") >> 20));
}

/* Each needs at most 50 of 120 MiB at once, and first had 100: without neighbours the second would get nothing.  Nothing is refused, and
 * the one does at least half as many steps as the other. */
static void both_fit(void **state) {
  (void)state;
  struct actor a = actor_start(CARD, "lend_after_ms:200"), b = actor_start(CARD, "lend_after_ms:200");
  struct actor_work work = {.least = 20 * MIB, .most = 50 * MIB, .run_ms = 5000, .hold_ms = 4, .rest_ms = 3, .seed = 1};
  assert_int_equal(actor_get(&a, 0, 100 * MIB), 0);
  actor_give(&a, 0);
  actor_ask_work(&a, &work);
  work.seed = 2;
  actor_ask_work(&b, &work);
  struct actor_report first = actor_report(&a), second = actor_report(&b);
  report_on("first", &first), report_on("second", &second);
  print_exchange(&a, "first"), print_exchange(&b, "second");
  assert_int_equal(first.wrong + second.wrong, 0);
  assert_int_equal(first.refused + second.refused, 0);
  expect_even(first.steps, second.steps, 50);
  assert_true(actor_stat(&a, "neighbour_given_bytes") > 0);
  actor_end(&a), actor_end(&b);
}

/* In turn each needs 110 of 120 MiB, as a process that generates and one that trains do: each turn begins with all of it in the
 * other's hands, idle.  All turns are served, with the contents they should have. */
static void by_turns(void **state) {
  enum { TURNS = 20 };
  (void)state;
  struct actor two[2] = {actor_start(CARD, "lend_after_ms:20"), actor_start(CARD, "lend_after_ms:20")};
  for (int turn = 0; turn < TURNS; turn++) {
    struct actor *actor = &two[turn % 2];
    for (int slot = 0; slot < 11; slot++) assert_int_equal(actor_get(actor, slot, 10 * MIB), 0);
    for (int slot = 0; slot < 11; slot++) actor_give(actor, slot);
  }
  print_exchange(&two[0], "first"), print_exchange(&two[1], "second");
  assert_true(actor_stat(&two[0], "neighbour_given_bytes") >= (int64_t)((TURNS / 2 - 1) * 90 * MIB));
  actor_end(&two[0]), actor_end(&two[1]);
}

/* Both want up to 70 of 120 MiB, which they cannot have at once, a quarter of the time each.  Requests may be refused, but each gets its
 * steps: the one at least a quarter of the other's, and together at least a third of what one does alone: each exchange is
 * paid for. */
static void both_want_more_than_half(void **state) {
  (void)state;
  struct actor_work work = {
      .least = 60 * MIB, .most = 70 * MIB, .run_ms = 3000, .hold_ms = 4, .rest_ms = 2, .rest_times = 3, .seed = 1};
  struct actor a = actor_start(CARD, "lend_after_ms:0");
  actor_ask_work(&a, &work);
  struct actor_report alone = actor_report(&a);
  report_on("alone", &alone);
  struct actor b = actor_start(CARD, "lend_after_ms:0");
  work.run_ms = 6000;
  work.rest_ms = alone.steps ? (int)(3 * 3000 / (4 * alone.steps)) : 100; /* as long as then, waits not counted */
  work.rest_times = 0;
  actor_ask_work(&a, &work);
  work.seed = 2;
  actor_ask_work(&b, &work);
  struct actor_report first = actor_report(&a), second = actor_report(&b);
  report_on("first", &first), report_on("second", &second);
  print_exchange(&a, "first"), print_exchange(&b, "second");
  assert_int_equal(first.wrong + second.wrong, 0);
  expect_even(first.steps, second.steps, 25);
  assert_true(3 * (first.steps + second.steps) * 3000 >= alone.steps * 6000);
  actor_end(&a), actor_end(&b);
}

/* One that came first and goes on using 90 of 120 MiB is not harmed by one that wants as much: it does at least half of the steps that it did
 * before, nothing is refused to it, and what is taken from it is what a step varies by. */
static void who_is_at_work_is_left_alone(void **state) {
  (void)state;
  struct actor_work work = {.least = 80 * MIB, .most = 90 * MIB, .run_ms = 2500, .hold_ms = 4, .rest_ms = 3, .seed = 1};
  struct actor a = actor_start(CARD, "lend_after_ms:2000"), b = actor_start(CARD, "lend_after_ms:2000");
  actor_ask_work(&a, &work);
  struct actor_report alone = actor_report(&a);
  work.run_ms = 5000;
  actor_ask_work(&a, &work);
  actors_pause(200);
  int64_t until = actors_now_ms() + 4000, refused = 0;
  while (actors_now_ms() < until) {
    refused += actor_get(&b, 0, 80 * MIB) == GAP_ENOMEM;
    actors_pause(20);
  }
  struct actor_report beside = actor_report(&a);
  report_on("alone", &alone), report_on("beside", &beside);
  assert_int_equal(beside.refused + beside.wrong, 0);
  assert_true(refused > 1);
  assert_true(2 * beside.steps * 2500 >= alone.steps * 5000);
  assert_in_range(actor_stat(&a, "neighbour_given_bytes"), 0, 20 * MIB);
  assert_int_equal(actor_get(&b, 0, 80 * MIB), 0); /* once it rests */
  actor_give(&b, 0);
  actor_end(&a), actor_end(&b);
}

/* Killed in the middle of its work, again and again; the other never sees anything but room. */
static void killed_in_the_middle(void **state) {
  (void)state;
  struct actor_work work = {.least = 30 * MIB, .most = 60 * MIB, .run_ms = 4000, .hold_ms = 3, .rest_ms = 3, .seed = 1};
  struct actor a = actor_start(CARD, "lend_after_ms:50");
  actor_ask_work(&a, &work);
  for (int i = 0; i < 8; i++) {
    struct actor b = actor_start(CARD, "lend_after_ms:50");
    struct actor_work its = {
        .least = 20 * MIB, .most = 50 * MIB, .run_ms = 60000, .hold_ms = 3, .rest_ms = 0, .seed = 9};
    actor_ask_work(&b, &its);
    actors_pause(100 + 50 * i);
    actor_kill(&b);
  }
  struct actor_report report = actor_report(&a);
  report_on("survivor", &report);
  assert_int_equal(report.wrong + report.refused, 0);
  assert_true(report.steps > 5);
  assert_int_equal(actor_get(&a, 0, 110 * MIB), 0);
  actor_give(&a, 0);
  actor_end(&a);
  struct actor sweeper = actor_start(CARD, "");
  assert_int_equal(actor_get(&sweeper, 0, MIB), 0);
  actor_end(&sweeper);
}

#define TEST(name) cmocka_unit_test_setup(name, actors_begin)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(both_fit),
      TEST(by_turns),
      TEST(both_want_more_than_half),
      TEST(who_is_at_work_is_left_alone),
      TEST(killed_in_the_middle),
  };
  return cmocka_run_group_tests_name("neighbours", tests, actors_set_up, actors_tear_down);
}
