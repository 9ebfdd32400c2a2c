/* Where a program's steps begin: told by its own marks, else by the period of its requests. */
#ifndef GAP_PLAN_STEPS_H
#define GAP_PLAN_STEPS_H

#include "trace/history.h"

struct gap__plan_steps {
  uint32_t *starts; /* events; step k is [starts[k], starts[k + 1]) */
  uint32_t count;   /* steps; starts has one more, the end of the history */
  const char *from; /* "mark", "profiler", "optimiser", "period", "none": the history is one step */
};

/* `mark` NULL: ProfilerStep marks, else ends of Optimizer.step, else the period.  0 or GAP_ENOMETA. */
int gap__plan_steps_find(const struct gap__history *, uint32_t device, const char *mark, struct gap__plan_steps *);
void gap__plan_steps_free(struct gap__plan_steps *);
/* Does any mark of the device begin with this name? */
bool gap__plan_steps_know(const struct gap__history *, uint32_t device, const char *mark);

#endif
