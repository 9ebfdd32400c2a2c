/* Statistics of a device: the sum over its strategies, and the driver's counters.  A sum of peaks is an upper bound when
 * more than one strategy has served. */
#include <string.h>

#include "core/heap_state.h"

static uint64_t sum(_Atomic uint64_t *counters) {
  uint64_t total = 0;
  for (int call = 0; call < GAP__CALL_COUNT; call++)
    total += atomic_load_explicit(&counters[call], memory_order_relaxed);
  return total;
}

static uint64_t driver_calls(struct gap__dev *dev) {
  return sum(dev->counters.calls) + sum(dev->counters.background_calls);
}

static void add_driver(const struct heap_device *at, struct gap__stats *out) {
  struct gap__dev *dev = at->base.dev;
  out->driver_calls = (int64_t)(driver_calls(dev) - at->calls_base);
  out->driver_time_us = (int64_t)((sum(dev->counters.ns) - at->caller_ns_base) / 1000);
  out->background_time_us = (int64_t)((sum(dev->counters.background_ns) - at->background_ns_base) / 1000);
}

int gap__heap_stats(gap_heap *heap, int device, struct gap__stats *out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  memset(out, 0, sizeof *out);
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state) gap__heap_policy(s)->stats(state, out);
  }
  add_driver(at, out); /* after the strategies: they may ask the driver while they count */
  out->cap_bytes = (int64_t)at->base.cap_bytes;
  return 0;
}

static int reset(gap_heap *heap, int device, bool peaks, bool accumulated) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state) gap__heap_policy(s)->reset(state, peaks, accumulated);
  }
  return 0;
}

int gap__heap_reset_peaks(gap_heap *heap, int device) { return reset(heap, device, true, false); }

int gap__heap_reset_accumulated(gap_heap *heap, int device) {
  int rc = reset(heap, device, false, true);
  if (rc) return rc;
  struct heap_device *at = heap_device_at(heap, device);
  at->calls_base = driver_calls(at->base.dev);
  at->caller_ns_base = sum(at->base.dev->counters.ns);
  at->background_ns_base = sum(at->base.dev->counters.background_ns);
  return 0;
}

const char *gap__rung_name(enum gap__rung rung) {
  static const char *const names[] = {
#define X(name) #name,
      GAP__RUNGS(X)
#undef X
  };
  return (unsigned)rung < GAP__RUNG_COUNT ? names[rung] : "";
}
