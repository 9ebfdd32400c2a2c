#include "plan/problem.h"

#include <stdlib.h>

#include "gapless/gapless.h"

int gap__plan_bound(const struct gap__plan_problem *problem, uint64_t *bound) {
  int64_t *change = calloc((size_t)problem->moments + 1, sizeof *change);
  int64_t live = 0, most = 0;
  if (!change) return GAP_ENOMETA;
  for (uint32_t i = 0; i < problem->count; i++) {
    change[problem->at[i].from] += (int64_t)problem->at[i].size;
    change[problem->at[i].to] -= (int64_t)problem->at[i].size;
  }
  for (uint32_t t = 0; t <= problem->moments; t++)
    if ((live += change[t]) > most) most = live;
  free(change);
  *bound = (uint64_t)most;
  return 0;
}

uint64_t gap__plan_height(const struct gap__plan_problem *problem, const uint64_t *offsets) {
  uint64_t height = 0;
  for (uint32_t i = 0; i < problem->count; i++) {
    if (offsets[i] == GAP__PLAN_UNPLACED) continue;
    if (offsets[i] + problem->at[i].size > height) height = offsets[i] + problem->at[i].size;
  }
  return height;
}
