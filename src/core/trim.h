/* Idle chunks go back to the driver.  Under the device lock, no lane lock held. */
#ifndef GAP_TRIM_H
#define GAP_TRIM_H

#include "core/state.h"

/* Offers loose chunks (chunk.h) to the driver again; waits for their last use where `wait`. Returns pages of the device. */
uint64_t gap__trim_loose(struct gap__policy_state *, bool wait);

/* Gives idle chunks back to the driver until at most `keep_pages` are held.
 * `pool` NULL: all lanes that are not pinned; else only that pool's, unless it is pinned.  Waits for epochs where `wait`. Returns pages. */
uint64_t gap__trim_idle(struct gap__policy_state *, const gap_pool_id *pool, uint64_t keep_pages, bool wait);
/* The same with what was last used in `epoch` or earlier, of all lanes, as far as it can go without waiting. */
uint64_t gap__trim_old(struct gap__policy_state *, uint64_t keep_pages, uint32_t epoch);

/* The same of host memory behind device addresses: until at most `keep_pages` are there, of what was last used in `epoch` or earlier. */
uint64_t gap__trim_host(struct gap__policy_state *, const gap_pool_id *pool, uint64_t keep_pages, uint32_t epoch,
                        bool wait);

#endif
