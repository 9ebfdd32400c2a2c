/* See gapless_try.h. */
#include "support/gapless_try.h"

#include <math.h>

#include "core/heap_state.h"

struct try try_on(struct gap__dev *dev, const char *conf, enum gap__maker maker) {
  struct try t = {.dev = dev};
  struct gap__conf_set *set = gap__conf_new();
  assert_non_null(set);
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", conf, NULL), 0);
  struct gap__heap_params params = {.devs = &t.dev, .dev_count = 1, .conf = gap__conf_values(set), .maker = maker};
  assert_int_equal(gap__heap_create(&params, &t.heap), 0);
  gap__conf_free(set);
  return t;
}

struct try try_sim_with(const struct gap__sim_params *params, const char *conf, enum gap__maker maker) {
  struct gap__dev *dev;
  assert_int_equal(gap__sim_create(0, params, &dev), 0);
  return try_on(dev, conf, maker);
}

struct try try_sim(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB}, conf, GAP__MAKER_OFF);
}

struct try try_host(const struct gap__host_params *params, const char *conf, enum gap__maker maker) {
  struct gap__dev *dev;
  assert_int_equal(gap__host_create(0, params, &dev), 0);
  return try_on(dev, conf, maker);
}

void try_end(struct try *t) {
  try_check(t);
  gap__heap_destroy(t->heap);
}

gap_addr try_get_pool(struct try *t, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(t->heap, 0, stream, pool, bytes, &addr), 0);
  assert_int_not_equal(addr, 0);
  return addr;
}

gap_addr try_get(struct try *t, gap_stream stream, uint64_t bytes) { return try_get_pool(t, stream, DEFAULT, bytes); }

void try_refuse(struct try *t, gap_stream stream, uint64_t bytes, int code) {
  gap_addr addr;
  assert_int_equal(gap__heap_alloc(t->heap, 0, stream, DEFAULT, bytes, &addr), code);
}

void try_give(struct try *t, gap_addr addr) { assert_int_equal(gap__heap_free(t->heap, addr), 0); }

void try_check(struct try *t) {
  char text[400];
  int rc = gap__heap_check(t->heap, 0, text, sizeof text);
  if (rc) print_error("checker: %s\n", text);
  assert_int_equal(rc, 0);
}

/* allocated - freed = current since the heap began, unless the totals were reset; all = small + large. */
static void consistent(const struct gap__stat *stat) {
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) {
    assert_true(stat[kind].current >= 0 && stat[kind].peak >= stat[kind].current);
    assert_true(stat[kind].allocated >= 0 && stat[kind].freed >= 0);
  }
  assert_int_equal(stat[GAP__KIND_ALL].current, stat[GAP__KIND_SMALL].current + stat[GAP__KIND_LARGE].current);
}

const struct gap__stats *try_stats(struct try *t) {
  assert_int_equal(gap__heap_stats(t->heap, 0, &t->stats), 0);
#define GAP_STAT_ARRAY(name, help) consistent(t->stats.name);
#include "core/stats.def"
  assert_true(t->stats.requested_bytes[0].current <= t->stats.active_bytes[0].current);
  assert_true(t->stats.allocated_bytes[0].current <= t->stats.active_bytes[0].current);
  int64_t behind = t->stats.reserved_bytes[0].current + t->stats.asleep_bytes + t->stats.overflow_live_bytes;
  assert_true(t->stats.active_bytes[0].current <= behind);
  assert_int_equal(t->stats.active_bytes[0].current + t->stats.idle_returnable_bytes + t->stats.idle_stuck_bytes,
                   behind);
  return &t->stats;
}

uint64_t try_held(struct try *t) { return (uint64_t)try_stats(t)->reserved_bytes[GAP__KIND_ALL].current; }

uint64_t try_trim(struct try *t) {
  uint64_t bytes;
  assert_int_equal(gap__heap_trim(t->heap, 0, DEFAULT, &bytes), 0);
  return bytes;
}

void try_cap(struct try *t, uint64_t bytes) { assert_int_equal(gap__heap_set_cap(t->heap, 0, bytes), 0); }

struct gap__policy_state *try_state(struct try *t) {
  return t->heap->devices[0].base.state[GAP__STRATEGY_GAPLESS];
}

uint64_t try_calls(struct try *t, enum gap__dev_call call) {
  return t->dev->counters.calls[call] + t->dev->counters.background_calls[call];
}

uint64_t try_random(uint64_t *seed, uint64_t below) {
  uint64_t z = *seed += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return (z ^ z >> 31) % below;
}

uint64_t try_log_uniform(uint64_t *seed, uint64_t low, uint64_t high) {
  double at = (double)try_random(seed, 1 << 24) / (1 << 24);
  return (uint64_t)((double)low * exp(at * log((double)high / (double)low)));
}
