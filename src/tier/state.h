/* The records of a heap's tiers. */
#ifndef GAP_TIER_STATE_H
#define GAP_TIER_STATE_H

#include <pthread.h>

#include "conf/tiers.h"
#include "tier/carry.h"
#include "tier/tier.h"

struct tier_device {
  pthread_mutex_t mutex; /* one call after the other; before every lock of the heap */
  struct gap__dev *dev;  /* NULL: nothing was asked of it yet */
  int ordinal;
  struct gap__pinned pinned;
  struct gap__disk disk; /* open when image.disk is set */
  struct gap__image image;
  struct gap__carrier carrier;
  struct tier_figures {
    uint64_t sleeps, wakes, bytes_out, bytes_in, bytes_spared, ns;
  } figures;
  char words[512]; /* why the last call failed; "": only the code says */
};

struct gap__tier {
  gap_heap *heap;
  struct gap__conf_tiers conf;
  struct gap__allowance allowance;
  int count;
  struct tier_device devices[];
};

/* The device with its mutex held. */
int gap__tier_enter(struct gap__tier *, int device, struct tier_device **out);
static inline void gap__tier_leave(struct tier_device *d) { pthread_mutex_unlock(&d->mutex); }

#endif
