/* Statistics and the walk of the strategy `gapless`. */
#ifndef GAP_FIGURES_H
#define GAP_FIGURES_H

#include "core/state.h"

/* After a slow path: peaks of figures that only slow paths change. Device lock held. */
void gap__figures_sample(struct gap__policy_state *);
void gap__figures_stats(struct gap__policy_state *, struct gap__stats *);
/* The same without what a look would change (glance.h), under the device lock; `room_bytes`: that could still be taken from the driver. */
void gap__figures_glance(struct gap__policy_state *, uint64_t room_bytes, struct gap__stats *);
int gap__glance_gapless(struct gap__policy_state *, struct gap__glance *);
void gap__figures_reset(struct gap__policy_state *, bool peaks, bool accumulated);
int gap__figures_find(struct gap__policy_state *, gap_addr, struct gap__block_info *out);
int gap__figures_walk(struct gap__policy_state *, gap__walk_fn *, void *arg);

#endif
