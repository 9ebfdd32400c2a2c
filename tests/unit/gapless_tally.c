/* Device-wide peaks are exact over any number of lanes; metadata stays small. */
#include "support/gapless_try.h"

enum { SLOTS = 200, LANES = 7 };

struct figure {
  int64_t now, peak, base, allocated, freed;
};

/* The plain way: every figure recomputed by the book. [0] all, [1] small, [2] large. */
struct model {
  struct figure count[3], bytes[3], requested[3], active[3], active_bytes[3];
};

struct held {
  gap_addr addr;
  uint64_t requested, rounded;
  bool used, pending;
};

static void add(struct figure *f, int kind, int64_t by) {
  int which[2] = {0, kind};
  for (int i = 0; i < 2; i++) {
    struct figure *one = &f[which[i]];
    one->now += by;
    if (by > 0) one->allocated += by;
    else one->freed -= by;
    if (one->now > one->peak) one->peak = one->now;
  }
}

static int kind_of(const struct held *h) { return h->rounded > MIB ? 2 : 1; }

static void born(struct model *m, const struct held *h) {
  int kind = kind_of(h);
  add(m->count, kind, 1), add(m->active, kind, 1);
  add(m->bytes, kind, (int64_t)h->rounded), add(m->active_bytes, kind, (int64_t)h->rounded);
  add(m->requested, kind, (int64_t)h->requested);
}

static void freed(struct model *m, const struct held *h) {
  int kind = kind_of(h);
  add(m->count, kind, -1);
  add(m->bytes, kind, -(int64_t)h->rounded);
}

static void completed(struct model *m, const struct held *h) {
  int kind = kind_of(h);
  add(m->active, kind, -1);
  add(m->active_bytes, kind, -(int64_t)h->rounded);
  add(m->requested, kind, -(int64_t)h->requested);
}

static void compare_one(const char *name, const struct figure *f, const struct gap__stat *s, bool totals) {
  for (int kind = 0; kind < 3; kind++) {
    bool same = f[kind].now == s[kind].current && f[kind].peak == s[kind].peak;
    if (totals) same = same && f[kind].allocated == s[kind].allocated && f[kind].freed == s[kind].freed;
    if (!same)
      print_error("%s[%d]: now %lld/%lld peak %lld/%lld allocated %lld/%lld freed %lld/%lld\n", name, kind,
                  (long long)s[kind].current, (long long)f[kind].now, (long long)s[kind].peak, (long long)f[kind].peak,
                  (long long)s[kind].allocated, (long long)f[kind].allocated, (long long)s[kind].freed,
                  (long long)f[kind].freed);
    assert_true(same);
  }
}

static void compare(struct try *t, const struct model *m) {
  const struct gap__stats *s = try_stats(t);
  compare_one("allocation", m->count, s->allocation, true);
  compare_one("allocated_bytes", m->bytes, s->allocated_bytes, true);
  compare_one("requested_bytes", m->requested, s->requested_bytes, true);
  compare_one("active", m->active, s->active, true);
  compare_one("active_bytes", m->active_bytes, s->active_bytes, true);
  assert_int_equal(s->live_bytes_peak, m->active_bytes[0].peak);
}

static void forget_figure(struct figure *f, bool peaks, bool totals) {
  for (int kind = 0; kind < 3; kind++) {
    if (peaks) f[kind].peak = f[kind].now;
    if (totals) f[kind].allocated = f[kind].freed = 0;
  }
}

static void forget(struct try *t, struct model *m, bool peaks, bool totals) {
  if (peaks) assert_int_equal(gap__heap_reset_peaks(t->heap, 0), 0);
  if (totals) assert_int_equal(gap__heap_reset_accumulated(t->heap, 0), 0);
  forget_figure(m->count, peaks, totals), forget_figure(m->bytes, peaks, totals);
  forget_figure(m->requested, peaks, totals), forget_figure(m->active, peaks, totals);
  forget_figure(m->active_bytes, peaks, totals);
}

/* Pending blocks end exactly when the test lets stream 64 go on and a trim looks. */
static void end_pending(struct try *t, struct model *m, struct held *slots) {
  gap__sim_stream_release(t->dev, 64);
  gap__sim_clock_advance(t->dev, 1000);
  try_trim(t);
  gap__sim_stream_hold(t->dev, 64);
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].pending) completed(m, &slots[i]), slots[i] = (struct held){0};
}

static void step(struct try *t, struct model *m, struct held *h, uint64_t *seed) {
  if (h->pending) return;
  if (h->addr) {
    if (!h->used && try_random(seed, 8) == 0) h->used = gap__heap_record_stream(t->heap, h->addr, 64) == 0;
    try_give(t, h->addr);
    freed(m, h);
    h->pending = h->used;
    if (!h->pending) completed(m, h), *h = (struct held){0};
    return;
  }
  h->requested = try_log_uniform(seed, 1, 16 * MIB);
  h->rounded = (h->requested + 511) / 512 * 512;
  h->addr = try_get(t, 128 + 64 * try_random(seed, LANES), h->requested);
  born(m, h);
}

static void exact_peaks(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 10; round++) {
    uint64_t seed = round;
    struct try t = try_sim("reserve:0");
    struct held slots[SLOTS] = {0};
    struct model m = {0};
    gap__sim_stream_hold(t.dev, 64);
    for (int i = 0; i < 6000; i++) {
      step(&t, &m, &slots[try_random(&seed, i % 2000 < 1000 ? SLOTS : 40)], &seed);
      if (try_random(&seed, 200) == 0) end_pending(&t, &m, slots);
      if (try_random(&seed, 300) == 0) compare(&t, &m);
      if (try_random(&seed, 1500) == 0) forget(&t, &m, try_random(&seed, 2), try_random(&seed, 2));
    }
    compare(&t, &m);
    try_end(&t);
  }
}

/* Statistics agree with the card and with a walk. */
struct sum {
  uint64_t live, pending, idle, requested;
};

static int count(void *arg, const struct gap__block_info *info) {
  struct sum *sum = arg;
  if (info->state == GAP__BLOCK_LIVE) sum->live += info->bytes;
  if (info->state == GAP__BLOCK_PENDING) sum->pending += info->bytes;
  if (info->state == GAP__BLOCK_IDLE) sum->idle += info->bytes;
  sum->requested += info->requested;
  return 0;
}

static void figures_agree(void **state) {
  (void)state;
  uint64_t seed = 9;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 8 * GIB, .lag_us = 100}, "max_memory:600MiB",
                              GAP__MAKER_OFF);
  gap_addr at[100] = {0};
  for (int i = 0; i < 5000; i++) {
    gap_addr *slot = &at[try_random(&seed, 100)];
    if (*slot && try_random(&seed, 6) == 0) assert_int_equal(gap__heap_record_stream(t.heap, *slot, 64), 0);
    try_give(&t, *slot);
    *slot = try_get(&t, 128 + 64 * try_random(&seed, 3), try_log_uniform(&seed, 1, 10 * MIB));
    gap__sim_clock_advance(t.dev, 30000);
    if (i % 50) continue;
    struct sum sum = {0};
    const struct gap__stats *s = try_stats(&t);
    assert_int_equal(gap__heap_walk(t.heap, 0, count, &sum), 0);
    assert_int_equal(s->allocated_bytes[0].current, sum.live);
    assert_int_equal(s->active_bytes[0].current, sum.live + sum.pending);
    assert_int_equal(s->requested_bytes[0].current, sum.requested);
    assert_int_equal(s->reserved_bytes[0].current, sum.live + sum.pending + sum.idle);
    assert_int_equal(s->reserved_bytes[0].current, gap__sim_chunk_bytes(t.dev));
    assert_int_equal(s->driver_calls > 0, 1);
    assert_true(s->largest_servable_bytes <= 600 * (int64_t)MIB);
    try_check(&t);
  }
  try_end(&t);
}

/* What the statistics promise as the largest request is served, at once. */
static void largest_servable(void **state) {
  (void)state;
  for (uint64_t round = 1; round < 30; round++) {
    uint64_t seed = round;
    struct try t = try_sim("max_memory:300MiB");
    gap_addr at[40] = {0};
    for (int i = 0; i < 400; i++) {
      gap_addr *slot = &at[try_random(&seed, 40)];
      try_give(&t, *slot);
      *slot = 0;
      if (try_random(&seed, 3)) *slot = try_get(&t, STREAM_A, try_log_uniform(&seed, 1, 8 * MIB));
    }
    int64_t largest = try_stats(&t)->largest_servable_bytes;
    if (largest) try_give(&t, try_get(&t, STREAM_A, (uint64_t)largest));
    assert_int_equal(try_stats(&t)->stalls, 0);
    try_end(&t);
  }
}

/* ---- metadata ---- */

static double metadata_per_block(int blocks, uint64_t low, uint64_t high, int churn) {
  uint64_t seed = 3;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 192 * GIB}, "", GAP__MAKER_OFF);
  gap_addr *at = calloc((size_t)blocks, sizeof *at);
  assert_non_null(at);
  for (int i = 0; i < blocks; i++) at[i] = try_get(&t, 0, try_log_uniform(&seed, low, high));
  for (int i = 0; i < churn; i++) {
    gap_addr *slot = &at[try_random(&seed, (uint64_t)blocks)];
    try_give(&t, *slot);
    *slot = try_get(&t, 0, try_log_uniform(&seed, low, high));
  }
  double bytes = (double)try_stats(&t)->metadata_bytes / blocks;
  print_message("metadata: %d blocks of %llu to %llu KiB, %d replaced: %.1f B a live block\n", blocks,
                (unsigned long long)(low >> 10), (unsigned long long)(high >> 10), churn, bytes);
  free(at);
  try_end(&t);
  return bytes;
}

static void metadata(void **state) {
  (void)state;
  double few = metadata_per_block(2000, 512, 16 * MIB, 0),
         few_churned = metadata_per_block(2000, 512, 16 * MIB, 100000);
  double many = metadata_per_block(20000, 512, MIB, 0), many_churned = metadata_per_block(20000, 512, MIB, 400000);
  assert_true(few < 128 && few_churned < 192); /* churn leaves idle extents between the live ones: records too */
  assert_true(many < 128 && many_churned < 128);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_peaks),
      cmocka_unit_test(figures_agree),
      cmocka_unit_test(largest_servable),
      cmocka_unit_test(metadata),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
