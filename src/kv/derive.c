/* Tables in the forms that attention kernels read, from the block tables. */
#include "kv/seq.h"

static int find_resident(struct gap_kv *kv, gap_kv_seq handle, const struct kv_seq **s, uint32_t *index) {
  int rc = kv_find(kv, handle, index);
  if (rc) return rc;
  *s = kv_seq_at(kv, *index);
  return (*s)->swapped ? GAP_ESTATE : 0;
}

static int each_resident(struct gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, uint64_t *entries) {
  const struct kv_seq *s;
  uint32_t index;
  int rc = 0;
  *entries = 0;
  for (uint32_t i = 0; !rc && i < count; i++) {
    rc = find_resident(kv, seqs[i], &s, &index);
    if (!rc) *entries += s->columns - s->first[group];
  }
  return rc;
}

static bool fit(gap_kv *kv, uint32_t group, const void *seqs, uint32_t count) {
  return kv && group < kv->options.group_count && (seqs || !count);
}

static void csr(struct gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, int32_t *indptr,
                int32_t *indices, int32_t *last) {
  int32_t at = 0;
  indptr[0] = 0;
  for (uint32_t i = 0; i < count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, (uint32_t)seqs[i]);
    const uint32_t *row = kv_row(kv, group, (uint32_t)seqs[i]);
    for (uint32_t c = s->first[group]; c < s->columns; c++) indices[at++] = kv_id(kv, row[c]);
    indptr[i + 1] = at;
    last[i] = s->length ? (int32_t)(((s->length - 1) & (kv->options.page_tokens - 1)) + 1) : 0;
  }
}

int gap_kv_csr(gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, int32_t *indptr, int32_t *indices,
               uint32_t room, int32_t *last_page_len, uint32_t *needed) {
  uint64_t entries;
  if (!fit(kv, group, seqs, count) || !indptr || (!indices && room) || (!last_page_len && count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = each_resident(kv, group, seqs, count, &entries);
  if (!rc && needed) *needed = (uint32_t)entries;
  if (!rc && entries > room) rc = GAP_ELIMIT;
  if (!rc) csr(kv, group, seqs, count, indptr, indices, last_page_len);
  gap__unlock(&kv->lock);
  return rc;
}

static void slots(const struct gap_kv *kv, const struct kv_seq *s, const uint32_t *row, uint32_t group, uint32_t from,
                  uint32_t count, int64_t *out) {
  uint32_t inside = kv->options.page_tokens - 1;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t column = (from + i) >> kv->token_shift;
    out[i] =
        column < s->first[group] ? -1 : ((int64_t)kv_id(kv, row[column]) << kv->token_shift) + ((from + i) & inside);
  }
}

int gap_kv_slots(gap_kv *kv, uint32_t group, gap_kv_seq seq, uint32_t from, uint32_t count, int64_t *out) {
  const struct kv_seq *s;
  uint32_t index;
  if (!fit(kv, group, out, count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = find_resident(kv, seq, &s, &index);
  if (!rc && (from > s->length || count > s->length - from)) rc = GAP_EINVAL;
  if (!rc) slots(kv, s, kv_row(kv, group, index), group, from, count, out);
  gap__unlock(&kv->lock);
  return rc;
}

static uint32_t flex_scale(const struct gap_kv *kv) {
  return (kv->slab_shift ? 1 : kv->layers) * 2 * (kv->options.order == GAP_KV_HND ? kv->options.heads : 1);
}

static int flex_row(const struct gap_kv *kv, uint32_t group, uint32_t seq, uint32_t columns, int32_t *blocks,
                    int32_t *out) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t n = s->columns - s->first[group], scale = flex_scale(kv);
  if (n > columns) return GAP_ELIMIT;
  if ((uint64_t)kv_id(kv, kv->page_count - 1) * scale > INT32_MAX) return GAP_ELIMIT;
  *blocks = (int32_t)n;
  for (uint32_t i = 0; i < columns; i++)
    out[i] = i < n ? kv_id(kv, kv_row(kv, group, seq)[s->first[group] + i]) * (int32_t)scale : 0;
  return 0;
}

int gap_kv_flex(gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, uint32_t columns,
                int32_t *kv_num_blocks, int32_t *kv_indices) {
  uint64_t entries;
  if (!fit(kv, group, seqs, count) || ((!kv_num_blocks || !kv_indices) && count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = each_resident(kv, group, seqs, count, &entries);
  for (uint32_t i = 0; !rc && i < count; i++)
    rc = flex_row(kv, group, (uint32_t)seqs[i], columns, kv_num_blocks + i, kv_indices + (size_t)i * columns);
  gap__unlock(&kv->lock);
  return rc;
}
