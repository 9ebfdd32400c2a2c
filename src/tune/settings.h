/* What is tried: PyTorch's settings and ours, in rows in which each setting differs little from the one before, so that the
 * least cap of one is where the search for the next begins.  Of two that do equally well the earlier is the simpler one. */
#ifndef GAP_TUNE_SETTINGS_H
#define GAP_TUNE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "gapless/tools.h"

#define GAP__SETTING_BYTES 192

struct gap__setting {
  enum gap_policy policy;
  char conf[GAP__SETTING_BYTES]; /* as PYTORCH_CUDA_ALLOC_CONF or GAPLESS_CONF would have it; "" the defaults */
  uint32_t row;
};

struct gap__settings {
  struct gap__setting *at; /* rows follow each other; the default of each policy is the first of its rows */
  uint32_t count, max, row_count;
  bool failed; /* the host had no memory */
};

/* The table.  0 or GAP_ENOMETA. */
int gap__settings_make(struct gap__settings *out);
void gap__settings_free(struct gap__settings *);
/* The index of a setting, or UINT32_MAX. */
uint32_t gap__settings_find(const struct gap__settings *, enum gap_policy, const char *conf);

static inline bool gap__setting_is_torch(const struct gap__setting *setting) {
  return setting->policy != GAP_POLICY_GAPLESS;
}
/* Idle memory is given back when a share of the limit is held. */
bool gap__setting_collects(const struct gap__setting *);

#endif
