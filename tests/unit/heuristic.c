/* The strategy `heuristic`: what it chooses, when it changes its mind, and that what it left goes on to work. */
#include "base/text.h"
#include "support/gapless_try.h"

enum { PHASE = 400, KEPT = 8 };

static struct try try_heuristic(uint64_t total_bytes, const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = total_bytes}, conf, GAP__MAKER_OFF);
}

static enum gap__strategy maker_of(struct try *t, gap_addr addr) {
  struct gap__block_info info;
  assert_int_equal(gap__heap_find(t->heap, addr, &info, NULL), 0);
  return info.strategy;
}

static void serves(struct try *t, enum gap__strategy strategy, int64_t reason) {
  gap_addr addr = try_get(t, 0, 3 * MIB);
  assert_int_equal(maker_of(t, addr), strategy);
  assert_int_equal(try_stats(t)->strategy_reason, reason);
  try_give(t, addr);
}

static void configure(struct try *t, const char *string) {
  struct gap__conf_set *set = gap__conf_new();
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", string, NULL), 0);
  assert_int_equal(gap__heap_configure(t->heap, gap__conf_values(set)), 0);
  gap__conf_free(set);
}

static void says(struct try *t, const char *words) {
  struct gap__text text = {0};
  assert_int_equal(gap__heap_summary(t->heap, 0, &text), 0);
  assert_non_null(strstr(gap__text_str(&text), words));
  gap__text_free(&text);
}

/* ---- what it chooses ---- */

static void caps_decide(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic");
  serves(&t, GAP__STRATEGY_CACHING, 1);
  says(&t, "caching_allocator serves: memory is plenty");
  try_cap(&t, GIB);
  serves(&t, GAP__STRATEGY_GAPLESS, 2);
  says(&t, "gapless serves: a cap limits what may be held");
  assert_int_equal(try_stats(&t)->strategy_changes, 1);
  try_cap(&t, 0);
  serves(&t, GAP__STRATEGY_CACHING, 1);
  assert_int_equal(try_stats(&t)->strategy_changes, 2);
  assert_int_equal(gap__heap_reset_accumulated(t.heap, 0), 0);
  assert_int_equal(try_stats(&t)->strategy_changes, 0);
  try_end(&t);
}

static void one_large_request_is_enough(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  gap_addr half = try_get(&t, 0, 2 * GIB + 20 * MIB), small = try_get(&t, 0, MIB);
  assert_int_equal(maker_of(&t, half), GAP__STRATEGY_CACHING);
  assert_int_equal(maker_of(&t, small), GAP__STRATEGY_GAPLESS);
  assert_int_equal(try_stats(&t)->strategy_reason, 3);
  try_give(&t, small);
  try_give(&t, half);
  try_end(&t);
}

static void what_is_idle_serves_on(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  gap_addr a = try_get(&t, 0, GIB), b = try_get(&t, 0, GIB); /* half of the card */
  for (int i = 0; i < 10; i++) {
    try_give(&t, b);
    b = try_get(&t, 0, GIB);
  }
  assert_int_equal(try_stats(&t)->strategy_changes, 0);
  try_give(&t, a);
  try_give(&t, b);
  try_end(&t);
}

/* A request that nothing could serve says nothing about memory. */
static void hopeless_requests_change_nothing(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic");
  try_refuse(&t, 0, 100 * GIB, GAP_ENOMEM);
  assert_int_equal(try_stats(&t)->strategy_changes, 0);
  serves(&t, GAP__STRATEGY_CACHING, 1);
  try_end(&t);
}

/* Other programs have taken what a segment would need. */
static void a_card_that_others_fill(void **state) {
  (void)state;
  struct gap__sim_params params = {.total_bytes = 4 * GIB, .context_bytes = 4 * GIB - 12 * MIB};
  struct try t = try_sim_with(&params, "heuristic,reserve:0", GAP__MAKER_OFF);
  gap_addr addr = try_get(&t, 0, 5 * MIB); /* of a segment of 20 MiB */
  assert_int_equal(maker_of(&t, addr), GAP__STRATEGY_GAPLESS);
  assert_int_equal(try_stats(&t)->strategy_reason, 5);
  try_give(&t, addr);
  try_end(&t);
}

static void without_pages_there_is_no_choice(void **state) {
  (void)state;
  struct gap__sim_params params = {.total_bytes = 4 * GIB, .no_vmm = true};
  struct try t = try_sim_with(&params, "heuristic,max_memory:1GiB", GAP__MAKER_OFF);
  serves(&t, GAP__STRATEGY_CACHING, 4);
  try_refuse(&t, 0, 2 * GIB, GAP_ENOMEM);
  try_end(&t);
}

/* Listed classes serve what nearly fills them, where pages serve. */
static void classes_for_what_fits_them(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,pool_sizes:[1MiB,3MiB],max_memory:1GiB");
  gap_addr close = try_get(&t, 0, MIB - 8 * KIB), loose = try_get(&t, 0, MIB - 100 * KIB);
  struct gap__block_info info;
  assert_int_equal(gap__heap_find(t.heap, close, &info, NULL), 0);
  assert_int_equal(info.bytes, MIB);
  assert_int_equal(gap__heap_find(t.heap, loose, &info, NULL), 0);
  assert_int_equal(info.bytes, MIB - 100 * KIB);
  assert_int_equal(try_stats(&t)->class_trays, 1);
  try_give(&t, close);
  try_give(&t, loose);
  try_end(&t);
}

/* ---- two phases: many requests of one size, then ever larger ones ---- */

struct phases {
  gap_addr kept[KEPT];
  uint64_t served; /* requests, until one was refused */
};

static uint64_t size_at(int step) { return step < PHASE ? 24 * MIB : (24 + (uint64_t)(step - PHASE)) * MIB + 512; }

/* The last KEPT blocks are live at any time: at most 3.3 GiB of 4. */
static void play(struct try *t, struct phases *p) {
  *p = (struct phases){0};
  for (int step = 0; step < 2 * PHASE; step++) {
    gap_addr *at = &p->kept[step % KEPT];
    if (*at) try_give(t, *at);
    if (gap__heap_alloc(t->heap, 0, 0, DEFAULT, size_at(step), at)) {
      *at = 0;
      break;
    }
    p->served++;
    if (step == PHASE - 1) assert_int_equal(maker_of(t, *at), maker_of(t, p->kept[0]));
  }
  for (int i = 0; i < KEPT; i++)
    if (p->kept[i]) try_give(t, p->kept[i]);
}

static void growing_sizes_change_its_mind(void **state) {
  (void)state;
  struct phases p;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  play(&t, &p);
  assert_int_equal(p.served, 2 * PHASE);
  assert_int_equal(try_stats(&t)->strategy_changes, 1);
  assert_int_equal(t.stats.strategy_reason, 3);
  assert_int_equal(t.stats.num_alloc_retries, 0);
  says(&t, "gapless serves: memory gets scarce");
  try_end(&t);
  t = try_heuristic(4 * GIB, "caching_allocator,reserve:0"); /* gives all back and begins again, several times */
  play(&t, &p);
  assert_true(try_stats(&t)->num_alloc_retries > 1);
  try_end(&t);
}

static void equal_sizes_do_not(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  for (int i = 0; i < 10 * PHASE; i++) try_give(&t, try_get(&t, 0, 24 * MIB));
  assert_int_equal(try_stats(&t)->strategy_changes, 0);
  assert_int_equal(try_calls(&t, GAP__CALL_segment_alloc), 1);
  try_end(&t);
}

/* ---- arenas ---- */

/* One stream asks for two sizes again and again, another one for ever larger ones: each is served as suits it. */
static void arenas_are_judged_one_by_one(void **state) {
  (void)state;
  gap_addr kept[KEPT] = {0};
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  gap_addr ballast = try_get(&t, STREAM_B, GIB);
  for (int i = 0; i < 64; i++) try_give(&t, try_get(&t, 0, i % 2 ? 40 * MIB : 30 * MIB));
  for (int step = 0; step < PHASE; step++) {
    gap_addr *at = &kept[step % KEPT], steady;
    if (*at) try_give(&t, *at);
    *at = try_get(&t, STREAM_B, (24 + (uint64_t)step / 2) * MIB + 512);
    steady = try_get(&t, 0, step % 2 ? 40 * MIB : 30 * MIB);
    assert_int_equal(maker_of(&t, steady), GAP__STRATEGY_CACHING);
    try_give(&t, steady);
  }
  assert_int_equal(maker_of(&t, kept[0]), GAP__STRATEGY_GAPLESS);
  assert_int_equal(try_stats(&t)->strategy_changes, 1);
  assert_int_equal(t.stats.num_alloc_retries, 0);
  says(&t, "heuristic: stream 0, above 1 MiB: caching_allocator serves: memory gets scarce, but its sizes come again");
  says(&t, "above 1 MiB: gapless serves: memory gets scarce (");
  for (int i = 0; i < KEPT; i++) try_give(&t, kept[i]);
  try_give(&t, ballast);
  try_end(&t);
}

/* Small blocks and large ones are arenas of their own, and one that is no longer steady goes over to pages. */
static void steady_sizes_may_end(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  for (int i = 0; i < 200; i++) try_give(&t, try_get(&t, 0, 8 * KIB));
  gap_addr ballast = try_get(&t, 0, 2 * GIB + 200 * MIB), small = try_get(&t, 0, 8 * KIB);
  assert_int_equal(maker_of(&t, small), GAP__STRATEGY_CACHING);
  assert_int_equal(try_stats(&t)->strategy_reason, 6);
  try_give(&t, small);
  for (uint64_t i = 1; i < 200; i++) try_give(&t, try_get(&t, 0, i * 4 * KIB));
  small = try_get(&t, 0, 8 * KIB);
  assert_int_equal(maker_of(&t, small), GAP__STRATEGY_GAPLESS);
  assert_int_equal(try_stats(&t)->strategy_reason, 3);
  try_give(&t, small);
  try_give(&t, ballast);
  try_end(&t);
}

/* More streams than there are places for: those that are left share a choice, and retired ones make room. */
static void many_streams(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  for (gap_stream stream = 100; stream < 700; stream++) try_give(&t, try_get(&t, stream, 600));
  says(&t, " more");
  for (gap_stream stream = 100; stream < 700; stream++) assert_int_equal(gap__heap_retire_stream(t.heap, 0, stream), 0);
  for (gap_stream stream = 1000; stream < 1005; stream++) try_give(&t, try_get(&t, stream, 600));
  says(&t, "stream 3e8, up to 1 MiB: caching_allocator serves: memory is plenty");
  try_end(&t);
}

/* ---- changes while the program runs ---- */

static void contents_outlive_changes(void **state) {
  (void)state;
  struct try t = try_host(&(struct gap__host_params){.total_bytes = 128 * MIB}, "heuristic,reserve:0", GAP__MAKER_OFF);
  gap_addr all[12];
  uint64_t sizes[12];
  for (int i = 0; i < 12; i++) {
    if (i == 4) configure(&t, "heuristic,max_memory:120MiB");
    if (i == 7) configure(&t, "pooled");
    if (i == 9) configure(&t, "heuristic,reserve:0");
    sizes[i] = (uint64_t)(i + 1) * 512 * KIB;
    all[i] = try_get(&t, 0, sizes[i]);
    assert_int_equal(gap__host_fill(t.dev, all[i], sizes[i], (uint64_t)i + 77, 0), 0);
  }
  assert_int_equal(maker_of(&t, all[0]), GAP__STRATEGY_CACHING);
  assert_int_equal(maker_of(&t, all[5]), GAP__STRATEGY_GAPLESS);
  try_trim(&t);
  for (int i = 0; i < 12; i++) {
    assert_int_equal(gap__host_expect(t.dev, all[i], sizes[i], (uint64_t)i + 77, 0), 0);
    assert_int_equal(gap__heap_record_stream(t.heap, all[i], STREAM_B), 0);
    try_give(&t, all[i]);
    assert_int_equal(gap__heap_free(t.heap, all[i]), GAP_EFREED);
  }
  try_trim(&t);
  assert_int_equal(gap__host_faults(t.dev), 0);
  assert_int_equal(try_held(&t), 0);
  try_end(&t);
}

/* What the segments held idle is given back when pages take over. */
static void nothing_idle_is_left_behind(void **state) {
  (void)state;
  struct try t = try_heuristic(4 * GIB, "heuristic,reserve:0");
  try_give(&t, try_get(&t, 0, 1500 * MIB));
  gap_addr addr = try_get(&t, 0, 3900 * MIB);
  assert_true(try_held(&t) <= 3900 * MIB);
  try_give(&t, addr);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(caps_decide),
      cmocka_unit_test(one_large_request_is_enough),
      cmocka_unit_test(what_is_idle_serves_on),
      cmocka_unit_test(hopeless_requests_change_nothing),
      cmocka_unit_test(a_card_that_others_fill),
      cmocka_unit_test(without_pages_there_is_no_choice),
      cmocka_unit_test(classes_for_what_fits_them),
      cmocka_unit_test(growing_sizes_change_its_mind),
      cmocka_unit_test(equal_sizes_do_not),
      cmocka_unit_test(arenas_are_judged_one_by_one),
      cmocka_unit_test(steady_sizes_may_end),
      cmocka_unit_test(many_streams),
      cmocka_unit_test(contents_outlive_changes),
      cmocka_unit_test(nothing_idle_is_left_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
