/* Sequences that were closed or swapped out while another stream uses their KV pages: an event tells when these go.  Under the cache's lock. */
#ifndef GAP_KV_LEAVE_H
#define GAP_KV_LEAVE_H

#include "kv/state.h"

/* Room for one more with `count` table entries, and the event, recorded on `stream` now: what follows cannot fail.  The
 * cache's own stream needs none. */
int gap__kv_leave_prepare(struct gap_kv *, uint32_t count, gap_stream stream, struct kv_leaving *out);
void gap__kv_leave_cancel(struct gap_kv *, struct kv_leaving *);
/* Takes all table entries of the sequence into `leaving`, the last first; the row itself is the caller's, or ends with the sequence. */
void gap__kv_leave_collect(struct gap_kv *, uint32_t seq, struct kv_leaving *leaving);
/* They go when the event has passed: at once if there is none. */
void gap__kv_leave(struct gap_kv *, struct kv_leaving *);
void gap__kv_leaving_poll(struct gap_kv *);
void gap__kv_leaving_finish(struct gap_kv *); /* waits for all of them */

/* Whatever is queued on `later` from here on runs after what is queued on `earlier`. */
int gap__kv_order(struct gap_kv *, gap_stream earlier, gap_stream later);

#endif
