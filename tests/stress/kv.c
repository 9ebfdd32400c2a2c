/* The KV cache against a model: thousands of random calls on several shapes, every token's bytes compared, every invariant checked. */
#include <stdbool.h>

#include "support/kv_try.h"

enum { SEQS = 12, OPERATIONS = 800, EACH = 4, BARE = 24 };

struct world {
  gap_kv *kv;
  uint64_t random;
  struct kv_try seq[SEQS]; /* seq 0: nobody */
  bool swapped[SEQS];
  int32_t bare[BARE];
  uint32_t bare_count, most;
  uint64_t now_ms;
  bool windows;
};

static uint32_t dice(struct world *w, uint32_t below) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(w->random >> 33) % below;
}

static uint64_t now_of(void *arg) { return ((struct world *)arg)->now_ms; }

/* A few beginnings that many share, then anything. */
static uint32_t make_prompt(struct world *w, int32_t *tokens) {
  uint32_t count = 1 + dice(w, w->most), kind = dice(w, 4), common = dice(w, count + 1);
  for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(i < common ? kind * 1000 + i % 50 : dice(w, 100));
  return count;
}

static void begin(struct world *w, uint32_t i) {
  int32_t tokens[KV_TRY_TOKENS];
  uint32_t count = make_prompt(w, tokens);
  struct kv_try *t = &w->seq[i];
  kv_try_begin(w->kv, t, dice(w, 2), tokens, count, dice(w, 5) ? count - 1 : count);
  kv_try_learn(t, tokens + t->count, count - t->count);
  uint32_t had = t->computed;
  uint64_t free = kv_try_free(w->kv);
  int rc = kv_try_append(w->kv, t);
  assert_true(rc == 0 || rc == GAP_ENOMEM || rc == GAP_EAGAIN);
  if (rc) {
    assert_int_equal(kv_try_free(w->kv), free);
    t->count = had;
  }
}

static void grow(struct world *w, uint32_t i) {
  int32_t tokens[64];
  struct kv_try *t = &w->seq[i];
  uint32_t count = 1 + dice(w, 40), had = t->count;
  if (had + count > KV_TRY_TOKENS) return;
  for (uint32_t k = 0; k < count; k++) tokens[k] = (int32_t)dice(w, 3);
  kv_try_learn(t, tokens, count);
  uint64_t free = kv_try_free(w->kv);
  int rc = kv_try_append(w->kv, t);
  if (!rc) return;
  assert_true(rc == GAP_ENOMEM || rc == GAP_EAGAIN);
  assert_int_equal(kv_try_free(w->kv), free);
  t->count = had;
}

/* Places are found, but the step does not run. */
static void grow_in_vain(struct world *w, uint32_t i) {
  struct kv_try *t = &w->seq[i];
  int32_t tokens[20] = {0};
  gap_kv_request request = {.seq = t->seq, .tokens = 20, .ids = tokens};
  if (t->count + 20 > KV_TRY_TOKENS || w->windows || gap_kv_append(w->kv, &request, 1)) return;
  assert_int_equal(gap_kv_truncate(w->kv, t->seq, t->count), 0);
  assert_int_equal(gap_kv_flush(w->kv), 0);
}

static void copy_seq(struct world *w, uint32_t from, uint32_t to) {
  gap_kv_seq made;
  assert_int_equal(gap_kv_fork(w->kv, w->seq[from].seq, &made), 0);
  w->seq[to] = w->seq[from];
  w->seq[to].seq = made;
  assert_int_equal(gap_kv_flush(w->kv), 0);
}

static void shorten(struct world *w, uint32_t i) {
  struct kv_try *t = &w->seq[i];
  uint32_t keep = dice(w, t->count + 1);
  int rc = gap_kv_truncate(w->kv, t->seq, keep);
  if (rc == GAP_ESTATE && w->windows) return;
  assert_int_equal(rc, 0);
  t->count = t->computed = keep;
  assert_int_equal(gap_kv_flush(w->kv), 0);
}

static void end(struct world *w, uint32_t i) {
  assert_int_equal(gap_kv_close(w->kv, w->seq[i].seq, dice(w, 3)), 0);
  assert_int_equal(gap_kv_close(w->kv, w->seq[i].seq, 0), GAP_EFREED);
  w->seq[i].seq = 0;
  w->swapped[i] = false;
  assert_int_equal(gap_kv_flush(w->kv), 0);
}

static void swap(struct world *w, uint32_t i) {
  uint64_t free = kv_try_free(w->kv);
  int rc = w->swapped[i] ? gap_kv_swap_in(w->kv, w->seq[i].seq) : gap_kv_swap_out(w->kv, w->seq[i].seq);
  if (!rc) w->swapped[i] = !w->swapped[i];
  else {
    if (rc != GAP_EAGAIN) assert_int_equal(rc, GAP_ENOMEM);
    assert_int_equal(kv_try_free(w->kv), free);
  }
  assert_int_equal(gap_kv_flush(w->kv), 0);
}

static void bare(struct world *w) {
  uint32_t count = 1 + dice(w, BARE / 2);
  if (w->bare_count + count <= BARE && gap_kv_get_pages(w->kv, count, w->bare + w->bare_count) == 0) {
    w->bare_count += count;
  } else {
    int32_t twice[2] = {w->bare_count ? w->bare[0] : 1, w->bare_count ? w->bare[0] : 1};
    assert_true(gap_kv_free_pages(w->kv, 2, twice) < 0);
    assert_int_equal(gap_kv_free_pages(w->kv, w->bare_count, w->bare), 0);
    w->bare_count = 0;
  }
}

static void compact(struct world *w) {
  gap_kv_compaction c = {.size = sizeof c, .bytes_most = dice(w, 2) ? 0 : 1 << 16};
  if (dice(w, 2)) assert_int_equal(gap_kv_forget(w->kv), 0);
  gap_kv_stats before = kv_try_stats(w->kv);
  assert_int_equal(gap_kv_compact(w->kv, &c), 0);
  gap_kv_stats after = kv_try_stats(w->kv);
  assert_true(c.slabs_after <= c.slabs_before);
  assert_true(c.bytes_most == 0 || c.bytes_moved <= c.bytes_most);
  assert_int_equal(before.bytes_live_tokens, after.bytes_live_tokens);
  assert_int_equal(before.bytes_cached, after.bytes_cached);
  assert_int_equal(after.bytes_spare, 0);
}

static void retain(struct world *w, uint32_t i) {
  gap_kv_retention r = {.size = sizeof r,
                        .tokens = w->seq[i].count,
                        .priority = dice(w, 8),
                        .ttl_ms = dice(w, 3) * 50,
                        .pin = (int)dice(w, 3) - 1};
  int rc = gap_kv_retain(w->kv, w->seq[i].seq, &r);
  assert_true(rc == 0 || rc == GAP_ELIMIT);
  w->now_ms += dice(w, 40);
}

static void operate(struct world *w) {
  uint32_t i = dice(w, SEQS), other = 0, kind = dice(w, 100);
  while (other + 1 < SEQS && w->seq[other].seq) other++;
  if (kind < 3) compact(w);
  else if (kind < 6) bare(w);
  else if (kind < 7) gap_kv_forget(w->kv);
  else if (kind < 8) gap_kv_trim(w->kv, NULL);
  else if (!w->seq[i].seq) begin(w, i);
  else if (kind < 20) end(w, i);
  else if (kind < 40) swap(w, i);
  else if (w->swapped[i]) return;
  else if (kind < 50) shorten(w, i);
  else if (kind < 56) retain(w, i);
  else if (kind < 60) grow_in_vain(w, i);
  else if (kind < 68 && !w->seq[other].seq) copy_seq(w, i, other);
  else grow(w, i);
}

static void verify_all(struct world *w) {
  assert_int_equal(gap_kv_flush(w->kv), 0);
  for (uint32_t i = 0; i < SEQS; i++)
    if (w->seq[i].seq && !w->swapped[i]) kv_try_verify(w->kv, &w->seq[i]);
}

static void play(gap_kv_options o, uint32_t most, uint64_t seed) {
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
  struct world *w = calloc(1, sizeof *w);
  *w = (struct world){.random = seed, .most = most, .windows = o.windows != NULL};
  o.now = now_of, o.now_arg = w, o.seed = seed;
  w->kv = kv_try_open(heap, &o);
  for (int n = 0; n < OPERATIONS; n++) {
    operate(w);
    kv_try_check(w->kv);
    if (n % EACH == 0) verify_all(w);
  }
  gap_kv_stats s = kv_try_stats(w->kv);
  assert_true(s.copied_on_write);
  assert_true(s.forks);
  assert_true(s.swapped_in);
  if (kv_try_shape(w->kv).slab_kv_pages > 1) assert_true(s.bytes_compacted);
  if (o.sharing) assert_true(s.tokens_hit && s.evicted);
  for (uint32_t i = 0; i < SEQS; i++)
    if (w->seq[i].seq) end(w, i);
  gap_kv_free_pages(w->kv, w->bare_count, w->bare);
  kv_try_check(w->kv);
  assert_int_equal(kv_try_free(w->kv), kv_try_shape(w->kv).kv_pages);
  gap_kv_destroy(w->kv);
  free(w);
  api_close(heap);
}

static gap_kv_options small(uint32_t page_tokens, gap_kv_layout layout) {
  gap_kv_options o = kv_try_options(page_tokens, 16 * MIB);
  o.layout = layout;
  o.host_bytes = 8 * MIB;
  return o;
}

static void block_major(void **state) {
  (void)state;
  gap_kv_options o = small(16, GAP_KV_BLOCK_MAJOR);
  o.heads = 8, o.head_size = 64, o.dtype = GAP_KV_F32; /* 256 KiB a KV page */
  play(o, 300, 1);
}

static void per_layer(void **state) {
  (void)state;
  gap_kv_options o = small(16, GAP_KV_PER_LAYER);
  o.bytes = 48 * MIB, o.heads = 32, o.head_size = 64, o.order = GAP_KV_HND, o.sharing = GAP_KV_SHARING_SHA256;
  play(o, 400, 2);
}

/* One KV page a slab. */
static void whole_slabs(void **state) {
  (void)state;
  gap_kv_options o = small(32, GAP_KV_BLOCK_MAJOR);
  o.heads = 32, o.head_size = 64, o.dtype = GAP_KV_F32, o.bytes = 96 * MIB;
  play(o, 300, 3);
}

static void windows(void **state) {
  (void)state;
  static const uint32_t windows[] = {0, 40};
  gap_kv_options o = small(8, GAP_KV_PER_LAYER);
  o.group_count = 2, o.windows = windows, o.heads = 32, o.head_size = 64, o.bytes = 24 * MIB;
  play(o, 300, 4);
}

static void only_windows(void **state) {
  (void)state;
  static const uint32_t windows[] = {24};
  gap_kv_options o = small(8, GAP_KV_BLOCK_MAJOR);
  o.windows = windows, o.heads = 32, o.head_size = 64;
  play(o, 300, 5);
}

static void without_sharing(void **state) {
  (void)state;
  gap_kv_options o = small(16, GAP_KV_BLOCK_MAJOR);
  o.heads = 8, o.head_size = 64, o.dtype = GAP_KV_F32, o.sharing = GAP_KV_SHARING_OFF, o.copy_stream = 9;
  play(o, 300, 6);
}

static void copies_apart(void **state) {
  (void)state;
  gap_kv_options o = small(16, GAP_KV_BLOCK_MAJOR);
  o.heads = 8, o.head_size = 64, o.dtype = GAP_KV_F32, o.flags = GAP_KV_NO_MERGE, o.copy_stream = 9;
  play(o, 300, 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(block_major),  cmocka_unit_test(per_layer),    cmocka_unit_test(whole_slabs),
      cmocka_unit_test(windows),      cmocka_unit_test(only_windows), cmocka_unit_test(without_sharing),
      cmocka_unit_test(copies_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
