/* The simulated card: making it, its clock, its two timelines. */
#include "dev/sim/sim.h"

#include <stdlib.h>

#include "dev/sim/state.h"
#include "dev/soft/stream.h"

enum { RECORDS_MAX = 1 << 22, EVENTS_MAX = 1 << 20, STREAMS_MAX = 1 << 20 };

/* The card whose background worker this thread plays at the moment. */
static _Thread_local const struct gap__dev *working_for;

static _Atomic uint64_t *timeline(struct sim *sim) { return working_for == &sim->dev ? &sim->worker_ns : &sim->now_ns; }

uint64_t gap__sim_time(struct gap__dev *dev) {
  return atomic_load_explicit(timeline(sim_of(dev)), memory_order_relaxed);
}

static void move_forward(_Atomic uint64_t *clock, uint64_t ns) {
  if (ns > atomic_load_explicit(clock, memory_order_relaxed)) atomic_store_explicit(clock, ns, memory_order_relaxed);
}

void gap__sim_wait_until(struct sim *sim, uint64_t ns) { move_forward(timeline(sim), ns); }

void gap__sim_charge(struct sim *sim, double us) {
  gap__sim_wait_until(sim, gap__sim_time(&sim->dev) + (uint64_t)(us * 1000 + 0.5));
}

static void background(struct gap__dev *dev, bool on) { working_for = on ? dev : NULL; }

static bool background_idle(struct gap__dev *dev) {
  struct sim *sim = sim_of(dev);
  return atomic_load_explicit(&sim->worker_ns, memory_order_relaxed) <
         atomic_load_explicit(&sim->now_ns, memory_order_relaxed);
}

static void background_ask(struct gap__dev *dev) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  move_forward(&sim->worker_ns, atomic_load_explicit(&sim->now_ns, memory_order_relaxed));
  gap__unlock(&sim->lock);
}

static void destroy(struct gap__dev *dev) {
  struct sim *sim = sim_of(dev);
  if (working_for == dev) working_for = NULL; /* the next card may get this address */
  gap__space_destroy(&sim->space);
  gap__slab_destroy(&sim->chunks);
  gap__slab_destroy(&sim->mappings);
  gap__sim_forget_captures(sim);
  gap__slab_destroy(&sim->streams);
  gap__slab_destroy(&sim->events);
  gap__map_free(&sim->stream_of);
  gap__map_free(&sim->pinned);
  gap__map_free(&sim->arrivals);
  free(sim);
}

#define COMMON_OPS \
  .name = "sim", .destroy = destroy, .segment_alloc = gap__sim_segment_alloc, .segment_free = gap__sim_segment_free, \
  .event_create = gap__sim_event_create, .event_destroy = gap__sim_event_destroy, \
  .event_record = gap__sim_event_record, .event_query = gap__sim_event_query, .event_wait = gap__sim_event_wait, \
  .stream_wait = gap__sim_stream_wait, .stream_create = gap__soft_stream_create, \
  .stream_destroy = gap__soft_stream_destroy, .stream_id = gap__sim_stream_id, \
  .stream_capturing = gap__sim_stream_capturing, .stream_front = gap__sim_stream_front, \
  .node_before = gap__sim_node_before, .copy = gap__sim_copy, .gate = gap__sim_gate, \
  .value_await = gap__sim_value_await, .pin = gap__sim_pin, .unpin = gap__sim_unpin, .mem_info = gap__sim_mem_info, \
  .now_ns = gap__sim_time, .background = background, .background_idle = background_idle, \
  .background_ask = background_ask

static const struct gap__dev_ops ops = {
    COMMON_OPS,
    .reserve = gap__sim_reserve,
    .unreserve = gap__sim_unreserve,
    .chunk_create = gap__sim_chunk_create,
    .chunk_release = gap__sim_chunk_release,
    .map = gap__sim_map,
    .set_access = gap__sim_set_access,
    .set_read_access = gap__sim_set_access, /* there are no bytes */
    .unmap = gap__sim_unmap,
};
static const struct gap__dev_ops ops_without_vmm = {COMMON_OPS};

static int init_tables(struct sim *sim) {
  int rc = gap__space_init(&sim->space);
  if (rc == 0) rc = gap__slab_init(&sim->chunks, sizeof(struct sim_chunk), RECORDS_MAX);
  if (rc == 0) rc = gap__slab_init(&sim->mappings, sizeof(struct sim_mapping), RECORDS_MAX);
  if (rc == 0) rc = gap__slab_init(&sim->streams, sizeof(struct sim_stream), STREAMS_MAX);
  if (rc == 0) rc = gap__slab_init(&sim->events, sizeof(struct sim_event), EVENTS_MAX);
  return rc;
}

int gap__sim_create(int ordinal, const struct gap__sim_params *params, struct gap__dev **out) {
  if (params->total_bytes == 0 || params->context_bytes > params->total_bytes) return GAP_EINVAL;
  struct sim *sim = calloc(1, sizeof *sim);
  if (!sim) return GAP_ENOMETA;
  sim->params = *params;
  if (!sim->params.prices) sim->params.prices = &gap__sim_prices_live;
  sim->dev.ops = params->no_vmm ? &ops_without_vmm : &ops;
  sim->dev.ordinal = ordinal;
  sim->dev.caps = (struct gap__dev_caps){.total_bytes = params->total_bytes,
                                         .granularity_bytes = GAP__PAGE,
                                         .vmm = !params->no_vmm,
                                         .host_chunks = !params->no_vmm,
                                         .gates = true,
                                         .stepped = true};
  int rc = init_tables(sim);
  if (rc == 0) *out = &sim->dev;
  else destroy(&sim->dev);
  return rc;
}

void gap__sim_clock_set(struct gap__dev *dev, uint64_t now_ns) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  /* the program went on: it may have queued work */
  if (now_ns > sim->now_ns) sim->queued = true, sim->caught_up = false;
  move_forward(&sim->now_ns, now_ns);
  gap__unlock(&sim->lock);
}

void gap__sim_clock_advance(struct gap__dev *dev, uint64_t ns) {
  gap__sim_clock_set(dev, atomic_load(&sim_of(dev)->now_ns) + ns);
}

void gap__sim_lag_set(struct gap__dev *dev, uint64_t lag_us) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  sim->params.lag_us = lag_us;
  gap__unlock(&sim->lock);
}

void gap__sim_neighbour_set(struct gap__dev *dev, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  sim->neighbour_bytes = bytes;
  gap__unlock(&sim->lock);
}

/* Without the lock, so that `visit` may call the card: whoever walks keeps other threads away. */
int gap__sim_walk(struct gap__dev *dev, gap__dev_visit *visit, void *arg) {
  struct sim *sim = sim_of(dev);
  for (gap_addr at = 0; (at = gap__space_first(&sim->space, at, GAP__SPACE_END - at)) != 0;) {
    const struct sim_mapping *mapping = gap__slab_at(&sim->mappings, gap__space_at(&sim->space, at));
    const struct sim_chunk *chunk = mapping->chunk ? gap__slab_at(&sim->chunks, mapping->chunk) : NULL;
    struct gap__dev_mapping seen = {mapping->addr, mapping->bytes,
                                    chunk ? (uint64_t)chunk->generation << 32 | mapping->chunk : 0, mapping->accessible,
                                    chunk && chunk->place == GAP__PLACE_HOST};
    at = mapping->addr + mapping->bytes;
    int rc = visit(arg, &seen);
    if (rc != 0) return rc;
  }
  return 0;
}

uint64_t gap__sim_host_bytes(struct gap__dev *dev) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint64_t bytes = sim->host_bytes;
  gap__unlock(&sim->lock);
  return bytes;
}

uint64_t gap__sim_chunk_bytes(struct gap__dev *dev) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint64_t bytes = sim->used_bytes;
  gap__unlock(&sim->lock);
  return bytes;
}
