/* The shape of a cache: from the model's numbers to strides and slabs. */
#ifndef GAP_KV_SHAPE_H
#define GAP_KV_SHAPE_H

#include "kv/state.h"

/* Checks the options, says in the log what does not fit, and fills in the shape. */
int gap__kv_shape_init(struct gap_kv *);

#endif
