/* Private pools: use counts, and the pin that keeps a pool's pages and addresses where they are while it is in use. */
#ifndef GAP_POOL_H
#define GAP_POOL_H

#include "core/state.h"

int gap__pool_retain(struct gap__policy_state *, gap_pool_id);
int gap__pool_release(struct gap__policy_state *, gap_pool_id);

#endif
