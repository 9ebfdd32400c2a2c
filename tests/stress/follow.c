/* A program that follows a plan more or less, on real bytes: every block is filled by its stream and compared before it is freed, no
 * block overlaps another one that is live, whatever the program leaves out, adds, alters, frees too late, shares between
 * streams, and while caps and plans change.  About ten seconds of seeds; GAP_SEED=n runs one. */
#include <stdio.h>

#include "support/gapless_try.h"
#include "support/plan_maker.h"
#include "support/seeds.h"

enum { REQUESTS = 120, STREAMS = 3, PERIODS = 8, EXTRAS = 16 };

struct held {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
  bool shared;
};

struct play {
  struct try t;
  struct plan_maker m, other;
  uint64_t seed, patterns;
  struct held at[REQUESTS], late[EXTRAS]; /* of the period; from earlier ones, or not of the plan at all */
  uint64_t wildness;                      /* of a hundred requests, so many are not as planned */
};

static uint64_t pick(struct play *p, uint64_t below) { return try_random(&p->seed, below); }
static gap_stream stream_of(uint32_t index) { return (gap_stream)(index + 1) * 1024; }

static uint64_t any_bytes(struct play *p) {
  return pick(p, 3) ? try_log_uniform(&p->seed, 8, 3 * MIB) / 8 * 8 + 8 : (pick(p, 3) + 1) * PAGE;
}

static void make_plan(struct play *p, struct plan_maker *m) {
  bool live[REQUESTS] = {false};
  uint64_t streams = 1 + pick(p, STREAMS);
  plan_begin(m);
  while (m->count < REQUESTS) {
    uint32_t any = (uint32_t)pick(p, REQUESTS);
    bool full = m->count > 12 && pick(p, 2);
    if (full && any < m->count && live[any]) plan_free(m, any), live[any] = false;
    else if (!full) live[plan_alloc(m, (uint32_t)pick(p, streams), any_bytes(p))] = true;
  }
  plan_finish(m);
}

/* ---- blocks ---- */

static bool meet(const struct held *a, const struct held *b) {
  return a != b && a->addr && b->addr && a->addr < b->addr + b->bytes && b->addr < a->addr + a->bytes;
}

static void overlaps_nobody(const struct play *p, const struct held *h) {
  for (int i = 0; i < REQUESTS; i++) assert_false(meet(h, &p->at[i]));
  for (int i = 0; i < EXTRAS; i++) assert_false(meet(h, &p->late[i]));
}

static void get(struct play *p, struct held *h, gap_stream stream, uint64_t bytes) {
  *h = (struct held){.bytes = bytes, .stream = stream, .pattern = ++p->patterns * 0x9E3779B97F4A7C15ull};
  int rc = gap__heap_alloc(p->t.heap, 0, stream, DEFAULT, bytes, &h->addr);
  assert_true(rc == 0 || rc == GAP_ENOMEM);
  if (rc) h->addr = 0;
  if (rc) return;
  overlaps_nobody(p, h);
  assert_int_equal(gap__host_fill(p->t.dev, h->addr, bytes, h->pattern, stream), 0);
}

static void give(struct play *p, struct held *h) {
  if (!h->addr) return;
  assert_int_equal(gap__host_expect(p->t.dev, h->addr, h->bytes, h->pattern, h->stream), 0);
  try_give(&p->t, h->addr);
  h->addr = 0;
}

/* Another stream reads it after the first has written. */
static void share(struct play *p, struct held *h) {
  gap_stream other = stream_of((uint32_t)pick(p, STREAMS));
  gap__event event;
  if (!h->addr || h->shared || other == h->stream) return;
  assert_int_equal(gap__dev_event_create(p->t.dev, h->stream, &event), 0);
  assert_int_equal(gap__dev_event_record(p->t.dev, event, h->stream), 0);
  if (gap__dev_stream_wait(p->t.dev, other, event) == 0) {
    assert_int_equal(gap__heap_record_stream(p->t.heap, h->addr, other), 0);
    assert_int_equal(gap__host_expect(p->t.dev, h->addr, h->bytes, h->pattern, other), 0);
    h->shared = true;
  }
  gap__dev_event_wait(p->t.dev, event);
  assert_int_equal(gap__dev_event_destroy(p->t.dev, event), 0);
}

/* ---- a period ---- */

/* Into a slot of its own, out of which something older goes. */
static struct held *later_slot(struct play *p) {
  struct held *slot = &p->late[pick(p, EXTRAS)];
  give(p, slot);
  return slot;
}

static bool deviates(struct play *p) { return pick(p, 100) < p->wildness; }

static void on_alloc(struct play *p, uint32_t i) {
  const struct gap__plan_entry *entry = &p->m.at[i];
  gap_stream stream = stream_of(entry->stream);
  uint64_t bytes = entry->bytes > 512 ? entry->bytes - 8 * pick(p, 2) : entry->bytes;
  if (deviates(p)) return; /* left out */
  if (deviates(p)) get(p, later_slot(p), stream, any_bytes(p));
  if (deviates(p)) bytes = any_bytes(p);
  if (deviates(p)) stream = stream_of((uint32_t)pick(p, STREAMS));
  get(p, &p->at[i], stream, bytes);
  if (pick(p, 20) == 0) share(p, &p->at[i]);
}

static void on_free(struct play *p, uint32_t i) {
  if (p->at[i].addr && deviates(p)) {
    *later_slot(p) = p->at[i];
    p->at[i].addr = 0;
  }
  give(p, &p->at[i]);
}

static void configure(struct play *p, const char *conf) {
  struct gap__conf_set *set = gap__conf_new();
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", conf, NULL), 0);
  assert_int_equal(gap__heap_configure(p->t.heap, gap__conf_values(set)), 0);
  gap__conf_free(set);
}

static void disturb(struct play *p) {
  switch (pick(p, 6)) {
    case 0: try_trim(&p->t); break;
    case 1: try_cap(&p->t, (pick(p, 40) + 4) * PAGE); break;
    case 2: configure(p, pick(p, 2) ? "reserve:0" : plan_conf(&p->other, "reserve:0")); break;
    case 3: configure(p, plan_conf(&p->m, "reserve:0")); break;
    case 4: assert_int_equal(gap__heap_retire_stream(p->t.heap, 0, stream_of(STREAMS + 1)), 0); break;
    default: gap__heap_tick(p->t.heap, 0);
  }
}

static void period(struct play *p) {
  uint32_t allocs = 0;
  for (uint32_t moment = 0; moment < p->m.moments; moment++) {
    bool alloc = allocs < p->m.count && p->m.at[allocs].from == moment;
    if (alloc) on_alloc(p, allocs++);
    for (uint32_t i = 0; i < p->m.count && !alloc; i++)
      if (p->m.at[i].to == moment) on_free(p, i);
    if (pick(p, 3) == 0) gap__host_run(p->t.dev, stream_of((uint32_t)pick(p, STREAMS)), pick(p, 8));
    if (p->wildness && pick(p, 60) == 0) disturb(p);
    if (moment % 16 == 0) try_check(&p->t);
  }
  for (uint32_t i = 0; i < p->m.count; i++) on_free(p, i);
}

static void play(uint64_t seed) {
  static struct play p;
  p = (struct play){.seed = seed, .wildness = seed % 3 * (seed % 3)};
  make_plan(&p, &p.m);
  make_plan(&p, &p.other);
  struct gap__host_params host = {.total_bytes = 256 * MIB, .manual = true, .window_max_bytes = 256 * MIB};
  p.t = try_host(&host, plan_conf(&p.m, "reserve:0"), seed % 2 ? GAP__MAKER_OFF : GAP__MAKER_STEPPED);
  for (int i = 0; i < PERIODS; i++) period(&p);
  const struct gap__stats *s = try_stats(&p.t);
  if (p.wildness < 4) assert_true(s->plan_placed > 0);
  if (!p.wildness) assert_int_equal(s->plan_unexpected, 0);
  for (int i = 0; i < EXTRAS; i++) give(&p, &p.late[i]);
  gap__host_run_all(p.t.dev);
  try_trim(&p.t);
  assert_int_equal(gap__host_faults(p.t.dev), 0);
  assert_int_equal(try_stats(&p.t)->active[0].current, 0);
  assert_int_equal(try_held(&p.t), 0);
  try_end(&p.t);
  plan_remove(&p.m);
  plan_remove(&p.other);
}

static void more_or_less_as_planned(void **state) {
  (void)state;
  seeds_play(play);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(more_or_less_as_planned, seeds_tell)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
