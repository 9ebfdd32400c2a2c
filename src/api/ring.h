/* `trace_ring:FILE`: the last events of a heap, in a file that is mapped (record/ring.h), so that the kernel has them whatever
 * becomes of the program.
 *
 * The program writes an event itself, without a lock and without a system call.  A thread puts down now and then what the
 * heap holds, so that a reader who has the last events only can still tell what was there.  When there is no room for the file that is
 * said, and the program goes on without. */
#ifndef GAP_API_RING_H
#define GAP_API_RING_H

#include "gapless/gapless.h"

/* As gap__trace_begin and gap__trace_end. */
void gap__ring_begin(gap_heap *);
void gap__ring_end(gap_heap *);

#endif
