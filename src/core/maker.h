/* The page maker: creates and maps pages just beyond an arena's end ahead of need, off the hot path. */
#ifndef GAP_MAKER_H
#define GAP_MAKER_H

#include "core/state.h"

/* An arena of an unpinned lane has just grown by `pages`: make as many as are held there, and keep
 * as many ready.  Under the device lock. */
void gap__maker_ask(struct gap__policy_state *, struct gap__arena *, uint32_t pages);
/* Makes pages until enough are ready or the time is used up; no lock held.  Cheap when there is nothing to do. */
void gap__maker_step(struct gap__policy_state *);
/* Makes nothing more before the arena grows again; what it was about to make is made when this returns.  No lock held. */
void gap__maker_rest(struct gap__policy_state *);
/* A thread that steps by itself, for devices with real time. */
int gap__maker_start(struct gap__policy_state *);
void gap__maker_stop(struct gap__policy_state *);

#endif
