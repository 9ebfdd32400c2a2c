/* What replays said.  A trial is a pure function of the history, the setting and the cap, and of nothing else: so trials can be
 * kept in files, joined with those of other machines, and looked up instead of made again, and no answer depends on where they
 * came from. */
#ifndef GAP_TUNE_TRIALS_H
#define GAP_TUNE_TRIALS_H

#include <stdint.h>

/* TRIAL(name): every figure of a trial after `cap` and `fitted`; 0 when it did not fit. */
#define GAP__TRIAL_FIGURES(FIGURE) \
  FIGURE(peak_reserved_bytes) \
  FIGURE(driver_calls) \
  FIGURE(driver_time_us) \
  FIGURE(background_time_us) FIGURE(stalls) FIGURE(stall_us) FIGURE(longest_call_us) FIGURE(num_alloc_retries)

struct gap__trial {
  uint64_t cap_bytes; /* 0: none */
  uint64_t fitted;    /* 0 or 1 */
#define GAP__FIGURE(name) uint64_t name;
  GAP__TRIAL_FIGURES(GAP__FIGURE)
#undef GAP__FIGURE
};
#define GAP__TRIAL_FIELDS (sizeof(struct gap__trial) / sizeof(uint64_t)) /* they are all of one type, in this order */

struct gap__trials {
  struct gap__trial *at; /* by ascending cap, each cap once */
  uint32_t count, max;
};

/* NULL when that cap was not tried.  Valid until the next is added. */
const struct gap__trial *gap__trials_find(const struct gap__trials *, uint64_t cap_bytes);
/* 0; GAP_ENOMETA; GAP_EMISMATCH when that cap is known and said something else. */
int gap__trials_add(struct gap__trials *, const struct gap__trial *);
void gap__trials_free(struct gap__trials *);

#endif
