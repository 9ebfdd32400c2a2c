/* Answers `gapless explain PID`, and writes what `gapless top` shows: one door (door.h) and one sheet (sheet.h) a process, one thread that
 * sleeps until somebody asks or half a second is over.
 *
 * The thread is started with the first heap that wants to be asked and ends with the last.  It never runs on anybody's
 * behalf: allocations know nothing of it, but that a walk, or a glance, holds a lock for its time. */
#ifndef GAP_API_SERVE_H
#define GAP_API_SERVE_H

#include "gapless/gapless.h"

/* Opens or closes the door to this heap, as its configuration says.  A door that cannot be opened is said in the log, and the
 * heap works without. */
void gap__serve_update(gap_heap *);
/* Before a heap is destroyed: returns when nobody looks at it any more. */
void gap__serve_leave(gap_heap *);

#endif
