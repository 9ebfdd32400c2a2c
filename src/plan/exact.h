/* Exact search: is there a placement below a target?
 *
 * Depth first over canonical placements, after the MiniMalloc paper (Moffitt, ASPLOS 2023): blocks are placed from the bottom
 * up, each on top of what lies below it, so that every placement that cannot sink is met once at most.  Cut off are:
 *   - a section in which no unplaced block is low enough to have the others above it (pile.h);
 *   - an offset at which another block would fit below: that one could sink;
 *   - blocks of equal offset in other than their rank's order.  Those passed over must be raised before they can be placed,
 *     so a block that nothing can raise any more is not passed over.
 * A section that no raised block could serve in time is urgent: one of few blocks comes next, and only these are tried.
 * Groups of unplaced blocks that do not meet are searched apart.
 *
 * One wrong choice at the bottom costs more than can be searched, so many rankings (ranking.h) get small budgets of nodes: a
 * quarter of all nodes goes to the plain ones, with growing budgets, the rest to disturbed ones, with budgets after Luby,
 * Sinclair and Zuckerman (1993). */
#ifndef GAP_PLAN_EXACT_H
#define GAP_PLAN_EXACT_H

#include "plan/clock.h"
#include "plan/problem.h"

#define GAP__PLAN_EXACT_BLOCKS_MAX 2048

enum gap__plan_answer { GAP__PLAN_UNKNOWN, GAP__PLAN_FOUND, GAP__PLAN_NONE };

/* `offsets` is replaced when one is found.  GAP__PLAN_UNKNOWN at `until_ms`, for more than GAP__PLAN_EXACT_BLOCKS_MAX blocks,
 * or for a target of more than GAP__PILE_TARGET_MAX grains.  Deterministic for a seed, but for the clock.  0 or GAP_ENOMETA. */
int gap__plan_exact(const struct gap__plan_problem *, uint64_t target, uint64_t seed, const struct gap__plan_clock *,
                    uint64_t until_ms, uint64_t *offsets, enum gap__plan_answer *answer);

#endif
