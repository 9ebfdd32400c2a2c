/* Blocks piled up from the bottom: each lies on the highest of those below it, and every step can be taken back.
 *
 * Time falls into sections, between two neighbouring moments.  What the search asks for is kept up to date:
 *   low[b]       the lowest offset left to block b: the highest end of the placed blocks that meet it
 *   left[s]      sum of the unplaced blocks alive in section s
 *   crossing[s]  unplaced blocks alive both in section s - 1 and in s: none, and the two sides no longer meet
 * A section has room while some unplaced block in it is low enough to have all the others above it.  witness[s] is one that
 * was so last; another is looked for only when it no longer is. */
#ifndef GAP_PLAN_PILE_H
#define GAP_PLAN_PILE_H

#include "plan/problem.h"

#define GAP__PILE_GONE UINT32_MAX                /* low of a placed block */
#define GAP__PILE_TARGET_MAX ((uint32_t)1 << 31) /* so that no sum of an offset and a size overflows */

struct gap__pile_change { /* of a block's low */
  uint32_t block, old;
};

struct gap__pile {
  uint32_t count, section_count;
  uint32_t target;
  /* the problem, for good */
  const struct gap__plan_block *at;
  uint32_t *size;
  uint32_t *near, *near_start;      /* blocks that meet block b: near[near_start[b]] to near[near_start[b + 1]] */
  uint32_t *members, *member_start; /* blocks alive in section s, likewise */
  uint32_t *first;                  /* the first block born in section s or later */
  /* what changes */
  uint32_t *low, *left, *crossing;
  uint32_t *placed, *offset, placed_count; /* blocks in order of placement; each one's offset */
  struct gap__pile_change *changes;
  size_t change_count;
  /* what only saves time */
  uint32_t *witness;
  uint32_t tight; /* the section that last had no room */
};

struct gap__pile_mark {
  size_t changes;
  uint32_t placed;
};

/* Nothing is placed.  The target is at least gap__plan_bound() and at most GAP__PILE_TARGET_MAX.  0 or GAP_ENOMETA. */
int gap__pile_open(struct gap__pile *, const struct gap__plan_problem *, uint64_t target);
void gap__pile_close(struct gap__pile *);

/* Places an unplaced block as low as it goes; the rest will lie at its offset or above.  False: some section has no room for
 * it, and the pile is to be taken back to a mark. */
bool gap__pile_place(struct gap__pile *, uint32_t block);
void gap__pile_take_back(struct gap__pile *, struct gap__pile_mark);

/* No block that lies higher can be the lowest unplaced one of this section. */
static inline uint32_t gap__pile_limit(const struct gap__pile *pile, uint32_t section) {
  return pile->target - pile->left[section];
}

static inline struct gap__pile_mark gap__pile_mark(const struct gap__pile *pile) {
  return (struct gap__pile_mark){pile->change_count, pile->placed_count};
}

#endif
