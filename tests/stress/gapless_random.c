/* Random operations on real bytes: every block is filled by its stream and compared before it is freed, while queues run at
 * random, streams share blocks, caps move, pools come and go.  About ten seconds of seeds; GAP_SEED=n runs one. */
#include <stdio.h>

#include "support/gapless_try.h"
#include "support/seeds.h"

enum { SLOTS = 48, STREAMS = 4, POOLS = 3, STEPS = 1500, CHECK_EVERY = 25 };

struct slot {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream, shared; /* shared: another stream that reads it, or 0 */
  bool orphan;               /* its stream was retired: nothing is queued there any more */
};

struct play {
  struct try t;
  uint64_t seed, patterns;
  struct slot slots[SLOTS];
  bool retained[POOLS];
  bool manual;
};

static uint64_t pick(struct play *p, uint64_t below) { return try_random(&p->seed, below); }
static gap_stream any_stream(struct play *p) { return (gap_stream)(pick(p, STREAMS) + 1) * 1024; }

static void fill(struct play *p, struct slot *s) {
  s->pattern = ++p->patterns * 0x9E3779B97F4A7C15ull;
  assert_int_equal(gap__host_fill(p->t.dev, s->addr, s->bytes, s->pattern, s->stream), 0);
}

/* The queue compares when it gets there. */
static void expect(struct play *p, const struct slot *s, gap_stream stream) {
  if (stream == s->stream && s->orphan) return;
  assert_int_equal(gap__host_expect(p->t.dev, s->addr, s->bytes, s->pattern, stream), 0);
}

static void allocate(struct play *p, struct slot *s) {
  uint64_t pool = pick(p, 4 * POOLS);
  gap_pool_id id = {pool < POOLS && p->retained[pool] ? pool + 1 : 0, 0};
  s->bytes = pick(p, 3) ? try_log_uniform(&p->seed, 8, 6 * MIB) : pick(p, 5) * PAGE + 8;
  s->bytes = (s->bytes + 7) / 8 * 8;
  if (pick(p, 4) == 0) s->bytes = (s->bytes + PAGE - 1) / PAGE * PAGE;
  s->stream = any_stream(p);
  s->shared = 0;
  s->orphan = false;
  int rc = gap__heap_alloc(p->t.heap, 0, s->stream, id, s->bytes, &s->addr);
  assert_true(rc == 0 || rc == GAP_ENOMEM);
  if (rc) s->addr = 0;
  else fill(p, s);
}

/* Another stream reads the block: after the first stream has written, before it is freed. */
static void share(struct play *p, struct slot *s) {
  gap_stream other = any_stream(p);
  if (s->shared || s->orphan || other == s->stream) return;
  gap__event event;
  assert_int_equal(gap__dev_event_create(p->t.dev, s->stream, &event), 0);
  assert_int_equal(gap__dev_event_record(p->t.dev, event, s->stream), 0);
  if (gap__dev_stream_wait(p->t.dev, other, event) == 0) {
    assert_int_equal(gap__heap_record_stream(p->t.heap, s->addr, other), 0);
    s->shared = other;
    expect(p, s, other);
  }
  gap__dev_event_wait(p->t.dev, event);
  assert_int_equal(gap__dev_event_destroy(p->t.dev, event), 0);
}

static void release(struct play *p, struct slot *s) {
  expect(p, s, s->stream);
  try_give(&p->t, s->addr);
  assert_int_equal(gap__heap_free(p->t.heap, s->addr), GAP_EFREED);
  s->addr = 0;
}

/* From now on the handle names a new stream. */
static void retire(struct play *p) {
  gap_stream stream = any_stream(p);
  assert_int_equal(gap__heap_retire_stream(p->t.heap, 0, stream), 0);
  for (int i = 0; i < SLOTS; i++) p->slots[i].orphan |= p->slots[i].stream == stream;
}

static void toggle_pool(struct play *p) {
  uint64_t pool = pick(p, POOLS);
  gap_pool_id id = {pool + 1, 0};
  int rc = p->retained[pool] ? gap__heap_pool_release(p->t.heap, 0, id) : gap__heap_pool_retain(p->t.heap, 0, id);
  assert_int_equal(rc, 0);
  p->retained[pool] = !p->retained[pool];
}

/* Blocks of both kinds lie side by side. */
static void change_strategy(struct play *p) {
  struct gap__conf conf = *gap__device_conf(try_state(&p->t)->device);
  static const enum gap__strategy strategies[] = {GAP__STRATEGY_GAPLESS, GAP__STRATEGY_POOLED, GAP__STRATEGY_HEURISTIC};
  conf.strategy = strategies[pick(p, 3)];
  assert_int_equal(gap__heap_configure(p->t.heap, &conf), 0);
}

static void disturb(struct play *p) {
  switch (pick(p, 9)) {
    case 0: try_trim(&p->t); break;
    case 1: try_cap(&p->t, (pick(p, 30) + 2) * PAGE); break;
    case 2: toggle_pool(p); break;
    case 3: gap__host_run_all(p->t.dev); break;
    case 4: gap__heap_tick(p->t.heap, 0); break;
    case 5: retire(p); break;
    case 6: change_strategy(p); break;
    case 7: try_refuse(&p->t, any_stream(p), 1000 * GIB, GAP_ENOMEM); break;
    default: try_stats(&p->t);
  }
}

/* A block that another stream may still read is not written again. */
static bool writable(const struct slot *s) { return !s->shared && !s->orphan; }

static void run_some(struct play *p) {
  uint64_t count = pick(p, 12);
  gap__host_run(p->t.dev, any_stream(p), count);
}

static void step(struct play *p) {
  struct slot *s = &p->slots[pick(p, SLOTS)];
  uint64_t what = pick(p, 100);
  if (what < 4) disturb(p);
  else if (!s->addr) allocate(p, s);
  else if (what < 20) share(p, s);
  else if (what < 30 && writable(s)) expect(p, s, s->stream), fill(p, s);
  else release(p, s);
  if (p->manual && pick(p, 3) == 0) run_some(p);
}

static void finish(struct play *p) {
  for (int i = 0; i < SLOTS; i++)
    if (p->slots[i].addr) release(p, &p->slots[i]);
  for (int i = 0; i < POOLS; i++)
    if (p->retained[i]) assert_int_equal(gap__heap_pool_release(p->t.heap, 0, (gap_pool_id){(uint64_t)i + 1, 0}), 0);
  gap__host_run_all(p->t.dev);
  try_cap(&p->t, 0);
  try_trim(&p->t);
  gap__host_run_all(p->t.dev);
  try_trim(&p->t);
  assert_int_equal(gap__host_faults(p->t.dev), 0);
  assert_int_equal(try_stats(&p->t)->active[0].current, 0);
  assert_int_equal(try_held(&p->t), 0);
  assert_int_equal(gap__host_chunk_bytes(p->t.dev), 0);
  try_end(&p->t);
}

/* Most cards have windows of 64 MiB, which are also much quicker to check; some have no more addresses than that in all, some none. */
static struct gap__host_params card_of(uint64_t seed) {
  struct gap__host_params host = {.total_bytes = 96 * MIB, .manual = seed % 4 != 0};
  uint64_t kind = seed % 7; /* each with every configuration */
  if (seed % 4) host.window_max_bytes = 64 * MIB;
  if (kind == 5) host.address_budget_bytes = 64 * MIB;
  if (kind == 6) host.window_max_bytes = 1;
  return host;
}

static void play(uint64_t seed) {
  static const char *const confs[] = {"max_memory:48MiB",
                                      "reserve:0",
                                      "max_memory:64MiB,chunk_max:8MiB",
                                      "max_memory:40MiB,grow_limit:1.5",
                                      "reserve:16MiB,chunk_max:4MiB",
                                      "pooled,max_memory:64MiB",
                                      "heuristic,reserve:0,pool_sizes:[1KiB,2MiB,4MiB]",
                                      "pooled,reserve:0,pool_sizes:[1KiB,20KiB,700KiB,5MiB]"};
  struct gap__host_params host = card_of(seed);
  struct play p = {.seed = seed, .manual = host.manual};
  p.t = try_host(&host, confs[seed % (sizeof confs / sizeof *confs)], GAP__MAKER_OFF);
  for (int i = 0; i < STEPS; i++) {
    step(&p);
    if (i % CHECK_EVERY == 0) try_check(&p.t);
  }
  finish(&p);
}

static void random_operations(void **state) {
  (void)state;
  seeds_play(play);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(random_operations, seeds_tell)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
