/* The records of a heap's tiers. */
#ifndef GAP_TIER_STATE_H
#define GAP_TIER_STATE_H

#include <pthread.h>

#include "conf/tiers.h"
#include "tier/carry.h"
#include "tier/items.h"
#include "tier/tier.h"

/* One call puts to sleep and one wakes at a time, and not the same pool: the copy engines work both ways at once. */
enum tier_way { TIER_OUT, TIER_IN, TIER_WAYS };

struct tier_lane {
  bool busy;
  const gap_pool_id *pools; /* of the call that has it */
  uint32_t pool_count;
  struct gap__carrier carrier;
};

struct tier_device {
  pthread_mutex_t
      mutex; /* before every lock of the heap; given up while pieces are carried between device and host memory */
  pthread_cond_t freed; /* a way, and its pools */
  struct tier_lane ways[TIER_WAYS];
  struct gap__dev *dev; /* NULL: nothing was asked of it yet */
  int ordinal;
  struct gap__pinned pinned;
  struct gap__disk disk; /* open when image.disk is set */
  struct gap__far far;   /* the same: image.far */
  struct gap__image image;
  struct tier_items items;
  struct tier_figures {
    uint64_t sleeps, wakes, bytes_out, bytes_in, bytes_spared, ns;
  } figures;
};

struct gap__tier {
  gap_heap *heap;
  struct gap__conf_tiers conf;
  struct gap__allowance allowance;
  int count;
  struct tier_device devices[];
};

enum { TIER_WORDS = 512 }; /* why a call failed; "": only the code says */

/* The device with its mutex held. */
int gap__tier_enter(struct gap__tier *, int device, struct tier_device **out);
static inline void gap__tier_leave(struct tier_device *d) {
  if (d->image.disk) gap__disk_tidy(d->image.disk);
  pthread_mutex_unlock(&d->mutex);
}
/* What gap_explain says from here on, where `rc` is a failure: `why`, or the code's words where that is "". */
void gap__tier_explain(struct gap__tier *, const struct tier_device *, int rc, const char *what, const char *why);
/* Opens the disk where it is not open yet; `words` (TIER_WORDS) says why not. */
int gap__tier_open_disk(struct gap__tier *, struct tier_device *, char *words);
int gap__tier_open_far(struct gap__tier *, struct tier_device *, char *words); /* the same of the servers */

#endif
