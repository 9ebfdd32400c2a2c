/* Block tables as kernels read them: derived forms, deltas, windows; compaction. */
#include "support/kv_try.h"

enum { ROOM = 64 };

static gap_heap *heap;

static gap_kv *open_cache(gap_kv_layout layout, gap_kv_order order, const uint32_t *windows, uint32_t groups) {
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.heads = 8, o.head_size = 64, o.layout = layout, o.order = order, o.windows = windows, o.group_count = groups;
  heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
  return kv_try_open(heap, &o);
}

static void close_cache(gap_kv *kv) {
  kv_try_check(kv);
  gap_kv_destroy(kv);
  api_close(heap);
}

static gap_kv_seq begin(gap_kv *kv, uint32_t tokens) {
  gap_kv_request r = {.tokens = tokens};
  assert_int_equal(gap_kv_open(kv, NULL, &r.seq, NULL), 0);
  assert_int_equal(gap_kv_append(kv, &r, 1), 0);
  return r.seq;
}

static const int32_t *row_of(gap_kv *kv, uint32_t group, gap_kv_seq seq) {
  gap_kv_shape s = kv_try_shape(kv);
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_flush(kv), 0);
  assert_int_equal(gap_kv_get_about(kv, seq, &about), 0);
  return (const int32_t *)(uintptr_t)s.table + ((size_t)group * s.rows + about.row) * s.columns;
}

static void derived(void **state) {
  (void)state;
  gap_kv *kv = open_cache(GAP_KV_PER_LAYER, GAP_KV_NHD, NULL, 1);
  gap_kv_seq seqs[] = {begin(kv, 40), begin(kv, 0), begin(kv, 64)};
  int32_t indptr[4], indices[ROOM], last[3];
  uint32_t needed = 0;
  assert_int_equal(gap_kv_csr(kv, 0, seqs, 3, indptr, indices, 6, last, &needed), GAP_ELIMIT);
  assert_int_equal(needed, 7);
  assert_int_equal(gap_kv_csr(kv, 0, seqs, 3, indptr, indices, 7, last, NULL), 0);
  static const int32_t starts[] = {0, 3, 3, 7}, lasts[] = {8, 0, 16};
  assert_memory_equal(indptr, starts, sizeof starts);
  assert_memory_equal(last, lasts, sizeof lasts);
  assert_memory_equal(indices, row_of(kv, 0, seqs[0]), 3 * sizeof(int32_t));
  assert_memory_equal(indices + 3, row_of(kv, 0, seqs[2]), 4 * sizeof(int32_t));

  int64_t slots[40];
  assert_int_equal(gap_kv_slots(kv, 0, seqs[0], 0, 41, slots), GAP_EINVAL);
  assert_int_equal(gap_kv_slots(kv, 0, seqs[0], 10, 30, slots), 0);
  for (int i = 0; i < 30; i++)
    assert_int_equal(slots[i], (int64_t)row_of(kv, 0, seqs[0])[(10 + i) / 16] * 16 + (10 + i) % 16);

  int32_t blocks[3], flex[3 * 4];
  assert_int_equal(gap_kv_flex(kv, 0, seqs, 3, 3, blocks, flex), GAP_ELIMIT);
  assert_int_equal(gap_kv_flex(kv, 0, seqs, 3, 4, blocks, flex), 0);
  assert_int_equal(blocks[0], 3);
  assert_int_equal(blocks[1], 0);
  for (int i = 0; i < 4; i++) assert_int_equal(flex[i], i < 3 ? 2 * row_of(kv, 0, seqs[0])[i] : 0);
  assert_int_equal(gap_kv_csr(kv, 1, seqs, 3, indptr, indices, 7, last, NULL), GAP_EINVAL);
  assert_int_equal(gap_kv_close(kv, seqs[1], 0), 0);
  assert_int_equal(gap_kv_csr(kv, 0, seqs, 3, indptr, indices, 7, last, NULL), GAP_EFREED);
  close_cache(kv);
}

/* The flat tensor that flex_attention would be given: block b of page_tokens tokens of one head. */
static void flex_numbers_address_the_same_bytes(void **state) {
  (void)state;
  for (int layout = 0; layout < 2; layout++)
    for (int order = 0; order < 2; order++) {
      gap_kv *kv = open_cache((gap_kv_layout)layout, (gap_kv_order)order, NULL, 1);
      gap_kv_shape s = kv_try_shape(kv);
      gap_kv_seq seq = begin(kv, 200);
      int32_t blocks, flex[13];
      assert_int_equal(gap_kv_flex(kv, 0, &seq, 1, 13, &blocks, flex), 0);
      for (int i = 0; i < 13; i++)
        assert_int_equal((uint64_t)flex[i] * s.page_tokens * s.token_stride,
                         (uint64_t)row_of(kv, 0, seq)[i] * s.page_stride);
      close_cache(kv);
    }
}

static void deltas(void **state) {
  (void)state;
  gap_kv *kv = open_cache(GAP_KV_PER_LAYER, GAP_KV_NHD, NULL, 1);
  gap_kv_shape s = kv_try_shape(kv);
  int32_t *mirror = calloc((size_t)s.rows * s.columns, sizeof *mirror);
  gap_kv_seq a = begin(kv, 100), b = begin(kv, 20), c;
  gap_kv_delta d = {.size = sizeof d};
  for (int round = 0; round < 3; round++) {
    if (round == 1) assert_int_equal(gap_kv_fork(kv, a, &c), 0);
    gap_kv_request r[] = {{.seq = a, .tokens = 1}, {.seq = b, .tokens = 1}};
    if (round == 1) assert_int_equal(gap_kv_append(kv, r, 2), 0);
    if (round == 2) assert_int_equal(gap_kv_close(kv, b, 0), 0);
    assert_int_equal(gap_kv_take_delta(kv, &d), 0);
    assert_int_equal(d.more, 0);
    for (uint32_t i = 0; i < d.entry_count; i++) mirror[d.entries[i].index] = d.entries[i].id;
    assert_int_equal(d.copy_count, round == 1); /* a's last KV page, which c shares */
    assert_int_equal(d.entry_count, round == 0 ? 9 : round == 1 ? 7 + 1 : 2);
  }
  assert_int_equal(d.lengths[0], 101);
  assert_int_equal(d.lengths[1], 0);
  assert_int_equal(d.lengths[2], 100);
  assert_int_equal(d.row_count, 3);
  assert_int_equal(gap_kv_take_delta(kv, &d), 0);
  assert_int_equal(d.entry_count + d.copy_count, 0);
  int32_t indptr[3], indices[ROOM], last[2];
  assert_int_equal(gap_kv_csr(kv, 0, (gap_kv_seq[]){a, c}, 2, indptr, indices, ROOM, last, NULL), 0);
  assert_memory_equal(mirror, indices, 7 * sizeof *mirror);
  assert_memory_equal(mirror + 2 * s.columns, indices + 7, 7 * sizeof *mirror);
  for (uint32_t i = 0; i < s.columns; i++) assert_int_equal(mirror[s.columns + i], 0);
  free(mirror);
  close_cache(kv);
}

static void windows(void **state) {
  (void)state;
  static const uint32_t sizes[] = {0, 32};
  gap_kv *kv = open_cache(GAP_KV_BLOCK_MAJOR, GAP_KV_NHD, sizes, 2);
  gap_kv_seq seq = begin(kv, 160);
  uint64_t free = kv_try_free(kv);
  gap_kv_request r = {.seq = seq, .tokens = 1};
  assert_int_equal(gap_kv_append(kv, &r, 1), 0); /* sees tokens 129 to 160 */
  assert_int_equal(kv_try_free(kv), free - 2 + 8);
  const int32_t *row = row_of(kv, 1, seq);
  for (int i = 0; i < 8; i++) assert_int_equal(row[i], 0);
  for (int i = 8; i < 11; i++) assert_true(row[i] > 0);
  for (int i = 0; i < 11; i++) assert_true(row_of(kv, 0, seq)[i] > 0);
  assert_int_equal(gap_kv_truncate(kv, seq, 100), GAP_ESTATE); /* what its next token sees is gone */
  assert_int_equal(gap_kv_truncate(kv, seq, 160), 0);
  int64_t slots[2];
  assert_int_equal(gap_kv_slots(kv, 1, seq, 127, 2, slots), 0);
  assert_int_equal(slots[0], -1);
  assert_true(slots[1] > 0);
  close_cache(kv);
}

/* ---- compaction ---- */

static void half_of_many(void **state) {
  (void)state;
  gap_heap *card = api_open(GAP_BACKEND_SIM, 20 * GIB, NULL);
  gap_kv_options o = GAP_KV_OPTIONS_INIT;
  o.layers = 32, o.heads = 4, o.head_size = 128, o.sequences = 256, o.tokens = 4096,
  o.bytes = 16 * GIB; /* 32 KiB a layer */
  gap_kv *kv = kv_try_open(card, &o);
  gap_kv_request r[256];
  for (int i = 0; i < 256; i++)
    r[i] = (gap_kv_request){.tokens = 16}, assert_int_equal(gap_kv_open(kv, NULL, &r[i].seq, NULL), 0);
  for (int n = 0; n < 50; n++) assert_int_equal(gap_kv_append(kv, r, 256), 0);
  for (uint32_t i = 0, seed = 7; i < 128;) {
    seed = seed * 1664525 + 1013904223;
    gap_kv_request *gone = &r[seed >> 24];
    if (gone->seq && gap_kv_close(kv, gone->seq, 0) == 0) gone->seq = 0, i++;
  }
  gap_kv_compaction c = {.size = sizeof c, .bytes_most = 64 * MIB};
  assert_int_equal(gap_kv_compact(kv, &c), 0);
  assert_true(c.bytes_moved > 0 && c.bytes_moved <= 64 * MIB);
  c.bytes_most = 0;
  assert_int_equal(gap_kv_compact(kv, &c), 0);
  gap_kv_stats s = kv_try_stats(kv);
  uint64_t live = s.bytes_live_tokens + s.bytes_tail;
  assert_true(s.slabs * kv_try_shape(kv).slab_bytes <= live / 100 * 110);
  assert_int_equal(c.pages_returned, (c.slabs_before - c.slabs_after) * (kv_try_shape(kv).slab_bytes / (2 * MIB)));
  assert_true(c.run_after > c.run_before);
  assert_int_equal(api_usage(card, 0).live_bytes, s.bytes_held);
  gap_kv_compaction again = {.size = sizeof again};
  assert_int_equal(gap_kv_compact(kv, &again), 0);
  assert_int_equal(again.bytes_moved, 0);
  kv_try_check(kv);
  gap_kv_destroy(kv);
  api_close(card);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(derived),      cmocka_unit_test(flex_numbers_address_the_same_bytes),
      cmocka_unit_test(deltas),       cmocka_unit_test(windows),
      cmocka_unit_test(half_of_many),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
