#include "tier/tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tier/state.h"

int gap__tier_create(gap_heap *heap, const char *tiers, struct gap__tier **out) {
  int count = gap__heap_device_count(heap);
  struct gap__tier *tier = calloc(1, sizeof *tier + (size_t)count * sizeof *tier->devices);
  if (!tier) return GAP_ENOMETA;
  tier->heap = heap;
  tier->count = count;
  gap__conf_tiers_read(tiers, &tier->conf);
  tier->allowance.root = "";
  tier->allowance.most_bytes = tier->conf.host_bytes;
  for (int i = 0; i < count; i++) pthread_mutex_init(&tier->devices[i].mutex, NULL);
  *out = tier;
  return 0;
}

/* In the child of a fork nothing may touch the driver, and another thread may have held a mutex. */
void gap__tier_destroy(struct gap__tier *tier) {
  if (!tier) return;
  for (int i = 0; i < tier->count && !gap__heap_forked(tier->heap); i++) {
    if (tier->devices[i].dev) gap__pinned_destroy(&tier->devices[i].pinned);
    pthread_mutex_destroy(&tier->devices[i].mutex);
  }
  free(tier);
}

/* The device with its mutex held. */
static int enter(struct gap__tier *tier, int device, struct tier_device **out) {
  struct gap__dev *dev;
  int rc = gap__heap_open(tier->heap, device, &dev);
  if (rc) return rc;
  struct tier_device *d = &tier->devices[device];
  pthread_mutex_lock(&d->mutex);
  if (!d->dev) gap__pinned_init(&d->pinned, dev, &tier->allowance);
  d->dev = dev;
  *out = d;
  return 0;
}

static void leave(struct tier_device *d) { pthread_mutex_unlock(&d->mutex); }

static void explain_pool(struct gap__tier *tier, int device, const struct gap__pinned *p) {
  gap__heap_explain(tier->heap, device, p->refusal);
  gap__log(GAP__LOG_WARNING, "device %d: %s", device, p->refusal);
}

int gap__tier_reserve_host(struct gap__tier *tier, int device, uint64_t bytes) {
  struct tier_device *d;
  int rc = enter(tier, device, &d);
  if (rc) return rc;
  bool grows = bytes > d->pinned.locked_bytes;
  rc = gap__pinned_resize(&d->pinned, bytes);
  if (rc && rc != GAP_EINVAL && grows) explain_pool(tier, device, &d->pinned);
  leave(d);
  return rc;
}

int gap__tier_figures(struct gap__tier *tier, int device, gap_tiers *out) {
  struct tier_device *d;
  if (out->size != sizeof *out) return GAP_EINVAL;
  int rc = enter(tier, device, &d);
  if (rc) return rc;
  *out = (gap_tiers){.size = sizeof *out,
                     .host_locked_bytes = d->pinned.locked_bytes,
                     .host_used_bytes = d->pinned.used_bytes,
                     .host_more_bytes = gap__pinned_reach(&d->pinned)};
  leave(d);
  return 0;
}
