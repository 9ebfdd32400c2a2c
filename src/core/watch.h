/* The watcher: memory that is given back without a call that asks for it, off the hot path.
 *
 * Neighbours: when other programs on the card leave less free than the reserve, idle pages go back until it is free again.
 * Age (trim_after_ms): pages that nobody has used for that long go back.  The age of a page is told by its epoch: the watcher notes
 * now and then which epoch is the newest, and begins new ones, so that a page stamped with an epoch up to a note's was freed
 * before the note. */
#ifndef GAP_WATCH_H
#define GAP_WATCH_H

#include "core/state.h"

/* Looks when it is time to; no lock held.  Cheap otherwise. */
void gap__watch_step(struct gap__policy_state *);

#endif
