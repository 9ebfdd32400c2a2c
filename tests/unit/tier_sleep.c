/* Sleep and wake: bytes and addresses, what goes on meanwhile, host memory and disk, copies that are kept, corruption that is
 * noticed, waking in parts, pools that are gone. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "core/sleep.h"
#include "dev/cuda/cuda.h"
#include "support/fake_cuda.h"
#include "support/tier_try.h"

#define CARD (512 * MIB)
#define QUIET "page_maker:False,reserve:0"
enum { BLOCKS = 12 };

static const uint64_t sizes[BLOCKS] = {512,     3 * KIB, 64 * KIB, 100 * KIB, MIB,     2 * MIB,
                                       5 * MIB, 7 * MIB, 2 * MIB,  20 * MIB,  3 * MIB, 513 * KIB};

struct blocks {
  gap_addr at[BLOCKS];
};

static struct blocks get_blocks(struct tier_try *s, gap_stream stream, gap_pool_id pool, uint64_t seed) {
  struct blocks b;
  for (unsigned i = 0; i < BLOCKS; i++) {
    b.at[i] = try_get_pool(&s->t, stream, pool, sizes[i]);
    tier_try_fill(b.at[i], sizes[i], seed + i);
  }
  return b;
}
static void look(const struct blocks *b, uint64_t seed) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (b->at[i] && !tier_try_filled(b->at[i], sizes[i], seed + i)) fail_msg("block %u is not what it was", i);
}
static void give_blocks(struct tier_try *s, struct blocks *b) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (b->at[i]) try_give(&s->t, b->at[i]);
}

/* Two streams and two pools of one tag sleep; a third pool and the default one do not notice. */
static void round_trip(unsigned pool_flags, const char *conf) {
  struct tier_try s = tier_try_open(CARD, conf, "");
  gap_pool_id a = tier_try_pool(&s, pool_flags, "weights"), b = tier_try_pool(&s, pool_flags, "weights"),
              other = tier_try_pool(&s, pool_flags, "kv");
  struct blocks one = get_blocks(&s, STREAM_A, a, 100), two = get_blocks(&s, STREAM_B, a, 200),
                three = get_blocks(&s, STREAM_A, b, 300), kv = get_blocks(&s, STREAM_A, other, 400),
                rest = get_blocks(&s, STREAM_A, DEFAULT, 500);
  uint64_t held = try_held(&s.t), freed = 0;
  for (int round = 0; round < 2; round++) {
    assert_int_equal(gap__tier_sleep(s.tier, 0, "weights", 0, &freed), 0);
    try_check(&s.t);
    assert_true(freed >= 3 * 41 * MIB);
    assert_int_equal(try_held(&s.t), held - freed);
    assert_int_equal(tier_try_figures(&s).asleep_bytes, freed);
    assert_int_equal(gap__host_chunk_bytes(s.t.dev), held - freed); /* the driver has it */
    look(&kv, 400);
    look(&rest, 500);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 0);
    assert_int_equal(try_held(&s.t), held);
    look(&one, 100), look(&two, 200), look(&three, 300), look(&kv, 400), look(&rest, 500);
    assert_int_equal(tier_try_figures(&s).host_used_bytes, 0); /* given back to the pool, which stays */
    assert_true(tier_try_figures(&s).host_locked_bytes >= freed - 40 * MIB);
  }
  give_blocks(&s, &one), give_blocks(&s, &two), give_blocks(&s, &three), give_blocks(&s, &kv), give_blocks(&s, &rest);
  tier_try_close(&s);
}
static void shared_pools(void **state) {
  (void)state;
  round_trip(GAP_POOL_SHARED, QUIET);
}
static void private_pools(void **state) {
  (void)state;
  round_trip(GAP_POOL_PRIVATE, QUIET);
}
static void in_size_classes(void **state) {
  (void)state;
  round_trip(GAP_POOL_SHARED, QUIET ",strategy:pooled");
}
static void in_large_chunks(void **state) {
  (void)state;
  round_trip(GAP_POOL_SHARED, QUIET ",chunk_max:32MiB");
}

static void on_sim(void **state) {
  (void)state;
  struct tier_try s = tier_try_on(try_sim(QUIET), "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 100 * MIB);
  uint64_t held = try_held(&s.t);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    assert_int_equal(try_held(&s.t), held - 100 * MIB);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    assert_int_equal(try_held(&s.t), held);
  }
  try_give(&s.t, a);
  tier_try_close(&s);
}

/* ---- what is said and refused ---- */

static void arguments(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  uint64_t freed = 5;
  assert_int_equal(tier_try_sleep(&s, "weights", 0), GAP_ESTATE);
  assert_true(tier_try_said(&s, "no pool of the device has that tag"));
  assert_int_equal(gap__tier_sleep(s.tier, 1, "weights", 0, &freed), GAP_EINVAL);
  assert_int_equal(gap__tier_sleep(s.tier, 0, "weights", 64, &freed), GAP_EINVAL);
  assert_true(tier_try_said(&s, "sleep: there is no such flag")); /* and not what the call before failed for */
  assert_int_equal(gap__tier_sleep(s.tier, 0, "weights", GAP_SLEEP_DROP | GAP_SLEEP_DISK, &freed), GAP_EINVAL);
  assert_true(tier_try_said(&s, "sleep: what is dropped goes nowhere"));
  assert_int_equal(gap__tier_sleep(s.tier, 0, "weights", GAP_SLEEP_DISK | GAP_SLEEP_REMOTE, &freed), GAP_EINVAL);
  assert_true(tier_try_said(&s, "sleep: it goes to the disk or to servers"));
  assert_int_equal(tier_try_sleep(&s, "weights", GAP_SLEEP_REMOTE), GAP_ELIMIT);
  assert_true(tier_try_said(&s, "there are no servers in tiers"));
  assert_int_equal(gap__tier_wake(s.tier, 0, "weights", 4), GAP_EINVAL);
  assert_true(tier_try_said(&s, "wake: there is no such flag"));
  assert_int_equal(gap__tier_wake(s.tier, 0, "weights", GAP_WAKE_KEEP | GAP_WAKE_DROP), GAP_EINVAL);
  assert_true(tier_try_said(&s, "wake: a copy is kept or dropped"));
  assert_int_equal(gap__tier_wake_block(s.tier, 4096), GAP_ENOTMINE);
  assert_int_equal(freed, 5);
  tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0); /* of a pool without memory */
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  tier_try_pool(&s, GAP_POOL_CONTIGUOUS, "weights");
  assert_int_equal(tier_try_sleep(&s, "weights", 0), GAP_ENOTSUP);
  assert_true(tier_try_said(&s, "contiguous"));
  tier_try_close(&s);
}

/* Nothing is allocated from a pool that sleeps, on no stream; frees go on, and what was freed need not wake. */
/* Tags are compared to their ends, though summaries have their beginnings only. */
static void long_tags(void **state) {
  (void)state;
  static char tags[3][10240];
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_addr at[3];
  for (unsigned i = 0; i < 3; i++) {
    memset(tags[i], 'w', sizeof tags[i] - 1);
    tags[i][i ? sizeof tags[i] - 1 - i : 31] = '\0'; /* the first is as long as what is kept */
    at[i] = try_get_pool(&s.t, STREAM_A, tier_try_pool(&s, GAP_POOL_SHARED, tags[i]), 2 * MIB);
    tier_try_fill(at[i], 2 * MIB, i);
  }
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(tier_try_sleep(&s, tags[i], 0), 0);
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 2 * MIB);
    for (unsigned k = 0; k < 3; k++) assert_true(k == i || tier_try_filled(at[k], 2 * MIB, k));
    assert_int_equal(tier_try_wake(&s, tags[i], 0), 0);
    assert_true(tier_try_filled(at[i], 2 * MIB, i));
  }
  for (unsigned i = 0; i < 3; i++) try_give(&s.t, at[i]);
  tier_try_close(&s);
}

static void while_asleep(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  gap_addr addr;
  assert_int_equal(tier_try_sleep(&s, NULL, 0), 0);
  for (gap_stream stream = STREAM_A; stream <= STREAM_B; stream += STREAM_B - STREAM_A)
    for (unsigned i = 0; i < BLOCKS; i++)
      assert_int_equal(gap__heap_alloc(s.t.heap, 0, stream, pool, sizes[i], &addr), GAP_ESTATE);
  assert_true(tier_try_said(&s, "asleep: nothing is allocated from it before gap_wake"));
  for (unsigned i = 0; i < BLOCKS; i += 2) {
    try_give(&s.t, b.at[i]);
    b.at[i] = 0;
  }
  assert_int_equal(gap__heap_record_stream(s.t.heap, b.at[1], STREAM_B), 0);
  try_give(&s.t, b.at[1]);
  b.at[1] = 0;
  try_check(&s.t);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0); /* already: nothing is left to do */
  for (unsigned i = 0; i < BLOCKS; i++)
    assert_int_equal(gap__heap_alloc(s.t.heap, 0, STREAM_A, pool, sizes[i], &addr), GAP_ESTATE);
  try_trim(&s.t);
  struct gap__text summary = {0};
  assert_int_equal(gap__heap_summary(s.t.heap, 0, &summary), 0);
  assert_non_null(strstr(gap__text_str(&summary), "MiB of addresses whose memory is the driver's"));
  gap__text_free(&summary);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  assert_true(try_held(&s.t) < 36 * MIB); /* most that was freed has no memory any more */
  assert_int_equal(tier_try_figures(&s).host_used_bytes, 0);
  struct blocks again = get_blocks(&s, STREAM_A, pool, 50);
  look(&b, 1);
  look(&again, 50);
  give_blocks(&s, &b);
  give_blocks(&s, &again);
  tier_try_close(&s);
}

/* The memory serves others meanwhile; who wakes without room sleeps on. */
static void room_for_others(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(100 * MIB, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 60 * MIB);
  tier_try_fill(a, 60 * MIB, 9);
  try_refuse(&s.t, STREAM_A, 80 * MIB, GAP_ENOMEM);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  gap_addr b = try_get(&s.t, STREAM_A, 80 * MIB);
  tier_try_fill(b, 80 * MIB, 10);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tier_try_wake(&s, "weights", 0), GAP_ENOMEM);
    assert_true(tier_try_said(&s, "the device has no room for what sleeps"));
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 60 * MIB);
  }
  assert_true(tier_try_filled(b, 80 * MIB, 10));
  try_give(&s.t, b); /* idle now: it goes for what wakes */
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  assert_true(tier_try_filled(a, 60 * MIB, 9));
  try_give(&s.t, a);
  tier_try_close(&s);
}

/* Chunks that others know stay awake. */
static void known_memory_stays(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr known = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB), other = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB);
  tier_try_fill(known, 10 * MIB, 1);
  tier_try_fill(other, 10 * MIB, 2);
  assert_int_equal(gap__heap_keep(s.t.heap, known), 0);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_int_equal(tier_try_figures(&s).asleep_bytes, 10 * MIB);
  assert_true(tier_try_filled(known, 10 * MIB, 1));
  tier_try_fill(known, 10 * MIB, 3);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  assert_true(tier_try_filled(known, 10 * MIB, 3) && tier_try_filled(other, 10 * MIB, 2));
  try_give(&s.t, known);
  try_give(&s.t, other);
  tier_try_close(&s);
}

/* A pool that graphs know keeps its idle pages' addresses, too. */
static void idle_pages_of_a_graph(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_PRIVATE, "graph");
  gap_addr kept = try_get_pool(&s.t, STREAM_A, pool, 4 * MIB), gone = try_get_pool(&s.t, STREAM_A, pool, 6 * MIB);
  tier_try_fill(kept, 4 * MIB, 1);
  try_give(&s.t, gone);
  uint64_t held = try_held(&s.t);
  assert_int_equal(tier_try_sleep(&s, "graph", 0), 0);
  assert_int_equal(try_held(&s.t), held - 10 * MIB);
  assert_int_equal(tier_try_figures(&s).saved_bytes, 4 * MIB);
  assert_int_equal(tier_try_wake(&s, "graph", 0), 0);
  assert_int_equal(try_held(&s.t), held);
  tier_try_fill(gone, 6 * MIB, 2); /* as a graph's replay does */
  assert_true(tier_try_filled(kept, 4 * MIB, 1) && tier_try_filled(gone, 6 * MIB, 2));
  try_give(&s.t, kept);
  tier_try_close(&s);
}

/* Pages that such a pool moved inside itself are known by two addresses to its graphs: both are there again. */
static void two_addresses_of_a_graph(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET ",max_memory:8M", "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_PRIVATE, "graph");
  gap_addr old = try_get_pool(&s.t, STREAM_A, pool, 4 * MIB), beside = try_get_pool(&s.t, STREAM_A, pool, 2 * MIB);
  try_give(&s.t, old);
  gap_addr moved = try_get_pool(&s.t, STREAM_A, pool, 6 * MIB);
  assert_true(moved >= old + 4 * MIB && try_stats(&s.t)->pages_stolen == 2);
  for (uint64_t page = 0; page < 3; page++) tier_try_fill(moved + page * PAGE, PAGE, 10 * page);
  tier_try_fill(beside, 2 * MIB, 99);
  uint64_t seeds[2] = {0};
  for (int i = 0; i < 2; i++)
    while (!tier_try_filled(old + (uint64_t)i * PAGE, PAGE, seeds[i])) assert_true((seeds[i] += 10) <= 20);
  assert_int_equal(tier_try_sleep(&s, "graph", 0), 0);
  assert_int_equal(try_held(&s.t), 0);
  assert_int_equal(tier_try_wake(&s, "graph", 0), 0);
  for (uint64_t page = 0; page < 3; page++) assert_true(tier_try_filled(moved + page * PAGE, PAGE, 10 * page));
  for (int i = 0; i < 2; i++) {
    assert_true(tier_try_filled(old + (uint64_t)i * PAGE, PAGE, seeds[i]));
    tier_try_fill(old + (uint64_t)i * PAGE, PAGE, 500); /* written by the one, read by the other */
    assert_true(tier_try_filled(moved + seeds[i] / 10 * PAGE, PAGE, 500));
  }
  assert_true(tier_try_filled(beside, 2 * MIB, 99));
  try_give(&s.t, beside);
  try_give(&s.t, moved);
  tier_try_close(&s);
}

/* ---- copies that are kept, or none ---- */

static void unchanged(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  uint64_t saved = tier_try_figures(&s).saved_bytes, used = tier_try_figures(&s).host_used_bytes;
  assert_true(saved > 41 * MIB && used == saved);
  for (int round = 1; round <= 2; round++) {
    assert_int_equal(tier_try_wake(&s, "weights", GAP_WAKE_KEEP), 0);
    assert_int_equal(tier_try_figures(&s).host_used_bytes, used);
    look(&b, 1);
    assert_int_equal(tier_try_sleep(&s, "weights", GAP_SLEEP_UNCHANGED), 0);
    assert_int_equal(tier_try_figures(&s).saved_bytes, saved);
    assert_int_equal(tier_try_figures(&s).spared_bytes, round * saved);
  }
  assert_int_equal(tier_try_wake(&s, "weights", GAP_WAKE_KEEP), 0);
  look(&b, 1);
  try_give(&s.t, b.at[9]); /* something is allocated where something else was: the program's word is not believed */
  b.at[9] = try_get_pool(&s.t, STREAM_A, pool, sizes[9]);
  tier_try_fill(b.at[9], sizes[9], 1 + 9);
  assert_int_equal(tier_try_sleep(&s, "weights", GAP_SLEEP_UNCHANGED), 0);
  assert_int_equal(tier_try_figures(&s).saved_bytes, 2 * saved);
  assert_int_equal(tier_try_figures(&s).host_used_bytes, used); /* the old copy went */
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  assert_int_equal(tier_try_sleep(&s, "weights", GAP_SLEEP_UNCHANGED), 0); /* no copy was kept: one is made */
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  give_blocks(&s, &b);
  tier_try_close(&s);
}

static void dropped(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "kv"), other = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1), w = get_blocks(&s, STREAM_A, other, 2);
  assert_int_equal(tier_try_sleep(&s, "kv", GAP_SLEEP_DROP), 0);
  assert_int_equal(tier_try_figures(&s).saved_bytes, 0);
  assert_int_equal(tier_try_figures(&s).host_locked_bytes, 0);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_int_equal(tier_try_wake(&s, NULL, 0), 0);
  look(&w, 2);
  for (unsigned i = 0; i < BLOCKS; i++) tier_try_fill(b.at[i], sizes[i], 7 + i);
  look(&b, 7);
  look(&w, 2);
  give_blocks(&s, &b);
  give_blocks(&s, &w);
  tier_try_close(&s);
}

/* ---- in parts ---- */

static void block_by_block(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "layers");
  gap_addr layer[6], addr;
  for (unsigned i = 0; i < 6; i++) {
    layer[i] = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB);
    tier_try_fill(layer[i], 10 * MIB, i);
  }
  assert_int_equal(tier_try_sleep(&s, "layers", 0), 0);
  for (unsigned i = 0; i < 6; i++) {
    unsigned at = i * 5 % 6;
    assert_int_equal(tier_try_figures(&s).asleep_bytes, (6 - i) * 10 * MIB);
    assert_int_equal(gap__heap_alloc(s.t.heap, 0, STREAM_A, pool, 512, &addr), GAP_ESTATE);
    assert_int_equal(gap__tier_wake_block(s.tier, layer[at] + 5 * MIB), 0);
    try_check(&s.t);
    assert_true(tier_try_filled(layer[at], 10 * MIB, at));
    assert_int_equal(gap__tier_wake_block(s.tier, layer[at]), 0); /* it is */
  }
  addr = try_get_pool(&s.t, STREAM_A, pool, 512);
  assert_int_equal(tier_try_sleep(&s, "layers", 0), 0);
  assert_int_equal(gap__tier_wake_block(s.tier, layer[3]), 0);
  tier_try_fill(layer[3], 10 * MIB, 33);
  assert_int_equal(tier_try_sleep(&s, "layers", 0), 0); /* one is awake, and changed */
  assert_int_equal(tier_try_wake(&s, "layers", 0), 0);
  for (unsigned i = 0; i < 6; i++) assert_true(tier_try_filled(layer[i], 10 * MIB, i == 3 ? 33 : i));
  for (unsigned i = 0; i < 6; i++) try_give(&s.t, layer[i]);
  try_give(&s.t, addr);
  tier_try_close(&s);
}

/* Neighbours wake as one chunk: the next time the driver is called less often. */
static void neighbours_are_joined(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET ",max_memory:200M", "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 100 * MIB), b = try_get_pool(&s.t, STREAM_A, pool, 20 * MIB);
  tier_try_fill(a, 100 * MIB, 1);
  tier_try_fill(b, 20 * MIB, 2);
  uint64_t unmaps[2];
  for (int round = 0; round < 2; round++) {
    uint64_t before = try_calls(&s.t, GAP__CALL_unmap);
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    unmaps[round] = try_calls(&s.t, GAP__CALL_unmap) - before;
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    assert_true(tier_try_filled(a, 100 * MIB, 1) && tier_try_filled(b, 20 * MIB, 2));
  }
  assert_int_equal(unmaps[0], 60);
  assert_int_equal(unmaps[1], 1);
  try_give(&s.t, a);
  gap_addr c = try_get(&s.t, STREAM_A, 30 * MIB); /* the heap goes on with it */
  try_give(&s.t, c);
  try_give(&s.t, b);
  try_trim(&s.t);
  tier_try_close(&s);
}

/* What is idle inside a large chunk is trapped, until its pool has slept: then it takes no memory. */
static void what_was_trapped_is_free(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "layers");
  gap_addr layer[6];
  for (unsigned i = 0; i < 6; i++) {
    layer[i] = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB);
    tier_try_fill(layer[i], 10 * MIB, i);
  }
  assert_int_equal(tier_try_sleep(&s, "layers", 0), 0);
  assert_int_equal(tier_try_wake(&s, "layers", 0), 0);
  try_give(&s.t, layer[1]);
  try_give(&s.t, layer[4]);
  assert_int_equal(try_trim(&s.t), 0); /* one chunk of 60 MiB */
  assert_int_equal(tier_try_sleep(&s, "layers", 0), 0);
  assert_int_equal(tier_try_figures(&s).host_used_bytes, 40 * MIB);
  assert_int_equal(tier_try_wake(&s, "layers", 0), 0);
  assert_int_equal(try_held(&s.t), 40 * MIB);
  for (unsigned i = 0; i < 6; i++)
    if (i != 1 && i != 4) assert_true(tier_try_filled(layer[i], 10 * MIB, i));
  layer[1] = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB);
  tier_try_fill(layer[1], 10 * MIB, 1);
  for (unsigned i = 0; i < 4; i++) assert_true(tier_try_filled(layer[i], 10 * MIB, i));
  for (unsigned i = 0; i < 6; i++)
    if (i != 4) try_give(&s.t, layer[i]);
  tier_try_close(&s);
}

/* ---- host memory and disk ---- */

static char folder[] = "/tmp/gapless-tier-XXXXXX", disk_only[64], disk_rest[64], host_little[64];
static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(disk_only, sizeof disk_only, "disk=%s:200M", folder);
  snprintf(disk_rest, sizeof disk_rest, "host=42M,disk=%s:200M", folder);
  snprintf(host_little, sizeof host_little, "host=40M,disk=%s:8M", folder);
  return 0;
}
static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

static void over_disk(const char *tiers, unsigned flags, uint64_t host_bytes) {
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(tier_try_sleep(&s, "weights", flags), 0);
    gap_tiers now = tier_try_figures(&s);
    assert_int_equal(now.host_used_bytes, host_bytes);
    assert_int_equal(now.host_used_bytes + now.disk_used_bytes, now.saved_bytes / (uint64_t)(round + 1));
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    look(&b, 1);
    assert_int_equal(tier_try_figures(&s).disk_used_bytes, 0);
    assert_int_equal(tier_try_figures(&s).host_used_bytes, 0);
  }
  give_blocks(&s, &b);
  tier_try_close(&s);
}
static void disk(void **state) {
  (void)state;
  over_disk(disk_only, 0, 0);
}
static void the_rest_to_disk(void **state) {
  (void)state;
  over_disk(disk_rest, 0, 10 * MIB);
}
static void disk_by_choice(void **state) {
  (void)state;
  char both[80];
  snprintf(both, sizeof both, "host,%s", disk_only);
  over_disk(both, GAP_SLEEP_DISK, 0);
}

/* Neither has room: nothing is asleep, nothing is lost, and less will do. */
static void no_room_to_sleep(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "host=40M");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  uint64_t held = try_held(&s.t);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), GAP_ELIMIT);
  assert_true(tier_try_said(&s, "40 MiB may be") && tier_try_said(&s, "the limit is that of tiers"));
  look(&b, 1);
  assert_int_equal(try_held(&s.t), held);
  assert_int_equal(tier_try_figures(&s).host_used_bytes, 0);
  gap_addr more = try_get_pool(&s.t, STREAM_A, pool, 512); /* the pool is awake */
  try_give(&s.t, more);
  try_give(&s.t, b.at[9]);
  b.at[9] = 0;
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  give_blocks(&s, &b);
  tier_try_close(&s);
}

static void a_full_disk(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, host_little);
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tier_try_sleep(&s, "weights", 0), GAP_ELIMIT);
    assert_true(tier_try_said(&s, "all of the 8 MiB that tiers allows are in use"));
    look(&b, 1);
    assert_int_equal(tier_try_figures(&s).disk_used_bytes, 0);
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 0);
  }
  give_blocks(&s, &b);
  tier_try_close(&s);
}

/* All of the host memory is there, unused, and in pieces too short for what copies pass through. */
static void host_memory_in_pieces(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, disk_rest);
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  for (unsigned i = 0; i < 2; i++) {
    for (uint64_t bytes = 0; bytes <= 42 * MIB; bytes += 2 * MIB)
      assert_int_equal(gap__tier_reserve_host(s.tier, 0, bytes), 0);
    assert_int_equal(tier_try_sleep(&s, "weights", i ? GAP_SLEEP_DISK : 0), 0);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    look(&b, 1);
  }
  give_blocks(&s, &b);
  tier_try_close(&s);
}

/* A machine that has 4 MiB less each time it is looked at: a pipe that has room for one answer. */
enum { ANSWER_BYTES = 4096 };
struct shrinking {
  char root[40], proc[64], path[80];
  int pipe;
  atomic_bool over;
};
static void *answer(void *arg) {
  struct shrinking *m = arg;
  unsigned left_mib = 56; /* enough at first */
  for (char text[ANSWER_BYTES]; !atomic_load(&m->over); left_mib -= left_mib > 20 ? 4 : 0) {
    memset(text, '\n', sizeof text);
    text[snprintf(text, sizeof text, "MemAvailable: %u kB", left_mib * 1024)] = '\n';
    if (write(m->pipe, text, sizeof text) != sizeof text) break;
  }
  return NULL;
}

static void a_machine_that_fills(void **state) {
  (void)state;
  struct shrinking m = {.root = "/tmp/gapless-tier-XXXXXX"};
  pthread_t thread;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  assert_non_null(mkdtemp(m.root));
  snprintf(m.proc, sizeof m.proc, "%s/proc", m.root);
  snprintf(m.path, sizeof m.path, "%s/meminfo", m.proc);
  assert_int_equal(mkdir(m.proc, 0700) | mkfifo(m.path, 0600), 0);
  snprintf(s.tier->conf.disk, sizeof s.tier->conf.disk, "%s", folder);
  s.tier->conf.host = true;
  s.tier->allowance.root = m.root;
  m.pipe = open(m.path, O_RDWR | O_CLOEXEC);
  assert_true(fcntl(m.pipe, F_SETPIPE_SZ, ANSWER_BYTES) >= ANSWER_BYTES);
  assert_int_equal(pthread_create(&thread, NULL, answer, &m), 0);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  atomic_store(&m.over, true);
  s.tier->allowance.root = "";
  char last[ANSWER_BYTES];
  assert_int_equal(read(m.pipe, last, sizeof last), sizeof last); /* and the thread may go on */
  pthread_join(thread, NULL);
  close(m.pipe);
  assert_true(tier_try_figures(&s).disk_used_bytes > 0);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  assert_int_equal(unlink(m.path) | rmdir(m.proc) | rmdir(m.root), 0);
  give_blocks(&s, &b);
  tier_try_close(&s);
}

static void no_such_folder(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "disk=/nowhere/at/all:1G");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 4 * MIB);
  tier_try_fill(a, 4 * MIB, 1);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), GAP_EIO);
  assert_true(tier_try_said(&s, "/nowhere/at/all: no file can be made there"));
  assert_true(tier_try_filled(a, 4 * MIB, 1));
  try_give(&s.t, a);
  tier_try_close(&s);
}

/* ---- corruption ---- */

/* Any bit of what was saved, in host memory or in the file: waking says where, and is possible once the bit is right again. */
static void flipped_bits(const char *tiers) {
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  struct tier_device *d = &s.tier->devices[0];
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  uint64_t held = try_held(&s.t), seed = 5;
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_true(d->image.count > 2);
  unsigned char *block = aligned_alloc(4096, 4096);
  for (uint32_t i = 0; i < d->image.count; i += 4) {
    const struct gap__piece *piece = &d->image.pieces[i];
    uint64_t at = try_random(&seed, gap__piece_bytes(piece)), base = piece->disk * GAP__DISK_UNIT + (at & ~4095ull);
    for (int wrong = 1; wrong >= 0; wrong--) {
      if (piece->host) {
        piece->host[at] ^= 0x10;
      } else {
        assert_int_equal(pread(d->disk.file, block, 4096, (off_t)base), 4096);
        block[at & 4095] ^= 0x10;
        assert_int_equal(pwrite(d->disk.file, block, 4096, (off_t)base), 4096);
      }
      if (!wrong) break;
      assert_int_equal(tier_try_wake(&s, "weights", 0), GAP_EIO);
      assert_true(tier_try_said(&s, "its checksum is not what it was"));
      assert_true(tier_try_said(&s, piece->host ? "in host memory" : "in the file"));
      assert_true(tier_try_figures(&s).asleep_bytes > 41 * MIB);
    }
  }
  free(block);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  look(&b, 1);
  assert_int_equal(try_held(&s.t), held);
  give_blocks(&s, &b);
  tier_try_close(&s);
}
static void flipped_bits_in_host_memory(void **state) {
  (void)state;
  flipped_bits("");
}
static void flipped_bits_on_disk(void **state) {
  (void)state;
  flipped_bits(disk_only);
}

/* The block that was damaged can be given up: the others wake. */
static void giving_up_a_block(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB), b = try_get_pool(&s.t, STREAM_A, pool, 10 * MIB);
  tier_try_fill(a, 10 * MIB, 1);
  tier_try_fill(b, 10 * MIB, 2);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  struct gap__image *image = &s.tier->devices[0].image;
  for (uint32_t i = 0; i < image->count; i++)
    if (image->pieces[i].addr >= a && image->pieces[i].addr < a + 10 * MIB) image->pieces[i].host[77] ^= 1;
  assert_int_equal(tier_try_wake(&s, "weights", 0), GAP_EIO);
  try_give(&s.t, a);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  assert_true(tier_try_filled(b, 10 * MIB, 2));
  try_give(&s.t, b);
  tier_try_close(&s);
}

static void a_torn_file(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, disk_only);
  struct tier_device *d = &s.tier->devices[0];
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 30 * MIB);
  tier_try_fill(a, 30 * MIB, 1);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_int_equal(ftruncate(d->disk.file, 20 * MIB), 0);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tier_try_wake(&s, "weights", 0), GAP_EIO);
    assert_true(tier_try_said(&s, "the file ends where it should not"));
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 30 * MIB);
  }
  try_give(&s.t, a); /* given up */
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  assert_int_equal(tier_try_figures(&s).asleep_bytes, 0);
  assert_int_equal(tier_try_figures(&s).disk_used_bytes, 0);
  tier_try_close(&s);
}

/* ---- ends ---- */

/* A pool is given up while it sleeps, with what was saved; or awake, with a copy that was kept. */
static void pools_that_are_gone(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  for (int kept = 0; kept < 2; kept++) {
    gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
    struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    if (kept) assert_int_equal(tier_try_wake(&s, "weights", GAP_WAKE_KEEP), 0);
    assert_true(tier_try_figures(&s).host_used_bytes > 41 * MIB);
    give_blocks(&s, &b);
    assert_int_equal(gap__heap_pool_release(s.t.heap, 0, pool), 0);
    try_check(&s.t);
    assert_int_equal(gap__tier_reserve_host(s.tier, 0, 0), 0);
    try_check(&s.t);
    gap_tiers now = tier_try_figures(&s);
    assert_true(now.host_used_bytes == 0 && now.host_locked_bytes == 0 && now.asleep_bytes == 0);
  }
  tier_try_close(&s);
}

/* A heap that ends with memory asleep, in host memory and on disk. */
static void ends_asleep(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct tier_try s = tier_try_open(CARD, QUIET, i ? disk_rest : "");
    gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
    get_blocks(&s, STREAM_A, pool, 1);
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    gap__tier_destroy(s.tier);
    gap__heap_destroy(s.t.heap);
  }
}

/* What was queued before is waited for: a copy that still runs is part of what is saved. */
static void queued_work(void **state) {
  (void)state;
  struct tier_try s =
      tier_try_on(try_host(&(struct gap__host_params){.total_bytes = CARD, .manual = true}, QUIET, GAP__MAKER_OFF), "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get_pool(&s.t, STREAM_A, pool, 8 * MIB);
  assert_int_equal(gap__host_fill(s.t.dev, a, 8 * MIB, 0x1234567812345678, STREAM_B), 0);
  assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
  assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
  assert_int_equal(gap__host_expect(s.t.dev, a, 8 * MIB, 0x1234567812345678, STREAM_A), 0);
  gap__host_run_all(s.t.dev);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  try_give(&s.t, a);
  tier_try_close(&s);
}

/* Pattern 19 of public reports, at a thousandth: 8 MiB are saved and 26 dropped, a neighbour takes what is free, waking fails and changes
 * nothing, the neighbour leaves, waking works.  What is held and what host memory has is the same after each of 50 cycles. */
static void sleep_neighbour_wake(void **state) {
  (void)state;
  char card[96];
  snprintf(card, sizeof card, "%s/card", folder);
  struct gap__host_params params = {.total_bytes = 40 * MIB, .card = card};
  struct tier_try s = tier_try_on(try_host(&params, QUIET, GAP__MAKER_OFF), "");
  struct try neighbour = try_host(&params, QUIET, GAP__MAKER_OFF);
  gap_pool_id saved = tier_try_pool(&s, GAP_POOL_SHARED, "weights"), dropped = tier_try_pool(&s, GAP_POOL_SHARED, "kv");
  gap_addr a = try_get_pool(&s.t, STREAM_A, saved, 8 * MIB), b = try_get_pool(&s.t, STREAM_A, dropped, 26 * MIB);
  tier_try_fill(a, 8 * MIB, 19);
  for (int cycle = 0; cycle < 50; cycle++) {
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    assert_int_equal(tier_try_sleep(&s, "kv", GAP_SLEEP_DROP), 0);
    assert_int_equal(try_held(&s.t), 0);
    gap_addr theirs = try_get(&neighbour, STREAM_A, 34 * MIB);
    assert_int_equal(tier_try_wake(&s, NULL, 0), GAP_ENOMEM);
    assert_int_equal(try_held(&s.t), 0);
    assert_int_equal(tier_try_figures(&s).asleep_bytes, 34 * MIB);
    try_give(&neighbour, theirs);
    try_trim(&neighbour);
    assert_int_equal(tier_try_wake(&s, NULL, 0), 0);
    assert_true(tier_try_filled(a, 8 * MIB, 19));
    tier_try_fill(b, MIB, (uint64_t)cycle);
    assert_int_equal(try_held(&s.t), 34 * MIB);
    assert_int_equal(tier_try_figures(&s).host_locked_bytes, 8 * MIB);
    assert_int_equal(tier_try_figures(&s).host_used_bytes, 0);
  }
  try_give(&s.t, a);
  try_give(&s.t, b);
  try_end(&neighbour);
  tier_try_close(&s);
  remove(card);
}

/* The driver's own rules: contexts in every thread that pins, capture modes, what is freed. */
static void through_the_driver(void **state) {
  (void)state;
  struct gap__dev *dev;
  fake_cuda_reset(&(struct fake_cuda_settings){.total_bytes = 512 * MIB});
  assert_int_equal(gap__cuda_create(0, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &dev), 0);
  struct tier_try s = tier_try_on(try_on(dev, QUIET, GAP__MAKER_OFF), disk_rest);
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  assert_int_equal(gap__tier_reserve_host(s.tier, 0, 42 * MIB), 0);
  assert_int_equal(gap__tier_reserve_host(s.tier, 0, 0), 0);
  struct blocks b = get_blocks(&s, 0, pool, 1);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(tier_try_sleep(&s, "weights", round == 2 ? GAP_SLEEP_DISK : 0), 0);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    look(&b, 1);
  }
  give_blocks(&s, &b);
  tier_try_close(&s);
  assert_int_equal(fake_cuda_wrong(), 0);
}

/* ---- threads ---- */

struct churn {
  struct tier_try *s;
  gap_pool_id pool;
  gap_stream stream;
  _Atomic bool stop;
  _Atomic int rounds;
};

/* In the default pool, and in one that may be asleep. */
static void *churn(void *arg) {
  struct churn *c = arg;
  uint64_t seed = c->stream;
  while (!atomic_load(&c->stop)) {
    gap_addr at[8] = {0};
    for (unsigned i = 0; i < 8; i++) {
      gap_pool_id pool = i % 2 ? c->pool : DEFAULT;
      uint64_t bytes = try_log_uniform(&seed, 512, 3 * MIB);
      int rc = gap__heap_alloc(c->s->t.heap, 0, c->stream, pool, bytes, &at[i]);
      if (rc) at[i] = 0;
      if (rc && rc != GAP_ESTATE && rc != GAP_ENOMEM) abort();
    }
    for (unsigned i = 0; i < 8; i++)
      if (at[i] && gap__heap_free(c->s->t.heap, at[i])) abort();
    atomic_fetch_add(&c->rounds, 1);
  }
  return NULL;
}

static void beside_threads(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, "reserve:0", "");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  struct blocks b = get_blocks(&s, STREAM_A, pool, 1);
  struct churn c[2] = {{.s = &s, .pool = pool, .stream = STREAM_A}, {.s = &s, .pool = pool, .stream = STREAM_B}};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, &c[i]), 0);
  for (int round = 0; round < 6 || atomic_load(&c[0].rounds) < 20 || atomic_load(&c[1].rounds) < 20; round++) {
    uint64_t freed;
    assert_int_equal(gap__tier_sleep(s.tier, 0, "weights", 0, &freed), 0);
    usleep(1000);
    assert_int_equal(gap__tier_wake(s.tier, 0, "weights", 0), 0);
    look(&b, 1);
  }
  for (int i = 0; i < 2; i++) atomic_store(&c[i].stop, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  try_check(&s.t);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  give_blocks(&s, &b);
  tier_try_close(&s);
}

struct sleeper {
  struct tier_try *s;
  const char *tag;
  struct blocks b;
  uint64_t seed;
  unsigned flags;
  int errors;
};

static void *sleep_and_wake(void *arg) {
  struct sleeper *me = arg;
  for (int round = 0; round < 5; round++) {
    uint64_t freed;
    me->errors += gap__tier_sleep(me->s->tier, 0, me->tag, me->flags, &freed) != 0;
    me->errors += gap__tier_wake(me->s->tier, 0, me->tag, 0) != 0;
    for (unsigned i = 0; i < BLOCKS; i++)
      if (me->b.at[i]) me->errors += !tier_try_filled(me->b.at[i], sizes[i], me->seed + i);
  }
  return NULL;
}

/* One pool falls asleep while another wakes; a third goes over the disk. */
static void both_ways(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, disk_rest);
  s.tier->allowance.most_bytes = 0;
  struct sleeper sleepers[3] = {{.tag = "a"}, {.tag = "b"}, {.tag = "c", .flags = GAP_SLEEP_DISK}};
  pthread_t threads[3];
  for (unsigned i = 0; i < 3; i++) {
    sleepers[i].s = &s;
    sleepers[i].seed = 1000 * i;
    sleepers[i].b = get_blocks(&s, STREAM_A, tier_try_pool(&s, GAP_POOL_SHARED, sleepers[i].tag), 1000 * i);
  }
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, sleep_and_wake, &sleepers[i]), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  try_check(&s.t);
  gap_tiers now = tier_try_figures(&s);
  assert_true(now.host_used_bytes == 0 && now.disk_used_bytes == 0 && now.asleep_bytes == 0);
  assert_true(now.sleeps == 15 && now.wakes == 15);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(sleepers[i].errors, 0);
    give_blocks(&s, &sleepers[i].b);
  }
  tier_try_close(&s);
}

/* Everybody at one pool: one after the other. */
static void at_one_pool(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  struct sleeper me = {.s = &s, .tag = "a"};
  me.b = get_blocks(&s, STREAM_A, tier_try_pool(&s, GAP_POOL_SHARED, "a"), 0);
  struct sleeper all[3] = {me, me, me};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++)
    for (unsigned k = 0; k < BLOCKS; k++) all[i].b.at[k] = 0; /* it may be asleep when one looks */
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, sleep_and_wake, &all[i]), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  try_check(&s.t);
  assert_int_equal(tier_try_figures(&s).asleep_bytes, 0);
  look(&me.b, 0);
  for (int i = 0; i < 3; i++) assert_int_equal(all[i].errors, 0);
  give_blocks(&s, &me.b);
  tier_try_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shared_pools),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(in_size_classes),
      cmocka_unit_test(in_large_chunks),
      cmocka_unit_test(on_sim),
      cmocka_unit_test(arguments),
      cmocka_unit_test(long_tags),
      cmocka_unit_test(while_asleep),
      cmocka_unit_test(room_for_others),
      cmocka_unit_test(known_memory_stays),
      cmocka_unit_test(idle_pages_of_a_graph),
      cmocka_unit_test(two_addresses_of_a_graph),
      cmocka_unit_test(unchanged),
      cmocka_unit_test(dropped),
      cmocka_unit_test(block_by_block),
      cmocka_unit_test(neighbours_are_joined),
      cmocka_unit_test(what_was_trapped_is_free),
      cmocka_unit_test(disk),
      cmocka_unit_test(the_rest_to_disk),
      cmocka_unit_test(disk_by_choice),
      cmocka_unit_test(no_room_to_sleep),
      cmocka_unit_test(a_full_disk),
      cmocka_unit_test(host_memory_in_pieces),
      cmocka_unit_test(a_machine_that_fills),
      cmocka_unit_test(no_such_folder),
      cmocka_unit_test(flipped_bits_in_host_memory),
      cmocka_unit_test(flipped_bits_on_disk),
      cmocka_unit_test(giving_up_a_block),
      cmocka_unit_test(a_torn_file),
      cmocka_unit_test(pools_that_are_gone),
      cmocka_unit_test(ends_asleep),
      cmocka_unit_test(queued_work),
      cmocka_unit_test(sleep_neighbour_wake),
      cmocka_unit_test(through_the_driver),
      cmocka_unit_test(beside_threads),
      cmocka_unit_test(both_ways),
      cmocka_unit_test(at_one_pool),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
