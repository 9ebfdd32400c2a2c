/* The watcher: memory that is given back without a call that asks for it, off the hot path.
 *
 * Neighbours: when other programs on the card leave less free than the reserve, idle pages go back until it is free again.
 * Age (trim_after_ms): pages that nobody has used for that long go back.  The age of a page is told by its epoch: the watcher notes
 * now and then which epoch is the newest, and begins new ones, so that a page stamped with an epoch up to a note's was freed
 * before the note.  So does what is lent to neighbours (lend_after_ms), when they ask. */
#ifndef GAP_WATCH_H
#define GAP_WATCH_H

#include "core/state.h"

#define GAP__WATCH_LOOK_NS 250000000ull /* between two looks */

/* Looks when it is time to; no lock held.  Cheap otherwise. */
void gap__watch_step(struct gap__policy_state *);

/* For neighbours (lend_after_ms), under the device lock: pages stamped up to this epoch have not been used for so long.  0: none;
 * UINT32_MAX: all. */
uint32_t gap__watch_lendable(const struct gap__policy_state *, uint64_t now_ns);
/* When all that is idle now will be as old, if nobody uses it; 0: it is already. */
uint64_t gap__watch_lends_in_ns(const struct gap__policy_state *, uint64_t now_ns);
/* Notes, now and then, which epoch is the newest, and whether anything was allocated or freed since the last time. */
void gap__watch_note(struct gap__policy_state *, uint64_t now_ns);

#endif
