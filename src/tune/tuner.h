/* Tries every setting on a history and finds the best of PyTorch's and the best of ours. */
#ifndef GAP_TUNE_TUNER_H
#define GAP_TUNE_TUNER_H

#include "tune/tuned.h"

struct gap__tuner {
  uint32_t threads;
  gap_progress_fn progress; /* may be NULL; settings done, on the calling thread */
  void *progress_arg;
};

/* With a history every trial that is missing is made.  Without one only what is known counts: settings whose search cannot end stay
 * unknown, and GAP_ESTATE says that there are such. */
int gap__tuner_run(const struct gap__tuner *, struct gap__tuned *);

/* Of PyTorch's settings, or of ours, the one that fits under the least; of equals the first.  UINT32_MAX: none is known to fit. */
uint32_t gap__tuner_best(const struct gap__tuned *, bool torch);
/* Of those that need at most 1 % more than the best, the one that spends least time in driver calls and stalls there. */
uint32_t gap__tuner_advised(const struct gap__tuned *, bool torch);
#define GAP__TUNE_SLACK 1.01

#endif
