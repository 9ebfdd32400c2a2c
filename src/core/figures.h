/* Statistics and the walk of the strategy `gapless`. */
#ifndef GAP_FIGURES_H
#define GAP_FIGURES_H

#include "core/state.h"

/* After a slow path: peaks of figures that only slow paths change. Device lock held. */
void gap__figures_sample(struct gap__policy_state *);
void gap__figures_stats(struct gap__policy_state *, struct gap__stats *);
void gap__figures_reset(struct gap__policy_state *, bool peaks, bool accumulated);
int gap__figures_find(struct gap__policy_state *, gap_addr, struct gap__block_info *out);
int gap__figures_walk(struct gap__policy_state *, gap__walk_fn *, void *arg);

#endif
