/* The KV cache: shapes, sequences, every documented error. */
#include <stdbool.h>

#include "core/heap.h"
#include "dev/sim/sim.h"
#include "support/kv_try.h"

enum { SOME = 100 };

struct fixture {
  gap_heap *heap;
  gap_kv *kv;
};

static struct fixture open_with(gap_kv_options o) {
  struct fixture f = {.heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL)};
  f.kv = kv_try_open(f.heap, &o);
  return f;
}

/* 96 KV pages of 16 tokens in slabs of 16, 512 KiB each. */
static gap_kv_options usual(void) {
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.heads = 32, o.head_size = 64, o.host_bytes = 16 * MIB;
  return o;
}

static void close_all(struct fixture *f) {
  kv_try_check(f->kv);
  gap_kv_destroy(f->kv);
  api_close(f->heap);
}

static void fill_tokens(int32_t *tokens, uint32_t count, int32_t from) {
  for (uint32_t i = 0; i < count; i++) tokens[i] = from + (int32_t)i;
}

static int extend(struct fixture *f, struct kv_try *t, uint32_t count, int32_t from) {
  int32_t tokens[KV_TRY_TOKENS];
  fill_tokens(tokens, count, from);
  kv_try_learn(t, tokens, count);
  return kv_try_append(f->kv, t);
}

/* ---- shapes ---- */

static int create(gap_heap *heap, gap_kv_options o) {
  gap_kv *kv = NULL;
  int rc = gap_kv_create(heap, &o, &kv);
  if (rc) assert_null(kv);
  gap_kv_destroy(kv);
  return rc;
}

static void shapes_are_checked(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
  gap_kv_options good = usual(), o;
  gap_kv *kv;
  struct api_log log;
  assert_int_equal(create(heap, good), 0);
  assert_int_equal(gap_kv_create(heap, NULL, &kv), GAP_EINVAL);
  assert_int_equal(gap_kv_create(NULL, &good, &kv), GAP_EINVAL);
  api_listen(&log);
  o = good, o.size = 8, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.layers = 0, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.group_count = 3, assert_int_equal(create(heap, o), GAP_EINVAL);
  assert_non_null(strstr(log.lines, "do not divide"));
  o = good, o.page_tokens = 24, assert_int_equal(create(heap, o), GAP_EINVAL);
  assert_non_null(strstr(log.lines, "no power of two"));
  o = good, o.head_size = 12, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.dtype = (gap_kv_dtype)9, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.order = (gap_kv_order)9, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.layout = (gap_kv_layout)9, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.sharing = (gap_kv_sharing)9, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.flags = 64, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.pin_percent = 101, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.bytes = 8 * MIB, assert_int_equal(create(heap, o), GAP_EINVAL); /* one slab */
  assert_non_null(strstr(log.lines, "two slabs"));
  o = good, o.device = 7, assert_int_equal(create(heap, o), GAP_EINVAL);
  o = good, o.sequences = 65536, o.tokens = 1 << 27, assert_int_equal(create(heap, o), GAP_ELIMIT);
  gap_set_log(NULL, NULL);
  gap_kv_destroy(NULL);
  api_close(heap);
}

/* Bytes of a number; a head has a multiple of 16. */
static void numbers(void **state) {
  (void)state;
  static const uint32_t bytes[] = {
      [GAP_KV_BF16] = 2, [GAP_KV_F16] = 2, [GAP_KV_F32] = 4, [GAP_KV_F8_E4M3] = 1, [GAP_KV_F8_E5M2] = 1};
  for (int dtype = GAP_KV_BF16; dtype <= GAP_KV_F8_E5M2; dtype++) {
    gap_kv_options o = usual();
    o.dtype = (gap_kv_dtype)dtype, o.bytes = 96 * MIB;
    struct fixture f = open_with(o);
    gap_kv_shape s = kv_try_shape(f.kv);
    assert_int_equal(s.element_bytes, bytes[dtype]);
    assert_int_equal(s.head_stride, 64 * bytes[dtype]);
    assert_int_equal(s.v_offset, 16 * 32 * 64 * bytes[dtype]);
    assert_int_equal(s.kv_page_bytes, 4 * 2 * s.v_offset);
    close_all(&f);
    o.head_size = 8, o.heads = 256;
    f.heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
    assert_int_equal(create(f.heap, o), 8 * bytes[dtype] % 16 ? GAP_EINVAL : 0);
    api_close(f.heap);
  }
}

static void shape_of(gap_kv_layout layout, gap_kv_order order, gap_kv_shape *s) {
  gap_kv_options o = usual();
  o.layout = layout, o.order = order;
  struct fixture f = open_with(o);
  *s = kv_try_shape(f.kv);
  close_all(&f);
}

static void strides(void **state) {
  (void)state;
  gap_kv_shape s;
  const uint64_t part = 2 * 16 * 32 * 64 * 2; /* K and V of a KV page in one layer */
  shape_of(GAP_KV_PER_LAYER, GAP_KV_NHD, &s);
  assert_int_equal(s.v_offset, part / 2);
  assert_int_equal(s.page_stride, part);
  assert_int_equal(s.slab_kv_pages, 16);
  assert_int_equal(s.layer_stride, 16 * part);
  assert_int_equal(s.layer_stride % (2 * MIB), 0);
  assert_int_equal(s.slab_bytes, 4 * 16 * part);
  assert_int_equal(s.token_stride, 32 * 64 * 2);
  assert_int_equal(s.head_stride, 64 * 2);
  assert_int_equal(s.flex_scale, 2);
  assert_int_equal(s.kv_pages, 95);
  assert_int_equal(s.ids_end, 5 * 4 * 16 + 16);
  shape_of(GAP_KV_BLOCK_MAJOR, GAP_KV_HND, &s);
  assert_int_equal(s.slab_kv_pages, 4);
  assert_int_equal(s.slab_bytes, 2 * MIB);
  assert_int_equal(s.token_stride, 64 * 2);
  assert_int_equal(s.head_stride, 16 * 64 * 2);
  assert_int_equal(s.flex_scale, 2 * 32);
  assert_int_equal(s.first % (2 * MIB), 0);
}

/* ---- sequences ---- */

static void tokens_lie_where_the_table_says(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  struct kv_try a, b;
  kv_try_begin(f.kv, &a, 0, NULL, 0, 0);
  kv_try_begin(f.kv, &b, 0, NULL, 0, 0);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(extend(&f, &a, 7, 1000), 0);
    assert_int_equal(extend(&f, &b, 5, 2000), 0);
  }
  kv_try_verify(f.kv, &a);
  kv_try_verify(f.kv, &b);
  gap_kv_stats s = kv_try_stats(f.kv);
  assert_int_equal(s.bytes_live_tokens, 240 * (512 * 1024 / 16));
  assert_int_equal(s.bytes_tail, (9 * 16 - 140 + 7 * 16 - 100) * (512 * 1024 / 16));
  assert_int_equal(s.sequences, 2);
  close_all(&f);
}

static void all_or_nothing(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  gap_kv_request r[3] = {{.tokens = 16 * 50}, {.tokens = 16 * 45}, {.tokens = 1}};
  for (int i = 0; i < 3; i++) assert_int_equal(gap_kv_open(f.kv, NULL, &r[i].seq, NULL), 0);
  uint64_t free = kv_try_free(f.kv);
  assert_int_equal(free, 95);
  assert_int_equal(gap_kv_append(f.kv, r, 3), GAP_ENOMEM);
  assert_int_equal(kv_try_free(f.kv), free);
  assert_int_equal(gap_kv_append(f.kv, (gap_kv_request[]){r[0], r[0]}, 2), GAP_EINVAL);
  assert_int_equal(gap_kv_append(f.kv, r, 2), 0);
  assert_int_equal(kv_try_free(f.kv), 0);
  assert_int_equal(gap_kv_append(f.kv, r + 2, 1), GAP_ENOMEM);
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_get_about(f.kv, r[2].seq, &about), 0);
  assert_int_equal(about.tokens, 0);
  r[2].tokens = KV_TRY_TOKENS + 1;
  assert_int_equal(gap_kv_append(f.kv, r + 2, 1), GAP_ELIMIT);
  assert_int_equal(kv_try_stats(f.kv).requests_refused, 2);
  close_all(&f);
}

static void handles_of_closed_sequences(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  gap_kv_seq a, b, out = 7;
  assert_int_equal(gap_kv_open(f.kv, NULL, &a, NULL), 0);
  gap_kv_request r = {.seq = a, .tokens = 30};
  assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
  assert_int_equal(gap_kv_close(f.kv, a, 0), 0);
  uint64_t free = kv_try_free(f.kv);
  assert_int_equal(free, 95);
  assert_int_equal(gap_kv_open(f.kv, NULL, &b, NULL), 0); /* the same row */
  assert_int_equal(gap_kv_close(f.kv, a, 0), GAP_EFREED);
  assert_int_equal(gap_kv_fork(f.kv, a, &out), GAP_EFREED);
  assert_int_equal(out, 7);
  assert_int_equal(gap_kv_append(f.kv, &r, 1), GAP_EFREED);
  assert_int_equal(gap_kv_truncate(f.kv, a, 0), GAP_EFREED);
  assert_int_equal(gap_kv_swap_out(f.kv, a), GAP_EFREED);
  assert_int_equal(gap_kv_swap_in(f.kv, a), GAP_EFREED);
  assert_int_equal(gap_kv_close(f.kv, 0, 0), GAP_EINVAL);
  assert_int_equal(gap_kv_close(f.kv, 1000, 0), GAP_EINVAL);
  assert_int_equal(gap_kv_truncate(f.kv, b, 1), GAP_EINVAL);
  assert_int_equal(gap_kv_swap_in(f.kv, b), GAP_ESTATE);
  assert_int_equal(kv_try_free(f.kv), free);
  close_all(&f);
}

static void rows_run_out(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  gap_kv_seq seq[25];
  for (int i = 0; i < 24; i++) assert_int_equal(gap_kv_open(f.kv, NULL, &seq[i], NULL), 0);
  assert_int_equal(gap_kv_open(f.kv, NULL, &seq[24], NULL), GAP_ELIMIT);
  assert_int_equal(gap_kv_fork(f.kv, seq[0], &seq[24]), GAP_ELIMIT);
  assert_int_equal(gap_kv_close(f.kv, seq[3], 0), 0);
  assert_int_equal(gap_kv_open(f.kv, NULL, &seq[24], NULL), 0);
  close_all(&f);
}

static void forks_write_apart(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  struct kv_try a, b;
  kv_try_begin(f.kv, &a, 0, NULL, 0, 0);
  assert_int_equal(extend(&f, &a, 40, 100), 0);
  b = a;
  assert_int_equal(gap_kv_fork(f.kv, a.seq, &b.seq), 0);
  assert_int_equal(kv_try_free(f.kv), 95 - 3);
  assert_int_equal(kv_try_stats(f.kv).bytes_shared, 3 * 512 * 1024);
  assert_int_equal(extend(&f, &b, 10, 500), 0);
  assert_int_equal(extend(&f, &a, 10, 900), 0);
  assert_int_equal(kv_try_stats(f.kv).copied_on_write, 1); /* the second one has the KV page for itself */
  assert_int_equal(kv_try_free(f.kv), 95 - 2 - 2 * 2);
  kv_try_verify(f.kv, &a);
  kv_try_verify(f.kv, &b);
  close_all(&f);
}

/* ---- streams ---- */

/* A card on which streams can be held up. */
static gap_heap *open_card(struct gap__dev **dev) {
  struct gap__sim_params params = {.total_bytes = GIB, .lag_us = 100};
  struct gap__heap_params heap_params = {.devs = dev, .dev_count = 1, .maker = GAP__MAKER_OFF};
  gap_heap *heap;
  assert_int_equal(gap__sim_create(0, &params, dev), 0);
  assert_int_equal(gap__heap_create(&heap_params, &heap), 0);
  return heap;
}

/* What a closed sequence had is free for the cache's own stream at once, for others' sake when their work is done. */
static void another_stream_keeps_its_pages_until_it_is_done(void **state) {
  (void)state;
  enum { OTHER = 77 };
  struct gap__dev *dev;
  gap_heap *heap = open_card(&dev);
  gap_kv_options o = usual();
  gap_kv *kv = kv_try_open(heap, &o);
  gap_kv_seq a, b;
  for (int own = 0; own < 2; own++) {
    assert_int_equal(gap_kv_open(kv, NULL, &a, NULL), 0);
    assert_int_equal(gap_kv_open(kv, NULL, &b, NULL), 0);
    gap_kv_request r = {.seq = a, .tokens = 95 * 16}, rb = {.seq = b, .tokens = 16};
    assert_int_equal(gap_kv_append(kv, &r, 1), 0);
    assert_int_equal(gap_kv_append(kv, &rb, 1), GAP_ENOMEM);
    gap__sim_stream_hold(dev, own ? o.stream : OTHER);
    assert_int_equal(gap_kv_close(kv, a, own ? o.stream : OTHER), 0);
    if (!own) {
      for (int i = 0; i < 3; i++) {
        gap__sim_clock_advance(dev, 1000000000);
        assert_int_equal(gap_kv_append(kv, &rb, 1), GAP_EAGAIN);
      }
      assert_int_equal(kv_try_stats(kv).bytes_leaving, 95 * 512 * 1024);
      gap__sim_stream_release(dev, OTHER);
      gap__sim_clock_advance(dev, 1000000);
    }
    assert_int_equal(gap_kv_append(kv, &rb, 1), 0);
    assert_int_equal(kv_try_stats(kv).bytes_leaving, 0);
    assert_int_equal(gap_kv_close(kv, b, o.stream), 0);
    gap__sim_stream_release(dev, o.stream);
  }
  gap_kv_destroy(kv);
  gap__heap_destroy(heap);
}

/* ---- the null page ---- */

static uint64_t *null_words(const gap_kv_shape *s, uint32_t layer) {
  return (uint64_t *)(uintptr_t)(s->first + layer * s->layer_stride);
}

/* Kernels that read beyond a row's end read it: it has memory whatever the cache gives back, and belongs to nobody. */
static void the_null_page_stays(void **state) {
  (void)state;
  for (int layout = 0; layout < 2; layout++) {
    gap_kv_options o = usual();
    o.layout = (gap_kv_layout)layout;
    struct fixture f = open_with(o);
    gap_kv_shape s = kv_try_shape(f.kv);
    gap_kv_compaction c = {.size = sizeof c};
    struct kv_try t;
    for (uint32_t layer = 0; layer < s.layers_per_group; layer++) memset(null_words(&s, layer), 0x5a, 2 * s.v_offset);
    for (int round = 0; round < 3; round++) {
      kv_try_begin(f.kv, &t, 0, NULL, 0, 0);
      assert_int_equal(extend(&f, &t, 16 * (s.kv_pages - 1), 1000 * round),
                       0); /* fills nearly all, writes every token */
      kv_try_verify(f.kv, &t);
      assert_int_equal(gap_kv_close(f.kv, t.seq, 0), 0);
      assert_int_equal(gap_kv_forget(f.kv), 0);
      assert_int_equal(gap_kv_compact(f.kv, &c), 0);
      assert_int_equal(gap_kv_resize(f.kv, 2 * s.slab_bytes), 0);
      assert_int_equal(gap_kv_trim(f.kv, NULL), 0);
      for (uint32_t layer = 0; layer < s.layers_per_group; layer++)
        for (uint64_t i = 0; i < 2 * s.v_offset / 8; i++)
          if (null_words(&s, layer)[i] != 0x5a5a5a5a5a5a5a5aull)
            fail_msg("layer %u, word %llu", layer, (unsigned long long)i);
      assert_int_equal(gap_kv_resize(f.kv, o.bytes / s.slab_bytes * s.slab_bytes), 0);
    }
    close_all(&f);
  }
}

/* ---- bare KV pages ---- */

static void bare_pages(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  int32_t ids[SOME], twice[3];
  assert_int_equal(gap_kv_get_pages(f.kv, 96, ids), GAP_ENOMEM);
  assert_int_equal(kv_try_free(f.kv), 95);
  assert_int_equal(gap_kv_get_pages(f.kv, 95, ids), 0);
  for (int i = 0; i < 95; i++) assert_true(ids[i] > 0 && (!i || ids[i] > ids[i - 1]));
  twice[0] = ids[1], twice[1] = ids[2], twice[2] = ids[1];
  assert_int_equal(gap_kv_free_pages(f.kv, 3, twice), GAP_EFREED);
  assert_int_equal(kv_try_free(f.kv), 0);
  assert_int_equal(gap_kv_free_pages(f.kv, 1, (int32_t[]){0}), GAP_ENOTMINE); /* the null page */
  assert_int_equal(gap_kv_free_pages(f.kv, 1, (int32_t[]){-4}), GAP_ENOTMINE);
  assert_int_equal(gap_kv_free_pages(f.kv, 1, (int32_t[]){17}), GAP_ENOTMINE); /* a gap: another layer's */
  assert_int_equal(gap_kv_free_pages(f.kv, 1, (int32_t[]){1 << 30}), GAP_ENOTMINE);
  assert_int_equal(gap_kv_free_pages(f.kv, 95, ids), 0);
  assert_int_equal(gap_kv_free_pages(f.kv, 1, ids), GAP_EFREED);
  assert_int_equal(kv_try_free(f.kv), 95);
  close_all(&f);
}

/* ---- memory ---- */

static void slabs_come_and_go_with_the_heap(void **state) {
  (void)state;
  struct fixture f = open_with(usual());
  gap_kv_seq a;
  uint64_t idle = api_usage(f.heap, 0).live_bytes;
  assert_int_equal(gap_kv_open(f.kv, NULL, &a, NULL), 0);
  gap_kv_request r = {.seq = a, .tokens = 95 * 16};
  assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
  assert_int_equal(api_usage(f.heap, 0).live_bytes, idle + 40 * MIB);
  api_check(f.heap);
  assert_int_equal(gap_kv_close(f.kv, a, 0), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(gap_kv_flush(f.kv), 0); /* what stayed empty between them goes */
  assert_int_equal(api_usage(f.heap, 0).live_bytes, idle);
  int32_t ids[SOME];
  assert_int_equal(gap_kv_get_pages(f.kv, 90, ids), 0);
  assert_int_equal(gap_kv_free_pages(f.kv, 90, ids), 0);
  uint64_t pages;
  assert_int_equal(gap_kv_trim(f.kv, &pages), 0);
  assert_true(pages > 0);
  assert_int_equal(api_usage(f.heap, 0).live_bytes, idle);
  gap_addr other = api_get(f.heap, 0, 100 * MIB); /* what the cache gave back serves anybody */
  assert_int_equal(gap_kv_open(f.kv, NULL, &a, NULL), 0);
  r.seq = a;
  assert_int_equal(gap_kv_append(f.kv, &r, 1), GAP_ENOMEM);
  assert_int_equal(kv_try_free(f.kv), 95);
  api_give(f.heap, other);
  assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
  close_all(&f);
}

static void caches_one_after_the_other(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_kv_options o = usual();
  gap_addr first = 0;
  for (int i = 0; i < 5; i++) {
    gap_kv *kv = kv_try_open(heap, &o);
    if (i) assert_int_equal(kv_try_shape(kv).first, first); /* addresses are used again */
    first = kv_try_shape(kv).first;
    gap_kv_destroy(kv);
  }
  assert_int_equal(api_usage(heap, 0).live_bytes, 0);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_are_checked),
      cmocka_unit_test(strides),
      cmocka_unit_test(numbers),
      cmocka_unit_test(tokens_lie_where_the_table_says),
      cmocka_unit_test(all_or_nothing),
      cmocka_unit_test(handles_of_closed_sequences),
      cmocka_unit_test(rows_run_out),
      cmocka_unit_test(forks_write_apart),
      cmocka_unit_test(another_stream_keeps_its_pages_until_it_is_done),
      cmocka_unit_test(the_null_page_stays),
      cmocka_unit_test(bare_pages),
      cmocka_unit_test(slabs_come_and_go_with_the_heap),
      cmocka_unit_test(caches_one_after_the_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
