/* A placement problem: blocks that live from one moment to another and need an address each, so that no two that live at
 * the same moment overlap and the highest end is low (offline dynamic storage allocation).
 *
 * Moments are ranks, not times: [from, to) are two positions in a common order of births and deaths.  Sizes and offsets are
 * in grains, the greatest unit of which every size and alignment is a multiple. */
#ifndef GAP_PLAN_PROBLEM_H
#define GAP_PLAN_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GAP__PLAN_BLOCKS_MAX ((uint32_t)1 << 24) /* an index fits beside an offset in one key: see greedy.c */
#define GAP__PLAN_GRAINS_MAX ((uint64_t)1 << 40) /* sum of all sizes, so no offset is beyond it */
#define GAP__PLAN_UNPLACED UINT64_MAX

struct gap__plan_block {
  uint64_t size;     /* grains, at least 1 */
  uint64_t align;    /* grains, at least 1 */
  uint32_t from, to; /* from < to <= moments */
};

struct gap__plan_problem {
  struct gap__plan_block *at; /* in order of `from` */
  uint32_t count, moments;
  const uint64_t *times; /* of moments 0 to `moments`; NULL: not known */
};

/* A lower bound of every placement: the most grains that live at one moment. */
int gap__plan_bound(const struct gap__plan_problem *, uint64_t *bound); /* 0 or GAP_ENOMETA */
/* The highest end of a placement; blocks that are not placed count nothing. */
uint64_t gap__plan_height(const struct gap__plan_problem *, const uint64_t *offsets);

static inline uint64_t gap__plan_align(uint64_t offset, uint64_t align) {
  return align == 1 ? offset : (offset + align - 1) / align * align;
}

#endif
