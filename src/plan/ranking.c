#include "plan/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "gapless/gapless.h"
#include "plan/order.h"

enum key { CROWD, LENGTH, AREA, SIZE, KEYS };
enum { DEPTH = 3, ORDERS = 6 };

static const enum key orders[ORDERS][DEPTH] = {{CROWD, AREA, LENGTH}, {CROWD, LENGTH, AREA}, {LENGTH, AREA, CROWD},
                                               {AREA, LENGTH, CROWD}, {SIZE, LENGTH, CROWD}, {CROWD, SIZE, LENGTH}};

struct ranked {
  double keys[KEYS];
  const enum key *order; /* highest first, the first one first */
  uint32_t block;
};

static int by_keys(const void *a, const void *b) {
  const struct ranked *left = a, *right = b;
  for (int i = 0; i < DEPTH; i++) {
    double one = left->keys[left->order[i]], other = right->keys[left->order[i]];
    if (one != other) return one > other ? -1 : 1;
  }
  return left->block < right->block ? -1 : left->block > right->block;
}

static int fill_live(const struct gap__plan_problem *problem, uint64_t **live) {
  *live = calloc((size_t)problem->moments + 1, sizeof **live);
  if (!*live) return GAP_ENOMETA;
  for (uint32_t b = 0; b < problem->count; b++)
    for (uint32_t s = problem->at[b].from; s < problem->at[b].to; s++) (*live)[s] += problem->at[b].size;
  return 0;
}

static void fill_keys(const struct gap__plan_problem *problem, const uint64_t *live, bool timed,
                      struct ranked *ranked) {
  for (uint32_t b = 0; b < problem->count; b++) {
    const struct gap__plan_block *block = &problem->at[b];
    uint64_t crowd = 0,
             length = timed ? problem->times[block->to] - problem->times[block->from] : block->to - block->from;
    for (uint32_t s = block->from; s < block->to; s++)
      if (live[s] > crowd) crowd = live[s];
    ranked[b].block = b;
    ranked[b].keys[CROWD] = (double)crowd;
    ranked[b].keys[LENGTH] = (double)length;
    ranked[b].keys[SIZE] = (double)block->size;
    ranked[b].keys[AREA] = (double)length * (double)block->size;
  }
}

static void fill_plain(struct gap__rankings *rankings, const struct gap__plan_problem *problem, const uint64_t *live,
                       struct ranked *ranked) {
  for (uint32_t i = 0; i < rankings->count; i++) {
    uint32_t *rank = rankings->plain + (size_t)i * problem->count;
    fill_keys(problem, live, i >= ORDERS, ranked);
    for (uint32_t b = 0; b < problem->count; b++) ranked[b].order = orders[i % ORDERS];
    qsort(ranked, problem->count, sizeof *ranked, by_keys);
    for (uint32_t b = 0; b < problem->count; b++) rank[ranked[b].block] = b;
  }
}

int gap__rankings_open(struct gap__rankings *rankings, const struct gap__plan_problem *problem, uint64_t seed) {
  struct ranked *ranked = malloc((problem->count + 1) * sizeof *ranked);
  uint64_t *live = NULL;
  *rankings = (struct gap__rankings){.count = problem->times ? 2 * ORDERS : ORDERS, .block_count = problem->count};
  rankings->random = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
  rankings->plain = malloc(((size_t)rankings->count * problem->count + 1) * sizeof *rankings->plain);
  rankings->keys = malloc((problem->count + 1) * sizeof *rankings->keys);
  rankings->indices = malloc((problem->count + 1) * sizeof *rankings->indices);
  bool ok = ranked && rankings->plain && rankings->keys && rankings->indices && fill_live(problem, &live) == 0;
  if (ok) fill_plain(rankings, problem, live, ranked);
  free(ranked);
  free(live);
  if (!ok) gap__rankings_close(rankings);
  return ok ? 0 : GAP_ENOMETA;
}

void gap__rankings_close(struct gap__rankings *rankings) {
  free(rankings->plain);
  free(rankings->keys);
  free(rankings->indices);
  *rankings = (struct gap__rankings){0};
}

const uint32_t *gap__rankings_plain(const struct gap__rankings *rankings, uint32_t index) {
  return rankings->plain + (size_t)index * rankings->block_count;
}

uint64_t gap__rankings_random(struct gap__rankings *rankings) {
  rankings->random ^= rankings->random << 13;
  rankings->random ^= rankings->random >> 7;
  rankings->random ^= rankings->random << 17;
  return rankings->random >> 8;
}

/* In [0, 1). */
static double next_share(struct gap__rankings *rankings) {
  return (double)(gap__rankings_random(rankings) % 65536) / 65536;
}

int gap__rankings_disturbed(struct gap__rankings *rankings, uint32_t *rank) {
  static const double least = 0.001, most = 0.05; /* the share, with a uniform logarithm */
  uint32_t count = rankings->block_count;
  const uint32_t *plain = gap__rankings_plain(rankings, (uint32_t)(gap__rankings_random(rankings) % rankings->count));
  double reach = least * pow(most / least, next_share(rankings)) * (double)count;
  for (uint32_t b = 0; b < count; b++) {
    rankings->keys[b] = -((double)plain[b] + reach * (2 * next_share(rankings) - 1));
    rankings->indices[b] = b;
  }
  int rc = gap__plan_order_sort(rankings->keys, rankings->indices, count);
  for (uint32_t i = 0; !rc && i < count; i++) rank[rankings->indices[i]] = i;
  return rc;
}
