/* KV pages that are being copied.  Under the cache's lock.
 *
 * *Held* ones have a reference: no table names them, they are written to, or must not be evicted.  Those that are
 * *read* only go on as ever, in use, cached or evicted, in the order that they had; but who would be free stays in
 * limbo until the copy has ended.  Neither are moved.
 *
 *     limbo: state used, one reference, no node;  readers = holds that read it */
#ifndef GAP_KV_HOLD_H
#define GAP_KV_HOLD_H

#include "kv/state.h"

/* `pages` have a reference each that is the hold's from here on; `node` (0: none) is kept, too. */
void gap__kv_hold(struct gap_kv *, struct kv_hold *);
/* Lets go of both. */
void gap__kv_unhold(struct gap_kv *, struct kv_hold *);

void gap__kv_read_begin(struct gap_kv *, struct kv_hold *);
void gap__kv_read_end(struct gap_kv *, struct kv_hold *);

#endif
