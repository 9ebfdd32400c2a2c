/* What the strategy `gapless` can say and do about given addresses, off the hot path: a block at an address, and the chunks
 * behind a block. */
#ifndef GAP_AT_H
#define GAP_AT_H

#include "core/state.h"

/* Makes the idle memory at `addr` a live block of its lane.  GAP_ENOTMINE, GAP_EINVAL, GAP_EAGAIN: not idle; GAP_ENOMETA. */
int gap__at_alloc(struct gap__policy_state *, gap_addr, uint64_t bytes);
/* Visits the chunks behind the live or pending block that `addr` lies in.  GAP_ENOTMINE, GAP_EFREED. */
int gap__at_pieces(struct gap__policy_state *, gap_addr, gap__piece_fn *, void *arg);

/* The memory behind that block is known to others from now on: it is never exchanged until it is given back to the driver. */
int gap__at_keep(struct gap__policy_state *, gap_addr);

#endif
