/* Greedy placement: the blocks one by one in some order, each at the lowest offset where it fits. */
#ifndef GAP_PLAN_ORDER_H
#define GAP_PLAN_ORDER_H

#include "plan/board.h"

enum gap__plan_order {
  GAP__PLAN_BY_SIZE,
  GAP__PLAN_BY_LENGTH,   /* of life */
  GAP__PLAN_BY_AREA,     /* size x length */
  GAP__PLAN_BY_CONFLICT, /* number of blocks that meet it */
  GAP__PLAN_BY_CLASS,    /* length in powers of two, then size */
  GAP__PLAN_BY_BIRTH,    /* as an allocator that knows nothing would */
  GAP__PLAN_ORDER_COUNT
};

const char *gap__plan_order_name(enum gap__plan_order);
/* How early each block comes in this order: the highest first. */
void gap__plan_order_keys(const struct gap__board *, enum gap__plan_order, double *keys);
/* Sorts indices by their keys, the highest first, equal ones by index. */
int gap__plan_order_sort(const double *keys, uint32_t *indices, uint32_t count); /* 0 or GAP_ENOMETA */
/* Places them in this order on a board; returns the highest end among them. */
uint64_t gap__plan_order_place(struct gap__board *, const uint32_t *indices, uint32_t count);

#endif
