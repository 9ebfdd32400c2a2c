/* Exact search: is there a placement below a target?
 *
 * Branch and bound over canonical placements, after the MiniMalloc paper (Moffitt, ASPLOS 2023): blocks are placed from the
 * bottom up, each on top of what lies below it, so that every placement is met once at most.  Cut off are:
 *   - an offset at which another block would fit below (that one could be moved down);
 *   - blocks of equal offset in other than their rank's order (they do not meet, so their order is of no matter);
 *   - a moment whose unplaced blocks no longer fit between what they must lie on and the target;
 *   - all other choices, once a block that nothing must lie on has been tried.
 * Groups of unplaced blocks that do not meet are searched apart.  Several rankings take turns with growing budgets. */
#ifndef GAP_PLAN_EXACT_H
#define GAP_PLAN_EXACT_H

#include "plan/clock.h"
#include "plan/problem.h"

#define GAP__PLAN_EXACT_BLOCKS_MAX 2048

enum gap__plan_answer { GAP__PLAN_UNKNOWN, GAP__PLAN_FOUND, GAP__PLAN_NONE };

/* `offsets` is replaced when one is found.  GAP__PLAN_UNKNOWN at `until_ms`, or for more than GAP__PLAN_EXACT_BLOCKS_MAX
 * blocks.  0 or GAP_ENOMETA. */
int gap__plan_exact(const struct gap__plan_problem *, uint64_t target, const struct gap__plan_clock *,
                    uint64_t until_ms, uint64_t *offsets, enum gap__plan_answer *answer);

#endif
