/* Improvement: makes an existing placement fit under a target.
 *
 * Guided ejection (after Nagata and Braysy's for routing, 2009): blocks that end above the target are taken out.  Each in turn
 * goes into a free gap, or else where the blocks in its way are cheapest to eject, which are then in turn to be placed.  A
 * block's price rises each time it finds no gap, so that the search turns to other places instead of running in circles. */
#ifndef GAP_PLAN_EJECT_H
#define GAP_PLAN_EJECT_H

#include "plan/board.h"
#include "plan/clock.h"

/* `offsets` (all placed) is replaced when a placement of at most `target` is found: *found.  Stops at `until_ms`.  With an odd
 * seed prices count by size too.  Deterministic for a seed, but for the clock.  0 or GAP_ENOMETA. */
int gap__plan_eject(struct gap__board *, uint64_t target, uint64_t seed, const struct gap__plan_clock *,
                    uint64_t until_ms, uint64_t *offsets, bool *found);

#endif
