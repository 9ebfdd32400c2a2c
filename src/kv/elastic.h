/* The cache gives what nobody uses when the heap is out of memory. */
#ifndef GAP_KV_ELASTIC_H
#define GAP_KV_ELASTIC_H

#include "kv/state.h"

void gap__kv_elastic_init(struct gap_kv *);
void gap__kv_elastic_free(struct gap_kv *);

#endif
