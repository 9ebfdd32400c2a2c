/* What only the events as a whole can tell: which pool an address belonged to, and where a history begins. */
#ifndef GAP_TRACE_POOLS_H
#define GAP_TRACE_POOLS_H

#include "trace/history.h"

/* An address inside a segment that is still there at the end belongs to that segment's pool, from the moment on at which
 * the segment came into being.  0 or GAP_ENOMETA. */
int gap__pools_assign(struct gap__history *);
/* Sets `wrapped` of each device: true where an event or a final segment lies in memory whose making was not
 * recorded; in a log without segments, where a block is freed that was not allocated.  0 or GAP_ENOMETA. */
int gap__history_find_wrapped(struct gap__history *);

#endif
