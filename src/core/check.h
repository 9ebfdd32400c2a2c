/* The whole-heap checker of the strategy `gapless`: every invariant that state.h states. */
#ifndef GAP_CHECK_H
#define GAP_CHECK_H

#include "core/state.h"

/* 0, or GAP_ESTATE with the first violation in `text`. Stops the device while it runs. */
int gap__check(struct gap__policy_state *, char *text, size_t bytes);

#endif
