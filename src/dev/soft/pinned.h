/* Pinned host memory on the backends without a driver: which registered range, if any, holds an address. */
#ifndef GAP_SOFT_PINNED_H
#define GAP_SOFT_PINNED_H

#include "base/map.h"

/* `pinned` maps address -> bytes.  Few ranges are pinned at a time: they are looked at one by one. */
bool gap__soft_is_pinned(const struct gap__map *pinned, uint64_t addr, uint64_t bytes);

#endif
