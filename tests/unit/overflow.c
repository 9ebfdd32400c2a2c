/* Overflow: what no rung finds device memory for lies in host memory, at a device address, and is counted apart. */
#include <stdio.h>

#include "core/heap_state.h"
#include "support/gapless_try.h"

static int64_t rung(struct try *t, enum gap__rung which) { return try_stats(t)->rung_count[which]; }

static void explained(struct try *t, const char *words) {
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(t->heap, 0, text, sizeof text), 0);
  if (!strstr(text, words)) print_error("no '%s' in: %s\n", words, text);
  assert_non_null(strstr(text, words));
}

static void places(struct try *t, int64_t held, int64_t there, int64_t live) {
  const struct gap__stats *s = try_stats(t);
  assert_int_equal(s->reserved_bytes[0].current, held);
  assert_int_equal(s->overflow_bytes, there);
  assert_int_equal(s->overflow_live_bytes, live);
  assert_int_equal(gap__sim_host_bytes(t->dev), there);
  try_check(t);
}

/* The whole of a block lies there, the cap knows nothing of it, and device memory goes first. */
static void last_rung(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:20MiB,overflow:True");
  gap_addr a = try_get(&t, 0, 18 * MIB), b = try_get(&t, 0, 7 * MIB);
  places(&t, 18 * MIB, 8 * MIB, 7 * MIB);
  assert_int_equal(rung(&t, GAP__RUNG_overflow), 1);
  gap_addr c = try_get(&t, 0, 2 * MIB);
  places(&t, 20 * MIB, 8 * MIB, 7 * MIB);
  try_give(&t, b);
  places(&t, 20 * MIB, 8 * MIB, 0);
  try_give(&t, a);
  b = try_get(&t, 0, 7 * MIB);
  places(&t, 20 * MIB, 8 * MIB, 0); /* there is room on the device again */
  a = try_get(&t, 0, 18 * MIB);
  places(&t, 20 * MIB, 18 * MIB, 18 * MIB); /* what was there serves first */
  assert_int_equal(try_calls(&t, GAP__CALL_chunk_create), 19);
  assert_int_equal(try_stats(&t)->overflow_bytes_peak, 18 * MIB);
  assert_int_equal(try_stats(&t)->active_bytes[0].current, 27 * MIB);
  try_give(&t, a);
  try_trim(&t);
  places(&t, 10 * MIB, 0, 0);
  try_give(&t, b);
  try_give(&t, c);
  try_end(&t);
}

/* Small blocks share a page there. */
static void small_ones(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:2MiB,overflow:True");
  gap_addr full = try_get(&t, 0, 2 * MIB), at[300];
  for (unsigned i = 0; i < 300; i++) at[i] = try_get(&t, 0, i % 3 ? 512 : 40 * KIB);
  places(&t, 2 * MIB, 6 * MIB, 100 * 40 * (int64_t)KIB + 200 * 512);
  for (unsigned i = 0; i < 300; i += 2) try_give(&t, at[i]);
  try_check(&t);
  for (unsigned i = 1; i < 300; i += 2) try_give(&t, at[i]);
  places(&t, 2 * MIB, 6 * MIB, 0);
  try_give(&t, full);
  try_end(&t);
}

/* overflow:SIZE is a limit, and words say that it was met. */
static void limit(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:4MiB,overflow:6MiB");
  gap_addr a = try_get(&t, 0, 4 * MIB), b = try_get(&t, 0, 6 * MIB);
  try_refuse(&t, 0, 2 * MIB, GAP_ENOMEM);
  assert_int_equal(try_stats(&t)->overflow_refused, 1);
  explained(&t, "Overflow: 6 MiB of host memory, and no more: what is there is in use");
  try_give(&t, b);
  b = try_get(&t, 0, 2 * MIB);
  gap_addr c = try_get(&t, 0, 4 * MIB);
  places(&t, 4 * MIB, 6 * MIB, 6 * MIB);
  try_give(&t, a);
  try_give(&t, b);
  try_give(&t, c);
  try_end(&t);
}

/* Off by default; on a device that cannot, off with a line; with a disk and no host memory, off. */
static void off(void **state) {
  (void)state;
  static const char *const confs[] = {"max_memory:4MiB", "max_memory:4MiB,overflow:False",
                                      "max_memory:4MiB,overflow:True,tiers:disk=/tmp:1G"};
  for (unsigned i = 0; i < sizeof confs / sizeof *confs; i++) {
    struct try t = try_sim(confs[i]);
    try_refuse(&t, 0, 6 * MIB, GAP_ENOMEM);
    assert_int_equal(try_calls(&t, GAP__CALL_chunk_create), 0);
    assert_int_equal(try_stats(&t)->overflow_refused, 0);
    try_end(&t);
  }
  struct gap__dev *dev;
  assert_int_equal(gap__sim_create(0, &(struct gap__sim_params){.total_bytes = GIB}, &dev), 0);
  dev->caps.host_chunks = false;
  struct try t = try_on(dev, "max_memory:4MiB,overflow:True", GAP__MAKER_OFF);
  try_refuse(&t, 0, 6 * MIB, GAP_ENOMEM);
  try_end(&t);
}

/* Switched off while blocks lie there: they stay, idle pages go, and new ones are refused. */
static void switched(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:4MiB,overflow:True");
  gap_addr a = try_get(&t, 0, 6 * MIB), b = try_get(&t, 0, 8 * MIB);
  try_give(&t, b);
  struct gap__conf conf = *gap__device_conf(&t.heap->devices[0].base);
  conf.overflow = false;
  assert_int_equal(gap__heap_configure(t.heap, &conf), 0);
  places(&t, 0, 6 * MIB, 6 * MIB);
  try_refuse(&t, 0, 6 * MIB, GAP_ENOMEM);
  try_give(&t, a);
  try_end(&t);
}

/* Idle pages there go to another stream when its work is over, or it is ordered behind it; device pages never go there, nor the other way. */
static void across_streams(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:4MiB,overflow:8MiB");
  gap_addr a = try_get(&t, STREAM_A, 8 * MIB);
  try_give(&t, a);
  a = try_get(&t, STREAM_B, 6 * MIB);
  places(&t, 0, 8 * MIB, 6 * MIB);
  gap_addr b = try_get(&t, STREAM_A, 4 * MIB), c = try_get(&t, STREAM_A, 2 * MIB);
  places(&t, 4 * MIB, 8 * MIB, 8 * MIB);
  try_give(&t, a);
  try_refuse(&t, STREAM_B, 10 * MIB, GAP_ENOMEM);
  try_give(&t, b);
  b = try_get(&t, STREAM_B, 4 * MIB);
  places(&t, 4 * MIB, 8 * MIB, 2 * MIB);
  try_give(&t, b);
  try_give(&t, c);
  try_end(&t);
}

/* In size classes too: a block of its own, in no tray, so that its class is served from the device again. */
static void pooled(void **state) {
  (void)state;
  struct try t = try_sim("pooled,max_memory:4MiB,overflow:True");
  gap_addr a = try_get(&t, 0, 2 * MIB), b = try_get(&t, 0, 2 * MIB), c = try_get(&t, 0, 300 * KIB);
  places(&t, 4 * MIB, 2 * MIB, 320 * (int64_t)KIB);
  try_give(&t, c);
  try_give(&t, a);
  a = try_get(&t, 0, 300 * KIB);
  places(&t, 4 * MIB, 2 * MIB, 0);
  try_give(&t, a);
  try_give(&t, b);
  try_end(&t);
}

/* The client's budget is asked before memory is made, and gets back what goes. */
struct budget {
  int64_t taken, most;
  int asked;
};

static bool keep_budget(void *arg, int64_t bytes, char *why, size_t why_bytes) {
  struct budget *budget = arg;
  budget->asked += bytes > 0;
  if (bytes > 0 && budget->taken + bytes > budget->most) {
    snprintf(why, why_bytes, "the budget says no");
    return false;
  }
  budget->taken += bytes;
  return true;
}

static void budgets(void **state) {
  (void)state;
  struct budget budget = {.most = 8 * (int64_t)MIB};
  struct try t = try_sim("max_memory:4MiB,overflow:True");
  t.heap->host = keep_budget;
  t.heap->client = &budget;
  gap_addr a = try_get(&t, 0, 6 * MIB);
  assert_int_equal(budget.taken, 6 * MIB);
  assert_int_equal(budget.asked, 1);
  try_refuse(&t, 0, 5 * MIB, GAP_ENOMEM);
  explained(&t, "6 MiB of host memory, and no more: the budget says no");
  assert_int_equal(budget.taken, 6 * MIB);
  try_give(&t, a);
  try_trim(&t);
  assert_int_equal(budget.taken, 0);
  a = try_get(&t, 0, 8 * MIB);
  try_give(&t, a);
  try_end(&t);
  assert_int_equal(budget.taken, 0);
}

/* Real bytes: what is written there is there, beside device memory, while streams take each other's pages. */
static void contents(void **state) {
  (void)state;
  struct gap__host_params params = {.total_bytes = 64 * MIB};
  struct try t = try_host(&params, "max_memory:8MiB,overflow:True,reserve:0", GAP__MAKER_OFF);
  gap_addr at[6];
  for (unsigned round = 0; round < 4; round++) {
    for (unsigned i = 0; i < 6; i++) {
      at[i] = try_get(&t, i % 2 ? STREAM_A : STREAM_B, (3 + i) * MIB);
      memset((void *)(uintptr_t)at[i], (int)(round * 6 + i), (3 + i) * MIB);
    }
    assert_true(try_stats(&t)->overflow_live_bytes >= 25 * (int64_t)MIB);
    for (unsigned i = 0; i < 6; i++) {
      const unsigned char *bytes = (const unsigned char *)(uintptr_t)at[i];
      for (uint64_t k = 0; k < (3 + i) * MIB; k += 4093) assert_int_equal(bytes[k], round * 6 + i);
      try_give(&t, at[i]);
    }
    try_check(&t);
  }
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_end(&t);
}

/* Nobody else can have it. */
static void kept_here(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:4MiB,overflow:True");
  gap_addr a = try_get(&t, 0, 4 * MIB), b = try_get(&t, 0, 4 * MIB);
  assert_int_equal(gap__heap_keep(t.heap, a), 0);
  assert_int_equal(gap__heap_keep(t.heap, b), GAP_ESTATE);
  explained(&t, "host memory (overflow)");
  try_give(&t, a);
  try_give(&t, b);
  try_end(&t);
}

/* It is given back with age, like all idle memory. */
static void trimmed(void **state) {
  (void)state;
  struct try t = try_sim("max_memory:4MiB,overflow:True,trim_after_ms:1000");
  gap_addr a = try_get(&t, 0, 100 * MIB);
  try_give(&t, a);
  for (unsigned i = 0; i < 8; i++) {
    gap__sim_clock_advance(t.dev, 300000000);
    gap__heap_tick(t.heap, 0);
  }
  places(&t, 0, 0, 0);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(last_rung), cmocka_unit_test(small_ones), cmocka_unit_test(limit),
      cmocka_unit_test(off),       cmocka_unit_test(switched),   cmocka_unit_test(across_streams),
      cmocka_unit_test(pooled),    cmocka_unit_test(budgets),    cmocka_unit_test(contents),
      cmocka_unit_test(kept_here), cmocka_unit_test(trimmed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
