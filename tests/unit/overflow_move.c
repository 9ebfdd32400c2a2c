/* Live blocks between the device and host memory: which move, when, and that nothing else changes. */
#include "core/arena.h"
#include "core/heap_state.h"
#include "support/gapless_try.h"

#define CAP "max_memory:32MiB,reserve:0,"

static struct try on_host(const char *conf) {
  return try_host(&(struct gap__host_params){.total_bytes = 128 * MIB}, conf, GAP__MAKER_OFF);
}

static void fill(gap_addr addr, uint64_t bytes, int byte) { memset((void *)(uintptr_t)addr, byte, bytes); }

static void holds(gap_addr addr, uint64_t bytes, int byte) {
  const unsigned char *at = (const unsigned char *)(uintptr_t)addr;
  for (uint64_t i = 0; i < bytes; i += 509) assert_int_equal(at[i], byte);
  assert_int_equal(at[bytes - 1], byte);
}

static gap_addr made(struct try *t, uint64_t bytes, int byte) {
  gap_addr addr = try_get(t, STREAM_A, bytes);
  fill(addr, bytes, byte);
  return addr;
}

static void hint(struct try *t, gap_addr addr, bool cold) { assert_int_equal(gap__heap_hint(t->heap, addr, cold), 0); }

static uint64_t safe_point(struct try *t) {
  uint64_t freed;
  assert_int_equal(gap__heap_defragment(t->heap, 0, &freed), 0);
  try_check(t);
  return freed;
}

static void figures(struct try *t, uint64_t held, uint64_t live_there, uint64_t out, uint64_t back) {
  const struct gap__stats *s = try_stats(t);
  assert_int_equal(s->reserved_bytes[0].current, held);
  assert_int_equal(s->overflow_live_bytes, live_there);
  assert_int_equal(s->overflow_out_bytes, out);
  assert_int_equal(s->overflow_back_bytes, back);
  assert_int_equal(gap__host_host_bytes(t->dev), s->overflow_bytes);
  assert_int_equal(gap__host_faults(t->dev), 0);
  try_check(t);
}

/* A step that lacks 8 MiB; at the safe point after it a cold block makes room, and the next step has it. */
static void cold_ones_go(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:on");
  gap_addr weights = made(&t, 12 * MIB, 1), states = made(&t, 12 * MIB, 2);
  hint(&t, states, true);
  safe_point(&t);
  figures(&t, 24 * MIB, 0, 0, 0); /* nothing was lacking */
  gap_addr a = made(&t, 8 * MIB, 3), b = made(&t, 8 * MIB, 4);
  figures(&t, 32 * MIB, 8 * MIB, 0, 0);
  try_give(&t, a);
  try_give(&t, b);
  safe_point(&t);
  figures(&t, 24 * MIB, 8 * MIB, 8 * MIB, 0);
  a = made(&t, 8 * MIB, 5), b = made(&t, 8 * MIB, 6);
  figures(&t, 32 * MIB, 8 * MIB, 8 * MIB, 0);
  holds(weights, 12 * MIB, 1);
  holds(states, 12 * MIB, 2);
  try_give(&t, a);
  try_give(&t, b);
  safe_point(&t);
  figures(&t, 32 * MIB, 8 * MIB, 8 * MIB, 0); /* that was enough */
  fill(states, 12 * MIB, 7);
  holds(states, 12 * MIB, 7);
  try_give(&t, weights);
  try_give(&t, states);
  try_end(&t);
}

/* What was placed in host memory comes back when there is room; a cold block does not. */
static void warm_ones_come_back(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:on");
  gap_addr a = made(&t, 28 * MIB, 1), b = made(&t, 6 * MIB + 300, 2), c = made(&t, 5 * MIB, 3), d = made(&t, 700, 4);
  hint(&t, c, true);
  safe_point(&t);
  figures(&t, 32 * MIB, 9 * MIB + 512, 0, 2 * MIB); /* there was room for a page */
  try_give(&t, a);
  safe_point(&t);
  assert_true(try_stats(&t)->overflow_live_bytes <= 5 * (int64_t)MIB);
  assert_true(try_stats(&t)->overflow_live_bytes >= 2 * (int64_t)MIB);
  assert_true(try_held(&t) <= 32 * MIB);
  holds(b, 6 * MIB + 300, 2);
  holds(c, 5 * MIB, 3);
  holds(d, 700, 4);
  hint(&t, c, false);
  safe_point(&t);
  assert_int_equal(try_stats(&t)->overflow_live_bytes, 0);
  holds(c, 5 * MIB, 3);
  try_give(&t, b);
  try_give(&t, c);
  try_give(&t, d);
  a = made(&t, 30 * MIB, 5); /* what lay at addresses of the overflow serves elsewhere */
  assert_int_equal(try_stats(&t)->overflow_live_bytes, 0);
  try_give(&t, a);
  try_end(&t);
}

/* Behind the gate a request gets the room at once. */
static void inside_a_request(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:on,convert:gated");
  gap_addr states = made(&t, 16 * MIB, 1), more = made(&t, 16 * MIB, 2);
  hint(&t, more, true);
  gap_addr a = made(&t, 8 * MIB, 3);
  const struct gap__stats *s = try_stats(&t);
  assert_int_equal(s->overflow_placed_bytes, 0);
  assert_true(s->overflow_out_bytes >= 8 * (int64_t)MIB && s->reserved_bytes[0].current <= 32 * (int64_t)MIB);
  assert_int_equal(s->overflow_live_bytes, s->overflow_out_bytes);
  assert_int_equal(s->rung_count[GAP__RUNG_overflow], 1);
  holds(states, 16 * MIB, 1);
  holds(more, 16 * MIB, 2);
  holds(a, 8 * MIB, 3);
  try_give(&t, more);
  gap_addr b = made(&t, 8 * MIB, 4); /* its free was seen: device memory of it serves, host memory does not */
  assert_int_equal(try_stats(&t)->overflow_live_bytes, 0);
  try_trim(&t);
  assert_int_equal(try_stats(&t)->overflow_bytes, 0);
  try_give(&t, states);
  try_give(&t, a);
  try_give(&t, b);
  try_end(&t);
}

/* The watcher brings back what fits, when nobody asks. */
static void by_the_watcher(void **state) {
  (void)state;
  struct try t = on_host("max_memory:64MiB,reserve:0,overflow:on,convert:gated");
  gap_addr a = made(&t, 64 * MIB, 1), b = made(&t, 8 * MIB, 2);
  assert_int_equal(try_stats(&t)->overflow_live_bytes, 8 * MIB);
  try_give(&t, a);
  try_trim(&t);
  try_state(&t)->watch.due_ns = 0;
  gap__heap_tick(t.heap, 0);
  figures(&t, 8 * MIB, 0, 0, 8 * MIB);
  holds(b, 8 * MIB, 2);
  try_give(&t, b);
  try_end(&t);
}

/* A moved block that another stream uses when it is freed, and one whose work has not ended. */
static void freed_while_used(void **state) {
  (void)state;
  struct try t =
      try_host(&(struct gap__host_params){.total_bytes = 128 * MIB, .manual = true}, CAP "overflow:on", GAP__MAKER_OFF);
  gap_addr cold = try_get(&t, STREAM_A, 16 * MIB), full = try_get(&t, STREAM_A, 16 * MIB),
           a = try_get(&t, STREAM_A, 16 * MIB);
  hint(&t, cold, true);
  try_give(&t, a);
  safe_point(&t);
  figures(&t, 16 * MIB, 16 * MIB, 16 * MIB, 0);
  assert_int_equal(gap__heap_record_stream(t.heap, cold, STREAM_B), 0);
  assert_int_equal(gap__host_fill(t.dev, cold, 16 * MIB, 77, STREAM_B), 0);
  assert_int_equal(gap__host_fill(t.dev, cold, 16 * MIB, 78, STREAM_A), 0);
  try_give(&t, cold);
  try_check(&t);
  a = try_get(&t, STREAM_A, 16 * MIB); /* nothing waits: the device has room */
  try_check(&t);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_trim(&t);
  figures(&t, 32 * MIB, 0, 16 * MIB, 0);
  try_give(&t, full);
  try_give(&t, a);
  try_end(&t);
}

/* Memory that must not move stays; hints for what is not there are errors; those for what is too small do nothing. */
static void left_alone(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:on");
  gap_pool_id pool = {7, 0};
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  gap_addr graph = try_get_pool(&t, STREAM_A, pool, 8 * MIB), known = made(&t, 8 * MIB, 1), small = made(&t, MIB, 2);
  gap_addr shared = made(&t, 3 * MIB, 3);
  assert_int_equal(gap__heap_keep(t.heap, known), 0);
  hint(&t, graph, true);
  hint(&t, known, true);
  hint(&t, small, true);
  hint(&t, shared, true);
  assert_int_equal(try_state(&t)->overflow.marks, 3);
  gap_addr a = made(&t, 26 * MIB, 4);
  safe_point(&t);
  assert_int_equal(try_stats(&t)->overflow_out_bytes, 2 * MIB); /* the one page that is the last one's own */
  holds(shared, 3 * MIB, 3);
  hint(&t, known, false);
  assert_int_equal(try_state(&t)->overflow.marks, 2);
  try_give(&t, small);
  assert_int_equal(gap__heap_hint(t.heap, a + 5 * MIB, true), 0); /* any address inside */
  assert_int_equal(gap__heap_hint(t.heap, 4096, true), GAP_ENOTMINE);
  try_give(&t, a);
  try_check(&t);
  assert_int_equal(gap__heap_hint(t.heap, a, true), GAP_EFREED);
  try_give(&t, graph);
  try_give(&t, known);
  try_give(&t, shared);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, pool), 0);
  try_end(&t);
}

/* The limit and the budget hold for what is moved, too. */
static bool refuse(void *arg, int64_t bytes, char *why, size_t why_bytes) {
  (void)arg, (void)why_bytes;
  if (bytes > 0) why[0] = '\0';
  return bytes <= 4 * (int64_t)MIB;
}

static void limits(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:12MiB");
  gap_addr cold = made(&t, 24 * MIB, 1), a = made(&t, 8 * MIB, 2), b = made(&t, 8 * MIB, 3);
  hint(&t, cold, true);
  safe_point(&t);
  figures(&t, 32 * MIB, 8 * MIB, 4 * MIB, 4 * MIB);
  try_give(&t, a);
  try_give(&t, b);
  holds(cold, 24 * MIB, 1);
  t.heap->host = refuse;
  gap_addr c = made(&t, 10 * MIB, 4), d = try_get(&t, STREAM_A, 4 * MIB);
  safe_point(&t);
  holds(cold, 24 * MIB, 1);
  t.heap->host = NULL;
  try_give(&t, c);
  try_give(&t, d);
  try_give(&t, cold);
  try_end(&t);
}

/* Off: a safe point is none, and hints are taken but do nothing. */
static void off(void **state) {
  (void)state;
  struct try t = on_host(CAP "overflow:off");
  uint64_t freed;
  gap_addr cold = made(&t, 16 * MIB, 1), a = made(&t, 16 * MIB, 2);
  hint(&t, cold, true);
  try_refuse(&t, STREAM_A, 4 * MIB, GAP_ENOMEM);
  assert_int_equal(gap__heap_defragment(t.heap, 0, &freed), GAP_ESTATE);
  figures(&t, 32 * MIB, 0, 0, 0);
  try_give(&t, cold);
  try_give(&t, a);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cold_ones_go),     cmocka_unit_test(warm_ones_come_back),
      cmocka_unit_test(inside_a_request), cmocka_unit_test(by_the_watcher),
      cmocka_unit_test(freed_while_used), cmocka_unit_test(left_alone),
      cmocka_unit_test(limits),           cmocka_unit_test(off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
