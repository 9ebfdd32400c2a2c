/* Items while driver calls and host memory fail, one after the other, once and for good.  Whatever fails: what a wait said is put comes back as it
 * was when the driver works again, other bytes are never given, and no host memory and no disk stays taken. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/fault.h"
#include "support/tier_try.h"

enum { ITEMS = 4 };
static const uint64_t bytes = 5 * MIB;

struct scene {
  struct fault fault;
  struct tier_try s;
  gap_addr from, to;
  gap_item items[ITEMS];
  bool put[ITEMS]; /* and a wait said so */
  unsigned served;
};

static void put(struct scene *sc, unsigned i) {
  struct gap__tier *tier = sc->s.tier;
  gap_span spans[2] = {{sc->from, 3 * MIB}, {sc->from + 3 * MIB, 2 * MIB}};
  sc->put[i] = false;
  tier_try_fill(sc->from, bytes, i);
  if (tier_try_failed(gap__tier_put(tier, 0, spans, 2, STREAM_A, i % 2 ? GAP_PUT_DISK : GAP_PUT_HOST, &sc->items[i]))) {
    sc->items[i] = 0;
    return;
  }
  sc->put[i] = !tier_try_failed(gap__tier_join(tier, 0, sc->items[i], STREAM_A));
  sc->put[i] &= !tier_try_failed(gap__tier_wait(tier, 0, sc->items[i]));
  sc->served += sc->put[i];
}

static bool get(struct scene *sc, unsigned i) {
  struct gap__tier *tier = sc->s.tier;
  memset((void *)(uintptr_t)sc->to, 0, bytes);
  if (!sc->items[i] ||
      tier_try_failed(gap__tier_get(tier, 0, sc->items[i], 0, &(gap_span){sc->to, bytes}, 1, STREAM_B)))
    return false;
  bool there = !tier_try_failed(gap__tier_join(tier, 0, sc->items[i], STREAM_B));
  there &= !tier_try_failed(gap__tier_wait(tier, 0, sc->items[i]));
  if (there && sc->put[i] && !tier_try_filled(sc->to, bytes, i)) fail_msg("item %u is not what it was", i);
  sc->served += there;
  return there;
}

static void drop(struct scene *sc, unsigned i) {
  if (sc->items[i]) assert_int_equal(gap__tier_drop(sc->s.tier, 0, sc->items[i]), 0);
  sc->items[i] = 0;
}

static void nothing_used(struct scene *sc) {
  gap_tiers now = tier_try_figures(&sc->s);
  for (int i = 0; i < 3000 && (now.host_used_bytes || now.disk_used_bytes); i++) {
    usleep(1000);
    now = tier_try_figures(&sc->s);
  }
  if (now.host_used_bytes || now.disk_used_bytes)
    fail_msg("%s %llu%s: %llu bytes of host memory and %llu of the disk are used still",
             fault_kind_name(sc->fault.plan.kind), (unsigned long long)sc->fault.plan.nth,
             sc->fault.plan.lasting ? " and on" : "", (unsigned long long)now.host_used_bytes,
             (unsigned long long)now.disk_used_bytes);
}

static void run(const char *tiers, const struct fault_plan *plan, struct fault *out) {
  struct scene *sc = calloc(1, sizeof *sc);
  sc->s = tier_try_open(64 * MIB, "page_maker:False,reserve:0", tiers);
  sc->from = try_get(&sc->s.t, STREAM_A, bytes);
  sc->to = try_get(&sc->s.t, STREAM_A, bytes);
  fault_attach(&sc->fault, sc->s.t.dev, plan);
  fault_quietly(&sc->fault, false);
  for (unsigned i = 0; i < ITEMS; i++) put(sc, i);
  for (unsigned i = 0; i < ITEMS; i++) get(sc, i);
  drop(sc, 0);
  put(sc, 0);
  fault_quietly(&sc->fault, true);
  for (unsigned i = 0; i < ITEMS; i++)
    if (!get(sc, i) && sc->put[i])
      fail_msg("%s %llu%s: item %u is lost", fault_kind_name(plan->kind), (unsigned long long)plan->nth,
               plan->lasting ? " and on" : "", i);
  if (!plan->nth) assert_int_equal(sc->served, ITEMS + 1 + 2 * ITEMS);
  for (unsigned i = 0; i < ITEMS; i++) drop(sc, i);
  if (sc->fault.plan.kind != GAP__CALL_event_record) nothing_used(sc); /* a carrier that lost track keeps its memory */
  *out = sc->fault;
  try_give(&sc->s.t, sc->from);
  try_give(&sc->s.t, sc->to);
  tier_try_close(&sc->s);
  free(sc);
}

/* Of a kind of calls, about `share` are tried each way. */
static void torture(const char *tiers, unsigned share) {
  struct fault whole, f;
  run(tiers, &(struct fault_plan){0}, &whole);
  unsigned runs = 0, hits = 0;
  for (int kind = 0; kind < FAULT_KINDS; kind++)
    for (int lasting = 0; lasting < 2; lasting++) {
      uint64_t step = whole.calls[kind] / share + 1;
      for (uint64_t nth = 1; nth <= whole.calls[kind]; nth += step) {
        run(tiers, &(struct fault_plan){.kind = kind, .nth = nth, .code = GAP_EDEVICE, .lasting = lasting}, &f);
        runs++;
        hits += f.hits > 0;
      }
    }
  print_message("%u runs, in %u of them something failed\n", runs, hits);
  assert_true(hits > 30);
}

static void everywhere(void **state) {
  (void)state;
  char folder[] = "/tmp/gapless-items-XXXXXX", tiers[80];
  assert_non_null(mkdtemp(folder));
  snprintf(tiers, sizeof tiers, "host=64M,disk=%s:100M", folder);
  torture(tiers, 4);
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(everywhere)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
