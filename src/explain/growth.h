/* What is left over from step to step, and the call sites that hold the peak. */
#ifndef GAP_EXPLAIN_GROWTH_H
#define GAP_EXPLAIN_GROWTH_H

#include "explain/steps.h"

struct gap__growth {
  uint32_t steps;      /* whole steps that were compared: the first, which sets everything up, left out */
  int64_t per_step;    /* bytes that the floor of live memory rises from step to step, by least squares */
  bool grows;          /* by more than noise, and in most steps */
  uint32_t site;       /* the call site that leaves most behind in a step; 0 unknown */
  uint64_t site_bytes; /* a step */
};

/* 0 or GAP_ENOMETA. */
int gap__growth_find(const struct gap__lives *, const struct gap__sites *, const struct gap__steps *,
                     struct gap__growth *);

enum gap__scaling { GAP__SCALES_UNKNOWN, GAP__SCALES_NOT, GAP__SCALES_LESS, GAP__SCALES_LINEAR, GAP__SCALES_MORE };

struct gap__holder {
  uint32_t site;
  uint8_t category; /* enum gap__category */
  uint32_t blocks;
  uint64_t bytes;
  enum gap__scaling scaling; /* with the size of the step */
};

enum { GAP__HOLDERS_MAX = 10 };

struct gap__holders {
  struct gap__holder at[GAP__HOLDERS_MAX]; /* most bytes first */
  uint32_t count;
  uint32_t sites;         /* in all */
  uint64_t scaling_bytes; /* of the peak: activations and temporary buffers */
};

/* Who holds memory at the peak.  Scaling is told where steps differ in size by more than a tenth.  0 or GAP_ENOMETA. */
int gap__holders_find(const struct gap__lives *, const struct gap__sites *, const struct gap__steps *,
                      struct gap__holders *);

#endif
