/* Holding all streams of a device still: a gate is queued on every stream that the heap has seen, what was queued before drains,
 * and what threads launch meanwhile waits until the gate opens.  Under the device lock.
 *
 * A stream is seen when it is given memory or told to use some (record_stream), until it is retired.  The limit of the gate is
 * therefore a stream that uses memory which it was neither given nor told of. */
#ifndef GAP_GATE_H
#define GAP_GATE_H

#include "core/state.h"

#define GAP__GATE_STREAMS 4094u

/* Work may be queued on a normalised stream from now on, */
void gap__gate_note(struct gap__policy_state *, gap_stream, uint64_t thread);
/* and no more. */
void gap__gate_forget(struct gap__policy_state *, gap_stream, uint64_t thread);

/* Closes the gate and waits until all streams stand before it; 0, or -1 with the reason, and all streams go on.  No lane lock
 * held. */
int gap__gate_close(struct gap__policy_state *, enum gap__refusal *why);
/* Lets the streams go on; fine when it is open. */
void gap__gate_open(struct gap__policy_state *);
/* While it is closed: waits until what is queued on a stream of our own has ended, which no gate holds.  GAP_EAGAIN after
 * some time: it shares a queue of the hardware with one that stands still. */
int gap__gate_await(struct gap__policy_state *, gap_stream own);
void gap__gate_destroy(struct gap__policy_state *);

#endif
