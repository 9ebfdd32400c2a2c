/* Allocation patterns distilled from public reports of fragmentation, each with what must hold: on simulated cards of the reported
 * sizes, on `host` scaled down and with contents, where the driver is short of addresses, and, where there is one, on a real card. */
#include "support/pattern.h"

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Split and pin: large temporary blocks, each leaving a smaller one that stays.  Two large ones are live at once, so that much
 * has been held; what stays after that can be given back. */
static void split_and_pin(void **state) {
  struct world w = world_begin(*state, 36 * 270 * MIB + 6 * GIB, "reserve:0");
  uint64_t large = scaled(&w, 530 * MIB), small = scaled(&w, 270 * MIB), slack = scaled(&w, 64 * MIB);
  struct piece kept[36];
  for (int i = 0; i < 36; i++) {
    struct piece t = put(&w, 0, large), u = put(&w, 0, large);
    drop(&w, &t), drop(&w, &u);
    kept[i] = put(&w, 0, small);
  }
  assert_true(held_peak(&w) <= most(36 * small, 35 * small + 2 * large) + slack);
  try_trim(&w.t);
  assert_true(held_now(&w) <= 36 * small + slack);
  struct piece z = put(&w, 0, scaled(&w, 5 * GIB));
  for (int i = 0; i < 36; i++) drop(&w, &kept[i]);
  drop(&w, &z);
  world_end(&w);
}

/* A big block, many small ones of which every third goes, the big block again: it fits beside the pages that the small ones lie
 * on, to the page. */
static void big_small_big(void **state) {
  static const uint64_t sizes[] = {16515072, 11400192, 18191360};
  struct world w = world_begin(*state, 20 * GIB, "reserve:0");
  uint64_t big = scaled(&w, 11643387904);
  struct piece small[48], b = put(&w, 0, big);
  drop(&w, &b);
  for (int i = 0; i < 48; i++) small[i] = put(&w, 0, scaled(&w, sizes[i % 3]));
  for (int i = 0; i < 48; i += 3) drop(&w, &small[i]);
  settle(&w);
  uint64_t cap = touched_bytes(&w) + big;
  try_cap(&w.t, cap);
  b = put(&w, 0, big);
  assert_true(held_now(&w) <= cap);
  for (int i = 0; i < 48; i++)
    if (small[i].at) drop(&w, &small[i]);
  drop(&w, &b);
  world_end(&w);
}

/* A comb: every second tooth goes, a block of the whole idle size comes.  Teeth are not scaled, there are fewer. */
static void comb(const struct pattern_card *card, uint64_t tooth, uint64_t count) {
  struct world w = world_begin(card, 17 * GIB / 2, "reserve:0");
  count /= w.scale;
  struct piece *at = calloc(count, sizeof *at);
  assert_non_null(at);
  for (uint64_t i = 0; i < count; i++) at[i] = put(&w, 0, tooth);
  for (uint64_t i = 0; i < count; i += 2) drop(&w, &at[i]);
  struct piece y = put(&w, 0, (count + 1) / 2 * tooth);
  for (uint64_t i = 0; i < count; i++)
    if (at[i].at) drop(&w, &at[i]);
  drop(&w, &y);
  free(at);
  world_end(&w);
}

static void combs(void **state) {
  comb(*state, 2 * MIB, 4000);
  comb(*state, 3 * MIB, 2000);
  comb(*state, 21 * MIB, 380);
}

/* A program beside us asks the driver itself. */
static void outsider(struct world *w, uint64_t bytes, gap_addr *at) {
  assert_int_equal(gap__dev_segment_alloc(w->t.dev, bytes, at), 0);
}

/* 72.7 GiB held, 53.5 of them idle in gaps of less than 1 GiB, 13.1 asked; then an outsider takes what the card has left. */
static void thirteen_from_fifty_two(void **state) {
  enum { COUNT = 75 };
  struct world w = world_begin(*state, 80 * GIB, "");
  struct piece idle[COUNT], live[COUNT];
  gap_addr outside[8];
  for (int i = 0; i < COUNT; i++) {
    idle[i] = put(&w, 0, scaled(&w, 730 * MIB));
    live[i] = put(&w, 0, scaled(&w, 263 * MIB));
  }
  for (int i = 0; i < COUNT; i++) drop(&w, &idle[i]);
  assert_true(held_now(&w) >= scaled(&w, 72 * GIB));
  settle(&w);
  struct piece g = put(&w, 0, scaled(&w, 13414 * MIB));
  for (int i = 0; i < 8; i++) outsider(&w, scaled(&w, 410 * MIB), &outside[i]);
  struct piece more = put(&w, 0, scaled(&w, 20 * GIB)); /* still from what is idle */
  for (int i = 0; i < COUNT; i++) drop(&w, &live[i]);
  drop(&w, &g), drop(&w, &more);
  for (int i = 0; i < 8; i++) assert_int_equal(gap__dev_segment_free(w.t.dev, outside[i]), 0);
  world_end(&w);
}

/* A full card of which three tenths are idle, scattered; a neighbour needs 8 MB and 6 MB. */
static void reserved_but_idle(void **state) {
  enum { COUNT = 4000 };
  struct world w = world_begin(*state, 24 * GIB, "");
  static struct piece at[COUNT];
  gap_addr outside[2];
  int count = 0;
  while (count < COUNT) {
    gap_addr addr;
    uint64_t bytes = try_log_uniform(&w.seed, scaled(&w, 4 * MIB), scaled(&w, 64 * MIB));
    if (gap__heap_alloc(w.t.heap, 0, 0, DEFAULT, bytes, &addr)) break;
    at[count] = (struct piece){.at = addr, .bytes = bytes};
    stamp(&w, &at[count++]);
  }
  assert_true(count > 100 && count < COUNT);
  for (int i = 0; i < count; i++)
    if (try_random(&w.seed, 10) < 3) drop(&w, &at[i]);
  int64_t stalls = try_stats(&w.t)->stalls, stall_us = w.t.stats.stall_us;
  outsider(&w, 8388608, &outside[0]);
  outsider(&w, 6291456, &outside[1]);
  struct piece after = put(&w, 0, scaled(&w, 64 * MIB));
  assert_true(try_stats(&w.t)->stalls <= stalls + 1 && w.t.stats.stall_us <= stall_us + 50000);
  drop(&w, &after);
  for (int i = 0; i < count; i++)
    if (at[i].at) drop(&w, &at[i]);
  for (int i = 0; i < 2; i++) assert_int_equal(gap__dev_segment_free(w.t.dev, outside[i]), 0);
  assert_int_equal(try_stats(&w.t)->num_ooms, 1); /* the one that said that the card is full */
  assert_int_equal(gap__heap_reset_accumulated(w.t.heap, 0), 0);
  world_end(&w);
}

/* A cache that grows by a little each step: two copies at most; once it turns over the driver is called where a page more is
 * needed, in fewer than a tenth of the steps, and not at all when it has stopped growing. */
static bool step_calls_driver(struct world *w, struct piece *now, uint64_t bytes) {
  uint64_t before = memory_calls(w);
  struct piece next = put(w, 0, bytes);
  drop(w, now);
  *now = next;
  settle(w);
  return memory_calls(w) > before;
}

static void growing_by_a_little(void **state) {
  struct world w = world_begin(*state, 80 * GIB, "");
  uint64_t start = scaled(&w, 100 * MIB), more = 64 * KIB / w.scale, bytes = start, with_calls = 0;
  struct piece now = put(&w, 0, start);
  for (uint64_t i = 1; i <= 2000; i++) {
    bytes = start + i * more;
    bool called = step_calls_driver(&w, &now, bytes);
    with_calls += i > 50 && called;
  }
  assert_true(with_calls < 195);
  assert_true(held_peak(&w) <= 2 * bytes + scaled(&w, 64 * MIB));
  step_calls_driver(&w, &now, bytes);
  for (int i = 0; i < 50; i++) assert_false(step_calls_driver(&w, &now, bytes));
  drop(&w, &now);
  world_end(&w);
}

/* Batches of random shapes: what is held follows what is live. */
static void random_batches(void **state) {
  static const uint64_t shapes[][2] = {{7, 621}, {23, 193}, {6, 754}, {7, 632}, {8, 552}, {5, 884}, {20, 1052}};
  enum { LAYERS = 60 };
  struct world w = world_begin(*state, 80 * GIB, "");
  struct piece at[LAYERS];
  for (int step = 0; step < (w.real ? 100 : 500); step++) {
    const uint64_t *shape = shapes[try_random(&w.seed, 7)];
    for (int i = 0; i < LAYERS; i++) at[i] = put(&w, 0, shape[0] * shape[1] * 80 * 4 << try_random(&w.seed, 5));
    for (int i = LAYERS; i-- > 0;) drop(&w, &at[i]);
    settle(&w);
  }
  double ratio = (double)held_now(&w) / (double)try_stats(&w.t)->live_bytes_peak;
  assert_true(ratio <= 1.05);
  world_end(&w);
}

/* Checkpoints: 40 GiB live, a tenth of it new in each step; every fifth step 3.66 GiB more in 200 pieces.  After the first one
 * nothing grows; with trim_after_ms what is held comes back to what it was. */
static void step_with_checkpoint(struct world *w, bool checkpoint) {
  enum { PIECES = 200, CHURN = 64 };
  struct piece gathered[PIECES], churn[CHURN];
  for (int i = 0; i < CHURN; i++) churn[i] = put(w, 0, scaled(w, (uint64_t)(32 + 64 * (i & 1)) * MIB));
  for (int i = 0; i < PIECES && checkpoint; i++) gathered[i] = put(w, 0, scaled(w, 19649000));
  for (int i = 0; i < PIECES && checkpoint; i++) drop(w, &gathered[i]);
  for (int i = 0; i < CHURN; i++) drop(w, &churn[i]);
  for (int quarter = 0; quarter < 4; quarter++) {
    if (w->device->pass) w->device->pass(w, 250000000);
    gap__heap_tick(w->t.heap, 0);
  }
}

static void checkpoints(const struct pattern_card *card, const char *conf, bool comes_back) {
  struct world w = world_begin(card, 80 * GIB, conf);
  struct piece *live = calloc(360, sizeof *live);
  uint64_t first = 0, before = 0;
  assert_non_null(live);
  for (int i = 0; i < 360; i++) live[i] = put(&w, 0, scaled(&w, 100 * MIB));
  for (int step = 1; step <= 100; step++) {
    step_with_checkpoint(&w, step % 5 == 0);
    if (step == 4) before = held_now(&w);
    if (step == 5) first = held_peak(&w);
    if (step % 5 == 4 && comes_back) assert_true(held_now(&w) <= before + scaled(&w, GIB));
  }
  assert_true(held_peak(&w) <= first + (comes_back ? scaled(&w, 64 * MIB) : 0));
  for (int i = 0; i < 360; i++) drop(&w, &live[i]);
  free(live);
  world_end(&w);
}

static void checkpoint_every_fifth_step(void **state) {
  const struct pattern_card *card = *state;
  checkpoints(card, "", false);
  if (card->device->pass) checkpoints(card, "trim_after_ms:1000,page_maker:False", true); /* others have real time */
}

/* The next of 32 streams each time: what one stream left serves the next.  Without a cap a little more is held: grow_limit,
 * a tenth since the same pages are stolen again and again, and a twentieth before one stream is ordered behind another.  Where
 * addresses run out each stream's driver allocations are its own: only a cap, or a full card, makes them serve others. */
static void new_stream_each_time(const struct pattern_card *card, bool capped, uint64_t permille) {
  struct world w = world_begin(card, 80 * GIB, "");
  uint64_t gib = scaled(&w, GIB), limit = 2 * gib * permille / 1000 + scaled(&w, 64 * MIB);
  if (capped) try_cap(&w.t, limit);
  for (int i = 0; i < 40; i++) {
    gap_stream s = (gap_stream)(i % 32 + 1) * 64;
    struct piece p = put(&w, s, gib), q = put(&w, s, gib);
    settle(&w); /* the stream was synchronised */
    drop(&w, &p), drop(&w, &q);
    settle(&w);
    if (capped || !w.card->addresses) assert_true(held_now(&w) <= limit);
  }
  assert_true(w.card->addresses || try_stats(&w.t)->stalls == 0);
  world_end(&w);
}

static void new_streams(void **state) {
  new_stream_each_time(*state, false, 1213);
  new_stream_each_time(*state, true, 1000);
}

/* A pending free on a full card: the next request waits for exactly that, at its first attempt, and never before the other
 * stream is done with the block. */
static void pending_free_on_a_full_card(void **state) {
  struct world w = world_with(*state, 80 * GIB, 1000 * PATTERN_DELAY_MS, true, "reserve:0");
  struct piece a = put(&w, STREAM_A, scaled(&w, 79 * GIB));
  settle(&w);
  a.stream = here(&w, STREAM_B);
  assert_int_equal(gap__heap_record_stream(w.t.heap, a.at, a.stream), 0);
  if (w.device->delay) w.device->delay(&w, a.stream);
  look(&w, &a); /* the long kernel: on the other stream */
  try_give(&w.t, a.at);
  int64_t waited = try_stats(&w.t)->rung_count[GAP__RUNG_wait];
  struct piece b = put(&w, STREAM_A, scaled(&w, 79 * GIB));
  assert_int_equal(try_stats(&w.t)->rung_count[GAP__RUNG_wait] + w.t.stats.stalls > waited, 1);
  assert_true(!w.device->delay || w.t.stats.stall_us >= 900 * PATTERN_DELAY_MS);
  settle(&w);
  drop(&w, &b);
  world_end(&w);
}

/* The host runs far ahead: nothing is synchronised, nothing has completed. */
static void host_runs_ahead(void **state) {
  struct world w = world_with(*state, 80 * GIB, 1000000000, true, "");
  struct piece kept[210];
  if (w.real && w.device->delay) w.device->delay(&w, here(&w, STREAM_A));
  for (int i = 0; i < 70; i++) {
    struct piece big = put(&w, STREAM_A, scaled(&w, (6 + try_random(&w.seed, 8)) * GIB));
    for (int j = 0; j < 3; j++) kept[3 * i + j] = put(&w, STREAM_A, scaled(&w, (1 + try_random(&w.seed, 8)) * MIB));
    drop(&w, &big);
  }
  assert_int_equal(try_stats(&w.t)->stalls, 0);
  for (int i = 0; i < 210; i++) drop(&w, &kept[i]);
  world_end(&w);
}

/* 60 GiB, then 70 on a card of 80: in the default pool, in one pool, from one into the other.  What idles in a private pool serves
 * nobody else until that is released; in a shared one it serves all. */
static void open_pool(struct world *w, gap_pool_id pool, unsigned flags) {
  struct gap__pool_about about = {.id = pool, .flags = flags};
  if (pool.first) assert_int_equal(gap__heap_pool_adopt(w->t.heap, 0, &about), 0);
}

static void sixty_and_seventy(const struct pattern_card *card, gap_pool_id first, gap_pool_id second, unsigned flags) {
  struct world w = world_begin(card, 80 * GIB, "");
  bool other = first.first != second.first;
  open_pool(&w, first, flags);
  if (other) open_pool(&w, second, flags);
  struct piece a = put_in(&w, 0, first, scaled(&w, 60 * GIB));
  drop(&w, &a);
  if (flags == GAP_POOL_PRIVATE && first.first && other)
    assert_int_equal(gap__heap_pool_release(w.t.heap, 0, first), 0);
  struct piece b = put_in(&w, 0, second, scaled(&w, 70 * GIB));
  drop(&w, &b);
  world_end(&w);
}

/* Driver allocations of a private pool stay, as PyTorch's do: they cannot become larger ones. */
static bool would_fit(const struct pattern_card *card, gap_pool_id first, gap_pool_id second, unsigned flags) {
  return !card->window_max || flags != GAP_POOL_PRIVATE || !first.first || first.first != second.first;
}

static void sixty_then_seventy(void **state) {
  gap_pool_id none = {0, 0}, pool = {1, 0}, other = {2, 0};
  gap_pool_id pairs[][2] = {{none, none}, {pool, pool}, {none, pool}, {pool, none}, {pool, other}};
  unsigned flags[] = {GAP_POOL_PRIVATE, GAP_POOL_SHARED};
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < 2; j++)
      if (would_fit(*state, pairs[i][0], pairs[i][1], flags[j]))
        sixty_and_seventy(*state, pairs[i][0], pairs[i][1], flags[j]);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      ON_EACH_CARD(split_and_pin),
      ON_EACH_CARD(big_small_big),
      ON_EACH_CARD(combs),
      ON_EACH_CARD(thirteen_from_fifty_two),
      ON_EACH_CARD(reserved_but_idle),
      ON_EACH_CARD(growing_by_a_little),
      ON_EACH_CARD(random_batches),
      ON_EACH_CARD(checkpoint_every_fifth_step),
      ON_EACH_CARD(new_streams),
      ON_EACH_CARD(pending_free_on_a_full_card),
      ON_EACH_CARD(host_runs_ahead),
      ON_EACH_CARD(sixty_then_seventy),
      ON_CARDS_WITHOUT_ADDRESSES(thirteen_from_fifty_two),
      ON_CARDS_WITHOUT_ADDRESSES(pending_free_on_a_full_card),
      ON_CARDS_WITHOUT_ADDRESSES(host_runs_ahead),
      ON_CARDS_WITHOUT_ADDRESSES(sixty_then_seventy),
  };
  return RUN_PATTERNS(tests, argc, argv);
}
