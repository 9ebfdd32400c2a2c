/* Explanations of small hand-made situations whose verdict and sums can be worked out on paper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "explain/altered.h"
#include "explain/report.h"
#include "explain/subject.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BASE ((uint64_t)0x7f0000000000)

enum { EVENTS_MAX = 8192, SEGMENTS_MAX = 64, BLOCKS_MAX = 2048, LIVE_MAX = 1024 };

struct live {
  uint64_t addr, bytes;
  uint8_t state;
};

struct scene {
  struct gap__hist_event events[EVENTS_MAX];
  struct gap__hist_segment segments[SEGMENTS_MAX];
  struct gap__hist_block blocks[BLOCKS_MAX];
  struct gap__hist_pool pools[2];
  struct gap__hist_stack stacks[1];
  struct gap__hist_device device;
  struct gap__history history;
  struct live live[LIVE_MAX];
  uint32_t live_count;
  char text[1], settings[1];
  struct gap__subject subject;
};

static struct scene *scene_new(void) {
  struct scene *scene = calloc(1, sizeof *scene);
  assert_non_null(scene);
  scene->pools[1] = (struct gap__hist_pool){{0, 1}};
  scene->device.events = scene->events;
  scene->history = (struct gap__history){.devices = &scene->device,
                                         .device_count = 1,
                                         .segments = scene->segments,
                                         .blocks = scene->blocks,
                                         .pools = scene->pools,
                                         .pool_count = 2,
                                         .stacks = scene->stacks,
                                         .stack_count = 1,
                                         .text = scene->text,
                                         .text_bytes = 1,
                                         .settings_text = scene->settings};
  gap_explain_defaults(&scene->subject.options);
  return scene;
}

static void scene_free(struct scene *scene) {
  scene->subject.history = NULL;
  gap__subject_free(&scene->subject);
  free(scene);
}

static void event(struct scene *scene, enum gap__action action, uint64_t addr, uint64_t size, uint64_t stream) {
  assert_true(scene->device.event_count < EVENTS_MAX);
  scene->events[scene->device.event_count] = (struct gap__hist_event){.addr = addr,
                                                                      .size = size,
                                                                      .stream = stream,
                                                                      .action = (uint8_t)action,
                                                                      .time_us = (int64_t)scene->device.event_count};
  scene->device.event_count++;
}

static void segment(struct scene *scene, uint64_t addr, uint64_t bytes, uint64_t stream, uint16_t pool) {
  assert_true(scene->history.segment_count < SEGMENTS_MAX);
  event(scene, GAP__ACT_SEGMENT_ALLOC, addr, bytes, stream);
  scene->segments[scene->history.segment_count++] = (struct gap__hist_segment){
      .addr = addr, .total_size = bytes, .stream = stream, .pool = pool, .is_large = bytes != 2 * MIB};
}

static void put(struct scene *scene, uint64_t addr, uint64_t bytes, uint64_t stream) {
  assert_true(scene->live_count < LIVE_MAX);
  event(scene, GAP__ACT_ALLOC, addr, bytes, stream);
  scene->live[scene->live_count++] = (struct live){addr, bytes, 1};
}

static void drop(struct scene *scene, uint64_t addr) {
  for (uint32_t i = 0; i < scene->live_count; i++) {
    if (scene->live[i].addr != addr) continue;
    event(scene, GAP__ACT_FREE_REQUESTED, addr, scene->live[i].bytes, 0);
    event(scene, GAP__ACT_FREE_COMPLETED, addr, scene->live[i].bytes, 0);
    scene->live[i] = scene->live[--scene->live_count];
    return;
  }
  fail();
}

/* Freed by the program, still used by another stream. */
static void let_go(struct scene *scene, uint64_t addr) {
  for (uint32_t i = 0; i < scene->live_count; i++) {
    if (scene->live[i].addr != addr) continue;
    event(scene, GAP__ACT_FREE_REQUESTED, addr, scene->live[i].bytes, 0);
    scene->live[i].state = 2;
  }
}

static void refuse(struct scene *scene, uint64_t bytes, uint64_t driver_free) {
  event(scene, GAP__ACT_OOM, driver_free, bytes, 0);
}

static int by_address(const void *left, const void *right) {
  const struct live *a = left, *b = right;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static void add_block(struct scene *scene, struct gap__hist_segment *segment, uint64_t addr, uint64_t bytes,
                      uint8_t state) {
  if (bytes == 0) return;
  assert_true(scene->history.block_count < BLOCKS_MAX);
  scene->blocks[scene->history.block_count++] =
      (struct gap__hist_block){.addr = addr, .size = bytes, .requested = bytes, .state = state};
  segment->block_count++;
  segment->active_size += state ? bytes : 0;
}

/* The segments at the end, from what is live. */
static void settle(struct scene *scene) {
  qsort(scene->live, scene->live_count, sizeof *scene->live, by_address);
  for (uint64_t i = 0; i < scene->history.segment_count; i++) {
    struct gap__hist_segment *at = &scene->segments[i];
    uint64_t end = at->addr;
    at->block_first = (uint32_t)scene->history.block_count;
    for (uint32_t j = 0; j < scene->live_count; j++) {
      const struct live *live = &scene->live[j];
      if (live->addr < at->addr || live->addr >= at->addr + at->total_size) continue;
      add_block(scene, at, end, live->addr - end, 0);
      add_block(scene, at, live->addr, live->bytes, live->state);
      end = live->addr + live->bytes;
    }
    add_block(scene, at, end, at->addr + at->total_size - end, 0);
  }
}

static struct gap__subject *study(struct scene *scene) {
  settle(scene);
  scene->subject.history = &scene->history;
  assert_int_equal(gap__subject_study(&scene->subject), 0);
  return &scene->subject;
}

static void expect_verdict(struct scene *scene, gap_explain_verdict verdict) {
  const struct gap__subject *subject = study(scene);
  char *words = gap__report_words(subject, 100);
  if (subject->verdict != verdict)
    fail_msg("%s instead of %s:\n%s", gap_explain_verdict_name(subject->verdict), gap_explain_verdict_name(verdict),
             words);
  assert_non_null(words);
  if (verdict == GAP_EXPLAIN_FULL) assert_null(strstr(words, "ragment"));
  free(words);
  scene_free(scene);
}

/* ---- verdicts of refusals ------------------------------------------------------------------------------------------ */

/* 8 GiB in one segment, every second of 32 pieces live. */
static struct scene *comb(void) {
  struct scene *scene = scene_new();
  segment(scene, BASE, 8 * GIB, 0, 0);
  for (uint64_t i = 0; i < 32; i++) put(scene, BASE + i * 256 * MIB, 256 * MIB, 0);
  for (uint64_t i = 0; i < 32; i += 2) drop(scene, BASE + i * 256 * MIB);
  return scene;
}

static void a_comb_is_fragmented(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_FRAGMENTED);
}

static void the_sums_of_a_comb(void **state) {
  (void)state;
  struct scene *scene = comb();
  segment(scene, BASE + 16 * GIB, GIB, 0, 0);
  const struct gap__subject *subject = study(scene);
  const struct gap__figures *figures = &subject->figures;
  assert_true(figures->held == 9 * GIB && figures->live == 4 * GIB && figures->idle == 5 * GIB);
  assert_true(figures->returnable == GIB && figures->stuck == 4 * GIB && figures->largest_own == GIB);
  assert_true(subject->largest_servable == GIB && subject->lives.peak_bytes == 8 * GIB);
  assert_int_equal(figures->pins, 16);
  scene_free(scene);
}

static void a_full_card_is_full(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, 5 * GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_FULL);
}

/* The driver has more than was asked: only a limit can have refused. */
static void a_limit_is_a_limit(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, 5 * GIB, 100 * GIB);
  expect_verdict(scene, GAP_EXPLAIN_LIMIT);
}

/* ... but where enough is idle under the limit, the pieces are to blame. */
static void pieces_under_a_limit(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, GIB, 100 * GIB);
  const struct gap__subject *subject = study(scene);
  assert_int_equal(subject->verdict, GAP_EXPLAIN_FRAGMENTED);
  assert_true(subject->refusal.by_limit && subject->bounds.is_inferred && subject->bounds.target == 8 * GIB);
  scene_free(scene);
}

static void a_neighbour_and_a_context(void **state) {
  (void)state;
  struct scene *scene = comb();
  scene->subject.options.card_bytes = 24 * GIB; /* 8 held, 1 free: 15 belong to others */
  refuse(scene, 6 * GIB, GIB);
  expect_verdict(scene, GAP_EXPLAIN_NEIGHBOUR);
  scene = comb();
  scene->subject.options.card_bytes = 8 * GIB + 1536 * MIB; /* 0.5 GiB belong to others */
  refuse(scene, 5 * GIB + 256 * MIB, GIB);
  expect_verdict(scene, GAP_EXPLAIN_CONTEXT);
}

static void a_pool_holds_it(void **state) {
  (void)state;
  struct scene *scene = scene_new();
  segment(scene, BASE, 4 * GIB, 0, 0);
  put(scene, BASE, 4 * GIB, 0);
  segment(scene, BASE + 8 * GIB, 3 * GIB, 0, 1);
  put(scene, BASE + 8 * GIB, 16 * MIB, 0);
  refuse(scene, 2 * GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_POOL);
}

static void another_stream_holds_it(void **state) {
  (void)state;
  struct scene *scene = scene_new();
  segment(scene, BASE, 4 * GIB, 0, 0);
  put(scene, BASE, 4 * GIB, 0);
  segment(scene, BASE + 8 * GIB, 3 * GIB, 7, 0);
  put(scene, BASE + 8 * GIB, 16 * MIB, 7);
  refuse(scene, 2 * GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_STREAM);
}

static void pending_work_holds_it(void **state) {
  (void)state;
  struct scene *scene = scene_new();
  segment(scene, BASE, 4 * GIB, 0, 0);
  put(scene, BASE, 3 * GIB, 0);
  put(scene, BASE + 3 * GIB, GIB, 0);
  let_go(scene, BASE);
  refuse(scene, 2 * GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_PENDING);
}

static void an_absurd_request(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, 5000 * GIB, 100 * MIB);
  expect_verdict(scene, GAP_EXPLAIN_ABSURD);
  scene = comb();
  scene->subject.options.card_bytes = 24 * GIB;
  refuse(scene, 25 * GIB, 12 * GIB);
  expect_verdict(scene, GAP_EXPLAIN_ABSURD);
}

/* What happens after a refusal does not change what it met. */
static void the_moment_of_the_refusal(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, GIB, 100 * MIB);
  for (uint64_t i = 1; i < 32; i += 2) drop(scene, BASE + i * 256 * MIB);
  const struct gap__subject *subject = study(scene);
  assert_int_equal(subject->verdict, GAP_EXPLAIN_FRAGMENTED);
  assert_true(subject->figures.live == 4 * GIB && subject->figures.largest_own == 256 * MIB);
  scene_free(scene);
}

/* ---- without a refusal --------------------------------------------------------------------------------------------- */

static void states_without_a_refusal(void **state) {
  (void)state;
  expect_verdict(comb(), GAP_EXPLAIN_FRAGMENTED);
  struct scene *scene = scene_new();
  segment(scene, BASE, 4 * GIB, 0, 0);
  put(scene, BASE, 4 * GIB - 2 * MIB, 0);
  expect_verdict(scene, GAP_EXPLAIN_FULL);
  scene = scene_new();
  segment(scene, BASE, 4 * GIB, 0, 0);
  put(scene, BASE, GIB, 0);
  drop(scene, BASE);
  expect_verdict(scene, GAP_EXPLAIN_FITS);
  expect_verdict(scene_new(), GAP_EXPLAIN_UNKNOWN); /* nothing at all */
}

static void contradictions_are_told(void **state) {
  (void)state;
  struct scene *scene = comb();
  put(scene, BASE + 256 * MIB, MIB, 0); /* over a live block */
  scene->live_count--;
  struct gap__subject *subject = study(scene);
  assert_int_equal(subject->verdict, GAP_EXPLAIN_CONTRADICTORY);
  scene_free(scene);
  scene = comb();
  settle(scene);
  scene->segments[0].active_size -= 512;
  scene->subject.history = &scene->history;
  assert_int_equal(gap__subject_study(&scene->subject), 0);
  assert_int_equal(scene->subject.verdict, GAP_EXPLAIN_CONTRADICTORY);
  assert_int_equal(scene->subject.honest.contradictions, 1);
  scene_free(scene);
}

/* Nothing is found again and again where it begins. */
static void a_live_block_without_bytes(void **state) {
  (void)state;
  struct scene *scene = comb();
  settle(scene);
  uint64_t i = 0;
  while (!scene->blocks[i].state) i++;
  scene->blocks[i].size = 0;
  scene->subject.history = &scene->history;
  assert_int_equal(gap__subject_study(&scene->subject), 0);
  assert_int_equal(scene->subject.verdict, GAP_EXPLAIN_CONTRADICTORY);
  const struct gap__figures *figures = &scene->subject.figures;
  assert_int_equal(figures->held, figures->live + figures->pending + figures->idle);
  scene_free(scene);
}

/* Sums do not overflow; the sanitizer would say so. */
static void sizes_that_no_device_has(void **state) {
  (void)state;
  struct scene *scene = scene_new();
  for (uint64_t i = 0; i < 3; i++) {
    event(scene, GAP__ACT_SEGMENT_FREE, BASE + i * GIB, INT64_MAX, 0);
    put(scene, BASE, INT64_MAX, 0);
    put(scene, BASE + GIB, MIB, 0);
    drop(scene, BASE + GIB);
    drop(scene, BASE);
  }
  const struct gap__subject *subject = study(scene);
  assert_int_equal(subject->verdict, GAP_EXPLAIN_CONTRADICTORY);
  assert_true(subject->lives.count == 6);
  for (uint32_t i = 0; i < 6; i++) assert_true(subject->lives.at[i].bytes <= (uint64_t)16 << 40);
  scene_free(scene);
}

/* ---- a size that can no longer be had ------------------------------------------------------------------------------ */

static void a_size_is_lost_and_comes_back(void **state) {
  (void)state;
  struct scene *scene = scene_new();
  scene->subject.options.request_bytes = GIB;
  scene->subject.options.cap_bytes = 8 * GIB;
  segment(scene, BASE, 8 * GIB, 0, 0);                                                   /* 0 */
  for (uint64_t i = 0; i < 8; i++) put(scene, BASE + i * GIB + 128 * MIB, 128 * MIB, 0); /* 1 .. 8 */
  drop(scene, BASE + 3 * GIB + 128 * MIB);                                               /* 9, 10 */
  const struct gap__subject *subject = study(scene);
  assert_true(subject->has_servable && subject->servable.at_start && subject->servable.at_end);
  assert_int_equal(subject->servable.first_lost, 8); /* the gap at the end has 768 MiB, like the others */
  assert_true(subject->servable.held_then == 8 * GIB && subject->servable.live_then == GIB);
  scene_free(scene);
}

/* The same question asked the slow way: after each event, every gap of every segment. */
static bool slow_can_be_had(const struct scene *scene, uint64_t events, uint64_t request, uint64_t limit) {
  uint64_t held = 0, returnable = 0;
  for (uint64_t s = 0; s < scene->history.segment_count; s++) {
    const struct gap__hist_segment *segment = &scene->segments[s];
    uint8_t used[SEGMENTS_MAX * 4] = {0};
    bool exists = false, busy = false;
    for (uint64_t i = 0; i < events; i++) {
      const struct gap__hist_event *at = &scene->events[i];
      if (at->addr < segment->addr || at->addr >= segment->addr + segment->total_size) continue;
      if (at->action == GAP__ACT_SEGMENT_ALLOC) exists = true;
      for (uint64_t p = 0; p < at->size / MIB && at->action != GAP__ACT_SEGMENT_ALLOC; p++)
        used[(at->addr - segment->addr) / MIB + p] =
            at->action == GAP__ACT_ALLOC || at->action == GAP__ACT_FREE_REQUESTED;
    }
    for (uint64_t p = 0, run = 0; exists && p < segment->total_size / MIB; p++) {
      run = used[p] ? 0 : run + 1;
      busy |= used[p];
      if (run * MIB >= request) return true;
    }
    held += exists ? segment->total_size : 0;
    returnable += exists && !busy ? segment->total_size : 0;
  }
  return held - returnable + gap__figures_segment_for(request, false) <= limit;
}

static void random_program(struct scene *scene, unsigned seed) {
  uint64_t addr = BASE;
  srand(seed);
  for (int i = 0; i < 400; i++) {
    if (rand() % 2 && scene->live_count) {
      drop(scene, scene->live[(unsigned)rand() % scene->live_count].addr);
      continue;
    }
    uint64_t bytes = (2 + (uint64_t)rand() % 20) * MIB;
    bool placed = false;
    for (uint64_t s = 0; s < scene->history.segment_count && !placed; s++) {
      const struct gap__hist_segment *in = &scene->segments[s];
      uint64_t at = in->addr + (uint64_t)(rand() % 40) * MIB;
      placed = at + bytes <= in->addr + in->total_size;
      for (uint32_t j = 0; j < scene->live_count; j++)
        placed &= at + bytes <= scene->live[j].addr || at >= scene->live[j].addr + scene->live[j].bytes;
      if (placed) put(scene, at, bytes, 0);
    }
    if (placed || scene->history.segment_count >= 5) continue;
    segment(scene, addr, 60 * MIB, 0, 0);
    addr += 100 * MIB;
  }
}

static void the_quick_way_agrees_with_the_slow_one(void **state) {
  (void)state;
  uint32_t lost = 0, never_again = 0;
  for (unsigned seed = 1; seed <= 60; seed++) {
    struct scene *scene = scene_new();
    uint64_t request = (20 + seed % 30) * MIB, limit = 310 * MIB, first = UINT64_MAX, last = UINT64_MAX;
    scene->subject.options.request_bytes = request;
    scene->subject.options.cap_bytes = limit;
    random_program(scene, seed);
    const struct gap__subject *subject = study(scene);
    bool before = slow_can_be_had(scene, 0, request, limit), at_end = before;
    for (uint64_t i = 1; i <= scene->device.event_count; i++) {
      at_end = slow_can_be_had(scene, i, request, limit);
      if (before && !at_end && first == UINT64_MAX) first = i - 1;
      if (before && !at_end) last = i - 1;
      before = at_end;
    }
    assert_int_equal(subject->servable.at_end, at_end);
    assert_int_equal(subject->servable.first_lost, first == UINT64_MAX ? GAP__LIFE_NEVER : first);
    assert_int_equal(subject->servable.last_lost, at_end || last == UINT64_MAX ? GAP__LIFE_NEVER : last);
    lost += first != UINT64_MAX;
    never_again += !at_end && last != UINT64_MAX;
    scene_free(scene);
  }
  assert_true(lost > 20 && never_again > 5); /* the question was a real one */
}

/* ---- advice with replays that are made up -------------------------------------------------------------------------- */

static struct {
  uint32_t calls;
  bool gapless_fits, native_fits;
  uint64_t events_given;
} fake;
#define FAKE_LEAST (9 * GIB + 2 * MIB)

static int fake_replay(const gap_history *history, const gap_replay_options *how, gap_replay_result *result,
                       char *message, size_t bytes) {
  (void)message, (void)bytes;
  *result = (gap_replay_result){.size = sizeof *result,
                                .fitted = how->policy == GAP_POLICY_GAPLESS
                                              ? fake.gapless_fits
                                              : fake.native_fits || how->cap_bytes >= FAKE_LEAST,
                                .peak_reserved_bytes = 7 * GIB,
                                .peak_live_bytes = 6 * GIB,
                                .least_cap_bytes = FAKE_LEAST};
  fake.calls++;
  fake.events_given = history->devices[how->device].event_count;
  return 0;
}

static const struct gap__replayer fake_replayer = {fake_replay, fake_replay};

static const struct gap__advice *find_advice(const struct gap__subject *subject, enum gap__advice_kind kind) {
  for (uint32_t i = 0; i < subject->advice_count; i++)
    if (subject->advice[i].kind == kind) return &subject->advice[i];
  return NULL;
}

static void advice_says_what_the_replays_say(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, GIB, 100 * GIB);
  struct gap__subject *subject = study(scene);
  memset(&fake, 0, sizeof fake);
  fake.gapless_fits = true;
  assert_int_equal(gap__advice_find(subject, &fake_replayer, NULL, NULL), 0);
  const struct gap__advice *gapless = find_advice(subject, GAP__ADVICE_GAPLESS),
                           *limit = find_advice(subject, GAP__ADVICE_LIMIT);
  assert_non_null(gapless);
  assert_true(gapless->checked && gapless->works && gapless->reserved == 7 * GIB);
  assert_non_null(limit);
  assert_non_null(strstr(limit->text, "9.01 GiB")); /* not 9.00, which is told of 9 GiB and 2 MiB, and is less */
  assert_true(limit->checked && limit->works && limit->reserved == 7 * GIB);
  const struct gap__advice *setting = find_advice(subject, GAP__ADVICE_SETTING);
  assert_true(setting && setting->checked && !setting->works); /* none fitted; of expandable segments it is said */
  assert_non_null(strstr(setting->change, "expandable_segments:True"));
  char *words = gap__report_advice(subject, 80);
  assert_non_null(strstr(words, "[yes] gapless"));
  free(words);
  scene_free(scene);
}

static void refusals_that_were_survived_are_left_out(void **state) {
  (void)state;
  struct scene *scene = comb();
  uint64_t events = scene->device.event_count;
  refuse(scene, 2 * GIB, 100 * GIB);
  refuse(scene, GIB, 100 * GIB);
  put(scene, BASE, MIB, 0);
  struct gap__subject *subject = study(scene);
  memset(&fake, 0, sizeof fake);
  assert_int_equal(subject->refusal.count, 2);
  assert_int_equal(gap__advice_find(subject, &fake_replayer, NULL, NULL), 0);
  assert_int_equal(fake.events_given, events + 1); /* up to the last refusal and without the first */
  scene_free(scene);
}

static void without_time_nothing_is_claimed(void **state) {
  (void)state;
  struct scene *scene = comb();
  refuse(scene, GIB, 100 * GIB);
  struct gap__subject *subject = study(scene);
  subject->options.budget_ms = 0;
  memset(&fake, 0, sizeof fake);
  for (int i = 0; i < 2; i++) { /* time may pass between two looks at the clock */
    subject->advice_count = 0;
    assert_int_equal(gap__advice_find(subject, &fake_replayer, NULL, NULL), 0);
    for (uint32_t j = 0; j < subject->advice_count; j++)
      assert_true(subject->advice[j].checked || subject->advice[j].kind == GAP__ADVICE_NOTE);
  }
  scene_free(scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_comb_is_fragmented),
      cmocka_unit_test(the_sums_of_a_comb),
      cmocka_unit_test(a_full_card_is_full),
      cmocka_unit_test(a_limit_is_a_limit),
      cmocka_unit_test(pieces_under_a_limit),
      cmocka_unit_test(a_neighbour_and_a_context),
      cmocka_unit_test(a_pool_holds_it),
      cmocka_unit_test(another_stream_holds_it),
      cmocka_unit_test(pending_work_holds_it),
      cmocka_unit_test(an_absurd_request),
      cmocka_unit_test(the_moment_of_the_refusal),
      cmocka_unit_test(states_without_a_refusal),
      cmocka_unit_test(contradictions_are_told),
      cmocka_unit_test(a_live_block_without_bytes),
      cmocka_unit_test(sizes_that_no_device_has),
      cmocka_unit_test(a_size_is_lost_and_comes_back),
      cmocka_unit_test(the_quick_way_agrees_with_the_slow_one),
      cmocka_unit_test(advice_says_what_the_replays_say),
      cmocka_unit_test(refusals_that_were_survived_are_left_out),
      cmocka_unit_test(without_time_nothing_is_claimed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
