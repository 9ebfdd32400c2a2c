/* gapless's own trace (record/format.h) to a history, and a history to a trace. */
#ifndef GAP_TRACE_RECORDING_H
#define GAP_TRACE_RECORDING_H

#include "record/writer.h"
#include "trace/history.h"
#include "trace/input.h"

/* Does the input begin as one? */
bool gap__recording_is(const struct gap__input *);
/* Reads one.  Where it is torn what comes before is the history (is_torn); where a whole parcel does not make sense it is
 * GAP_EFORMAT.  Where no state is the last word of a device, what it holds at the end is found from the events.
 * The history lacks what needs the events as a whole (wrapped). */
int gap__recording_read(struct gap__input *, struct gap__history **out, char **message);

/* Writes a history whole; read again it is the same.  GAP_ENOMETA, or what the sink has said. */
int gap__history_record(const struct gap__history *, gap__record_sink *, void *arg);

#endif
