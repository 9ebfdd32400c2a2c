/* The search for least caps: coarse for every setting, fine for those that could be the best. */
#ifndef GAP_TUNE_SEARCH_H
#define GAP_TUNE_SEARCH_H

#include "tune/tuned.h"

#define GAP__STEP_UNKNOWN UINT32_MAX

/* One setting's least cap on the grid, to 1 % or a page: it fits under `least_bytes` and fails under `fails_bytes`, one step below.
 * `hint` is where a similar setting's search ended, or GAP__STEP_UNKNOWN.  0; GAP_ESTATE; errors of a replay. */
int gap__search_coarse(struct gap__tuned *, uint32_t index, uint32_t hint);
/* The same to gap__tuned_fine. */
int gap__search_fine(struct gap__tuned *, uint32_t index);
/* Does a setting fit under a cap that lies inside what is open about it?  Narrows it by the answer. */
int gap__search_ask(struct gap__tuned *, uint32_t index, uint64_t cap_bytes);

#endif
