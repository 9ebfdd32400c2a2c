/* Blocks by address, their bins and their places, against plain models. */
#include "core/arena.h"
#include "core/bin.h"
#include "core/heap_state.h"
#include "core/place.h"
#include "support/gapless_try.h"

enum { SLOTS = 60 };

struct slot {
  gap_addr addr;
  uint64_t bytes;
};

static struct gap__arena *arena_of(struct try *t, int kind) { return &try_state(t)->lanes->arena[kind]; }

/* ---- splitting, merging, looking up ---- */

struct seen {
  const struct slot *slots;
  gap_addr end;
  int live;
};

static int see(void *arg, const struct gap__block_info *info) {
  struct seen *seen = arg;
  assert_true(info->addr >= seen->end);
  seen->end = info->addr + info->bytes;
  if (info->state != GAP__BLOCK_LIVE) return 0;
  seen->live++;
  for (int i = 0; i < SLOTS; i++)
    if (seen->slots[i].addr == info->addr) {
      assert_int_equal(info->bytes, (seen->slots[i].bytes + 511) / 512 * 512);
      assert_int_equal(info->requested, seen->slots[i].bytes);
      return 0;
    }
  fail_msg("a live block that nobody asked for");
  return 0;
}

static void compare(struct try *t, const struct slot *slots) {
  struct seen seen = {.slots = slots};
  int live = 0;
  for (int i = 0; i < SLOTS; i++) live += slots[i].addr != 0;
  assert_int_equal(gap__heap_walk(t->heap, 0, see, &seen), 0);
  assert_int_equal(seen.live, live);
  try_check(t);
}

/* Inside a block nothing can be freed; its start can. */
static void probe(struct try *t, const struct slot *s, uint64_t *seed) {
  for (int i = 0; i < 4; i++) {
    uint64_t inside = try_random(seed, s->bytes);
    if (inside) assert_int_equal(gap__heap_free(t->heap, s->addr + inside), GAP_EFREED);
  }
}

static void against_a_model(void **state) {
  (void)state;
  for (uint64_t round = 1; round <= 6; round++) {
    uint64_t seed = round;
    struct slot slots[SLOTS] = {0};
    struct gap__sim_params card = {.total_bytes = GIB, .window_max_bytes = 256 * MIB};
    struct try t = try_sim_with(&card, round % 2 ? "max_memory:200MiB" : "reserve:0", GAP__MAKER_OFF);
    for (int i = 0; i < 4000; i++) {
      struct slot *s = &slots[try_random(&seed, SLOTS)];
      if (s->addr) {
        probe(&t, s, &seed);
        try_give(&t, s->addr);
        s->addr = 0;
      } else {
        s->bytes = try_log_uniform(&seed, 1, 6 * MIB);
        s->addr = try_get(&t, 0, s->bytes);
      }
      if (i % 100 == 0) compare(&t, slots);
    }
    for (int i = 0; i < SLOTS; i++) try_give(&t, slots[i].addr), slots[i].addr = 0;
    compare(&t, slots);
    try_end(&t);
  }
}

/* Once all is free each range is one idle stretch and holes: neighbours have merged. */
static void all_merges(void **state) {
  (void)state;
  struct try t = try_sim("reserve:0");
  gap_addr at[200];
  for (int i = 0; i < 200; i++) at[i] = try_get(&t, 0, (uint64_t)(i + 1) * 20000);
  for (int i = 0; i < 200; i += 3) try_give(&t, at[i]);
  for (int i = 1; i < 200; i += 3) try_give(&t, at[i]);
  for (int i = 2; i < 200; i += 3) try_give(&t, at[i]);
  assert_int_equal(try_stats(&t)->idle_extents, 2); /* small, large */
  assert_int_equal(try_stats(&t)->idle_stuck_bytes, 0);
  try_end(&t);
}

/* ---- bins ---- */

/* Extents of falling and rising lengths between live ones: the shortest that fits serves. */
static void best_fit(void **state) {
  (void)state;
  static const uint64_t kib[] = {700, 300, 1500, 512, 900, 200, 1100, 640};
  enum { COUNT = sizeof kib / sizeof *kib };
  struct try t = try_sim("max_memory:10MiB");
  gap_addr at[COUNT];
  for (int i = 0; i < COUNT; i++) at[i] = try_get(&t, 0, kib[i] * KIB), try_get(&t, 0, 96 * KIB);
  for (int i = 0; i < COUNT; i++) try_give(&t, at[i]);
  try_stats(&t); /* nothing is kept whole any more */
  static const struct {
    uint64_t ask;
    int from;
  } asks[] = {{250, 1}, {600, 7}, {660, 0}, {190, 5}, {800, 4}, {1001, 6}, {1200, 2}, {512, 3}};
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
    assert_true(try_get(&t, 0, asks[i].ask * KIB) == at[asks[i].from]);
  try_end(&t);
}

/* A whole number of pages starts at a page border, whatever lies about. */
static void page_border_rule(void **state) {
  (void)state;
  uint64_t seed = 8;
  struct try t = try_sim("max_memory:300MiB");
  gap_addr at[40] = {0};
  for (int i = 0; i < 4000; i++) {
    gap_addr *slot = &at[try_random(&seed, 40)];
    try_give(&t, *slot);
    uint64_t bytes = try_random(&seed, 2) ? (try_random(&seed, 3) + 1) * PAGE : try_log_uniform(&seed, 512, 5 * MIB);
    *slot = try_get(&t, 0, bytes);
    if (bytes % PAGE == 0) assert_int_equal(*slot % PAGE, 0);
  }
  try_end(&t);
}

/* The bins against a search of everything: what is found fits; of exact bins it is the shortest. */
static void find_against_all(void **state) {
  (void)state;
  uint64_t seed = 21;
  struct try t = try_sim("reserve:0");
  gap_addr at[150] = {0};
  for (int i = 0; i < 3000; i++) {
    gap_addr *slot = &at[try_random(&seed, 150)];
    try_give(&t, *slot);
    *slot = 0;
    if (try_random(&seed, 3)) *slot = try_get(&t, 0, try_log_uniform(&seed, 70 * KIB, 6 * MIB));
    if (i % 10) continue;
    try_stats(&t);
    struct gap__arena *arena = arena_of(&t, GAP__ARENA_LARGE);
    uint32_t units = (uint32_t)try_log_uniform(&seed, 129, 12000), shortest = UINT32_MAX;
    for (uint32_t bin = 0; bin < GAP__BIN_COUNT; bin++)
      for (uint32_t b = arena->bins.head[bin]; b; b = gap__block(arena->lane, b)->link_next) {
        uint32_t len = gap__block(arena->lane, b)->len;
        if (len >= units && len < shortest) shortest = len;
      }
    uint32_t found = gap__bin_find(arena, units, false);
    assert_int_equal(found != 0, shortest != UINT32_MAX);
    if (!found) continue;
    uint32_t len = gap__block(arena->lane, found)->len;
    assert_true(len >= units);
    if (shortest < GAP__BIN_EXACT) assert_int_equal(len, shortest);
    else assert_true(len <= shortest + shortest / 32 + 1); /* a bin spans a 64th of a power of two */
  }
  try_end(&t);
}

/* ---- places ---- */

/* Missing pages of [off, off + units), or UINT32_MAX where something is in use. */
static uint32_t missing_at(const struct gap__range *range, uint32_t off, uint32_t units) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t missing = 0, counted = 0;
  for (uint32_t i = gap__block_covering(range, off); i && gap__block(lane, i)->off < off + units;
       i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->state != GAP__IDLE && b->state != GAP__HOLE) return UINT32_MAX;
    uint32_t from = b->off > off ? b->off : off, to = b->off + b->len < off + units ? b->off + b->len : off + units;
    if (b->state == GAP__HOLE) missing += gap__page_up(to) - gap__page_of(from);
    counted += to - from;
  }
  return counted == units ? missing : UINT32_MAX;
}

static uint32_t fewest_missing(const struct gap__policy_state *s, const struct gap__arena *arena, uint32_t units) {
  uint32_t fewest = UINT32_MAX;
  for (uint32_t r = 1; r <= s->range_count; r++) {
    const struct gap__range *range = gap__range_at(s, r);
    if (range->arena != arena) continue;
    for (uint32_t page = 0; (page << GAP__PAGE_UNIT_SHIFT) + units <= range->pages << GAP__PAGE_UNIT_SHIFT; page++) {
      uint32_t missing = missing_at(range, page << GAP__PAGE_UNIT_SHIFT, units);
      if (missing < fewest) fewest = missing;
    }
  }
  return fewest;
}

/* The place found needs as few pages as any place at a page border. */
static void place_against_all(void **state) {
  (void)state;
  uint64_t seed = 77;
  struct gap__sim_params card = {.total_bytes = GIB, .window_max_bytes = 128 * MIB};
  struct try t = try_sim_with(&card, "reserve:0", GAP__MAKER_OFF);
  gap_addr at[30] = {0};
  int compared = 0;
  try_get(&t, 0, 3 * PAGE);
  for (int i = 0; i < 1500; i++) {
    gap_addr *slot = &at[try_random(&seed, 30)];
    try_give(&t, *slot);
    *slot = try_random(&seed, 3) ? try_get(&t, 0, try_log_uniform(&seed, 70 * KIB, 9 * MIB)) : 0;
    if (i % 9 == 0) try_trim(&t); /* holes in the middle, without lent mappings */
    struct gap__arena *arena = arena_of(&t, GAP__ARENA_LARGE);
    bool lent = false;
    for (uint32_t r = 1; r <= try_state(&t)->range_count; r++) lent |= gap__range_at(try_state(&t), r)->lent_pages != 0;
    if (i % 5 || lent) continue;
    try_stats(&t);
    uint32_t pages = (uint32_t)try_random(&seed, 8) + 1, units = pages << GAP__PAGE_UNIT_SHIFT;
    struct gap__spot spot;
    gap__place_search(arena, units, true, GAP__PLACE_FEW_MISSING, &spot);
    if (!spot.range) continue; /* idle blocks without a hole are not places: they are fits */
    uint32_t fewest = fewest_missing(try_state(&t), arena, units);
    assert_int_equal(spot.off % GAP__PAGE_UNITS, 0);
    assert_int_equal(missing_at(spot.range, spot.off, units), spot.missing);
    if (!gap__bin_find(arena, units, true)) assert_int_equal(spot.missing, fewest);
    compared++;
  }
  assert_true(compared > 50);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(against_a_model),  cmocka_unit_test(all_merges),       cmocka_unit_test(best_fit),
      cmocka_unit_test(page_border_rule), cmocka_unit_test(find_against_all), cmocka_unit_test(place_against_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
