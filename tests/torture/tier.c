/* Sleep and wake while driver calls and host memory fail, one after the other, once and for good.  Whatever fails: what is awake has its
 * bytes; what sleeps wakes with them when the driver works again; the books are right, and nothing is lost at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/fault.h"
#include "support/tier_try.h"

enum { BLOCKS = 7, STEPS = 9 };
static const uint64_t sizes[BLOCKS] = {700, 1 * MIB, 64 * KIB, 3 * MIB, 2 * MIB, 300 * KIB, 5 * MIB};

struct scene {
  struct fault fault;
  struct tier_try s;
  gap_pool_id pool;
  gap_addr at[BLOCKS];
  bool asleep; /* a part of it may be */
  unsigned served;
};

static void look(struct scene *sc) {
  bool whole = tier_try_figures(&sc->s).asleep_bytes == 0;
  try_check(&sc->s.t);
  for (unsigned i = 0; i < BLOCKS && whole; i++)
    if (sc->at[i] && !tier_try_filled(sc->at[i], sizes[i], i)) fail_msg("block %u is not what it was", i);
}

static void get(struct scene *sc, unsigned i) {
  if (sc->at[i]) return;
  int rc = gap__heap_alloc(sc->s.t.heap, 0, i % 2 ? STREAM_A : STREAM_B, sc->pool, sizes[i], &sc->at[i]);
  if (tier_try_failed(rc)) sc->at[i] = 0;
  else tier_try_fill(sc->at[i], sizes[i], i);
}
static void give(struct scene *sc, unsigned i) {
  if (sc->at[i]) assert_int_equal(gap__heap_free(sc->s.t.heap, sc->at[i]), 0);
  sc->at[i] = 0;
}

static void sleep_on(struct scene *sc, unsigned flags) {
  uint64_t freed;
  sc->served += !tier_try_failed(gap__tier_sleep(sc->s.tier, 0, "weights", flags, &freed));
}
static void wake(struct scene *sc, unsigned flags) {
  sc->served += !tier_try_failed(gap__tier_wake(sc->s.tier, 0, "weights", flags));
}
static void wake_block(struct scene *sc, unsigned i) {
  sc->served += sc->at[i] && !tier_try_failed(gap__tier_wake_block(sc->s.tier, sc->at[i]));
}

static void do_step(struct scene *sc, unsigned step) {
  switch (step) {
    case 0:
      for (unsigned i = 0; i < BLOCKS; i++) get(sc, i);
      break;
    case 1: sleep_on(sc, 0); break;
    case 2: give(sc, 1); break;
    case 3: wake(sc, GAP_WAKE_KEEP); break;
    case 4: sleep_on(sc, GAP_SLEEP_UNCHANGED); break;
    case 5: wake_block(sc, 3); break;
    case 6: wake(sc, 0); break;
    case 7: sleep_on(sc, GAP_SLEEP_DISK); break;
    case 8: wake(sc, 0); break;
  }
}

/* The driver works again: all wakes, is whole, and goes. */
static void end(struct scene *sc) {
  assert_int_equal(gap__tier_wake(sc->s.tier, 0, NULL, 0), 0);
  assert_int_equal(tier_try_figures(&sc->s).asleep_bytes, 0);
  look(sc);
  get(sc, 1);
  look(sc);
  for (unsigned i = 0; i < BLOCKS; i++) give(sc, i);
  assert_int_equal(gap__tier_sleep(sc->s.tier, 0, "weights", 0, &(uint64_t){0}), 0);
  assert_int_equal(gap__tier_wake(sc->s.tier, 0, "weights", 0), 0);
  try_trim(&sc->s.t);
  try_check(&sc->s.t);
  gap_tiers now = tier_try_figures(&sc->s);
  if (now.host_used_bytes || now.disk_used_bytes)
    fail_msg("%s %llu%s: host memory or disk is used still", fault_kind_name(sc->fault.plan.kind),
             (unsigned long long)sc->fault.plan.nth, sc->fault.plan.lasting ? " and on" : "");
}

static void run(const char *tiers, const struct fault_plan *plan, struct fault *out) {
  struct scene *sc = calloc(1, sizeof *sc);
  sc->s = tier_try_open(192 * MIB, "page_maker:False,reserve:0", tiers);
  sc->pool = tier_try_pool(&sc->s, GAP_POOL_SHARED, "weights");
  fault_attach(&sc->fault, sc->s.t.dev, plan);
  for (unsigned step = 0; step < STEPS; step++) {
    fault_quietly(&sc->fault, false);
    do_step(sc, step);
    fault_quietly(&sc->fault, true);
    look(sc);
  }
  end(sc);
  if (!plan->nth) assert_int_equal(sc->served, 7);
  *out = sc->fault;
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
        int code = kind == GAP__CALL_chunk_create && nth % 2 ? GAP_ENOMEM : GAP_EDEVICE;
        run(tiers, &(struct fault_plan){.kind = kind, .nth = nth, .code = code, .lasting = lasting}, &f);
        runs++;
        hits += f.hits > 0;
      }
    }
  print_message("%u runs, in %u of them something failed\n", runs, hits);
  assert_true(hits > 30);
}

static void in_host_memory(void **state) {
  (void)state;
  torture("", 4);
}

static void on_disk(void **state) {
  (void)state;
  char folder[] = "/tmp/gapless-tier-XXXXXX", tiers[80];
  assert_non_null(mkdtemp(folder));
  snprintf(tiers, sizeof tiers, "host,disk=%s:200M", folder);
  torture(tiers, 2);
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_host_memory), cmocka_unit_test(on_disk)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
