#include "plan/order.h"

#include <math.h>
#include <stdlib.h>

#include "gapless/gapless.h"

const char *gap__plan_order_name(enum gap__plan_order order) {
  static const char *const names[GAP__PLAN_ORDER_COUNT] = {"size", "lifetime", "area", "conflict", "class", "birth"};
  return (unsigned)order < GAP__PLAN_ORDER_COUNT ? names[order] : "unknown";
}

static double key_of(const struct gap__board *board, enum gap__plan_order order, uint32_t index) {
  const struct gap__plan_block *block = &board->problem->at[index];
  double size = (double)block->size, length = (double)(block->to - block->from);
  switch (order) {
    case GAP__PLAN_BY_SIZE: return size;
    case GAP__PLAN_BY_LENGTH: return length;
    case GAP__PLAN_BY_AREA: return size * length;
    case GAP__PLAN_BY_CLASS: return ceil(log2(length)) * 0x1p44 + size;
    default: return -(double)index;
  }
}

/* A block meets those born in its life and those alive at its birth. */
static void conflict_keys(const struct gap__board *board, double *keys) {
  const struct gap__plan_problem *problem = board->problem;
  for (uint32_t i = 0; i < problem->count; i++) keys[i] = -(double)i;
  for (uint32_t i = 0; i < problem->count; i++) {
    keys[i] += (double)board->reach[i];
    for (uint32_t j = i + 1; j < board->reach[i]; j++) keys[j]++;
  }
}

void gap__plan_order_keys(const struct gap__board *board, enum gap__plan_order order, double *keys) {
  if (order == GAP__PLAN_BY_CONFLICT) {
    conflict_keys(board, keys);
    return;
  }
  for (uint32_t i = 0; i < board->problem->count; i++) keys[i] = key_of(board, order, i);
}

struct keyed {
  double key;
  uint32_t index;
};

static int by_key(const void *a, const void *b) {
  const struct keyed *left = a, *right = b;
  if (left->key != right->key) return left->key > right->key ? -1 : 1;
  return left->index < right->index ? -1 : left->index > right->index;
}

int gap__plan_order_sort(const double *keys, uint32_t *indices, uint32_t count) {
  struct keyed *sorted = malloc((count + 1) * sizeof *sorted);
  if (!sorted) return GAP_ENOMETA;
  for (uint32_t i = 0; i < count; i++) sorted[i] = (struct keyed){keys[indices[i]], indices[i]};
  qsort(sorted, count, sizeof *sorted, by_key);
  for (uint32_t i = 0; i < count; i++) indices[i] = sorted[i].index;
  free(sorted);
  return 0;
}

uint64_t gap__plan_order_place(struct gap__board *board, const uint32_t *indices, uint32_t count) {
  uint64_t height = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t offset = gap__board_lowest(board, indices[i]), end = offset + board->problem->at[indices[i]].size;
    gap__board_place(board, indices[i], offset);
    if (end > height) height = end;
  }
  return height;
}
