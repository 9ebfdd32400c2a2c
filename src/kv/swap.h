/* Sequences in pinned host memory.  The host side has the geometry of the device's slabs.  Under the cache's lock. */
#ifndef GAP_KV_SWAP_H
#define GAP_KV_SWAP_H

#include "kv/state.h"

int gap__kv_host_init(struct gap_kv *);
void gap__kv_host_free(struct gap_kv *);
void gap__kv_host_drop(struct gap_kv *, uint32_t seq); /* its host KV pages are free, its row is empty */

/* Pins more until `need` KV pages are free; GAP_ENOMEM. */
int gap__kv_host_ensure(struct gap_kv *, uint32_t need);
uint32_t gap__kv_host_take(struct gap_kv *); /* counted from 1; there is one */
void gap__kv_host_give(struct gap_kv *, uint32_t page);
uint32_t gap__kv_host_room(const struct gap_kv *); /* that are free, or may be pinned */

int gap__kv_swap_out(struct gap_kv *, uint32_t seq);
/* KV pages that coming back takes, at most. */
uint32_t gap__kv_swap_need(const struct gap_kv *, uint32_t seq);
/* GAP_EAGAIN, too, while it comes from the disk; GAP_EIO: it cannot be read there. */
int gap__kv_swap_in(struct gap_kv *, uint32_t seq);
/* What was lost has to be computed again: the sequence is empty. */
int gap__kv_swap_forget(struct gap_kv *, uint32_t seq);

#endif
