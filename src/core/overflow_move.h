/* Live blocks between the device and host memory, at the same addresses.
 *
 * The allocator cannot see what kernels use, so which blocks are *cold* is said by the program (gap_hint): optimiser states, what is kept for
 * later.  They go to host memory when requests found no device memory, the largest first; and stay there until they are freed or called
 * warm.  All others that lie there come back when there is room: those that were placed there, and those that are cold no more.
 *
 * Only chunks move that lie wholly under one cold block.  Nothing may run on the device meanwhile, as for conversion, with the same
 * exceptions (convert.h); a cold block carries a mark among its uses (pending.h), so that its free takes the slow way and finds what was
 * moved.  All under the device lock, no lane lock held. */
#ifndef GAP_OVERFLOW_MOVE_H
#define GAP_OVERFLOW_MOVE_H

#include "core/convert.h"

/* The live block that covers an address is cold, or no more.  0, also for one without a page of its own; GAP_ENOTMINE, GAP_EFREED,
 * GAP_ENOMETA.  Takes the device lock itself. */
int gap__overflow_hint(struct gap__policy_state *, gap_addr, bool cold);

/* Memory of cold blocks goes to host memory, `pages` of it or more where there is so much.  Returns pages that came free on the device. */
uint64_t gap__overflow_chill(struct gap__policy_state *, uint64_t pages, enum gap__stillness);
/* Up to `most` pages of other blocks come back.  Idle memory of the device goes for them.  Returns pages. */
uint64_t gap__overflow_return(struct gap__policy_state *, uint64_t most, enum gap__stillness);
/* A safe point: cold blocks make room for what lacked it since the last one, and others come back. */
void gap__overflow_balance(struct gap__policy_state *);

#endif
