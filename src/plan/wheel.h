/* Improvement: the order of a greedy placement learns from what went wrong.
 *
 * Blocks that end above the target come earlier in the next round (squeaky wheel optimisation, Joslin and Clements 1999).  Rounds
 * place only the core: blocks alive when much is.  Where the core fits, the others are placed after it by size; those of them
 * that then end above the target join the core. */
#ifndef GAP_PLAN_WHEEL_H
#define GAP_PLAN_WHEEL_H

#include "plan/clock.h"
#include "plan/order.h"

struct gap__wheel {
  struct gap__board *board;
  double *keys; /* how early a block comes; rise for good */
  uint32_t *others, *core;
  uint32_t other_count, core_count;
  bool *in_core;
  uint64_t target, random;
  uint64_t core_height_best;
};

/* The core begins as the blocks alive at a moment at which at least `share` of the most is live. */
int gap__wheel_open(struct gap__wheel *, struct gap__board *, enum gap__plan_order, uint64_t target, double share,
                    uint64_t seed); /* 0 or GAP_ENOMETA */
void gap__wheel_close(struct gap__wheel *);
/* Rounds until the clock or the target is met.  `offsets`, whose height is *height, is replaced by each better placement. */
int gap__wheel_turn(struct gap__wheel *, const struct gap__plan_clock *, uint64_t until_ms, uint64_t *offsets,
                    uint64_t *height); /* 0 or GAP_ENOMETA */

#endif
