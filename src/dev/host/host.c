/* The host backend: making it, and what a test may ask it. */
#include "dev/host/host.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "dev/host/state.h"
#include "dev/soft/stream.h"

enum { CHUNKS_MAX = 1 << 20, MAPPINGS_MAX = 1 << 20, EVENTS_MAX = 1 << 20 };

static void destroy(struct gap__dev *dev) {
  struct host *host = host_of(dev);
  for (size_t i = 0; i < host->space.window_count; i++)
    munmap((void *)(uintptr_t)host->space.windows[i].addr, host->space.windows[i].bytes);
  for (uint32_t i = 1; i < host->chunks.count; i++) free(((struct host_chunk *)gap__slab_at(&host->chunks, i))->pages);
  for (size_t i = 1; i < host->stream_count; i++) {
    gap__soft_front_clear(&host->streams[i].front);
    free(host->streams[i].ops);
  }
  for (uint32_t i = 1; i < host->events.count; i++)
    gap__soft_front_clear(&((struct host_event *)gap__slab_at(&host->events, i))->front);
  gap__soft_graphs_free(&host->graphs);
  free(host->streams);
  free(host->pages[0].free);
  free(host->pages[1].free);
  gap__space_destroy(&host->space);
  gap__slab_destroy(&host->chunks);
  gap__slab_destroy(&host->mappings);
  gap__slab_destroy(&host->events);
  gap__map_free(&host->stream_of);
  gap__map_free(&host->pinned);
  if (host->fd >= 0) close(host->fd);
  gap__card_close(host->card);
  pthread_cond_destroy(&host->progress);
  pthread_mutex_destroy(&host->lock);
  free(host);
}

/* All host memory serves: pinning is bookkeeping, so that unbalanced calls are seen. */
static int pin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct host *host = host_of(dev);
  uint64_t key = (uintptr_t)memory;
  pthread_mutex_lock(&host->lock);
  bool wrong = !memory || bytes == 0 || gap__map_get(&host->pinned, key, NULL);
  int rc = wrong ? gap__host_misuse(host) : gap__map_put(&host->pinned, key, bytes);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static int unpin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct host *host = host_of(dev);
  uint64_t key = (uintptr_t)memory, pinned;
  pthread_mutex_lock(&host->lock);
  bool known = gap__map_get(&host->pinned, key, &pinned) && pinned == bytes;
  if (known) gap__map_remove(&host->pinned, key, NULL);
  int rc = known ? 0 : gap__host_misuse(host);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static int mem_info(struct gap__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes) {
  struct host *host = host_of(dev);
  *total_bytes = host->params.total_bytes;
  *free_bytes = host->card ? gap__card_free_bytes(host->card) : *total_bytes - gap__host_chunk_bytes(dev);
  return 0;
}

static uint64_t now_ns(struct gap__dev *dev) {
  struct timespec now;
  (void)dev;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct gap__dev_ops ops = {
    .name = "host",
    .destroy = destroy,
    .reserve = gap__host_reserve,
    .unreserve = gap__host_unreserve,
    .chunk_create = gap__host_chunk_create,
    .chunk_release = gap__host_chunk_release,
    .map = gap__host_map,
    .set_access = gap__host_set_access,
    .set_read_access = gap__host_set_read_access,
    .unmap = gap__host_unmap,
    .segment_alloc = gap__host_segment_alloc,
    .segment_free = gap__host_segment_free,
    .event_create = gap__host_event_create,
    .event_destroy = gap__host_event_destroy,
    .event_record = gap__host_event_record,
    .event_query = gap__host_event_query,
    .event_wait = gap__host_event_wait,
    .stream_wait = gap__host_stream_wait,
    .stream_create = gap__soft_stream_create,
    .stream_destroy = gap__soft_stream_destroy,
    .stream_id = gap__host_stream_id,
    .stream_capturing = gap__host_stream_capturing,
    .stream_front = gap__host_stream_front,
    .node_before = gap__host_node_before,
    .copy = gap__host_copy,
    .write_value = gap__host_write_value,
    .wait_value = gap__host_wait_value,
    .gate = gap__host_gate,
    .value_await = gap__host_value_await,
    .pin = pin,
    .unpin = unpin,
    .mem_info = mem_info,
    .now_ns = now_ns,
};

static int open_memory(struct host *host) {
  host->fd = memfd_create("gapless-host", MFD_CLOEXEC);
  if (host->fd < 0 || ftruncate(host->fd, (off_t)(host->params.total_bytes * 2)) != 0) return GAP_EIO;
  int rc = gap__host_pages_init(host);
  if (rc == 0) rc = gap__space_init(&host->space);
  if (rc == 0) rc = gap__slab_init_fitting(&host->chunks, sizeof(struct host_chunk), CHUNKS_MAX);
  if (rc == 0) rc = gap__slab_init_fitting(&host->mappings, sizeof(struct host_mapping), MAPPINGS_MAX);
  if (rc == 0) rc = gap__slab_init_fitting(&host->events, sizeof(struct host_event), EVENTS_MAX);
  return rc;
}

static int open_card(struct host *host) {
  if (!host->params.card) return 0;
  int rc = gap__card_open(host->params.card, host->params.total_bytes, &host->card);
  if (rc == 0) gap__card_uuid(host->card, host->dev.caps.uuid);
  return rc;
}

int gap__host_create(int ordinal, const struct gap__host_params *params, struct gap__dev **out) {
  if (params->total_bytes == 0 || params->total_bytes % GAP__PAGE || params->total_bytes >= GAP__SPACE_END)
    return GAP_EINVAL;
  struct host *host = calloc(1, sizeof *host);
  if (!host) return GAP_ENOMETA;
  host->params = *params;
  host->dev.ops = &ops;
  host->dev.ordinal = ordinal;
  host->dev.caps = (struct gap__dev_caps){.total_bytes = params->total_bytes,
                                          .granularity_bytes = GAP__PAGE,
                                          .vmm = true,
                                          .host_chunks = true,
                                          .wait_values = true,
                                          .gates = true};
  pthread_mutex_init(&host->lock, NULL);
  pthread_cond_init(&host->progress, NULL);
  int rc = open_memory(host);
  if (rc == 0) rc = open_card(host);
  if (rc == 0) *out = &host->dev;
  else destroy(&host->dev);
  return rc;
}

uint64_t gap__host_faults(struct gap__dev *dev) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint64_t faults = host->faults;
  pthread_mutex_unlock(&host->lock);
  return faults;
}

uint64_t gap__host_chunk_bytes(struct gap__dev *dev) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint64_t bytes = host->used_bytes;
  pthread_mutex_unlock(&host->lock);
  return bytes;
}

uint64_t gap__host_host_bytes(struct gap__dev *dev) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint64_t bytes = host->params.total_bytes - host->pages[GAP__PLACE_HOST].count * GAP__PAGE;
  pthread_mutex_unlock(&host->lock);
  return bytes;
}

/* Without the lock, so that `visit` may call the device: whoever walks keeps other threads away. */
int gap__host_walk(struct gap__dev *dev, gap__dev_visit *visit, void *arg) {
  struct host *host = host_of(dev);
  for (gap_addr at = 0; (at = gap__space_first(&host->space, at, GAP__SPACE_END - at)) != 0;) {
    const struct host_mapping *mapping = gap__host_mapping_at(host, at);
    const struct host_chunk *chunk = gap__slab_at(&host->chunks, mapping->chunk);
    gap__chunk handle = mapping->is_segment ? 0 : (uint64_t)chunk->generation << 32 | mapping->chunk;
    struct gap__dev_mapping seen = {mapping->addr, mapping->bytes, handle, mapping->accessible,
                                    chunk->place == GAP__PLACE_HOST};
    at = mapping->addr + mapping->bytes;
    int rc = visit(arg, &seen);
    if (rc != 0) return rc;
  }
  return 0;
}
