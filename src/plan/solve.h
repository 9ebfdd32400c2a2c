/* The whole search for a placement: greedy orders, then improvement and exact search in turns until time is up. */
#ifndef GAP_PLAN_SOLVE_H
#define GAP_PLAN_SOLVE_H

#include "plan/clock.h"
#include "plan/order.h"

struct gap__plan_solution {
  uint64_t *offsets; /* of each block; malloc'ed */
  uint64_t height, bound, greedy_height;
  enum gap__plan_order greedy_order; /* the best one */
  const char *method;                /* what found the placement: "greedy", "reordering", "ejection", "exact" */
  bool proved;                       /* no lower placement exists */
};

/* Stops at `target` (grains; 0: at the bound) or when the clock's limit is reached.  `offsets` is to be freed by
 * gap__plan_solution_free whatever is returned.  0 or GAP_ENOMETA. */
int gap__plan_solve(const struct gap__plan_problem *, uint64_t target, const struct gap__plan_clock *,
                    struct gap__plan_solution *);
void gap__plan_solution_free(struct gap__plan_solution *);

#endif
