/* The KV cache with tiers against a model: random calls while KV pages and sequences go down and come up behind them;
 * every byte that is seen is compared, every invariant checked.  GAP_SOAK_SECONDS makes it long. */
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "support/kv_below_try.h"

enum { SEQS = 12, KINDS = 6, OPERATIONS = 1500 };

struct world {
  struct below_try t;
  uint64_t random;
  struct kv_try seq[SEQS]; /* seq 0: nobody */
  bool swapped[SEQS];
  gap_kv_ticket ticket;
  uint32_t most;
  bool windows;
};

static uint32_t dice(struct world *w, uint32_t below) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(w->random >> 33) % below;
}

/* A text that others have, and an end of its own. */
static uint32_t make_prompt(struct world *w, int32_t *tokens) {
  uint32_t count = 1 + dice(w, w->most), kind = dice(w, KINDS), common = dice(w, 3) ? count : dice(w, count + 1);
  for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(i < common ? kind * 5000 + i : 100000 + dice(w, 100));
  return count;
}

static void take(struct world *w, struct kv_try *t, uint32_t had) {
  int rc = kv_try_append(w->t.kv, t);
  assert_true(rc == 0 || rc == GAP_ENOMEM || rc == GAP_EAGAIN);
  if (rc) t->count = had;
}

static void begin(struct world *w, uint32_t i) {
  int32_t tokens[KV_TRY_TOKENS];
  uint32_t count = make_prompt(w, tokens);
  struct kv_try *t = &w->seq[i];
  kv_try_begin(w->t.kv, t, dice(w, 2), tokens, count, count);
  uint32_t had = t->count;
  kv_try_learn(t, tokens + had, count - had);
  take(w, t, had);
}

static void grow(struct world *w, uint32_t i) {
  int32_t tokens[64];
  struct kv_try *t = &w->seq[i];
  uint32_t count = 1 + dice(w, 40), had = t->count;
  if (had + count > KV_TRY_TOKENS) return;
  for (uint32_t k = 0; k < count; k++) tokens[k] = (int32_t)dice(w, 3);
  kv_try_learn(t, tokens, count);
  take(w, t, had);
}

static void end(struct world *w, uint32_t i) {
  assert_int_equal(gap_kv_close(w->t.kv, w->seq[i].seq, dice(w, 3)), 0);
  assert_int_equal(gap_kv_flush(w->t.kv), 0);
  w->seq[i].seq = 0;
  w->swapped[i] = false;
}

static void swap(struct world *w, uint32_t i) {
  int rc = w->swapped[i] ? gap_kv_swap_in(w->t.kv, w->seq[i].seq) : gap_kv_swap_out(w->t.kv, w->seq[i].seq);
  assert_true(rc == 0 || rc == GAP_EAGAIN || rc == GAP_ENOMEM);
  if (!rc) w->swapped[i] = !w->swapped[i];
  assert_int_equal(gap_kv_flush(w->t.kv), 0);
}

static void copy_seq(struct world *w, uint32_t from, uint32_t to) {
  gap_kv_seq made;
  assert_int_equal(gap_kv_fork(w->t.kv, w->seq[from].seq, &made), 0);
  w->seq[to] = w->seq[from];
  w->seq[to].seq = made;
  assert_int_equal(gap_kv_flush(w->t.kv), 0);
}

static void shorten(struct world *w, uint32_t i) {
  struct kv_try *t = &w->seq[i];
  uint32_t keep = dice(w, t->count + 1);
  int rc = gap_kv_truncate(w->t.kv, t->seq, keep);
  if (rc == GAP_ESTATE && w->windows) return;
  assert_int_equal(rc, 0);
  t->count = t->computed = keep;
  assert_int_equal(gap_kv_flush(w->t.kv), 0);
}

/* One fetch at a time is asked after; others are begun and left. */
static void fetch(struct world *w) {
  int32_t tokens[KV_TRY_TOKENS];
  uint32_t got = 0;
  if (w->ticket) {
    int rc = gap_kv_fetch_poll(w->t.kv, w->ticket, &got);
    assert_true(rc == 0 || rc == GAP_EAGAIN);
    if (!rc) w->ticket = 0;
    return;
  }
  gap_kv_prompt p = {.size = sizeof p, .tenant = dice(w, 2), .tokens = tokens, .count = make_prompt(w, tokens)};
  assert_int_equal(gap_kv_fetch(w->t.kv, &p, &w->ticket), 0);
  if (dice(w, 8) == 0) w->ticket = 0;
}

static void arrange(struct world *w, uint32_t kind) {
  gap_kv *kv = w->t.kv;
  gap_kv_compaction c = {.size = sizeof c};
  if (kind == 0) assert_int_equal(gap_kv_compact(kv, &c), 0);
  else if (kind == 1) assert_int_equal(gap_kv_forget(kv), 0);
  else if (kind == 2) assert_int_equal(gap_kv_trim(kv, NULL), 0);
  else if (kind == 3) below_drain(&w->t);
  else if (kind == 4) assert_int_equal(gap_kv_tiers_store(kv, BELOW_PATIENCE_MS), 0);
}

static void operate(struct world *w) {
  uint32_t i = dice(w, SEQS), other = 0, kind = dice(w, 100);
  while (other + 1 < SEQS && w->seq[other].seq) other++;
  if (kind < 5) arrange(w, kind);
  else if (kind < 20) fetch(w);
  else if (!w->seq[i].seq) begin(w, i);
  else if (kind < 40) end(w, i);
  else if (kind < 60) swap(w, i);
  else if (w->swapped[i]) return;
  else if (kind < 68) shorten(w, i);
  else if (kind < 76 && !w->seq[other].seq) copy_seq(w, i, other);
  else grow(w, i);
}

static void verify_all(struct world *w) {
  assert_int_equal(gap_kv_flush(w->t.kv), 0);
  for (uint32_t i = 0; i < SEQS; i++)
    if (w->seq[i].seq && !w->swapped[i]) kv_try_verify(w->t.kv, &w->seq[i]);
}

static bool goes_on(int n, time_t began) {
  const char *seconds = getenv("GAP_SOAK_SECONDS");
  return n < OPERATIONS || (seconds && time(NULL) - began < atol(seconds) / 4);
}

static void play(gap_kv_options o, uint32_t most, uint64_t host_bytes, uint64_t seed) {
  char folder[] = "/tmp/gapless-kvs-XXXXXX", tiers[100];
  struct world *w = calloc(1, sizeof *w);
  gap_kv_tiers_options t = below_options(NULL);
  assert_non_null(mkdtemp(folder));
  snprintf(tiers, sizeof tiers, "tiers:[host=96M,disk=%s:64M]", folder);
  o.sharing = GAP_KV_SHARING_SHA256, o.host_bytes = 8 * MIB, o.seed = seed;
  t.host_bytes = host_bytes;
  *w = (struct world){.t = below_open(tiers, &o, &t), .random = seed, .most = most, .windows = o.windows != NULL};
  time_t began = time(NULL);
  for (int n = 0; goes_on(n, began); n++) {
    operate(w);
    kv_try_check(w->t.kv);
    if (n % 8 == 0) verify_all(w);
  }
  gap_kv_tier_stats s = below_stats(&w->t);
  assert_true(s.host_stored > 0 && s.host_fetched + s.disk_fetched > 0);
  assert_int_equal(s.lost, 0);
  for (uint32_t i = 0; i < SEQS; i++)
    if (w->seq[i].seq) end(w, i);
  below_drain(&w->t);
  assert_int_equal(kv_try_free(w->t.kv), kv_try_shape(w->t.kv).kv_pages);
  below_close(&w->t);
  free(w);
  assert_int_equal(rmdir(folder), 0);
}

static void whole_slabs(void **state) {
  (void)state;
  gap_kv_options o = below_shape(60);
  o.dtype = GAP_KV_F32;
  o.heads = 64, o.bytes = 80 * MIB; /* 2 MiB a KV page */
  play(o, 500, 24 * MIB, 1);
}

static void many_to_a_crate(void **state) {
  (void)state;
  gap_kv_options o = below_shape(60);
  play(o, 500, 12 * MIB, 2);
}

static void by_layer(void **state) {
  (void)state;
  gap_kv_options o = kv_try_options(16, 24 * MIB);
  o.heads = 8, o.head_size = 64, o.order = GAP_KV_HND;
  play(o, 900, 10 * MIB, 3);
}

static void windows(void **state) {
  (void)state;
  static const uint32_t windows[] = {0, 40};
  gap_kv_options o = below_shape(100);
  o.page_tokens = 8, o.group_count = 2, o.windows = windows, o.copy_stream = 9, o.bytes = 24 * MIB;
  play(o, 300, 10 * MIB, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_slabs),
      cmocka_unit_test(many_to_a_crate),
      cmocka_unit_test(by_layer),
      cmocka_unit_test(windows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
