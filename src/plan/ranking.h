/* Rankings: which of two blocks that could lie at the same offset exact search prefers.
 *
 * Plain ones sort by the most that lives at any moment of a block's life (crowd), its length, size and area.  A length is
 * counted in moments, and where the problem knows times, in time too. */
#ifndef GAP_PLAN_RANKING_H
#define GAP_PLAN_RANKING_H

#include "plan/problem.h"

struct gap__rankings {
  uint32_t count, block_count;
  uint32_t *plain;   /* `count` rankings, one after the other: the rank of each block */
  double *keys;      /* scratch */
  uint32_t *indices; /* scratch */
  uint64_t random;
};

int gap__rankings_open(struct gap__rankings *, const struct gap__plan_problem *, uint64_t seed); /* 0 or GAP_ENOMETA */
void gap__rankings_close(struct gap__rankings *);
const uint32_t *gap__rankings_plain(const struct gap__rankings *, uint32_t index);
/* A plain one in which every block moved by up to some share of all ranks. */
int gap__rankings_disturbed(struct gap__rankings *, uint32_t *rank); /* 0 or GAP_ENOMETA */
uint64_t gap__rankings_random(struct gap__rankings *);

#endif
