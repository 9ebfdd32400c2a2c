/* Sequences in pinned host memory.  The host side has the geometry of the device's slabs.  Under the cache's lock. */
#ifndef GAP_KV_SWAP_H
#define GAP_KV_SWAP_H

#include "kv/state.h"

int gap__kv_host_init(struct gap_kv *);
void gap__kv_host_free(struct gap_kv *);
void gap__kv_host_drop(struct gap_kv *, uint32_t seq); /* its host KV pages are free, its row is empty */

int gap__kv_swap_out(struct gap_kv *, uint32_t seq);
/* KV pages that coming back takes, at most. */
uint32_t gap__kv_swap_need(const struct gap_kv *, uint32_t seq);
int gap__kv_swap_in(struct gap_kv *, uint32_t seq);

#endif
