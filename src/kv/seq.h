/* Sequences: their tokens, their KV pages, their names.  Under the cache's lock. */
#ifndef GAP_KV_SEQ_H
#define GAP_KV_SEQ_H

#include "kv/state.h"

static inline gap_kv_seq kv_handle(const struct gap_kv *kv, uint32_t index) {
  return (uint64_t)kv_seq_at(kv, index)->generation << 32 | index;
}
/* The record that a handle names: GAP_EFREED where it was closed, GAP_EINVAL where it never was. */
static inline int kv_find(const struct gap_kv *kv, gap_kv_seq handle, uint32_t *index) {
  uint32_t i = (uint32_t)handle;
  if (i == 0 || i >= kv->seqs.count) return GAP_EINVAL;
  const struct kv_seq *s = kv_seq_at(kv, i);
  if (!s->live || s->generation != handle >> 32) return GAP_EFREED;
  *index = i;
  return 0;
}

/* An empty one; 0: no row is left. */
uint32_t gap__kv_seq_begin(struct gap_kv *, uint64_t tenant, uint64_t session);
/* Why there was none. */
static inline int kv_no_row(const struct gap_kv *kv) { return kv->seqs.in_use >= kv->rows ? GAP_ELIMIT : GAP_ENOMETA; }
/* Its row is free; it names no KV page any more. */
void gap__kv_seq_end(struct gap_kv *, uint32_t seq);

/* What was given to the last append has been computed: it is offered to others, and what others offer already replaces it. */
void gap__kv_seq_offer(struct gap_kv *, uint32_t seq);
/* The same for its last KV page, which is not full. */
void gap__kv_seq_offer_tail(struct gap_kv *, uint32_t seq);
/* It ends at this node, as many KV pages deep. */
void gap__kv_seq_move(struct gap_kv *, uint32_t seq, uint32_t node, uint32_t node_pages);

/* gap_kv_append in its two halves: what it takes, then, once that many KV pages are free, the doing. */
int gap__kv_append_need(struct gap_kv *, uint32_t seq, uint32_t tokens, uint32_t *pages);
void gap__kv_append_do(struct gap_kv *, uint32_t seq, uint32_t tokens, const int32_t *ids);
int gap__kv_append(struct gap_kv *, const gap_kv_request *, uint32_t count);

/* Keeps the first `tokens`. */
int gap__kv_truncate(struct gap_kv *, uint32_t seq, uint32_t tokens);

#endif
