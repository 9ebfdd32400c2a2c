/* Putting the pools of a tag to sleep, and waking them: the order of things, and what is undone when one of them fails. */
#ifndef GAP_TIER_SLEEP_H
#define GAP_TIER_SLEEP_H

#include "tier/state.h"

/* All with the device's mutex held, which is given up meanwhile; `words` (TIER_WORDS) says why one failed, "" where only the code does. */
int gap__tier_fall(struct gap__tier *, struct tier_device *, const char *tag, unsigned flags, uint64_t *freed,
                   char *words);
int gap__tier_rise(struct gap__tier *, struct tier_device *, const char *tag, unsigned flags, char *words);
int gap__tier_rise_block(struct gap__tier *, struct tier_device *, const struct gap__block_info *, char *words);
/* Pools that are gone, with all of their blocks: what sleeps of them, and was kept, goes too. */
void gap__tier_sweep(struct gap__tier *, struct tier_device *);

#endif
