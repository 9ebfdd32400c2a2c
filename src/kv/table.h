/* Block tables and what the device does not know of them yet.  Under the cache's lock. */
#ifndef GAP_KV_TABLE_H
#define GAP_KV_TABLE_H

#include "kv/state.h"

int gap__kv_table_init(struct gap_kv *);
void gap__kv_table_free(struct gap_kv *);

/* Columns [from, to) of a row have changed. */
static inline void kv_mark(struct gap_kv *kv, uint32_t group, uint32_t seq, uint32_t from, uint32_t to) {
  struct kv_dirty *d = &kv->dirty[group][seq - 1];
  if (d->from >= d->to) {
    if (from >= to) return;
    *d = (struct kv_dirty){from, to};
    kv->dirty_rows[kv->dirty_count++] = group * kv->rows + seq - 1;
    return;
  }
  if (from < d->from) d->from = from;
  if (to > d->to) d->to = to;
}
static inline void kv_set(struct gap_kv *kv, uint32_t group, uint32_t seq, uint32_t column, uint32_t page) {
  kv_row(kv, group, seq)[column] = page;
  kv_mark(kv, group, seq, column, column + 1);
}
/* The columns from here on name nothing any more; whom they named is the caller's business. */
void gap__kv_row_clear(struct gap_kv *, uint32_t seq, uint32_t from_column);

/* Copies on write: room for `count` more first, then they cannot fail to be noted. */
int gap__kv_copies_room(struct gap_kv *, uint32_t count);
static inline void kv_copy_note(struct gap_kv *kv, uint32_t from, uint32_t to) {
  kv->copies[kv->copy_count++] = (gap_kv_entry){from, (int32_t)to};
  kv->stats.copied_on_write++;
}
int gap__kv_copies_queue(struct gap_kv *);
int gap__kv_flush(struct gap_kv *);

/* compact.c: moves KV pages so that slabs empty; they are still the cache's. */
int gap__kv_compact(struct gap_kv *, gap_kv_compaction *);

/* Copies KV pages on a stream, in this order; neighbours that go to neighbours at once.  Both sides are slabs, from these addresses on. */
int gap__kv_copy_by(struct gap_kv *, bool kernel, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                    gap_stream);
int gap__kv_copy(struct gap_kv *, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count, gap_stream);

#endif
