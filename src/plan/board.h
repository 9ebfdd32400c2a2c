/* Blocks placed so far, and where the next one fits: the lowest gap that is free during all of a block's life.
 *
 * Blocks lie in order of birth.  A tree of maxima over their deaths, of placed blocks only, lists those that meet a life in
 * time proportional to their number: they are born before it ends and die after it begins. */
#ifndef GAP_PLAN_BOARD_H
#define GAP_PLAN_BOARD_H

#include "plan/problem.h"

struct gap__board {
  const struct gap__plan_problem *problem;
  uint64_t *offsets; /* GAP__PLAN_UNPLACED or the offset; of the problem's blocks, in their order */
  uint32_t *deaths;  /* tree: leaves [leaves, 2 x leaves), 0 where not placed */
  uint32_t leaves;
  uint32_t *reach;        /* how many blocks are born before this one dies */
  uint64_t *keys, *spare; /* of the blocks met: offset << 24 | index */
  uint32_t key_count;
};

int gap__board_open(struct gap__board *, const struct gap__plan_problem *); /* 0 or GAP_ENOMETA; nothing is placed */
void gap__board_close(struct gap__board *);
void gap__board_clear(struct gap__board *);

/* Lists the placed blocks that meet block `index`, itself left out, into keys; in no order. */
void gap__board_meet(struct gap__board *, uint32_t index);
/* The lowest offset at which it fits. */
uint64_t gap__board_lowest(struct gap__board *, uint32_t index);
void gap__board_place(struct gap__board *, uint32_t index, uint64_t offset);
void gap__board_remove(struct gap__board *, uint32_t index);
/* Places all of `offsets` that are not GAP__PLAN_UNPLACED. */
void gap__board_load(struct gap__board *, const uint64_t *offsets);

static inline uint32_t gap__board_key_block(uint64_t key) { return (uint32_t)key & (GAP__PLAN_BLOCKS_MAX - 1); }

#endif
