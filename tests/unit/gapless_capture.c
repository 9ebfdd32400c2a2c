/* The strategy `gapless` with graph_capture_record_stream_reuse: a block that other streams of a capture have used comes back where
 * the order of the graph proves that they are done with it.  On `host`, where what a graph would do is done for real. */
#include "core/behind.h"
#include "support/gapless_try.h"

#define ON "graph_capture_record_stream_reuse:True"
#define POOL ((gap_pool_id){7, 0})
#define MINE STREAM_A
#define STREAM_C ((gap_stream)3072)
#define STREAM_D ((gap_stream)4096)
enum { SIZE = 512 };

static struct try begin(const char *conf) {
  struct try t = try_host(&(struct gap__host_params){.total_bytes = 256 * MIB, .manual = true}, conf, GAP__MAKER_OFF);
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  return t;
}

static void end(struct try *t) {
  gap__host_run_all(t->dev);
  assert_int_equal(gap__host_faults(t->dev), 0);
  try_end(t);
}

static void capture(struct try *t, gap_stream stream, bool on) { gap__host_stream_capture(t->dev, stream, on); }

/* What `later` is given from now on comes after what `first` was given so far. */
static void wait_for(struct try *t, gap_stream later, gap_stream first) {
  gap__event event;
  assert_int_equal(gap__dev_event_create(t->dev, first, &event), 0);
  assert_int_equal(gap__dev_event_record(t->dev, event, first), 0);
  assert_int_equal(gap__dev_stream_wait(t->dev, later, event), 0);
}

static void write_to(struct try *t, gap_stream stream, gap_addr addr) {
  assert_int_equal(gap__host_fill(t->dev, addr, SIZE, addr, stream), 0);
}

/* The stream reads the block, whose contents must still be its own then. */
static void use(struct try *t, gap_addr addr, gap_stream stream) {
  assert_int_equal(gap__host_expect(t->dev, addr, SIZE, addr, stream), 0);
  assert_int_equal(gap__heap_record_stream(t->heap, addr, stream), 0);
}

static gap_addr get(struct try *t) {
  gap_addr addr = try_get_pool(t, MINE, POOL, SIZE);
  return addr;
}

/* Used by another stream from a fork on, freed, and awaited. */
static void fork_and_join(struct try *t, bool reused) {
  gap_addr sink = get(t), a = get(t);
  capture(t, MINE, true);
  write_to(t, MINE, a);
  wait_for(t, STREAM_B, MINE);
  use(t, a, STREAM_B);
  try_give(t, a);
  gap_addr before = get(t);
  assert_true(before != a);
  write_to(t, MINE, before);
  wait_for(t, MINE, STREAM_B);
  write_to(t, MINE, sink);
  gap_addr after = get(t);
  assert_int_equal(after == a, reused);
  assert_int_equal(gap__host_fill(t->dev, after, SIZE, 1, MINE), 0); /* after the use, or the use finds it */
  gap__host_run(t->dev, MINE, UINT64_MAX);
  capture(t, MINE, false);
}

static void two_streams(void **state) {
  (void)state;
  struct try t = begin(ON);
  fork_and_join(&t, true);
  assert_int_equal(try_state(&t)->pending_count, 0);
  end(&t);
}

/* Nothing is asked, nothing changes: it comes back after the capture. */
static void off(void **state) {
  (void)state;
  struct try t = begin("");
  fork_and_join(&t, false);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_front) + try_calls(&t, GAP__CALL_node_before), 0);
  assert_int_equal(try_state(&t)->pending_count, 1);
  gap__host_run_all(t.dev);
  get(&t); /* records the event */
  gap__host_run_all(t.dev);
  get(&t);
  assert_int_equal(try_state(&t)->pending_count, 0);
  end(&t);
}

/* Three streams have used the block.  One has been waited for directly, one by way of another: the last join brings it back. */
static void four_streams(void **state) {
  (void)state;
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t), sink = get(&t), other = get(&t);
  write_to(&t, MINE, a);
  const gap_stream users[] = {STREAM_B, STREAM_C, STREAM_D};
  for (int i = 0; i < 3; i++) {
    wait_for(&t, users[i], MINE);
    use(&t, a, users[i]);
  }
  try_give(&t, a);
  wait_for(&t, MINE, STREAM_B);
  write_to(&t, MINE, sink);
  wait_for(&t, STREAM_C, STREAM_D);
  write_to(&t, STREAM_C, other);
  assert_int_equal(gap__heap_record_stream(t.heap, other, STREAM_C), 0);
  assert_true(get(&t) != a);
  wait_for(&t, MINE, STREAM_C);
  write_to(&t, MINE, sink);
  assert_true(get(&t) == a);
  assert_int_equal(gap__host_fill(t.dev, a, SIZE, 1, MINE), 0);
  capture(&t, MINE, false);
  end(&t);
}

/* The stream's next operation would come after two nodes: both must lie behind. */
static void two_ends(void **state) {
  (void)state;
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t), sink = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  wait_for(&t, STREAM_C, MINE);
  use(&t, a, STREAM_B);
  write_to(&t, STREAM_C, sink);
  gap__event early;
  assert_int_equal(gap__dev_event_create(t.dev, STREAM_B, &early), 0);
  assert_int_equal(gap__dev_event_record(t.dev, early, STREAM_B), 0);
  wait_for(&t, STREAM_B, STREAM_C);
  try_give(&t, a);
  assert_int_equal(gap__dev_stream_wait(t.dev, MINE, early), 0);
  assert_true(get(&t) != a);
  wait_for(&t, MINE, STREAM_C);
  assert_true(get(&t) == a);
  assert_int_equal(try_state(&t)->uses.in_use, 0);
  capture(&t, MINE, false);
  end(&t);
}

/* What began before the capture is in no graph, so no graph's order ends it. */
static void used_before(void **state) {
  (void)state;
  struct try t = begin(ON);
  gap_addr a = get(&t), sink = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  use(&t, a, STREAM_B);
  capture(&t, MINE, true);
  wait_for(&t, STREAM_B, MINE);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  write_to(&t, STREAM_B, sink);
  try_give(&t, a);
  wait_for(&t, MINE, STREAM_B);
  assert_true(get(&t) != a);
  capture(&t, MINE, false);
  end(&t);
}

/* The capture ends before the join: from then on an event tells, in a later capture too. */
static void ends_before_the_join(void **state) {
  (void)state;
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  use(&t, a, STREAM_B);
  try_give(&t, a);
  capture(&t, MINE, false);
  capture(&t, MINE, true);
  wait_for(&t, STREAM_B, MINE);
  assert_true(get(&t) != a); /* both are captured again, elsewhere */
  capture(&t, MINE, false);
  assert_true(get(&t) != a); /* records the event */
  gap__host_run_all(t.dev);
  assert_true(get(&t) == a);
  end(&t);
}

/* The front of the graph is not behind another lane's stream. */
static void not_for_others(void **state) {
  (void)state;
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  use(&t, a, STREAM_B);
  try_give(&t, a);
  assert_true(try_get_pool(&t, STREAM_B, POOL, SIZE) != a); /* its own stream's only */
  assert_true(get(&t) != a);
  capture(&t, MINE, false);
  end(&t);
}

/* The node lies further back than what is looked at. */
static void beyond_the_bound(void **state) {
  (void)state;
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t), sink = get(&t), b = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  use(&t, a, STREAM_B);
  try_give(&t, a);
  for (int i = 0; i < GAP__BEHIND_MAX; i++) {
    write_to(&t, STREAM_B, sink);
    if (i % 1024 == 0) gap__host_run_all(t.dev);
  }
  wait_for(&t, MINE, STREAM_B);
  uint64_t before = try_calls(&t, GAP__CALL_node_before);
  assert_true(get(&t) != a);
  uint64_t asked = try_calls(&t, GAP__CALL_node_before) - before;
  assert_true(asked > GAP__BEHIND_MAX / 2 && asked <= GAP__BEHIND_MAX);
  assert_true(get(&t) != a); /* and it is not looked again */
  assert_true(try_calls(&t, GAP__CALL_node_before) <= before + GAP__BEHIND_MAX);
  capture(&t, MINE, false);
  try_give(&t, b);
  end(&t);
}

/* A search begins where the one before it ended. */
static void each_node_once(void **state) {
  (void)state;
  enum { NODES = 1000 };
  struct try t = begin(ON);
  capture(&t, MINE, true);
  gap_addr a = get(&t), sink = get(&t);
  write_to(&t, MINE, a);
  wait_for(&t, STREAM_B, MINE);
  use(&t, a, STREAM_B);
  try_give(&t, a);
  for (int i = 0; i < NODES; i++) {
    write_to(&t, MINE, sink);
    get(&t);
  }
  assert_true(try_calls(&t, GAP__CALL_node_before) <= NODES + 2);
  capture(&t, MINE, false);
  end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_streams),    cmocka_unit_test(off),
      cmocka_unit_test(four_streams),   cmocka_unit_test(two_ends),
      cmocka_unit_test(used_before),    cmocka_unit_test(ends_before_the_join),
      cmocka_unit_test(not_for_others), cmocka_unit_test(beyond_the_bound),
      cmocka_unit_test(each_node_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
