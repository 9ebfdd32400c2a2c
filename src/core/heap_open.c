/* Devices that are opened when they are first wanted, and the strategies that exist on them. */
#include "base/log.h"
#include "core/heap_state.h"

/* ---- a device that nobody has opened yet ---- */

static struct gap__device *device_of(struct gap__policy_state *state) { return (struct gap__device *)(void *)state; }

static int open_and_alloc(struct gap__policy_state *state, gap_stream stream, gap_pool_id pool, uint64_t bytes,
                          gap_addr *out) {
  struct gap__device *dev = device_of(state);
  gap__lock(&dev->heap->lock);
  int rc = gap__heap_open_device(dev->heap, dev->ordinal);
  gap__unlock(&dev->heap->lock);
  if (rc) return rc;
  gap__heap_tell_opened(dev->heap, dev->ordinal);
  const struct gap__policy *policy = heap_current(dev);
  return policy->alloc(heap_state_of(dev, policy), stream, pool, bytes, out);
}

static int nothing_is_mine(struct gap__policy_state *state, gap_addr addr) {
  (void)state, (void)addr;
  return GAP_ENOTMINE;
}

static int no_use_is_mine(struct gap__policy_state *state, gap_addr addr, gap_stream stream) {
  (void)state, (void)addr, (void)stream;
  return GAP_ENOTMINE;
}

const struct gap__policy gap__policy_unopened = {.name = "unopened",
                                                 .strategy = (enum gap__strategy)GAP__STRATEGY_UNOPENED,
                                                 .alloc = open_and_alloc,
                                                 .free = nothing_is_mine,
                                                 .record_stream = no_use_is_mine};

void gap__heap_prepare_device(gap_heap *heap, int index, const struct gap__heap_params *params) {
  struct gap__device *dev = &heap->devices[index].base;
  dev->heap = heap;
  dev->ordinal = index;
  dev->dev = params->devs ? params->devs[index] : NULL;
  dev->maker = params->maker;
  atomic_store(&dev->state[GAP__STRATEGY_UNOPENED], (struct gap__policy_state *)(void *)dev);
  atomic_store(&dev->current, &gap__policy_unopened);
}

/* ---- strategies ---- */

static int make_strategy(gap_heap *heap, int device, const struct gap__policy *policy) {
  struct gap__device *dev = &heap->devices[device].base;
  struct gap__policy_state *state = NULL;
  int rc = policy->create(dev, &state);
  if (rc) return rc;
  rc = gap__heap_pools_announce(heap, device, policy, state);
  if (rc) policy->destroy(state);
  else atomic_store(&dev->state[policy->strategy], state);
  return rc;
}

int gap__heap_strategy(gap_heap *heap, int device, enum gap__strategy strategy, struct gap__policy_state **out) {
  struct gap__device *dev = &heap->devices[device].base;
  int rc = dev->dev ? 0 : gap__heap_open_device(heap, device);
  if (!rc && !dev->state[strategy]) rc = make_strategy(heap, device, gap__heap_policy(strategy));
  if (!rc) *out = dev->state[strategy];
  return rc;
}

static enum gap__strategy asked_for(const struct gap__conf *conf) {
  return conf->no_caching ? GAP__STRATEGY_CACHING : gap__heap_server(conf->strategy);
}

/* Where pages cannot be mapped, whole driver allocations serve.  The backend has said why. */
static int strategy_for(gap_heap *heap, int device, const struct gap__conf *conf, enum gap__strategy *out) {
  struct gap__policy_state *state;
  *out = asked_for(conf);
  int rc = gap__heap_strategy(heap, device, *out, &state);
  if (rc != GAP_ENOTSUP || *out == GAP__STRATEGY_CACHING || heap->devices[device].base.dev->caps.vmm) return rc;
  *out = GAP__STRATEGY_CACHING;
  return gap__heap_strategy(heap, device, *out, &state);
}

int gap__heap_ready_strategy(gap_heap *heap, int device, const struct gap__conf *conf) {
  enum gap__strategy strategy;
  return strategy_for(heap, device, conf, &strategy);
}

int gap__heap_choose_strategy(gap_heap *heap, int device) {
  struct gap__device *dev = &heap->devices[device].base;
  enum gap__strategy asked = asked_for(gap__device_conf(dev)), strategy;
  int rc = strategy_for(heap, device, gap__device_conf(dev), &strategy);
  if (rc) return rc;
  if (strategy != asked && heap_current(dev) != &gap__policy_caching)
    gap__log(GAP__LOG_INFO, "device %d maps no pages: caching_allocator serves it instead of %s", device,
             gap__heap_policy(asked)->name);
  atomic_store(&dev->current, gap__heap_policy(strategy));
  return 0;
}

/* ---- opening ---- */

/* A device that could not be given a strategy is closed again, unless the heap's maker had opened it. */
static int take_into_use(gap_heap *heap, int device) {
  struct heap_device *at = &heap->devices[device];
  gap__heap_apply_amounts(at, false);
  int rc = gap__heap_choose_strategy(heap, device);
  if (rc && heap->open) {
    gap__dev_destroy(at->base.dev);
    at->base.dev = NULL;
  }
  return rc;
}

int gap__heap_open_device(gap_heap *heap, int device) {
  struct gap__device *dev = &heap->devices[device].base;
  if (heap_is_open(dev)) return 0; /* another thread was first */
  if (!dev->dev) {
    int rc = heap->open ? heap->open(heap->client, device, &dev->dev) : GAP_EDEVICE;
    if (rc) return rc;
  }
  return take_into_use(heap, device);
}

void gap__heap_tell_opened(gap_heap *heap, int device) {
  if (heap->opened) heap->opened(heap->client, device);
}

int gap__heap_open(gap_heap *heap, int device, struct gap__dev **out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  bool fresh = !heap_is_open(&at->base);
  int rc = gap__heap_open_device(heap, device);
  gap__unlock(&heap->lock);
  if (rc) return rc;
  if (fresh) gap__heap_tell_opened(heap, device);
  *out = at->base.dev;
  return 0;
}
