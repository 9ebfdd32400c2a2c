/* Private pools: use counts, and the pin that keeps a pool's pages and addresses where they are while it is in use. */
#ifndef GAP_POOL_H
#define GAP_POOL_H

#include "core/state.h"

int gap__pool_retain(struct gap__policy_state *, gap_pool_id, unsigned flags);
int gap__pool_release(struct gap__policy_state *, gap_pool_id);
/* Does a lane of this pool keep its pages to itself?  Under the device lock. */
bool gap__pool_pins(struct gap__policy_state *, gap_pool_id);

#endif
