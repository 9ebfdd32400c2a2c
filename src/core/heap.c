/* The heap: which strategy serves a device, who frees what, caps and configuration.
 *
 * Allocation and free add one indirect call and no lock to what the strategy does: the strategy of a device is one atomic
 * pointer, its states are never taken down while the heap lives. */
#include "core/heap.h"

#include <stdlib.h>

#include "core/heap_state.h"

#define LARGEST_REQUEST ((uint64_t)1 << 60)

const struct gap__policy *gap__heap_policy(enum gap__strategy strategy) {
  static const struct gap__policy *const table[GAP__STRATEGY_COUNT] = {
      [GAP__STRATEGY_GAPLESS] = &gap__policy_gapless, [GAP__STRATEGY_CACHING] = &gap__policy_caching};
  return (unsigned)strategy < GAP__STRATEGY_COUNT ? table[strategy] : NULL;
}

/* ---- the hot path ---- */

int gap__heap_alloc(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (bytes - 1 >= LARGEST_REQUEST - 1) {
    *out = 0;
    return bytes ? GAP_ETOOBIG : 0;
  }
  const struct gap__policy *policy = atomic_load_explicit(&at->base.current, memory_order_acquire);
  return policy->alloc(heap_state_of(&at->base, policy), stream, pool, bytes, out);
}

/* The strategies of a device other than the current one, which has said GAP_ENOTMINE. */
static int free_elsewhere(struct gap__device *dev, const struct gap__policy *current, gap_addr addr) {
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state && s != (int)current->strategy) rc = gap__heap_policy(s)->free(state, addr);
  }
  return rc;
}

int gap__heap_free(gap_heap *heap, gap_addr addr) {
  if (!addr) return 0;
  int rc = GAP_ENOTMINE;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) {
    struct gap__device *dev = &heap->devices[i].base;
    const struct gap__policy *policy = atomic_load_explicit(&dev->current, memory_order_acquire);
    rc = policy->free(heap_state_of(dev, policy), addr);
    if (__builtin_expect(rc == GAP_ENOTMINE, 0)) rc = free_elsewhere(dev, policy, addr);
  }
  return rc;
}

/* ---- caps ---- */

static uint64_t fraction_of(const struct gap__device *dev, double fraction) {
  return (uint64_t)(fraction * (double)dev->dev->caps.total_bytes);
}

/* 0: the configuration asks for no cap. */
static uint64_t configured_cap(const struct gap__device *dev) {
  const struct gap__conf *conf = &dev->conf;
  if (conf->max_memory.bytes) return conf->max_memory.bytes;
  if (conf->max_memory.fraction > 0) return fraction_of(dev, conf->max_memory.fraction);
  if (conf->per_process_memory_fraction >= 1) return 0;
  uint64_t bytes = fraction_of(dev, conf->per_process_memory_fraction);
  return bytes ? bytes : 1; /* nothing at all; 0 would mean no cap */
}

static int tell_strategies(struct gap__device *dev) {
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    int rc = dev->state[s] ? gap__heap_policy(s)->configure(dev->state[s]) : 0;
    if (rc) return rc;
  }
  return 0;
}

int gap__heap_set_cap(gap_heap *heap, int device, uint64_t bytes) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  atomic_store(&at->base.cap_bytes, bytes);
  int rc = tell_strategies(&at->base);
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_set_fraction(gap_heap *heap, int device, double fraction) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at || !(fraction >= 0 && fraction <= 1)) return GAP_EINVAL;
  uint64_t bytes = fraction_of(&at->base, fraction);
  return gap__heap_set_cap(heap, device, bytes ? bytes : 1); /* a cap of 0 would mean none */
}

/* ---- strategies and configuration ---- */

static int announce_pools(gap_heap *heap, int device, const struct gap__policy *policy,
                          struct gap__policy_state *state) {
  for (uint32_t i = 0; i < heap->pool_use_count; i++) {
    const struct heap_pool_use *use = &heap->pool_uses[i];
    for (uint32_t n = 0; use->device == device && n < use->count; n++) {
      int rc = policy->pool_retain(state, use->id);
      if (rc) return rc;
    }
  }
  return 0;
}

/* The strategy of new blocks; its state is made when it is first wanted. */
static int switch_strategy(gap_heap *heap, int device, const struct gap__policy *policy) {
  struct gap__device *dev = &heap->devices[device].base;
  if (!dev->state[policy->strategy]) {
    struct gap__policy_state *state = NULL;
    int rc = policy->create(dev, &state);
    if (rc) return rc;
    rc = announce_pools(heap, device, policy, state);
    if (rc) {
      policy->destroy(state);
      return rc;
    }
    atomic_store(&dev->state[policy->strategy], state);
  }
  atomic_store(&dev->current, policy);
  return 0;
}

static int configure_device(gap_heap *heap, int device, const struct gap__conf *conf) {
  struct heap_device *at = &heap->devices[device];
  at->base.conf = *conf;
  uint64_t cap = configured_cap(&at->base);
  if (cap != at->conf_cap_bytes) {
    at->conf_cap_bytes = cap;
    atomic_store(&at->base.cap_bytes, cap);
  }
  int rc = tell_strategies(&at->base);
  return rc ? rc : switch_strategy(heap, device, gap__heap_policy(conf->strategy));
}

int gap__heap_configure(gap_heap *heap, const struct gap__conf *conf) {
  if (!gap__heap_policy(conf->strategy)) return GAP_ENOTSUP;
  if (heap->forked) return GAP_EFORKED;
  int rc = 0;
  gap__lock(&heap->lock);
  for (int i = 0; i < heap->device_count && !rc; i++) rc = configure_device(heap, i, conf);
  gap__unlock(&heap->lock);
  return rc;
}

void gap__heap_set_oom_callback(gap_heap *heap, gap__oom_callback *callback, void *arg) {
  gap__lock(&heap->lock);
  for (int i = 0; i < heap->device_count; i++) {
    heap->devices[i].base.oom_arg = arg;
    heap->devices[i].base.oom_callback = callback;
  }
  gap__unlock(&heap->lock);
}

/* ---- life ---- */

static void init_device(gap_heap *heap, int index, const struct gap__heap_params *params) {
  struct gap__device *dev = &heap->devices[index].base;
  dev->heap = heap;
  dev->ordinal = index;
  dev->dev = params->devs[index];
  dev->maker = params->maker;
}

static int default_conf(struct gap__conf *out) {
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  *out = *gap__conf_values(set);
  gap__conf_free(set);
  return 0;
}

int gap__heap_create(const struct gap__heap_params *params, gap_heap **out) {
  if (params->dev_count < 1) return GAP_EINVAL;
  struct gap__conf defaults;
  int rc = params->conf ? 0 : default_conf(&defaults);
  if (rc) return rc;
  gap_heap *heap = calloc(1, sizeof *heap);
  if (heap) heap->devices = calloc((size_t)params->dev_count, sizeof *heap->devices);
  if (!heap || !heap->devices) {
    free(heap);
    return GAP_ENOMETA;
  }
  heap->device_count = params->dev_count;
  for (int i = 0; i < params->dev_count; i++) init_device(heap, i, params);
  rc = gap__heap_configure(heap, params->conf ? params->conf : &defaults);
  gap__heap_enlist(heap);
  if (rc) gap__heap_destroy(heap);
  else *out = heap;
  return rc;
}

static void destroy_device(struct gap__device *dev) {
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    if (dev->state[s]) gap__heap_policy(s)->destroy(dev->state[s]);
  }
  gap__dev_destroy(dev->dev);
}

/* In a forked child only the heap's own host memory goes; the driver is not called. */
void gap__heap_destroy(gap_heap *heap) {
  if (!heap) return;
  gap__heap_delist(heap);
  for (int i = 0; i < heap->device_count && !heap->forked; i++) destroy_device(&heap->devices[i].base);
  free(heap->pool_uses);
  free(heap->devices);
  free(heap);
}

struct gap__dev *gap__heap_dev(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  return at ? at->base.dev : NULL;
}

void gap__heap_tick(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at || heap->forked) return;
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state && gap__heap_policy(s)->tick) gap__heap_policy(s)->tick(state);
  }
}
