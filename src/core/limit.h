/* How much may be held: the cap, the reserve left to neighbours, and the limit up to which growing beats stealing. Under
 * the device lock. In pages. */
#ifndef GAP_LIMIT_H
#define GAP_LIMIT_H

#include "core/state.h"

/* Held by all strategies of the device. */
uint64_t gap__held_pages(const struct gap__policy_state *);
/* The cap; without one what the driver has left, less the reserve. */
uint64_t gap__hard_limit(struct gap__policy_state *);
/* Up to here growing is preferred to stealing: the cap, else grow_limit x the peak of live bytes. */
uint64_t gap__soft_limit(struct gap__policy_state *, uint64_t request_bytes);
/* The driver refused: forget what it said earlier. */
void gap__limit_refused(struct gap__policy_state *);

#endif
