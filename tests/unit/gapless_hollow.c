/* Pages that two streams take from each other round after round: taken back at the same addresses, without the driver. */
#include "core/figures.h"
#include "support/gapless_try.h"

#define LAG_US 20000
#define CAP "max_memory:64MiB"

static struct try lagging(void) {
  return try_sim_with(&(struct gap__sim_params){.total_bytes = 4 * GIB, .lag_us = LAG_US}, CAP, GAP__MAKER_OFF);
}
static void pass(struct try *t) { gap__sim_clock_advance(t->dev, 2ull * LAG_US * 1000); }

/* Stream A has two blocks and a short one between them, then stream B wants more than what is left, then A's next one does not fit into
 * what it has in one piece. */
struct round {
  gap_addr first, wall, second, other, large;
};

static struct round play(struct try *t, bool settled) {
  struct round r = {.first = try_get(t, STREAM_A, 20 * MIB),
                    .wall = try_get(t, STREAM_A, 2 * MIB),
                    .second = try_get(t, STREAM_A, 20 * MIB)};
  try_give(t, r.first), try_give(t, r.second);
  if (settled) pass(t);
  r.other = try_get(t, STREAM_B, 40 * MIB);
  try_check(t);
  try_give(t, r.other);
  if (settled) pass(t);
  r.large = try_get(t, STREAM_A, 44 * MIB);
  try_check(t);
  try_give(t, r.large), try_give(t, r.wall);
  if (settled) pass(t);
  return r;
}

static uint64_t driver_moves(struct try *t) {
  return try_calls(t, GAP__CALL_map) + try_calls(t, GAP__CALL_unmap) + try_calls(t, GAP__CALL_set_access) +
         try_calls(t, GAP__CALL_chunk_create) + try_calls(t, GAP__CALL_chunk_release);
}

static void a_round_repeats_without_driver_calls(void **state) {
  (void)state;
  struct try t = lagging();
  struct round known = {0};
  uint64_t moves = 0;
  for (int i = 0; i < 8; i++) {
    struct round r = play(&t, true);
    if (i < 4) {
      known = r, moves = driver_moves(&t);
      continue;
    }
    assert_memory_equal(&r, &known, sizeof r);
    assert_int_equal(driver_moves(&t), moves);
  }
  assert_int_equal(try_stats(&t)->stalls, 0);
  assert_true(try_stats(&t)->pages_reclaimed_mapping >= 4 * 20);
  try_end(&t);
}

/* The other stream has not ended what it did there: this one is ordered behind, and the host waits for nothing. */
static void also_ahead_of_the_device(void **state) {
  (void)state;
  struct try t = lagging();
  for (int i = 0; i < 2; i++) {
    try_give(&t, try_get(&t, STREAM_A, 60 * MIB));
    try_give(&t, try_get(&t, STREAM_B, 6 * MIB)); /* closes the epoch of A */
    pass(&t);
    try_give(&t, try_get(&t, STREAM_B, 62 * MIB));
    if (i == 0) pass(&t);
  }
  uint64_t moves = driver_moves(&t), waits = try_calls(&t, GAP__CALL_stream_wait);
  gap_addr a = try_get(&t, STREAM_A, 60 * MIB);
  assert_int_equal(driver_moves(&t), moves);
  assert_int_equal(try_calls(&t, GAP__CALL_stream_wait), waits + 1);
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_give(&t, a);
  try_end(&t);
}

static struct gap__arena *large_arena(struct try *t, gap_stream stream) {
  for (struct gap__lane *lane = try_state(t)->lanes; lane; lane = lane->next)
    if (lane->stream == stream) return &lane->arena[GAP__ARENA_LARGE];
  return NULL;
}

struct sums {
  uint64_t mapped, segments, segment;
};

static int add(void *arg, const struct gap__block_info *info) {
  struct sums *sums = arg;
  if (info->state == GAP__BLOCK_HOLE) return 0;
  sums->mapped += info->bytes;
  if (info->segment != sums->segment) sums->segments++;
  sums->segment = info->segment;
  return 0;
}

static struct sums walk(struct try *t) {
  struct sums sums = {0};
  assert_int_equal(gap__figures_walk(try_state(t), add, &sums), 0);
  return sums;
}

/* Bare pages are nobody's memory: not in the walk, not in the figures. */
static void figures_leave_bare_pages_out(void **state) {
  (void)state;
  struct try t = lagging();
  gap_addr a = try_get(&t, STREAM_A, 40 * MIB);
  try_give(&t, a);
  pass(&t);
  gap_addr b = try_get(&t, STREAM_B, 48 * MIB);
  assert_int_equal(large_arena(&t, STREAM_A)->bare_pages, 12);
  struct sums sums = walk(&t);
  assert_int_equal(sums.mapped, try_held(&t));
  assert_int_equal(sums.segments, try_stats(&t)->segment[GAP__KIND_ALL].current);
  assert_int_equal(try_stats(&t)->idle_returnable_bytes, 16 * MIB);
  assert_int_equal(try_stats(&t)->inactive_split_bytes[GAP__KIND_ALL].current, 16 * MIB);
  try_give(&t, b);
  try_end(&t);
}

/* Giving memory back makes bare pages holes, and blocks whole. */
static void trim_folds(void **state) {
  (void)state;
  struct try t = lagging();
  play(&t, true);
  play(&t, true);
  assert_true(large_arena(&t, STREAM_A)->bare_pages > 0);
  try_trim(&t);
  assert_int_equal(try_held(&t), 0);
  assert_int_equal(large_arena(&t, STREAM_A)->bare_pages, 0);
  assert_int_equal(large_arena(&t, STREAM_A)->hollow_count, 0);
  assert_int_equal(large_arena(&t, STREAM_A)->idle_count, 0);
  try_check(&t);
  play(&t, true);
  try_end(&t);
}

/* Idle memory elsewhere does not serve a request whose best fit is bare, but other idle blocks do. */
static void mapped_blocks_serve_when_the_best_is_bare(void **state) {
  (void)state;
  struct try t = lagging();
  gap_addr a = try_get(&t, STREAM_A, 16 * MIB), wall = try_get(&t, STREAM_A, 2 * MIB),
           c = try_get(&t, STREAM_A, 24 * MIB), end = try_get(&t, STREAM_A, 2 * MIB);
  try_give(&t, a);
  pass(&t);
  gap_addr b = try_get(&t, STREAM_B, 36 * MIB); /* has all of a's pages, and is in use */
  try_give(&t, c);
  uint64_t moves = driver_moves(&t);
  gap_addr d = try_get(&t, STREAM_A, 16 * MIB);
  assert_true(d == c);
  assert_int_equal(driver_moves(&t), moves);
  try_give(&t, b), try_give(&t, d), try_give(&t, wall), try_give(&t, end);
  try_end(&t);
}

/* Without a cap memory grows rather than being moved to and fro: pages that leave make holes, as ever. */
static void not_without_a_cap(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr a = try_get(&t, STREAM_A, 40 * MIB), wall = try_get(&t, STREAM_A, 2 * MIB);
  try_give(&t, a);
  gap_addr b = try_get(&t, STREAM_A, 60 * MIB);
  assert_true(try_stats(&t)->pages_stolen > 0);
  assert_int_equal(large_arena(&t, STREAM_A)->bare_pages, 0);
  try_give(&t, b), try_give(&t, wall);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_round_repeats_without_driver_calls),
      cmocka_unit_test(also_ahead_of_the_device),
      cmocka_unit_test(figures_leave_bare_pages_out),
      cmocka_unit_test(trim_folds),
      cmocka_unit_test(mapped_blocks_serve_when_the_best_is_bare),
      cmocka_unit_test(not_without_a_cap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
