/* Fetches, between what decides on them and what carries them out.  Under the cache's lock. */
#ifndef GAP_KV_BELOW_FETCH_H
#define GAP_KV_BELOW_FETCH_H

#include "kv/below.h"
#include "kv/leave.h"
#include "kv/worth.h"

void gap__kv_fetch_advance(struct kv_below *, struct kv_fetch *);
void gap__kv_fetch_free(struct kv_fetch *);
/* Is a column of no use without this group's KV page? */
bool gap__kv_fetch_needs(const struct gap_kv *, uint32_t group);
/* Does the fetch want this KV page at all?  Of a group with a window only what its end sees. */
bool gap__kv_fetch_wants(const struct gap_kv *, const struct kv_fetch *, uint32_t group, uint32_t column);
/* The node of a column of the prompt; 0: there is none, or no memory for it. */
uint32_t gap__kv_fetch_node(struct gap_kv *, const struct kv_fetch *, uint32_t parent, uint32_t column, bool make);
/* The path ends at this node from here on. */
void gap__kv_fetch_step(struct gap_kv *, struct kv_fetch *, uint32_t node);
/* The KV page stays until the fetch has ended. */
void gap__kv_fetch_keep(struct gap_kv *, struct kv_fetch *, uint32_t page);

#endif
