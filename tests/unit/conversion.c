/* Conversion: which chunks are chosen, what an exchange leaves behind, what is never exchanged, and what becomes of it when the
 * driver fails half-way. */
#include <pthread.h>

#include "core/arena.h"
#include "core/convert.h"
#include "core/convert_plan.h"
#include "core/gate.h"
#include "core/heap_state.h"
#include "core/lane.h"
#include "support/fault.h"
#include "support/gapless_try.h"

#define GATED "max_memory:64MiB,page_maker:False,convert:gated"
#define SAFE "max_memory:64MiB,page_maker:False,convert:safe_points,chunk_max:32MiB"
#define CHUNK (32 * MIB)
#define BESIDE (26 * MIB)

static struct try on_sim(const char *conf) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = GIB, .lag_us = 20000}, conf, GAP__MAKER_OFF);
}
static struct try on_host(const char *conf) {
  return try_host(&(struct gap__host_params){.total_bytes = GIB, .manual = true}, conf, GAP__MAKER_OFF);
}

/* Of one chunk of 32 MiB, 2 MiB at its beginning and 3 MiB inside stay live, on stream A; beside it 26 MiB. */
struct scene {
  struct try t;
  gap_addr low, high, beside;
};

static void fill(struct scene *sc, gap_addr addr, uint64_t bytes, uint64_t pattern) {
  if (sc->t.dev->caps.stepped) return;
  assert_int_equal(gap__host_fill(sc->t.dev, addr, bytes, pattern, STREAM_A), 0);
}
static void expect(struct scene *sc, gap_addr addr, uint64_t bytes, uint64_t pattern) {
  if (sc->t.dev->caps.stepped) return;
  assert_int_equal(gap__host_expect(sc->t.dev, addr, bytes, pattern, STREAM_A), 0);
}

static struct scene half_idle_in(struct try t, gap_pool_id pool) {
  struct scene sc = {.t = t};
  gap_addr whole = try_get_pool(&sc.t, STREAM_A, pool, CHUNK);
  sc.beside = try_get_pool(&sc.t, STREAM_A, pool, BESIDE);
  try_give(&sc.t, whole);
  sc.low = try_get_pool(&sc.t, STREAM_A, pool, 2 * MIB);
  gap_addr gap = try_get_pool(&sc.t, STREAM_A, pool, 9 * MIB);
  sc.high = try_get_pool(&sc.t, STREAM_A, pool, 3 * MIB);
  assert_int_equal(sc.low, whole);
  assert_int_equal(sc.high, whole + 11 * MIB);
  try_give(&sc.t, gap);
  fill(&sc, sc.low, 2 * MIB, 0x1111);
  fill(&sc, sc.high, 3 * MIB, 0x2222);
  fill(&sc, sc.beside, BESIDE, 0x3333);
  return sc;
}
static struct scene half_idle(struct try t) { return half_idle_in(t, DEFAULT); }

static void look(struct scene *sc) {
  expect(sc, sc->low, 2 * MIB, 0x1111);
  expect(sc, sc->high, 3 * MIB, 0x2222);
  expect(sc, sc->beside, BESIDE, 0x3333);
  if (sc->t.dev->caps.stepped) return;
  gap__host_run_all(sc->t.dev);
  assert_int_equal(gap__host_faults(sc->t.dev), 0);
}

static void finish(struct scene *sc) {
  look(sc);
  try_give(&sc->t, sc->low);
  try_give(&sc->t, sc->high);
  try_give(&sc->t, sc->beside);
  if (!sc->t.dev->caps.stepped) gap__host_run_all(sc->t.dev);
  try_end(&sc->t);
}

static int64_t served(struct scene *sc) { return try_stats(&sc->t)->rung_count[GAP__RUNG_convert]; }

/* ---- planning ---- */

static void runs_of_bits(void **state) {
  (void)state;
  uint64_t bits[GAP__CONVERT_WORDS] = {0};
  uint32_t from = 0, to = 0;
  for (uint32_t i = 60; i < 70; i++) bits[i / 64] |= 1ull << (i % 64);
  assert_true(gap__convert_run(bits, 100, true, &from, &to));
  assert_true(from == 60 && to == 70);
  from = to;
  assert_false(gap__convert_run(bits, 100, true, &from, &to));
  from = 0;
  assert_true(gap__convert_run(bits, 100, false, &from, &to));
  assert_true(from == 0 && to == 60);
  from = to;
  assert_true(gap__convert_run(bits, 100, false, &from, &to));
  assert_true(from == 70 && to == 100);
}

/* Idle are pages that nothing lies on: the live 3 MiB touch two pages. */
static void idle_pages(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  struct gap__policy_state *s = try_state(&sc.t);
  struct gap__convert_plan plan;
  gap__lock(&s->lock);
  gap__convert_plan(s, false, &plan);
  gap__unlock(&s->lock);
  assert_int_equal(plan.count, 1);
  assert_true(plan.picks[0].idle == 13 && plan.picks[0].kept == 3 && plan.idle == 13 && plan.whole == 0);
  finish(&sc);
}

/* What was freed since the last completed epoch may be used by queued work: under a closed gate it is kept. */
static void pages_of_a_late_free(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  struct gap__policy_state *s = try_state(&sc.t);
  struct gap__convert_plan plan;
  for (int late = 1; late >= 0; late--) {
    gap__lock(&s->lock);
    for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
      gap__lane_close_epoch(lane);
      gap__lane_poll(lane);
    }
    gap__convert_plan(s, true, &plan);
    gap__unlock(&s->lock);
    assert_int_equal(plan.idle, late ? 0 : 13);
    gap__sim_clock_advance(sc.t.dev, 40000000);
  }
  finish(&sc);
}

/* The most idle pages for each kept one first; chunks of one page and wholly idle ones are not chosen. */
static void order_of_picks(void **state) {
  (void)state;
  struct try t = on_sim("page_maker:False,convert:gated");
  struct gap__policy_state *s = try_state(&t);
  gap_addr whole[4], live[3];
  for (gap_stream i = 0; i < 4; i++) whole[i] = try_get(&t, 100 + i, CHUNK);
  gap_addr page = try_get(&t, STREAM_B, 2 * MIB);
  static const uint64_t kept[3] = {20 * MIB, 4 * MIB, 10 * MIB};
  for (gap_stream i = 0; i < 3; i++) {
    try_give(&t, whole[i]);
    live[i] = try_get(&t, 100 + i, kept[i]);
    assert_int_equal(live[i], whole[i]);
  }
  try_give(&t, whole[3]);
  struct gap__convert_plan plan;
  gap__lock(&s->lock);
  gap__convert_plan(s, false, &plan);
  gap__unlock(&s->lock);
  assert_int_equal(plan.count, 3);
  static const uint32_t idle[3] = {14, 11, 6};
  for (int i = 0; i < 3; i++) assert_int_equal(plan.picks[i].idle, idle[i]);
  assert_true(plan.whole == 16 && plan.idle == 31);
  for (int i = 0; i < 3; i++) try_give(&t, live[i]);
  try_give(&t, page);
  try_end(&t);
}

/* ---- exchanging ---- */

/* 28 MiB more fit only when the idle pages of the first chunk serve; what lives on it keeps addresses and contents. */
static void serves(struct try t) {
  struct scene sc = half_idle(t);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  const struct gap__stats *stats = try_stats(&sc.t);
  assert_true(stats->conversions == 1 && stats->pages_converted == 13 && stats->bytes_copied == (int64_t)(6 * MIB));
  assert_int_equal(stats->rung_count[GAP__RUNG_convert], 1);
  assert_true(try_held(&sc.t) <= 64 * MIB && stats->reserved_bytes[0].peak <= (int64_t)(64 * MIB));
  fill(&sc, wanted, CHUNK, 0x4444);
  expect(&sc, wanted, CHUNK, 0x4444);
  look(&sc);
  try_check(&sc.t);
  try_give(&sc.t, wanted);
  finish(&sc);
}

static void gated_serves(void **state) {
  (void)state;
  serves(on_sim(GATED));
  serves(on_host(GATED));
}

/* What is queued before the gate runs before the exchange; a stream that the heap never saw is not held: the limit of the gate. */
static void queued_work(void **state) {
  (void)state;
  struct scene sc = half_idle(on_host(GATED));
  assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, STREAM_B), 0);
  gap__host_run_all(sc.t.dev);
  assert_int_equal(gap__host_expect(sc.t.dev, sc.low, 2 * MIB, 0x1111, STREAM_B), 0);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  assert_int_equal(gap__host_faults(sc.t.dev), 0);
  try_give(&sc.t, wanted);
  finish(&sc);

  sc = half_idle(on_host(GATED));
  static _Alignas(64) uint32_t word[16];
  assert_int_equal(gap__dev_pin(sc.t.dev, word, sizeof word), 0);
  gap__host_run_all(sc.t.dev);
  assert_int_equal(gap__dev_wait_value(sc.t.dev, 4711, (uintptr_t)word, 1), 0);
  assert_int_equal(gap__host_expect(sc.t.dev, sc.low, 2 * MIB, 0x1111, 4711), 0);
  try_get(&sc.t, STREAM_A, CHUNK);
  assert_true(gap__host_faults(sc.t.dev) > 0);
  __atomic_store_n(&word[0], 1, __ATOMIC_RELEASE);
  gap__host_run_all(sc.t.dev);
  try_end(&sc.t);
}

/* Frees that were pending or of a recent epoch when the chunk was exchanged take their course. */
static void frees_in_flight(void **state) {
  (void)state;
  struct scene sc = half_idle(on_host(GATED));
  assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, STREAM_B), 0);
  assert_int_equal(gap__host_expect(sc.t.dev, sc.high, 3 * MIB, 0x2222, STREAM_A), 0);
  try_give(&sc.t, sc.low);
  try_give(&sc.t, sc.high);
  gap_addr wanted = try_get(&sc.t, STREAM_B, 30 * MIB);
  assert_int_equal(gap__host_fill(sc.t.dev, wanted, 30 * MIB, 5, STREAM_B), 0);
  gap__host_run_all(sc.t.dev);
  assert_int_equal(gap__host_faults(sc.t.dev), 0);
  try_give(&sc.t, wanted);
  try_give(&sc.t, sc.beside);
  gap__host_run_all(sc.t.dev);
  try_end(&sc.t);
}

/* A chunk that has been elsewhere before leaves nothing there. */
static void lent_mappings_go(void **state) {
  (void)state;
  struct try t = on_host("max_memory:64MiB,page_maker:False,convert:gated");
  gap_addr first = try_get(&t, STREAM_A, CHUNK), beside = try_get(&t, STREAM_A, 30 * MIB);
  try_give(&t, first);
  gap_addr moved = try_get(&t, STREAM_B, CHUNK); /* the same memory, at addresses of another stream */
  assert_true(try_stats(&t)->pages_stolen == 16);
  try_give(&t, moved);
  gap_addr low = try_get(&t, STREAM_B, 2 * MIB);
  assert_int_equal(gap__host_fill(t.dev, low, 2 * MIB, 9, STREAM_B), 0);
  gap_addr wanted = try_get(&t, STREAM_A, CHUNK);
  assert_int_equal(try_stats(&t)->conversions, 1);
  assert_int_equal(gap__host_expect(t.dev, low, 2 * MIB, 9, STREAM_B), 0);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_give(&t, low);
  try_give(&t, wanted);
  try_give(&t, beside);
  try_end(&t);
}

/* Room for the copy is made by giving idle memory back; where there is none, nothing happens. */
static void room_for_the_copy(void **state) {
  (void)state;
  struct try t = on_sim(GATED);
  gap_addr whole = try_get(&t, STREAM_A, CHUNK), beside = try_get(&t, STREAM_A, CHUNK);
  try_give(&t, whole);
  gap_addr low = try_get(&t, STREAM_A, 28 * MIB);
  try_refuse(&t, STREAM_A, 6 * MIB, GAP_ENOMEM); /* two pages are idle, and fourteen would have to be copied */
  assert_true(try_stats(&t)->conversions == 0);
  try_refuse(&t, STREAM_B, 4 * MIB, GAP_ENOMEM);
  assert_true(try_stats(&t)->conversions == 0 && t.stats.convert_refused_room > 0);
  try_give(&t, low);
  try_give(&t, beside);
  try_trim(&t);
  whole = try_get(&t, STREAM_A, CHUNK);
  beside = try_get(&t, STREAM_A, 24 * MIB);
  gap_addr spare = try_get(&t, STREAM_B, 8 * MIB);
  try_give(&t, whole);
  low = try_get(&t, STREAM_A, 2 * MIB);
  try_give(&t, spare);
  assert_int_equal(try_held(&t), 64 * MIB);
  gap_addr wanted = try_get(&t, STREAM_A, 36 * MIB);
  assert_true(try_stats(&t)->conversions == 1 && t.stats.reserved_bytes[0].peak == (int64_t)(64 * MIB));
  try_give(&t, wanted);
  try_give(&t, low);
  try_give(&t, beside);
  try_end(&t);
}

/* Listeners see the idle pages go, and never a live block without memory. */
struct heard {
  gap_addr low;
  int64_t bytes;
  bool bare;
};
static void hear(void *arg, const gap_event *event) {
  struct heard *heard = arg;
  bool unmap = event->kind == GAP_EVENT_SEGMENT_UNMAP;
  if (unmap && event->addr <= heard->low && heard->low < event->addr + event->bytes) heard->bare = true;
  if (unmap) heard->bytes -= (int64_t)event->bytes;
  if (event->kind == GAP_EVENT_SEGMENT_MAP) heard->bytes += (int64_t)event->bytes;
}
static void events_of_an_exchange(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  struct heard heard = {.low = sc.low, .bytes = (int64_t)try_held(&sc.t)};
  gap__heap_set_events(sc.t.heap, GAP__TAP_PROGRAM, hear, &heard);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  gap__heap_set_events(sc.t.heap, GAP__TAP_PROGRAM, NULL, NULL);
  assert_false(heard.bare);
  assert_int_equal(heard.bytes, try_held(&sc.t));
  try_give(&sc.t, wanted);
  finish(&sc);
}

/* ---- safe points ---- */

static void off_does_nothing(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim("max_memory:64MiB,page_maker:False,chunk_max:512MiB"));
  uint64_t freed = 1;
  assert_int_equal(gap__heap_defragment(sc.t.heap, 0, &freed), GAP_ESTATE);
  assert_int_equal(freed, 0);
  assert_int_equal(try_stats(&sc.t)->conversions, 0);
  finish(&sc);
}

/* No request converts; defragment and trim do, with the whole device waited for. */
static void safe_points(struct try t, bool by_trim) {
  struct scene sc = half_idle(t);
  uint64_t freed = 0, held = try_held(&sc.t);
  try_refuse(&sc.t, STREAM_A, 36 * MIB, GAP_ENOMEM);
  assert_int_equal(try_stats(&sc.t)->conversions, 0);
  if (by_trim) assert_int_equal(gap__heap_trim(sc.t.heap, 0, DEFAULT, &freed), 0);
  else assert_int_equal(gap__heap_defragment(sc.t.heap, 0, &freed), 0);
  assert_true(try_stats(&sc.t)->conversions >= 1 && freed > 0);
  assert_int_equal(held - try_held(&sc.t), freed);
  look(&sc);
  try_check(&sc.t);
  assert_int_equal(served(&sc), 0);
  finish(&sc);
}

static void safe_points_serve(void **state) {
  (void)state;
  safe_points(on_sim(SAFE), false);
  safe_points(on_sim(SAFE), true);
  safe_points(on_host(SAFE), false);
  safe_points(on_host(SAFE), true);
}

/* ---- what is never exchanged ---- */

static void untouched(struct scene *sc, gap_stream stream, uint64_t bytes) {
  try_refuse(&sc->t, stream, bytes, GAP_ENOMEM);
  assert_int_equal(try_stats(&sc->t)->conversions, 0);
  look(sc);
}

static void kept_memory(void **state) {
  (void)state;
  struct scene sc = half_idle(on_host(GATED));
  assert_int_equal(gap__heap_keep(sc.t.heap, sc.high + 100), 0);
  untouched(&sc, STREAM_A, CHUNK);
  assert_true(sc.t.stats.convert_refused_known > 0);
  assert_int_equal(gap__heap_keep(sc.t.heap, 12345), GAP_ENOTMINE);
  assert_int_equal(gap__heap_keep(sc.t.heap, sc.low + 3 * MIB), GAP_EFREED);
  finish(&sc);
}

static void private_pools(void **state) {
  (void)state;
  const gap_pool_id pool = {7, 0};
  struct try t = on_sim("max_memory:64MiB,page_maker:False,convert:gated,chunk_max:512MiB");
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, pool), 0);
  gap_addr whole = try_get_pool(&t, STREAM_A, pool, CHUNK);
  assert_int_equal(try_calls(&t, GAP__CALL_chunk_create), 16); /* in a pool that keeps its pages: single ones */
  try_give(&t, whole);
  try_end(&t);
}

/* A chunk that was large before its lane was a pool's in use: its addresses are a graph's. */
static void pinned_chunks(void **state) {
  (void)state;
  const gap_pool_id pool = {7, 0};
  struct try t = on_sim(GATED);
  assert_int_equal(gap__heap_pool_create(t.heap, 0, &(struct gap__pool_about){.id = pool, .flags = GAP_POOL_SHARED}),
                   0);
  struct scene sc = half_idle_in(t, pool);
  assert_int_equal(gap__heap_pool_release(sc.t.heap, 0, pool), 0);
  assert_int_equal(gap__heap_pool_retain(sc.t.heap, 0, pool), 0);
  untouched(&sc, STREAM_A, CHUNK);
  assert_true(sc.t.stats.convert_refused_pinned > 0);
  assert_int_equal(gap__heap_pool_release(sc.t.heap, 0, pool), 0);
  finish(&sc);
}

/* In one driver allocation, or another allocator's: no chunk of ours. */
static void contiguous_pools(void **state) {
  (void)state;
  const gap_pool_id pool = {9, 0};
  struct try t = on_host(GATED);
  assert_int_equal(
      gap__heap_pool_create(t.heap, 0, &(struct gap__pool_about){.id = pool, .flags = GAP_POOL_CONTIGUOUS}), 0);
  gap_addr mine = try_get_pool(&t, STREAM_B, pool, 3 * MIB), rest = try_get_pool(&t, STREAM_B, pool, 5 * MIB);
  assert_int_equal(gap__host_fill(t.dev, mine, 3 * MIB, 8, STREAM_B), 0);
  try_give(&t, rest);
  uint64_t freed = 1;
  assert_int_equal(gap__heap_defragment(t.heap, 0, &freed), 0);
  assert_int_equal(freed, 0);
  assert_int_equal(gap__host_expect(t.dev, mine, 3 * MIB, 8, STREAM_B), 0);
  gap__host_run_all(t.dev);
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_give(&t, mine);
  try_end(&t);
}

static void captures(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  gap_addr other = try_get(&sc.t, STREAM_B, 1000);
  gap__sim_stream_capture(sc.t.dev, STREAM_B, true);
  untouched(&sc, STREAM_A, 30 * MIB);
  assert_true(sc.t.stats.convert_refused_capture > 0);
  gap__sim_stream_capture(sc.t.dev, STREAM_B, false);
  try_give(&sc.t, other);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  assert_int_equal(try_stats(&sc.t)->conversions, 1);
  try_give(&sc.t, wanted);
  finish(&sc);
}

static void *get_on_own_stream(void *arg) {
  struct scene *sc = arg;
  gap_addr own;
  assert_int_equal(gap__heap_alloc(sc->t.heap, 0, 2, DEFAULT, 1000, &own), 0);
  assert_int_equal(gap__heap_free(sc->t.heap, own), 0);
  untouched(sc, 2, CHUNK); /* here it is this thread's own: the other one's is what cannot be held */
  return NULL;
}

/* A thread's default stream can be held by that thread only, and is forgotten when the thread ends. */
static void threads_own_streams(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  try_give(&sc.t, try_get(&sc.t, 2, 1000));
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, get_on_own_stream, &sc), 0);
  pthread_join(thread, NULL);
  assert_true(sc.t.stats.convert_refused_thread > 0);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  assert_int_equal(try_stats(&sc.t)->conversions, 1);
  try_give(&sc.t, wanted);
  finish(&sc);
}

static void peers(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  atomic_store(&sc.t.heap->devices[0].base.peered, true); /* as gap__heap_enable_peer does */
  untouched(&sc, STREAM_A, CHUNK);
  uint64_t freed = 1;
  assert_int_equal(gap__heap_defragment(sc.t.heap, 0, &freed), 0);
  assert_true(freed == 0 && try_stats(&sc.t)->convert_refused_peer > 0);
  finish(&sc);
}

/* Retired streams are held by nothing: what they have left queued is waited for. */
static void retired_streams(void **state) {
  (void)state;
  struct scene sc = half_idle(on_host(GATED));
  gap_addr other = try_get(&sc.t, STREAM_B, 1 * MIB);
  assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, STREAM_B), 0);
  gap__host_run_all(sc.t.dev);
  assert_int_equal(gap__host_expect(sc.t.dev, sc.low, 2 * MIB, 0x1111, STREAM_B), 0);
  try_give(&sc.t, other);
  assert_int_equal(gap__heap_retire_stream(sc.t.heap, 0, STREAM_B), 0);
  gap_addr wanted = try_get(&sc.t, STREAM_A, CHUNK);
  assert_int_equal(gap__host_faults(sc.t.dev), 0);
  assert_int_equal(try_stats(&sc.t)->conversions, 1);
  try_give(&sc.t, wanted);
  finish(&sc);
}

/* ---- when the driver fails ---- */

/* The n-th call of a kind from here on fails, or all from it on. */
static void fail_from_here(struct fault *fault, int kind, uint64_t nth, bool lasting) {
  fault->plan =
      (struct fault_plan){.kind = kind, .nth = fault->calls[kind] + nth, .code = GAP_EDEVICE, .lasting = lasting};
}

static void one_failure(int kind, uint64_t nth) {
  struct fault fault;
  struct scene sc = half_idle(on_host(GATED));
  gap__host_run_all(sc.t.dev);
  fault_attach(&fault, sc.t.dev, &(struct fault_plan){0});
  fail_from_here(&fault, kind, nth, false);
  uint64_t before = fault.calls[kind];
  gap_addr wanted = 0;
  int rc = gap__heap_alloc(sc.t.heap, 0, STREAM_A, DEFAULT, CHUNK, &wanted);
  assert_true(rc == 0 || fault.hits);
  look(&sc);
  try_check(&sc.t);
  if (!fault.hits) assert_true(fault.calls[kind] - before < nth);
  if (rc) wanted = try_get(&sc.t, STREAM_A, CHUNK); /* it was for this time only */
  try_give(&sc.t, wanted);
  finish(&sc);
}

static void failures(void **state) {
  (void)state;
  static const int kinds[] = {GAP__CALL_gate,          GAP__CALL_value_await,  GAP__CALL_pin,
                              GAP__CALL_stream_create, GAP__CALL_chunk_create, GAP__CALL_map,
                              GAP__CALL_set_access,    GAP__CALL_copy,         GAP__CALL_event_record,
                              GAP__CALL_event_query,   GAP__CALL_event_wait,   GAP__CALL_unmap,
                              GAP__CALL_chunk_release, GAP__CALL_reserve};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (uint64_t nth = 1; nth <= 8; nth++) one_failure(kinds[k], nth);
}

/* A driver that never maps again in the middle of an exchange has lost the program its addresses, not its bytes: they are back as
 * soon as it maps. */
static void torn_and_healed(void **state) {
  (void)state;
  struct fault fault;
  struct scene sc = half_idle(on_host(GATED));
  gap__host_run_all(sc.t.dev);
  fault_attach(&fault, sc.t.dev, &(struct fault_plan){0});
  fail_from_here(&fault, GAP__CALL_map, 3, true); /* two runs are mapped in the window before */
  gap_addr wanted = 0;
  assert_int_not_equal(gap__heap_alloc(sc.t.heap, 0, STREAM_A, DEFAULT, CHUNK, &wanted), 0);
  assert_int_not_equal(try_state(&sc.t)->convert.torn.chunk, 0);
  char text[200];
  assert_int_equal(gap__heap_check(sc.t.heap, 0, text, sizeof text), GAP_ESTATE);
  fault_clear(&fault);
  wanted = try_get(&sc.t, STREAM_A, CHUNK);
  assert_int_equal(try_state(&sc.t)->convert.torn.chunk, 0);
  look(&sc);
  try_check(&sc.t);
  try_give(&sc.t, wanted);
  finish(&sc);
}

/* ---- who must stand still ---- */

static void noted_streams(void **state) {
  (void)state;
  struct try t = on_sim(GATED);
  struct gap__policy_state *s = try_state(&t);
  gap_addr a = try_get(&t, STREAM_A, 1000), b = try_get(&t, STREAM_B, 1000);
  assert_int_equal(s->gate.count, 2);
  for (gap_stream other = 1; other < 5; other++) assert_int_equal(gap__heap_record_stream(t.heap, a, other), 0);
  assert_int_equal(s->gate.count, 6);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  assert_int_equal(s->gate.count, 6);
  assert_int_equal(gap__heap_retire_stream(t.heap, 0, STREAM_B), 0);
  assert_int_equal(s->gate.count, 5);
  try_give(&t, a);
  try_give(&t, b);
  try_end(&t);
}

/* Streams that are ordered with the legacy one are held by its gate, whosever they are; a capture among them still counts. */
static int is_blocking(struct gap__dev *dev, gap_stream stream, bool *out) {
  (void)dev;
  *out = stream != STREAM_A;
  return 0;
}
static void ordered_with_the_legacy_stream(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  struct gap__dev_ops ops = *sc.t.dev->ops;
  const struct gap__dev_ops *before = sc.t.dev->ops;
  ops.stream_blocking = is_blocking;
  sc.t.dev->ops = &ops;
  try_give(&sc.t, try_get(&sc.t, 0, 1000));
  assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, 77), 0);
  assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, 78), 0);
  uint64_t gates = try_calls(&sc.t, GAP__CALL_gate);
  gap_addr wanted = try_get(&sc.t, STREAM_A, 30 * MIB);
  assert_int_equal(try_stats(&sc.t)->conversions, 1);
  assert_int_equal(try_calls(&sc.t, GAP__CALL_gate) - gates,
                   2 + 1); /* before the legacy one and A, and behind the copy */
  sc.t.dev->ops = before;
  try_give(&sc.t, wanted);
  gap__sim_clock_advance(sc.t.dev, 1000000000);
  finish(&sc);
}

/* More than can be held: conversion is refused, nothing else. */
static void too_many_streams(void **state) {
  (void)state;
  struct scene sc = half_idle(on_sim(GATED));
  for (gap_stream other = 1; other <= GAP__GATE_STREAMS; other++)
    assert_int_equal(gap__heap_record_stream(sc.t.heap, sc.low, 100000 + other), 0);
  untouched(&sc, STREAM_A, CHUNK);
  assert_true(sc.t.stats.convert_refused_gate > 0);
  gap__sim_clock_advance(sc.t.dev, 1000000000);
  finish(&sc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_of_bits),
      cmocka_unit_test(idle_pages),
      cmocka_unit_test(pages_of_a_late_free),
      cmocka_unit_test(order_of_picks),
      cmocka_unit_test(gated_serves),
      cmocka_unit_test(queued_work),
      cmocka_unit_test(frees_in_flight),
      cmocka_unit_test(lent_mappings_go),
      cmocka_unit_test(room_for_the_copy),
      cmocka_unit_test(events_of_an_exchange),
      cmocka_unit_test(off_does_nothing),
      cmocka_unit_test(safe_points_serve),
      cmocka_unit_test(kept_memory),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(pinned_chunks),
      cmocka_unit_test(contiguous_pools),
      cmocka_unit_test(captures),
      cmocka_unit_test(threads_own_streams),
      cmocka_unit_test(peers),
      cmocka_unit_test(retired_streams),
      cmocka_unit_test(failures),
      cmocka_unit_test(torn_and_healed),
      cmocka_unit_test(noted_streams),
      cmocka_unit_test(too_many_streams),
      cmocka_unit_test(ordered_with_the_legacy_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
