/* What heaps hold, as gapless's own trace: one state a device, taken in one walk each. */
#ifndef GAP_API_STATE_H
#define GAP_API_STATE_H

#include "base/text.h"
#include "gapless/gapless.h"
#include "record/writer.h"

/* Appends the whole trace to `out`.  Everything else goes on meanwhile but what needs the lock that a walk holds.
 * 0, GAP_ENOMETA, GAP_EFORKED. */
int gap__state_write(gap_heap *const *heaps, int count, struct gap__text *out);

/* What one heap holds, as parcels without the beginning and the end of a trace.  0, GAP_ENOMETA, GAP_EFORKED. */
int gap__state_parcels(gap_heap *heap, struct gap__text *out);

/* Its pieces: the beginning of a trace of these heaps, whose tick 0 is now; and the state of one, which stands for those of a lower number
 * in the same trace. */
int gap__state_begin(gap_heap *const *heaps, int count, struct gap__record_writer *, gap__record_sink *, void *arg);
int gap__state_heap(gap_heap *heap, uint64_t number, struct gap__record_writer *);

#endif
