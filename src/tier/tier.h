/* What a heap has beyond its cards: the public calls of tier.h, by device. */
#ifndef GAP_TIER_H
#define GAP_TIER_H

#include "core/heap.h"
#include "gapless/tier.h"

struct gap__tier;

/* `tiers` is the configuration's text, which has been checked.  Nothing is taken yet. */
int gap__tier_create(gap_heap *, const char *tiers, struct gap__tier **out);
/* Before the heap; nobody uses it any more.  NULL is fine. */
void gap__tier_destroy(struct gap__tier *);

/* Host memory behind device addresses: a gap__host_fn's work. */
bool gap__tier_overflow(struct gap__tier *, int64_t bytes, char *why, size_t why_bytes);
int gap__tier_reserve_host(struct gap__tier *, int device, uint64_t bytes);
int gap__tier_sleep(struct gap__tier *, int device, const char *tag, unsigned flags, uint64_t *freed);
int gap__tier_wake(struct gap__tier *, int device, const char *tag, unsigned flags);
int gap__tier_wake_block(struct gap__tier *, gap_addr);
/* Items. */
int gap__tier_put(struct gap__tier *, int device, const gap_span *, uint32_t count, gap_stream, unsigned flags,
                  gap_item *out);
int gap__tier_get(struct gap__tier *, int device, gap_item, uint64_t from, const gap_span *, uint32_t count,
                  gap_stream);
int gap__tier_join(struct gap__tier *, int device, gap_item, gap_stream);
int gap__tier_wait(struct gap__tier *, int device, gap_item);
int gap__tier_look(struct gap__tier *, int device, gap_item,
                   gap_item_info *out); /* never held up by what sleeps or wakes */
int gap__tier_drop(struct gap__tier *, int device, gap_item);
int gap__tier_figures(struct gap__tier *, int device, gap_tiers *out);

#endif
