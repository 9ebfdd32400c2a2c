/* The strategy `gapless`: when a block that other streams have used is looked at again. */
#include "core/lane.h"
#include "support/gapless_try.h"

#define LAG_US 20000
#define STREAM_C ((gap_stream)3072)

static struct try lagging(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB, .lag_us = LAG_US}, conf, GAP__MAKER_OFF);
}

static void pass(struct try *t) { gap__sim_clock_advance(t->dev, 3ull * LAG_US * 1000); }

static void use(struct try *t, gap_addr addr, gap_stream stream) {
  assert_int_equal(gap__heap_record_stream(t->heap, addr, stream), 0);
}

static uint64_t queries(struct try *t) { return try_calls(t, GAP__CALL_event_query); }

/* The block comes back with the first request after its use has ended, though other idle memory would do, and not before. */
static void comes_back(struct try *t, uint64_t bytes) {
  gap_addr idle = try_get(t, STREAM_A, 64 * MIB), a = try_get(t, STREAM_A, bytes), other;
  try_give(t, idle);
  use(t, a, STREAM_B);
  try_give(t, a);
  other = try_get(t, STREAM_A, bytes);
  assert_true(other != a);
  pass(t);
  assert_true(try_get(t, STREAM_A, bytes) == a);
  assert_int_equal(try_stats(t)->rung_count[GAP__RUNG_pending], 1);
  assert_int_equal(try_state(t)->pending_count, 0);
}

static void comes_back_at_once(void **state) {
  (void)state;
  struct try t = lagging("");
  comes_back(&t, 512);
  try_end(&t);
}

static void comes_back_in_its_class(void **state) {
  (void)state;
  struct try t = lagging("strategy:pooled");
  comes_back(&t, MIB);
  try_end(&t);
}

/* One query a request while the first of the lane's blocks has not ended, whatever became of the others. */
static void up_to_the_first(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr a = try_get(&t, STREAM_A, 512), b = try_get(&t, STREAM_A, 512);
  gap__sim_stream_hold(t.dev, STREAM_B);
  use(&t, a, STREAM_B), use(&t, b, STREAM_C);
  try_give(&t, a), try_give(&t, b);
  pass(&t);
  for (int i = 0; i < 4; i++) {
    uint64_t before = queries(&t);
    gap_addr other = try_get(&t, STREAM_A, 512);
    assert_true(other != a && other != b);
    assert_int_equal(queries(&t), before + 1);
  }
  gap__sim_stream_release(t.dev, STREAM_B);
  pass(&t);
  gap_addr first = try_get(&t, STREAM_A, 512), second = try_get(&t, STREAM_A, 512);
  assert_true(first == (a < b ? a : b) && second == (a < b ? b : a));
  try_end(&t);
}

/* A cached block is handed out unasked, and nobody asks about blocks of other lanes. */
static void nothing_is_asked(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr cached = try_get(&t, STREAM_A, 512), a = try_get(&t, STREAM_A, 512), b = try_get(&t, STREAM_B, 512);
  use(&t, a, STREAM_C);
  try_give(&t, a), try_give(&t, cached);
  pass(&t);
  uint64_t before = queries(&t);
  assert_true(try_get(&t, STREAM_A, 512) == cached);
  try_get(&t, STREAM_B, 512);
  assert_int_equal(queries(&t), before);
  try_give(&t, b);
  try_end(&t);
}

/* Blocks of two lanes wait in one row: those of one go, those of the other stay and keep their order. */
static void lanes_between_each_other(void **state) {
  (void)state;
  enum { ROUNDS = 5 };
  struct try t = lagging("");
  gap_addr mine[ROUNDS], others[ROUNDS], again[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    mine[i] = try_get(&t, STREAM_A, 512), others[i] = try_get(&t, STREAM_B, 512);
    use(&t, mine[i], STREAM_C), use(&t, others[i], STREAM_C);
  }
  for (int i = 0; i < ROUNDS; i++) try_give(&t, others[i]), try_give(&t, mine[i]);
  pass(&t);
  try_get(&t, STREAM_A, 512);
  assert_int_equal(try_state(&t)->pending_count, ROUNDS);
  for (int i = 0; i < ROUNDS; i++) {
    const struct gap__policy_state *s = try_state(&t);
    const struct gap__pending *p = &s->pending[(s->pending_first + (uint32_t)i) % s->pending_capacity];
    assert_int_equal(p->lane->stream, STREAM_B);
    if (i) assert_true(p->block > p[-1].block);
  }
  for (int i = 0; i < ROUNDS; i++) again[i] = try_get(&t, STREAM_B, 512);
  for (int i = 0; i < ROUNDS; i++) assert_true(again[i] >= others[0] && again[i] <= others[ROUNDS - 1]);
  assert_int_equal(try_state(&t)->pending_count, 0);
  try_end(&t);
}

/* Who holds the device lock is not waited for. */
static void nobody_is_waited_for(void **state) {
  (void)state;
  struct try t = lagging("");
  gap_addr more[4], a = try_get(&t, STREAM_A, 512);
  for (int i = 0; i < 4; i++) more[i] = try_get(&t, STREAM_A, 1024);
  for (int i = 0; i < 4; i++) try_give(&t, more[i]); /* the request below passes no peak */
  use(&t, a, STREAM_B);
  try_give(&t, a);
  pass(&t);
  gap__lock(&try_state(&t)->lock);
  assert_true(try_get(&t, STREAM_A, 512) != a);
  gap__unlock(&try_state(&t)->lock);
  assert_true(try_get(&t, STREAM_A, 512) == a);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(comes_back_at_once),       cmocka_unit_test(comes_back_in_its_class),
      cmocka_unit_test(up_to_the_first),          cmocka_unit_test(nothing_is_asked),
      cmocka_unit_test(lanes_between_each_other), cmocka_unit_test(nobody_is_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
