/* The curves of a history at so few of its events that they can be drawn.
 *
 * The events are cut into stretches of equal length.  Of each stretch those events are kept at which live and held bytes are least and
 * most, so that the curve's envelope is that of the whole history; the peak and the refusal are always kept. */
#ifndef GAP_REPORT_TIMELINE_H
#define GAP_REPORT_TIMELINE_H

#include "explain/subject.h"
#include "report/emit.h"
#include "report/streams.h"

struct gap__point { /* after an event */
  uint32_t event;
  int64_t time_us;
  uint64_t live, pending, held, needed;
  uint64_t by_category[GAP__CAT_COUNT];
  uint64_t by_stream[GAP__STREAMS_LISTED];
};

struct gap__timeline {
  struct gap__point *points;
  uint32_t count;
  uint32_t stretch; /* events */
  bool tells_held;
  uint64_t peak_held;
};

/* At most `stretches` stretches, so about four times as many points.  Nothing for a device without events.  0 or GAP_ENOMETA. */
int gap__timeline_find(const struct gap__subject *, const struct gap__streams *, uint32_t stretches,
                       struct gap__timeline *);
void gap__timeline_free(struct gap__timeline *);
/* The last point at or before an event; NULL: there is none. */
const struct gap__point *gap__timeline_at(const struct gap__timeline *, uint32_t event);
void gap__timeline_emit(const struct gap__timeline *, uint32_t streams,
                        struct gap__emit *); /* null where there are no events */

#endif
