/* `trace:FILE`: every event of a heap, in gapless's own format, written by a thread of its own.
 *
 * The program puts an event into a ring and goes on.  The thread turns what is there into parcels, at the latest every
 * tenth of a second, so that a killed program loses no more than that.  When the disk is full it says so once and the program goes on
 * without a trace. */
#ifndef GAP_API_TRACE_H
#define GAP_API_TRACE_H

#include "gapless/gapless.h"

struct gap__trace;

/* Begins where the configuration asks for it; what stands in the way is said in the log. */
void gap__trace_begin(gap_heap *);
/* What is left is written, then what the heap holds and the end.  Before the heap is destroyed. */
void gap__trace_end(gap_heap *);

#endif
