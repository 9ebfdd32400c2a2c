/* The cache and everything else share one heap: the program changes the cache's size, and the heap takes what nobody uses. */
#include <stdbool.h>

#include "support/kv_try.h"

enum { MOST = 12 };

struct fixture {
  gap_heap *heap;
  gap_kv *kv;
  struct kv_try t[MOST];
};

/* 96 KV pages of 16 tokens in slabs of 16, 512 KiB each: 8 MiB a slab. */
static struct fixture *open_all(uint64_t card, gap_kv_layout layout) {
  struct fixture *f = calloc(1, sizeof *f);
  gap_kv_options o = kv_try_options(16, 96 * MIB);
  o.heads = 32, o.head_size = 64, o.layout = layout;
  f->heap = api_open(GAP_BACKEND_HOST, card, "reserve:0");
  f->kv = kv_try_open(f->heap, &o);
  return f;
}

static void close_all(struct fixture *f) {
  kv_try_check(f->kv);
  gap_kv_destroy(f->kv);
  api_close(f->heap);
  free(f);
}

static int begin(struct fixture *f, int i, uint32_t count) {
  int32_t tokens[1000];
  for (uint32_t n = 0; n < count; n++) tokens[n] = 1000 * i + (int32_t)n;
  kv_try_begin(f->kv, &f->t[i], 0, NULL, 0, 0);
  kv_try_learn(&f->t[i], tokens, count);
  return kv_try_append(f->kv, &f->t[i]);
}

static void finish(struct fixture *f, int i) { assert_int_equal(gap_kv_close(f->kv, f->t[i].seq, 0), 0); }

static void verify(struct fixture *f, int from, int to, int step) {
  for (int i = from; i < to; i += step) kv_try_verify(f->kv, &f->t[i]);
}

static void the_program_changes_the_size(void **state) {
  (void)state;
  struct fixture *f = open_all(256 * MIB, GAP_KV_PER_LAYER);
  gap_kv_shape shape = kv_try_shape(f->kv);
  uint64_t slab = shape.slab_bytes, slabs = 96 * MIB / slab;
  for (int i = 0; i < MOST; i++) assert_int_equal(begin(f, i, 100), 0);
  uint64_t held = kv_try_stats(f->kv).slabs;
  for (int i = 1; i < MOST; i += 2) finish(f, i); /* every second one: holes everywhere */
  gap_kv_stats before = kv_try_stats(f->kv);
  assert_true(before.kv_pages_cached > 0);
  assert_int_equal(gap_kv_resize(f->kv, (held / 2 + 1) * slab),
                   0); /* those that are cached go, those that are used move */
  gap_kv_stats after = kv_try_stats(f->kv);
  assert_true(after.slabs <= held / 2 + 1);
  assert_true(after.compactions == before.compactions + 1 && after.bytes_compacted > 0);
  assert_int_equal(after.kv_pages, (held / 2 + 1) * shape.slab_kv_pages - 1);
  verify(f, 0, MOST, 2);
  kv_try_check(f->kv);
  assert_int_equal(begin(f, 1, 900), GAP_ENOMEM); /* the smaller cache is full */
  finish(f, 1);
  assert_int_equal(gap_kv_resize(f->kv, slabs * slab), 0);
  assert_int_equal(begin(f, 1, 900), 0); /* the larger one is not */
  verify(f, 0, MOST, 2);
  assert_int_equal(kv_try_shape(f->kv).first, shape.first); /* addresses are as they were */
  close_all(f);
}

static void what_is_used_stays(void **state) {
  (void)state;
  struct fixture *f = open_all(256 * MIB, GAP_KV_PER_LAYER);
  uint64_t slab = kv_try_shape(f->kv).slab_bytes;
  for (int i = 0; i < 6; i++) assert_int_equal(begin(f, i, 200), 0);
  assert_int_equal(gap_kv_resize(f->kv, 2 * slab), GAP_ENOMEM);
  verify(f, 0, 6, 1);
  assert_int_equal(begin(f, 6, 100), GAP_ENOMEM); /* no slab is taken any more */
  finish(f, 6);
  for (int i = 1; i < 6; i++) finish(f, i);
  assert_int_equal(gap_kv_resize(f->kv, 2 * slab), 0);
  assert_true(kv_try_stats(f->kv).slabs <= 2);
  verify(f, 0, 1, 1);
  assert_int_equal(gap_kv_resize(f->kv, slab), GAP_EINVAL);
  assert_int_equal(gap_kv_resize(f->kv, 97 * MIB), GAP_EINVAL);
  assert_int_equal(gap_kv_resize(NULL, slab), GAP_EINVAL);
  close_all(f);
}

/* Cached KV pages fill the card; a request that would fail has them. */
static void others_get_what_is_cached(void **state) {
  (void)state;
  struct fixture *f = open_all(112 * MIB, GAP_KV_BLOCK_MAJOR);
  for (int i = 0; i < MOST; i++) assert_int_equal(begin(f, i, 60), 0);
  for (int i = 4; i < MOST; i++) finish(f, i);
  gap_kv_stats before = kv_try_stats(f->kv);
  assert_true(before.kv_pages_cached >= 8 * 3);
  gap_usage usage = api_usage(f->heap, 0);
  uint64_t wanted = 112 * MIB - usage.live_bytes + 10 * MIB;
  gap_addr a = api_get(f->heap, 0, wanted);
  memset((void *)(uintptr_t)a, 0xee, wanted);
  gap_kv_stats after = kv_try_stats(f->kv);
  assert_true(after.kv_pages_cached < before.kv_pages_cached &&
              after.kv_pages_cached > 0); /* no more than was needed */
  verify(f, 0, 4, 1);
  kv_try_check(f->kv);
  gap_addr b;
  assert_int_equal(gap_alloc(f->heap, 0, 0, 60 * MIB, &b), GAP_ENOMEM); /* what is in use stays */
  verify(f, 0, 4, 1);
  api_give(f->heap, a);
  for (int i = 4; i < 8; i++) assert_int_equal(begin(f, i, 60), 0); /* and the cache grows again */
  verify(f, 0, 8, 1);
  close_all(f);
}

/* The other way round: the heap has no more, so the cache makes do with its own. */
static void the_cache_makes_do(void **state) {
  (void)state;
  struct fixture *f = open_all(112 * MIB, GAP_KV_BLOCK_MAJOR);
  gap_addr a = api_get(f->heap, 0, 98 * MIB);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(begin(f, i, 100), 0);
    if (i < 5) finish(f, i);
  }
  assert_true(kv_try_stats(f->kv).evicted > 0);
  api_give(f->heap, a);
  verify(f, 5, 6, 1);
  close_all(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_program_changes_the_size),
                                     cmocka_unit_test(what_is_used_stays), cmocka_unit_test(others_get_what_is_cached),
                                     cmocka_unit_test(the_cache_makes_do)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
