/* Statistics of a device: the sum over its strategies, and the driver's counters.  A sum of peaks is an upper bound when
 * more than one strategy has served. */
#include <string.h>

#include "core/heap_state.h"
#include "core/heuristic.h"

static struct gap__driver_figure read_driver(struct gap__dev *dev, int call) {
  struct gap__dev_counters *c = &dev->counters;
  return (struct gap__driver_figure){
      .calls = (int64_t)atomic_load_explicit(&c->calls[call], memory_order_relaxed),
      .ns = (int64_t)atomic_load_explicit(&c->ns[call], memory_order_relaxed),
      .background_calls = (int64_t)atomic_load_explicit(&c->background_calls[call], memory_order_relaxed),
      .background_ns = (int64_t)atomic_load_explicit(&c->background_ns[call], memory_order_relaxed)};
}

static void add_driver(const struct heap_device *at, struct gap__stats *out) {
  int64_t ns = 0, background_ns = 0;
  for (int call = 0; call < GAP__CALL_COUNT; call++) {
    struct gap__driver_figure now = read_driver(at->base.dev, call), *figure = &out->driver[call];
    const struct gap__driver_figure *base = &at->driver_base[call];
    figure->calls = now.calls - base->calls;
    figure->ns = now.ns - base->ns;
    figure->background_calls = now.background_calls - base->background_calls;
    figure->background_ns = now.background_ns - base->background_ns;
    out->driver_calls += figure->calls + figure->background_calls;
    ns += figure->ns;
    background_ns += figure->background_ns;
  }
  out->driver_time_us = ns / 1000;
  out->background_time_us = background_ns / 1000;
}

/* Room to grow is counted by each strategy, but is there once. */
static void add_strategy(const struct gap__policy *policy, struct gap__policy_state *state, struct gap__stats *out) {
  int64_t servable = out->largest_servable_bytes;
  out->largest_servable_bytes = 0;
  policy->stats(state, out);
  if (out->largest_servable_bytes < servable) out->largest_servable_bytes = servable;
}

uint64_t gap__heap_held(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  return at ? atomic_load(&at->base.held_bytes) : 0;
}

void gap__heap_rest(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  for (int s = 0; at && !heap->forked && s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state && gap__heap_policy(s)->rest) gap__heap_policy(s)->rest(state);
  }
}

int gap__heap_stats(gap_heap *heap, int device, struct gap__stats *out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  memset(out, 0, sizeof *out);
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state) add_strategy(gap__heap_policy(s), state, out);
  }
  out->waste_bytes = out->active_bytes[GAP__KIND_ALL].current - out->requested_bytes[GAP__KIND_ALL].current;
  uint64_t split = gap__device_conf(&at->base)->max_split_size;
  out->max_split_size = split == GAP__CONF_UNLIMITED ? -1 : (int64_t)split;
  out->cap_bytes = (int64_t)at->base.cap_bytes;
  gap__hood_stats(&at->base.hood, out);
  if (heap_is_open(&at->base)) add_driver(at, out); /* after the strategies: they may ask the driver while they count */
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
  gap__hood_reset(&at->base.hood);
  for (int call = 0; heap_is_open(&at->base) && call < GAP__CALL_COUNT; call++)
    at->driver_base[call] = read_driver(at->base.dev, call);
  return 0;
}

void gap__heap_say_choice(gap_heap *heap, int device, struct gap__text *out) {
  gap__heuristic_say(&heap->devices[device].base, out);
}

const char *gap__rung_name(enum gap__rung rung) {
  static const char *const names[] = {
#define X(name) #name,
      GAP__RUNGS(X)
#undef X
  };
  return (unsigned)rung < GAP__RUNG_COUNT ? names[rung] : "";
}
