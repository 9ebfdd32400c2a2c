/* Pools that fall asleep and wake between made-up allocations and frees, on `host` with contents: every strategy of pages, private and
 * shared pools, kept and dropped copies, single blocks.  GAP_SOAK_SECONDS makes it long. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/sleep.h"
#include "support/tier_try.h"

enum { POOLS = 3, SLOTS = 60, OPERATIONS = 700, LOOK_EVERY = 25 };

struct slot {
  gap_addr addr; /* 0: none */
  uint64_t bytes, seed;
  unsigned pool;
};

struct scene {
  struct tier_try s;
  gap_pool_id pools[POOLS];
  bool asleep[POOLS]; /* a part of it may be awake */
  bool kept[POOLS];   /* nothing was written since it woke with its copy */
  struct slot slots[SLOTS];
  uint64_t random, written;
};

static const char *const tags[POOLS] = {"a", "b", "c"};

static uint64_t draw(struct scene *sc, uint64_t below) { return try_random(&sc->random, below); }

static void get(struct scene *sc, struct slot *slot) {
  *slot = (struct slot){.pool = (unsigned)draw(sc, POOLS), .bytes = try_log_uniform(&sc->random, 512, 9 * MIB) / 8 * 8};
  gap_stream stream = draw(sc, 3) ? STREAM_A : STREAM_B;
  int rc = gap__heap_alloc(sc->s.t.heap, 0, stream, sc->pools[slot->pool], slot->bytes, &slot->addr);
  if (rc) slot->addr = 0;
  if (rc != GAP_ENOMEM) assert_int_equal(rc, sc->asleep[slot->pool] ? GAP_ESTATE : 0);
  if (rc) return;
  slot->seed = ++sc->written << 32;
  tier_try_fill(slot->addr, slot->bytes, slot->seed);
}

static void give(struct scene *sc, struct slot *slot) {
  if (!sc->asleep[slot->pool] && !tier_try_filled(slot->addr, slot->bytes, slot->seed))
    fail_msg("not what was written");
  try_give(&sc->s.t, slot->addr);
  slot->addr = 0;
}

static void rewrite(struct scene *sc, unsigned pool) {
  for (unsigned i = 0; i < SLOTS; i++)
    if (sc->slots[i].addr && sc->slots[i].pool == pool)
      tier_try_fill(sc->slots[i].addr, sc->slots[i].bytes, sc->slots[i].seed);
}

static void look(struct scene *sc) {
  for (unsigned i = 0; i < SLOTS; i++) {
    const struct slot *slot = &sc->slots[i];
    if (slot->addr && !sc->asleep[slot->pool] && !tier_try_filled(slot->addr, slot->bytes, slot->seed))
      fail_msg("block %u at %#llx is not what was written", i, (unsigned long long)slot->addr);
  }
  try_check(&sc->s.t);
}

/* A pool without memory does not sleep, and one is awake with its last block. */
static bool sleeps(struct scene *sc, unsigned pool) { return gap__sleep_any(try_state(&sc->s.t), sc->pools[pool]); }

static void sleep_on(struct scene *sc, unsigned pool) {
  uint64_t freed;
  unsigned flags = sc->kept[pool] && draw(sc, 2) ? GAP_SLEEP_UNCHANGED : 0;
  assert_int_equal(gap__tier_sleep(sc->s.tier, 0, tags[pool], flags, &freed), 0);
  sc->asleep[pool] = sleeps(sc, pool);
  sc->kept[pool] = false;
}

static void wake(struct scene *sc, unsigned pool) {
  bool keep = draw(sc, 2);
  int rc = gap__tier_wake(sc->s.tier, 0, tags[pool], keep ? GAP_WAKE_KEEP : 0);
  if (rc == GAP_ENOMEM) return;
  assert_int_equal(rc, 0);
  sc->kept[pool] = keep && sc->asleep[pool];
  sc->asleep[pool] = false;
}

static void wake_one(struct scene *sc, struct slot *slot) {
  int rc = gap__tier_wake_block(sc->s.tier, slot->addr);
  if (rc == GAP_ENOMEM) return;
  assert_int_equal(rc, 0);
  if (!tier_try_filled(slot->addr, slot->bytes, slot->seed)) fail_msg("a block that woke is not what was written");
  sc->asleep[slot->pool] = sleeps(sc, slot->pool);
}

static void drop(struct scene *sc, unsigned pool) {
  uint64_t freed;
  if (sc->asleep[pool]) return;
  assert_int_equal(gap__tier_sleep(sc->s.tier, 0, tags[pool], GAP_SLEEP_DROP, &freed), 0);
  if (gap__tier_wake(sc->s.tier, 0, tags[pool], 0)) fail_msg("what was dropped does not wake");
  sc->kept[pool] = false;
  rewrite(sc, pool);
}

static void step(struct scene *sc) {
  struct slot *slot = &sc->slots[draw(sc, SLOTS)];
  unsigned pool = (unsigned)draw(sc, POOLS);
  switch (draw(sc, 24)) {
    case 0: sleep_on(sc, pool); break;
    case 1:
    case 2: wake(sc, pool); break;
    case 3:
      if (slot->addr) wake_one(sc, slot);
      break;
    case 4: drop(sc, pool); break;
    case 5: try_trim(&sc->s.t); break;
    default:
      if (slot->addr) give(sc, slot);
      else get(sc, slot);
  }
}

static void end(struct scene *sc) {
  for (unsigned pool = 0; pool < POOLS; pool++) wake(sc, pool);
  look(sc);
  for (unsigned i = 0; i < SLOTS; i++)
    if (sc->slots[i].addr) give(sc, &sc->slots[i]);
  for (unsigned pool = 0; pool < POOLS; pool++)
    assert_int_equal(gap__heap_pool_release(sc->s.t.heap, 0, sc->pools[pool]), 0);
  assert_int_equal(gap__tier_reserve_host(sc->s.tier, 0, 0), 0);
  try_trim(&sc->s.t);
  gap_tiers now = tier_try_figures(&sc->s);
  assert_true(now.host_used_bytes == 0 && now.asleep_bytes == 0);
  assert_int_equal(gap__host_faults(sc->s.t.dev), 0);
}

static void play(const char *conf, uint64_t seed, unsigned operations) {
  struct scene *sc = calloc(1, sizeof *sc);
  sc->random = seed;
  sc->s = tier_try_open(600 * MIB, conf, "");
  for (unsigned pool = 0; pool < POOLS; pool++)
    sc->pools[pool] = tier_try_pool(&sc->s, pool == 2 ? GAP_POOL_PRIVATE : GAP_POOL_SHARED, tags[pool]);
  for (unsigned i = 0; i < operations; i++) {
    step(sc);
    if (i % LOOK_EVERY == 0) look(sc);
  }
  end(sc);
  tier_try_close(&sc->s);
  free(sc);
}

static void play_long(const char *conf) {
  const char *seconds = getenv("GAP_SOAK_SECONDS");
  time_t until = time(NULL) + (seconds ? atoi(seconds) : 0);
  for (uint64_t seed = 1; seed <= 2 || time(NULL) < until; seed++) {
    if (seconds) print_message("%s: seed %llu\n", conf, (unsigned long long)seed);
    play(conf, seed, OPERATIONS);
  }
}

static void pages(void **state) {
  (void)state;
  play_long("page_maker:False,reserve:0");
}
static void large_chunks(void **state) {
  (void)state;
  play_long("page_maker:False,reserve:0,chunk_max:32MiB");
}
static void classes(void **state) {
  (void)state;
  play_long("page_maker:False,reserve:0,strategy:pooled");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pages), cmocka_unit_test(large_chunks),
                                     cmocka_unit_test(classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
