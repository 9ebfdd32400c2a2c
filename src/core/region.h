/* Regions: addresses that are reserved once and stay, of which the caller says part by part where memory is to be.
 *
 * A region is a range in the planned arena of a lane of its own (requests at given places, as those of a plan): what is committed is
 * an ordinary live block, freed like any other, whose pages then serve anybody. */
#ifndef GAP_REGION_H
#define GAP_REGION_H

#include "core/state.h"

/* Addresses for `bytes`, at most 2^40 - 2^21, in order of `stream`, for the one user of `pool`.  They may have been another region's of a
 * pool that was released.  GAP_ENOMEM: the driver has no such window; GAP_ENOMETA, GAP_ELIMIT. */
int gap__region_open(struct gap__policy_state *, gap_stream, gap_pool_id, uint64_t bytes, gap_addr *base);
/* Nothing is committed any more. */
void gap__region_close(struct gap__policy_state *, gap_addr base);
/* Puts memory behind [addr, addr + bytes), whole pages of a region, where there is none: a live block.  The ladder is climbed up to
 * where a wait would begin.  GAP_EAGAIN: something lives there; GAP_ENOMEM, GAP_ENOTMINE, GAP_ENOMETA. */
int gap__region_commit(struct gap__policy_state *, gap_addr addr, uint64_t bytes);

#endif
