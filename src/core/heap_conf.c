/* The configuration of a heap, and limits set by hand.
 *
 * Allocating threads read the values in force without a lock, so a value never changes: a new configuration is a new record,
 * and the old ones stay until the heap ends.  One that comes back is used again, so that a program that switches between two
 * keeps two. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/heap_state.h"

static int tell_strategies(struct gap__device *dev) {
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    int rc = dev->state[s] ? gap__heap_policy(s)->configure(dev->state[s]) : 0;
    if (rc) return rc;
  }
  return 0;
}

/* ---- limits ---- */

static uint64_t share_of(const struct gap__device *dev, double fraction) {
  return dev->dev ? (uint64_t)(fraction * (double)dev->dev->caps.total_bytes) : 0;
}

static uint64_t amount_bytes(const struct gap__device *dev, uint64_t bytes, double fraction) {
  return fraction > 0 ? share_of(dev, fraction) : bytes;
}

/* A limit as a share of the card: 0 allows nothing, 1 is none. */
static struct gap__conf_amount limit_by_share(double fraction) {
  if (fraction >= 1) return (struct gap__conf_amount){.given = true};
  return (struct gap__conf_amount){.bytes = fraction > 0 ? 0 : 1, .fraction = fraction, .given = true};
}

static bool same_amount(const struct gap__conf_amount *a, const struct gap__conf_amount *b) {
  return a->bytes == b->bytes && !(a->fraction < b->fraction) && !(a->fraction > b->fraction) && a->given == b->given;
}

/* A changed wish of the configuration takes the place of what was set by hand. */
static void follow_conf(struct heap_wish *hand, struct gap__conf_amount *last, const struct gap__conf_amount *now) {
  if (!same_amount(last, now)) hand->given = false;
  *last = *now;
}

/* In bytes, 0: none. */
static uint64_t limit_of(const struct gap__device *dev, const struct heap_wish *hand,
                         const struct gap__conf_amount *conf) {
  double fraction = hand->given ? hand->fraction : conf->fraction;
  uint64_t bytes = amount_bytes(dev, hand->given ? hand->bytes : conf->bytes, fraction);
  return bytes || !(fraction > 0) ? bytes : 1; /* a limit of 0 would mean none */
}

static uint64_t smaller_limit(uint64_t a, uint64_t b) { return !a || (b && b < a) ? b : a; }

/* Shares need the size of the card, so those of a device that is not open are settled when it is opened. */
void gap__heap_apply_amounts(struct heap_device *at, bool conf_changed) {
  struct gap__device *dev = &at->base;
  const struct gap__conf *conf = gap__device_conf(dev);
  struct gap__conf_amount share = limit_by_share(conf->per_process_memory_fraction);
  if (conf_changed) {
    follow_conf(&at->cap, &at->conf_cap, &conf->max_memory);
    follow_conf(&at->share, &at->conf_share, &share);
    follow_conf(&at->reserve, &at->conf_reserve, &conf->reserve);
  }
  uint64_t bytes = limit_of(dev, &at->cap, &conf->max_memory);
  atomic_store(&dev->cap_bytes, smaller_limit(bytes, limit_of(dev, &at->share, &share)));
  if (at->reserve.given) bytes = at->reserve.bytes;
  else if (conf->reserve.given || conf->reserve.bytes || conf->reserve.fraction > 0)
    bytes = amount_bytes(dev, conf->reserve.bytes, conf->reserve.fraction);
  else bytes = GAP__RESERVE_DEFAULT;
  atomic_store(&dev->reserve_bytes, bytes);
}

static int set_by_hand(gap_heap *heap, int device, size_t which, struct heap_wish wish) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  memcpy((char *)at + which, &wish, sizeof wish);
  gap__heap_apply_amounts(at, false);
  int rc = tell_strategies(&at->base);
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_set_cap(gap_heap *heap, int device, uint64_t bytes) {
  struct heap_wish wish = {.given = true, .bytes = bytes};
  return set_by_hand(heap, device, offsetof(struct heap_device, cap), wish);
}

int gap__heap_set_fraction(gap_heap *heap, int device, double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) return GAP_EINVAL;
  struct gap__conf_amount limit = limit_by_share(fraction);
  struct heap_wish wish = {.given = true, .bytes = limit.bytes, .fraction = limit.fraction};
  return set_by_hand(heap, device, offsetof(struct heap_device, share), wish);
}

int gap__heap_set_reserve(gap_heap *heap, int device, uint64_t bytes) {
  if (bytes == GAP__RESERVE_DEFAULT) return GAP_EINVAL;
  struct heap_wish wish = {.given = true, .bytes = bytes};
  return set_by_hand(heap, device, offsetof(struct heap_device, reserve), wish);
}

/* ---- configuration ---- */

/* The record of these values: one from earlier, or a new one.  NULL: no host memory. */
static const struct gap__conf *record_of(gap_heap *heap, const struct gap__conf *conf) {
  for (struct heap_conf *old = heap->confs; old; old = old->next)
    if (memcmp(&old->value, conf, sizeof *conf) == 0) return &old->value;
  struct heap_conf *record = malloc(sizeof *record);
  if (!record) return NULL;
  memcpy(&record->value, conf, sizeof *conf); /* with its padding: it is compared as bytes */
  record->next = heap->confs;
  heap->confs = record;
  return &record->value;
}

static int configure_device(gap_heap *heap, int device, const struct gap__conf *conf) {
  struct heap_device *at = &heap->devices[device];
  atomic_store_explicit(&at->base.conf, conf, memory_order_release);
  gap__heap_apply_amounts(at, true);
  if (!heap_is_open(&at->base)) return 0;
  int rc = tell_strategies(&at->base);
  return rc ? rc : gap__heap_choose_strategy(heap, device);
}

int gap__heap_configure(gap_heap *heap, const struct gap__conf *conf) {
  if (!gap__heap_has_strategy(conf->strategy)) return GAP_ENOTSUP;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  const struct gap__conf *record = record_of(heap, conf);
  int rc = record ? 0 : GAP_ENOMETA;
  for (int i = 0; i < heap->device_count && !rc; i++) /* what can fail comes first: all or nothing */
    if (heap_is_open(&heap->devices[i].base)) rc = gap__heap_ready_strategy(heap, i, record);
  for (int i = 0; i < heap->device_count && !rc; i++) rc = configure_device(heap, i, record);
  gap__unlock(&heap->lock);
  return rc;
}

void gap__heap_confs_free(gap_heap *heap) {
  for (struct heap_conf *next; heap->confs; heap->confs = next) {
    next = heap->confs->next;
    free(heap->confs);
  }
}
