/* Statistics of a device: the sum over its strategies, and the driver's counters.  A sum of peaks is an upper bound when
 * more than one strategy has served. */
#include <string.h>

#include "core/glance.h"
#include "core/heap_state.h"
#include "core/heuristic.h"
#include "core/limit.h"

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

/* What is no strategy's own. */
static void add_device(struct heap_device *at, struct gap__stats *out) {
  out->waste_bytes = out->active_bytes[GAP__KIND_ALL].current - out->requested_bytes[GAP__KIND_ALL].current;
  uint64_t split = gap__device_conf(&at->base)->max_split_size;
  out->max_split_size = split == GAP__CONF_UNLIMITED ? -1 : (int64_t)split;
  out->cap_bytes = (int64_t)at->base.cap_bytes;
  gap__hood_stats(&at->base.hood, out);
  if (heap_is_open(&at->base)) add_driver(at, out); /* after the strategies: they may ask the driver while they count */
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
  add_device(at, out);
  return 0;
}

/* ---- without disturbing anything ---- */

/* What could still be taken from the driver, of a card that has so much free. */
static uint64_t room_of(const struct gap__device *device, uint64_t card_free, uint64_t card_bytes) {
  uint64_t cap = device->cap_bytes, held = device->held_bytes, reserve = device->reserve_bytes;
  uint64_t room = cap > held ? cap - held : 0;
  if (reserve == GAP__RESERVE_DEFAULT) reserve = cap ? 0 : gap__limit_reserve_of(card_bytes);
  uint64_t left = card_free > reserve ? card_free - reserve : 0;
  return cap && room < left ? room : left;
}

static void ask_driver(struct heap_device *at, struct gap__glance *out) {
  gap__dev_background(at->base.dev, true);
  if (gap__dev_mem_info(at->base.dev, &out->card_free_bytes, &out->card_bytes))
    out->card_free_bytes = out->card_bytes = 0;
  gap__dev_background(at->base.dev, false);
  out->room_bytes = room_of(&at->base, out->card_free_bytes, out->card_bytes);
}

/* As add_strategy: the room is there once. */
static int glance_at(const struct gap__policy *policy, struct gap__policy_state *state, struct gap__glance *out) {
  int64_t servable = out->stats.largest_servable_bytes;
  int rc = 0;
  out->stats.largest_servable_bytes = 0;
  if (policy->glance) rc = policy->glance(state, out);
  else policy->stats(state, &out->stats);
  if (out->stats.largest_servable_bytes < servable) out->stats.largest_servable_bytes = servable;
  return rc;
}

/* pooled is gapless with other blocks. */
static const char *strategy_word(struct gap__device *device) {
  const struct gap__policy *policy = heap_current(device);
  bool is_pooled = policy == &gap__policy_gapless && gap__device_conf(device)->strategy == GAP__STRATEGY_POOLED;
  return is_pooled ? "pooled" : policy->name;
}

int gap__heap_glance(gap_heap *heap, int device, struct gap__glance *out) {
  struct heap_device *at = heap_device_at(heap, device);
  int rc = 0;
  if (!at || !heap_is_open(&at->base)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  memset(out, 0, sizeof *out);
  out->strategy = strategy_word(&at->base);
  ask_driver(at, out);
  for (int s = 0; s < GAP__STRATEGY_COUNT && !rc; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state) rc = glance_at(gap__heap_policy(s), state, out);
  }
  add_device(at, &out->stats);
  return rc;
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
