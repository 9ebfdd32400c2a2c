/* What stays cached, and for how long.  Under the cache's lock. */
#ifndef GAP_KV_RETAIN_H
#define GAP_KV_RETAIN_H

#include "kv/state.h"

/* Priorities whose time is over are the default again. */
void gap__kv_expire(struct gap_kv *);
uint64_t gap__kv_now_ms(const struct gap_kv *);

#endif
