/* Histories put together event by event: of one device, without stacks, segments and settings, as logs have them. */
#ifndef GAP_TRACE_BUILDER_H
#define GAP_TRACE_BUILDER_H

#include "trace/history.h"
#include "trace/vec.h"

struct gap__builder {
  GAP__VEC(struct gap__hist_event) events;
};

/* 0, or GAP_ELIMIT: too many, or no host memory for more. */
int gap__builder_add(struct gap__builder *, struct gap__hist_event);
/* A free that is complete as soon as it is asked for. */
int gap__builder_free_block(struct gap__builder *, struct gap__hist_event);
/* Makes the history of what was added and empties the builder.  0 or GAP_ENOMETA. */
int gap__builder_finish(struct gap__builder *, struct gap__history **out);
void gap__builder_drop(struct gap__builder *);

/* The arrays that every history has, for one device.  0 or GAP_ENOMETA. */
int gap__history_begin(struct gap__history *);

#endif
