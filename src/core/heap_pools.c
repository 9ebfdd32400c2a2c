/* Private pools of a heap: who uses them, and how they are served. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mix.h"
#include "base/text.h"
#include "core/heap_state.h"

static unsigned bucket_of(int device, gap_pool_id id) {
  uint64_t h = (id.first ^ id.second << 20 ^ (uint64_t)device << 50) * 0x9E3779B97F4A7C15ull;
  return (unsigned)(h >> 56) % HEAP_POOL_BUCKETS;
}

static bool is_default(gap_pool_id id) { return id.first == 0 && id.second == 0; }

struct heap_pool *gap__heap_pool_find(gap_heap *heap, int device, gap_pool_id id) {
  struct heap_pool *pool = atomic_load_explicit(&heap->pools[bucket_of(device, id)], memory_order_acquire);
  while (pool && !(pool->device == device && pool->id.first == id.first && pool->id.second == id.second))
    pool = pool->next;
  return pool;
}

static struct heap_pool *find_or_add(gap_heap *heap, int device, gap_pool_id id) {
  struct heap_pool *pool = gap__heap_pool_find(heap, device, id);
  if (pool || !(pool = calloc(1, sizeof *pool))) return pool;
  _Atomic(struct heap_pool *) *bucket = &heap->pools[bucket_of(device, id)];
  pool->device = device;
  pool->id = id;
  pool->next = atomic_load(bucket);
  atomic_store_explicit(bucket, pool, memory_order_release);
  return pool;
}

/* ---- use counts ---- */

struct count_call {
  const struct heap_pool *pool;
  unsigned done; /* strategies that have counted */
};

static int retain_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct count_call *call = arg;
  int rc = policy->pool_retain(state, call->pool->id, atomic_load(&call->pool->flags));
  call->done += rc == 0;
  return rc;
}

static int undo_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct count_call *call = arg;
  return call->done && call->done-- ? policy->pool_release(state, call->pool->id) : 0;
}

static int behave_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  const struct heap_pool *pool = arg;
  return policy->pool_behave ? policy->pool_behave(state, pool->id, pool->behaviour) : 0;
}

static int release_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  return policy->pool_release(state, ((const struct heap_pool *)arg)->id);
}

/* Every strategy counts the use, or none. */
static int count_up(gap_heap *heap, struct heap_pool *pool) {
  struct count_call call = {.pool = pool};
  int rc = gap__heap_each(heap, pool->device, retain_one, &call);
  if (rc) gap__heap_each(heap, pool->device, undo_one, &call);
  else atomic_fetch_add(&pool->uses, 1);
  return rc;
}

uint64_t gap__heap_tag_sum(const char *tag) {
  uint64_t sum = 0;
  for (; *tag; tag++) sum = gap__mix64(sum ^ (unsigned char)*tag) + 1;
  return sum;
}

/* The first use of a pool. */
static int begin(gap_heap *heap, struct heap_pool *pool, const struct gap__pool_about *about) {
  atomic_store(&pool->flags, about->flags);
  pool->behaviour = 0;
  memset(pool->tag, 0, sizeof pool->tag);
  if (about->tag) strncpy(pool->tag, about->tag, sizeof pool->tag - 1);
  pool->tag_sum = about->tag ? gap__heap_tag_sum(about->tag) : 0;
  return count_up(heap, pool);
}

static bool flags_known(unsigned flags) {
  return flags == GAP_POOL_PRIVATE || flags == GAP_POOL_SHARED || flags == GAP_POOL_CONTIGUOUS;
}

static int adopt(gap_heap *heap, int device, const struct gap__pool_about *about, bool fresh) {
  struct heap_pool *pool = find_or_add(heap, device, about->id);
  if (!pool) return GAP_ENOMETA;
  if (!atomic_load(&pool->uses)) return begin(heap, pool, about);
  return fresh || atomic_load(&pool->flags) != about->flags ? GAP_ESTATE : count_up(heap, pool);
}

int gap__heap_pool_adopt(gap_heap *heap, int device, const struct gap__pool_about *about) {
  if (!heap_device_at(heap, device) || is_default(about->id) || !flags_known(about->flags)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  int rc = adopt(heap, device, about, false);
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_pool_retain(gap_heap *heap, int device, gap_pool_id id) {
  return gap__heap_pool_adopt(heap, device, &(struct gap__pool_about){.id = id});
}

/* Ids of our own have both members above 0; torch's have one. */
static gap_pool_id new_id(gap_heap *heap, int device) {
  static _Atomic uint64_t last;
  gap_pool_id id;
  do {
    uint64_t number = atomic_fetch_add(&last, 1) + 1;
    id = (gap_pool_id){number, number};
  } while (gap__heap_pool_find(heap, device, id));
  return id;
}

int gap__heap_pool_create(gap_heap *heap, int device, struct gap__pool_about *about) {
  if (!heap_device_at(heap, device) || !flags_known(about->flags)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  if (is_default(about->id)) about->id = new_id(heap, device);
  int rc = adopt(heap, device, about, true);
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_pool_share(gap_heap *heap, int device, gap_pool_id id) {
  if (!heap_device_at(heap, device) || is_default(id)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  struct heap_pool *pool = gap__heap_pool_find(heap, device, id);
  int rc = pool && atomic_load(&pool->uses) ? count_up(heap, pool) : GAP_ESTATE;
  gap__unlock(&heap->lock);
  return rc;
}

static int trim_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  uint64_t bytes;
  return policy->trim(state, ((const struct heap_pool *)arg)->id, &bytes);
}

/* One use less.  Segments of a contiguous pool serve nobody else, so they go back to the driver with its last use. */
static int count_down(gap_heap *heap, struct heap_pool *pool) {
  int rc = gap__heap_each(heap, pool->device, release_one, pool);
  if (rc) return rc;
  bool last = atomic_fetch_sub(&pool->uses, 1) == 1;
  bool contiguous = atomic_load(&pool->flags) == GAP_POOL_CONTIGUOUS;
  return last && contiguous ? gap__heap_each(heap, pool->device, trim_one, pool) : 0;
}

int gap__heap_pool_release(gap_heap *heap, int device, gap_pool_id id) {
  if (!heap_device_at(heap, device) || is_default(id)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  struct heap_pool *pool = gap__heap_pool_find(heap, device, id);
  int rc = pool && atomic_load(&pool->uses) ? count_down(heap, pool) : GAP_ESTATE;
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_pool_behave(gap_heap *heap, int device, gap_pool_id id, unsigned behaviour) {
  if (!heap_device_at(heap, device) || is_default(id)) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  struct heap_pool *pool = gap__heap_pool_find(heap, device, id);
  int rc = pool && atomic_load(&pool->uses) ? 0 : GAP_ESTATE;
  if (!rc) {
    pool->behaviour = behaviour;
    rc = gap__heap_each(heap, device, behave_one, pool);
  }
  gap__unlock(&heap->lock);
  return rc;
}

void gap__heap_pool_tag(gap_heap *heap, int device, gap_pool_id id, char out[32]) {
  struct heap_pool *pool = is_default(id) ? NULL : gap__heap_pool_find(heap, device, id);
  out[0] = '\0';
  if (!pool) return;
  gap__lock(&heap->lock);
  memcpy(out, pool->tag, sizeof pool->tag);
  gap__unlock(&heap->lock);
}

/* ---- for strategies ---- */

static int announce(const struct heap_pool *pool, const struct gap__policy *policy, struct gap__policy_state *state) {
  int rc = 0;
  for (uint32_t n = atomic_load(&pool->uses); n && !rc; n--)
    rc = policy->pool_retain(state, pool->id, atomic_load(&pool->flags));
  if (!rc && pool->behaviour && policy->pool_behave) rc = policy->pool_behave(state, pool->id, pool->behaviour);
  return rc;
}

int gap__heap_pools_announce(gap_heap *heap, int device, const struct gap__policy *policy,
                             struct gap__policy_state *state) {
  int rc = 0;
  for (int b = 0; b < HEAP_POOL_BUCKETS; b++)
    for (const struct heap_pool *pool = atomic_load(&heap->pools[b]); pool && !rc; pool = pool->next)
      if (pool->device == device) rc = announce(pool, policy, state);
  return rc;
}

/* Each of its blocks must lie inside one driver allocation, which is what caching_allocator's segments are. */
int gap__heap_alloc_contiguous(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes,
                               gap_addr *out) {
  struct gap__device *dev = &heap->devices[device].base;
  if (heap->forked) return GAP_EFORKED;
  struct gap__policy_state *state = atomic_load_explicit(&dev->state[GAP__STRATEGY_CACHING], memory_order_acquire);
  int rc = 0;
  if (!state) {
    gap__lock(&heap->lock);
    rc = gap__heap_strategy(heap, device, GAP__STRATEGY_CACHING, &state);
    gap__unlock(&heap->lock);
  }
  return rc ? rc : gap__policy_caching.alloc(state, stream, pool, bytes, out);
}

int gap__heap_alloc_whole(struct gap__device *dev, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  char asked[GAP__TEXT_BYTES];
  gap__text_size(bytes, asked);
  if (!atomic_exchange(&dev->whole_said, true))
    gap__log(GAP__LOG_WARNING,
             "device %d: the driver refused the addresses for %s: driver allocations serve such requests", dev->ordinal,
             asked);
  return gap__heap_alloc_contiguous(dev->heap, dev->ordinal, stream, pool, bytes, out);
}

void gap__heap_pools_free(gap_heap *heap) {
  for (int b = 0; b < HEAP_POOL_BUCKETS; b++)
    for (struct heap_pool *next, *pool = atomic_load(&heap->pools[b]); pool; pool = next) {
      next = pool->next;
      free(pool);
    }
}
