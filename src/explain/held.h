/* What was held from the driver, event by event. */
#ifndef GAP_EXPLAIN_HELD_H
#define GAP_EXPLAIN_HELD_H

#include "trace/history.h"

/* Where a file contradicts itself sizes are anything: sums wrap around. */
static inline int64_t gap__held_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline int64_t gap__held_less(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* What an event adds. */
int64_t gap__held_change(const struct gap__hist_event *);
/* By the segments as the file ends; 0 where it lists none. */
int64_t gap__held_at_end(const struct gap__history *, uint32_t device);
/* Before the first event: where the file lists segments it ends as they say; else it begins with nothing. */
int64_t gap__held_at_start(const struct gap__history *, uint32_t device, bool has_segments);

#endif
