#include "tier/tier.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "core/heap_sleep.h"
#include "core/sleep.h"
#include "tier/sleep.h"

static void ease(void *heap, uint64_t bytes) { gap__heap_ease_host(heap, bytes); }

int gap__tier_create(gap_heap *heap, const char *tiers, struct gap__tier **out) {
  int count = gap__heap_device_count(heap);
  struct gap__tier *tier = calloc(1, sizeof *tier + (size_t)count * sizeof *tier->devices);
  if (!tier) return GAP_ENOMETA;
  tier->heap = heap;
  tier->count = count;
  gap__conf_tiers_read(tiers, &tier->conf);
  tier->allowance.root = "";
  tier->allowance.most_bytes = tier->conf.host_bytes;
  tier->allowance.ease = ease;
  tier->allowance.ease_arg = heap;
  for (int i = 0; i < count; i++) {
    pthread_mutex_init(&tier->devices[i].mutex, NULL);
    pthread_cond_init(&tier->devices[i].freed, NULL);
    gap__items_init(&tier->devices[i].items);
    tier->devices[i].ordinal = i;
  }
  *out = tier;
  return 0;
}

static void end_device(struct tier_device *d) {
  gap__items_end(d);
  gap__image_free(&d->image);
  for (int way = 0; way < TIER_WAYS; way++) gap__carrier_free(&d->ways[way].carrier);
  if (d->image.disk) gap__disk_close(&d->disk);
  gap__far_close(&d->far);
  gap__pinned_destroy(&d->pinned);
}

/* In the child of a fork nothing may touch the driver, and another thread may have held a mutex. */
void gap__tier_destroy(struct gap__tier *tier) {
  if (!tier) return;
  for (int i = 0; i < tier->count && !gap__heap_forked(tier->heap); i++) {
    if (tier->devices[i].dev) end_device(&tier->devices[i]);
    gap__items_free(&tier->devices[i].items);
    pthread_mutex_destroy(&tier->devices[i].mutex);
    pthread_cond_destroy(&tier->devices[i].freed);
  }
  free(tier);
}

static void begin_device(struct gap__tier *tier, struct tier_device *d, struct gap__dev *dev) {
  d->dev = dev;
  for (int way = 0; way < TIER_WAYS; way++) d->ways[way].carrier.dev = dev;
  d->items.carrier.dev = dev;
  gap__pinned_init(&d->pinned, dev, &tier->allowance);
  d->image.pinned = &d->pinned;
}

int gap__tier_enter(struct gap__tier *tier, int device, struct tier_device **out) {
  struct gap__dev *dev;
  int rc = gap__heap_open(tier->heap, device, &dev);
  if (rc) return rc;
  struct tier_device *d = &tier->devices[device];
  pthread_mutex_lock(&d->mutex);
  if (!d->dev) begin_device(tier, d, dev);
  *out = d;
  return 0;
}

bool gap__tier_overflow(struct gap__tier *tier, int64_t bytes, char *why, size_t why_bytes) {
  if (bytes > 0) return gap__allowance_take(&tier->allowance, (uint64_t)bytes, why, why_bytes);
  gap__allowance_give(&tier->allowance, (uint64_t)-bytes);
  return true;
}

int gap__tier_open_disk(struct gap__tier *tier, struct tier_device *d, char *words) {
  if (d->image.disk) return 0;
  int rc = gap__disk_open(&d->disk, tier->conf.disk, tier->conf.disk_bytes, false);
  if (rc) snprintf(words, TIER_WORDS, "%s", d->disk.refusal);
  if (!rc) d->image.disk = &d->disk;
  return rc;
}

int gap__tier_open_far(struct gap__tier *tier, struct tier_device *d, char *words) {
  int rc = gap__far_open(&d->far, tier->conf.remote);
  if (rc) snprintf(words, TIER_WORDS, "%s", d->far.refusal);
  if (rc) return rc;
  d->image.far = &d->far;
  for (int way = 0; way < TIER_WAYS; way++) d->ways[way].carrier.far = &d->far;
  return 0;
}

void gap__tier_explain(struct gap__tier *tier, const struct tier_device *d, int rc, const char *what, const char *why) {
  char words[TIER_WORDS + 40];
  if (!rc) return;
  snprintf(words, sizeof words, "%s: %s", what, *why ? why : gap_strerror(rc));
  gap__heap_explain(tier->heap, d->ordinal, words);
}

/* Every failure leaves words behind; the code's own where there are no better ones. */
static int leave_with(struct gap__tier *tier, struct tier_device *d, int rc, const char *what, const char *why) {
  gap__tier_explain(tier, d, rc, what, why);
  if (rc) gap__log(GAP__LOG_WARNING, "device %d: %s: %s", d->ordinal, what, *why ? why : gap_strerror(rc));
  gap__tier_leave(d);
  return rc;
}

int gap__tier_reserve_host(struct gap__tier *tier, int device, uint64_t bytes) {
  struct tier_device *d;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  gap__tier_sweep(tier, d);
  gap__items_sweep(d);
  d->pinned.refusal[0] = '\0';
  rc = gap__pinned_resize(&d->pinned, bytes);
  return leave_with(tier, d, rc, "reserve_host", d->pinned.refusal);
}

static const char *wrong_to_sleep(unsigned flags) {
  if (flags & ~(unsigned)(GAP_SLEEP_DROP | GAP_SLEEP_UNCHANGED | GAP_SLEEP_DISK | GAP_SLEEP_REMOTE))
    return "there is no such flag";
  if (flags & GAP_SLEEP_DISK && flags & GAP_SLEEP_REMOTE) return "it goes to the disk or to servers, not to both";
  if (flags & GAP_SLEEP_DROP && flags != GAP_SLEEP_DROP)
    return "what is dropped goes nowhere: no other flag goes with that";
  return NULL;
}

static const char *wrong_to_wake(unsigned flags) {
  if (flags & ~(unsigned)(GAP_WAKE_KEEP | GAP_WAKE_DROP)) return "there is no such flag";
  return flags == (GAP_WAKE_KEEP | GAP_WAKE_DROP) ? "a copy is kept or dropped, not both" : NULL;
}

int gap__tier_sleep(struct gap__tier *tier, int device, const char *tag, unsigned flags, uint64_t *freed) {
  char words[TIER_WORDS] = "";
  struct tier_device *d;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  const char *wrong = wrong_to_sleep(flags);
  if (wrong) return leave_with(tier, d, GAP_EINVAL, "sleep", wrong);
  uint64_t began = gap__dev_now_ns(d->dev);
  gap__tier_sweep(tier, d);
  gap__items_settle(d);
  rc = gap__tier_fall(tier, d, tag, flags, freed, words);
  d->figures.ns += gap__dev_now_ns(d->dev) - began;
  return leave_with(tier, d, rc, "sleep", words);
}

int gap__tier_wake(struct gap__tier *tier, int device, const char *tag, unsigned flags) {
  char words[TIER_WORDS] = "";
  struct tier_device *d;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  const char *wrong = wrong_to_wake(flags);
  if (wrong) return leave_with(tier, d, GAP_EINVAL, "wake", wrong);
  uint64_t began = gap__dev_now_ns(d->dev);
  gap__items_sweep(d);
  rc = gap__tier_rise(tier, d, tag, flags, words);
  gap__tier_sweep(tier, d);
  d->figures.ns += gap__dev_now_ns(d->dev) - began;
  return leave_with(tier, d, rc, "wake", words);
}

int gap__tier_wake_block(struct gap__tier *tier, gap_addr addr) {
  char words[TIER_WORDS] = "";
  struct gap__block_info block;
  struct tier_device *d;
  int device, rc = gap__heap_find(tier->heap, addr, &block, &device);
  if (!rc) rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  uint64_t began = gap__dev_now_ns(d->dev);
  gap__items_sweep(d);
  rc = gap__tier_rise_block(tier, d, &block, words);
  d->figures.ns += gap__dev_now_ns(d->dev) - began;
  return leave_with(tier, d, rc, "wake_block", words);
}

static uint64_t asleep_bytes(struct gap__tier *tier, int device) {
  struct gap__sleepers who;
  int rc = gap__heap_sleepers(tier->heap, device, NULL, &who);
  free(who.pools);
  return rc || !who.state ? 0 : gap__sleep_pages(who.state) * GAP__PAGE;
}

int gap__tier_figures(struct gap__tier *tier, int device, gap_tiers *out) {
  struct tier_device *d;
  if (out->size != sizeof *out) return GAP_EINVAL;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  gap__items_sweep(d);
  *out = (gap_tiers){.size = sizeof *out,
                     .host_locked_bytes = d->pinned.locked_bytes,
                     .host_used_bytes = d->pinned.used_bytes,
                     .host_more_bytes = gap__pinned_reach(&d->pinned),
                     .disk_used_bytes = d->image.disk ? d->disk.units_used * GAP__DISK_UNIT : 0,
                     .asleep_bytes = asleep_bytes(tier, device),
                     .sleeps = d->figures.sleeps,
                     .wakes = d->figures.wakes,
                     .saved_bytes = d->figures.bytes_out,
                     .restored_bytes = d->figures.bytes_in,
                     .spared_bytes = d->figures.bytes_spared,
                     .time_us = d->figures.ns / 1000};
  gap__tier_leave(d);
  return 0;
}
