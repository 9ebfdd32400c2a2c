/* The records of a heap's tiers. */
#ifndef GAP_TIER_STATE_H
#define GAP_TIER_STATE_H

#include <pthread.h>

#include "conf/tiers.h"
#include "tier/pinned.h"
#include "tier/tier.h"

struct tier_device {
  pthread_mutex_t mutex; /* one call after the other; before every lock of the heap */
  struct gap__dev *dev;  /* NULL: nothing was asked of it yet */
  struct gap__pinned pinned;
};

struct gap__tier {
  gap_heap *heap;
  struct gap__conf_tiers conf;
  struct gap__allowance allowance;
  int count;
  struct tier_device devices[];
};

#endif
