/* Histories as they would have been: the same program with a smaller batch, with checkpoints, with its optimiser states elsewhere.
 * Each ends at the refusal that is explained, if there is one. */
#ifndef GAP_EXPLAIN_ALTERED_H
#define GAP_EXPLAIN_ALTERED_H

#include "explain/subject.h"

struct gap__altered {
  struct gap__history history;    /* shares everything but the events of one device with the original */
  struct gap__hist_event *events; /* of that device; NULL: they are the original's */
};

/* Up to the refusal that is explained; earlier ones, which the program survived, are left out: nobody knows how long what they asked for
 * would have lived. */
int gap__altered_none(const struct gap__subject *, struct gap__altered *);
/* What grows with a step (activations, temporary buffers outside the optimiser, the refused request) times `factor`. */
int gap__altered_scale(const struct gap__subject *, double factor, struct gap__altered *);
/* Without optimiser states: they live in host memory and come piece by piece. */
int gap__altered_offload(const struct gap__subject *, struct gap__altered *);
/* Gradient checkpointing in `parts`: a forward pass is cut into parts of equal length; what a part saves is freed at its end, all but the
 * last block, and computed again before the backward pass first lets go of a twentieth of it. */
int gap__altered_checkpoint(const struct gap__subject *, uint32_t parts, struct gap__altered *);
void gap__altered_free(struct gap__altered *);

#endif
