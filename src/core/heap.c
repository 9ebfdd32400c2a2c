/* The heap: which strategy serves a device, who frees what; its life.
 *
 * Allocation and free add one indirect call and no lock to what the strategy does: the strategy of a device is one atomic
 * pointer, its states are never taken down while the heap lives.  A device that is not open yet has a strategy of its own,
 * which opens it. */
#include "core/heap.h"

#include <stdlib.h>

#include "core/heap_state.h"

const struct gap__policy *gap__heap_policy(enum gap__strategy strategy) {
  static const struct gap__policy *const table[GAP__STRATEGY_COUNT] = {
      [GAP__STRATEGY_GAPLESS] = &gap__policy_gapless,
      [GAP__STRATEGY_CACHING] = &gap__policy_caching,
      [GAP__STRATEGY_HEURISTIC] = &gap__policy_heuristic};
  return (unsigned)strategy < GAP__STRATEGY_COUNT ? table[strategy] : NULL;
}

enum gap__strategy gap__heap_server(enum gap__strategy strategy) {
  return strategy == GAP__STRATEGY_POOLED ? GAP__STRATEGY_GAPLESS : strategy;
}

bool gap__heap_has_strategy(enum gap__strategy strategy) {
  return gap__heap_policy(gap__heap_server(strategy)) != NULL;
}

/* ---- the hot path ---- */

static bool is_default(gap_pool_id pool) { return (pool.first | pool.second) == 0; }

/* `known` is the request's pool; NULL: the default pool, or one that nobody has announced. */
static inline int serve(gap_heap *heap, struct heap_device *at, const struct heap_pool *known, gap_stream stream,
                        gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  if (bytes - 1 >= GAP__LARGEST_REQUEST - 1) {
    *out = 0;
    return bytes ? GAP_ETOOBIG : 0;
  }
  if (known && atomic_load_explicit(&known->flags, memory_order_relaxed) == GAP_POOL_CONTIGUOUS)
    return gap__heap_alloc_contiguous(heap, at->base.ordinal, stream, pool, bytes, out);
  const struct gap__policy *policy = heap_current(&at->base);
  return policy->alloc(heap_state_of(&at->base, policy), stream, pool, bytes, out);
}

/* Out of line, so that the default pool's path is a few instructions and a jump. */
static __attribute__((noinline)) int serve_pool(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool,
                                                uint64_t bytes, gap_addr *out) {
  const struct heap_pool *known = gap__heap_pool_find(heap, device, pool);
  return serve(heap, &heap->devices[device], known, stream, pool, bytes, out);
}

int gap__heap_alloc(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (!is_default(pool)) return serve_pool(heap, device, stream, pool, bytes, out);
  return serve(heap, at, NULL, stream, pool, bytes, out);
}

int gap__heap_alloc_default(gap_heap *heap, int device, gap_stream stream, uint64_t bytes, gap_addr *out) {
  struct heap_device *at = heap_device_at(heap, device);
  return at ? serve(heap, at, NULL, stream, (gap_pool_id){0, 0}, bytes, out) : GAP_EINVAL;
}

int gap__heap_alloc_in(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (is_default(pool) || heap->forked) return serve(heap, at, NULL, stream, pool, bytes, out);
  const struct heap_pool *known = gap__heap_pool_find(heap, device, pool);
  if (!known || !atomic_load_explicit(&known->uses, memory_order_acquire)) {
    gap__heap_explain(heap, device,
                      "the pool that the request is for is not in use: it was never made, or was released");
    return GAP_ESTATE;
  }
  return serve(heap, at, known, stream, pool, bytes, out);
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

/* The first device's current strategy has said GAP_ENOTMINE.  Another may be current by now, so it is asked once more. */
static __attribute__((noinline)) int free_anywhere(gap_heap *heap, gap_addr addr) {
  int rc = GAP_ENOTMINE;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) {
    struct gap__device *dev = &heap->devices[i].base;
    const struct gap__policy *policy = heap_current(dev);
    rc = policy->free(heap_state_of(dev, policy), addr);
    if (rc == GAP_ENOTMINE) rc = free_elsewhere(dev, policy, addr);
  }
  return rc;
}

int gap__heap_free(gap_heap *heap, gap_addr addr) {
  if (!addr) return 0;
  struct gap__device *first = &heap->devices[0].base;
  const struct gap__policy *policy = heap_current(first);
  int rc = policy->free(heap_state_of(first, policy), addr);
  return __builtin_expect(rc != GAP_ENOTMINE, 1) ? rc : free_anywhere(heap, addr);
}

/* ---- when memory runs out ---- */

void gap__heap_set_oom_callback(gap_heap *heap, gap__oom_callback *callback, void *arg) {
  gap__lock(&heap->lock);
  heap->oom = callback;
  heap->oom_arg = arg;
  gap__unlock(&heap->lock);
}

bool gap__heap_take_host(struct gap__device *dev, uint64_t bytes, char *why, size_t why_bytes) {
  gap_heap *heap = dev->heap;
  return !heap->host || heap->host(heap->client, (int64_t)bytes, why, why_bytes);
}

void gap__heap_give_host(struct gap__device *dev, uint64_t bytes) {
  gap_heap *heap = dev->heap;
  if (heap->host && bytes) heap->host(heap->client, -(int64_t)bytes, NULL, 0);
}

/* What every strategy of the device can give back: memory that lies idle in one of them serves another that way only. */
static uint64_t relieve(struct gap__device *dev) {
  uint64_t total = 0;
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    uint64_t bytes = 0;
    if (state && gap__heap_policy(s)->trim(state, (gap_pool_id){0, 0}, &bytes) == 0) total += bytes;
  }
  return total;
}

bool gap__heap_several_strategies(struct gap__device *dev) {
  int count = 0;
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) count += atomic_load(&dev->state[s]) != NULL;
  return count > 1;
}

void gap__heap_add_relief(gap_heap *heap, struct gap__relief *relief) {
  gap__lock(&heap->relief_lock);
  relief->next = heap->reliefs;
  heap->reliefs = relief;
  gap__unlock(&heap->relief_lock);
}

void gap__heap_remove_relief(gap_heap *heap, struct gap__relief *relief) {
  gap__lock(&heap->relief_lock);
  struct gap__relief **at = &heap->reliefs;
  while (*at && *at != relief) at = &(*at)->next;
  if (*at) *at = relief->next;
  gap__unlock(&heap->relief_lock);
}

/* What a request lacks, as far as can be told: all of it, where it should have been served. */
static uint64_t shortage(gap_heap *heap, struct gap__device *dev, uint64_t bytes) {
  struct gap__stats stats;
  uint64_t free_bytes, total;
  if (gap__heap_stats(heap, dev->ordinal, &stats) || gap__dev_mem_info(dev->dev, &free_bytes, &total)) return bytes;
  uint64_t servable = (uint64_t)stats.largest_servable_bytes, card = free_bytes + (uint64_t)stats.idle_returnable_bytes;
  if (card < servable) servable = card;
  return bytes > servable ? bytes - servable : bytes;
}

/* What those give who hold blocks that they could do without. */
static uint64_t ask_reliefs(gap_heap *heap, struct gap__device *dev, uint64_t bytes) {
  uint64_t given = 0;
  gap__lock(&heap->relief_lock);
  if (heap->reliefs) bytes = shortage(heap, dev, bytes);
  for (struct gap__relief *r = heap->reliefs; r && given < bytes; r = r->next)
    given += r->give(r->arg, dev->ordinal, bytes - given);
  gap__unlock(&heap->relief_lock);
  return given;
}

bool gap__heap_last_resort(struct gap__device *dev, gap_stream stream, uint64_t bytes) {
  uint64_t given = ask_reliefs(dev->heap, dev, bytes);
  uint64_t relieved = gap__heap_several_strategies(dev) ? relieve(dev) : 0;
  if (relieved >= bytes || given) return true;
  gap__lock(&dev->heap->lock);
  gap__oom_callback *callback = dev->heap->oom;
  void *arg = dev->heap->oom_arg;
  gap__unlock(&dev->heap->lock);
  return (callback && callback(arg, dev->ordinal, stream, bytes)) || relieved;
}

/* ---- life ---- */

static int default_conf(struct gap__conf *out) {
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  *out = *gap__conf_values(set);
  gap__conf_free(set);
  return 0;
}

static int set_up(gap_heap *heap, const struct gap__heap_params *params) {
  struct gap__conf defaults;
  int rc = params->conf ? 0 : default_conf(&defaults);
  for (int i = 0; i < heap->device_count; i++) gap__heap_prepare_device(heap, i, params);
  if (!rc) rc = gap__heap_configure(heap, params->conf ? params->conf : &defaults);
  gap__lock(&heap->lock);
  for (int i = 0; i < heap->device_count && params->devs && !rc; i++) rc = gap__heap_open_device(heap, i);
  gap__unlock(&heap->lock);
  return rc;
}

/* What came with the parameters is the heap's, also when there is none. */
static void drop_params(const struct gap__heap_params *params) {
  for (int i = 0; params->devs && i < params->dev_count; i++) gap__dev_destroy(params->devs[i]);
  if (params->client_free) params->client_free(params->client);
}

int gap__heap_create(const struct gap__heap_params *params, gap_heap **out) {
  if (params->dev_count < 1) return GAP_EINVAL;
  gap_heap *heap = calloc(1, sizeof *heap);
  if (heap) heap->devices = calloc((size_t)params->dev_count, sizeof *heap->devices);
  if (!heap || !heap->devices) {
    drop_params(params);
    free(heap);
    return GAP_ENOMETA;
  }
  heap->device_count = params->dev_count;
  heap->open = params->open;
  heap->opened = params->opened;
  heap->ask = params->ask;
  heap->host = params->host;
  heap->client = params->client;
  heap->client_free = params->client_free;
  int rc = set_up(heap, params);
  gap__heap_enlist(heap);
  if (rc) gap__heap_destroy(heap);
  else *out = heap;
  return rc;
}

static void destroy_device(struct gap__device *dev) {
  atomic_store(&dev->watched, false);
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    if (dev->state[s]) gap__heap_policy(s)->destroy(dev->state[s]);
  }
  if (dev->dev) gap__dev_destroy(dev->dev);
}

/* In a forked child only the heap's own host memory goes; the driver is not called. */
void gap__heap_destroy(gap_heap *heap) {
  if (!heap) return;
  gap__heap_delist(heap);
  gap__heap_imports_free(heap);
  for (int i = 0; i < heap->device_count && !heap->forked; i++) destroy_device(&heap->devices[i].base);
  gap__heap_pools_free(heap);
  gap__heap_confs_free(heap);
  if (heap->client_free) heap->client_free(heap->client);
  free(heap->devices);
  free(heap);
}

void *gap__heap_client(gap_heap *heap) { return heap->client; }

int gap__heap_device_count(const gap_heap *heap) { return heap->device_count; }

bool gap__heap_forked(const gap_heap *heap) { return heap->forked; }

struct gap__dev *gap__heap_dev(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  return at && heap_is_open(&at->base) ? at->base.dev : NULL;
}

void gap__heap_tick(gap_heap *heap, int device) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at || heap->forked) return;
  for (int s = 0; s < GAP__STRATEGY_COUNT; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state && gap__heap_policy(s)->tick) gap__heap_policy(s)->tick(state);
  }
}
