/* The rarer calls of a heap: streams, pools, trim, walk, check.  Each goes to every strategy that exists on the device. */
#include <stdio.h>
#include <stdlib.h>

#include "core/heap_state.h"

/* One call to every strategy of a device, until one fails. */
typedef int each_fn(const struct gap__policy *, struct gap__policy_state *, void *arg);

static int each(gap_heap *heap, int device, each_fn *call, void *arg) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  int rc = 0;
  for (int s = 0; s < GAP__STRATEGY_COUNT && !rc; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&at->base.state[s], memory_order_acquire);
    if (state) rc = call(gap__heap_policy(s), state, arg);
  }
  return rc;
}

/* ---- streams ---- */

static int record_on(struct gap__device *dev, const struct gap__policy *current, gap_addr addr, gap_stream stream) {
  int rc = current->record_stream(heap_state_of(dev, current), addr, stream);
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state && s != (int)current->strategy) rc = gap__heap_policy(s)->record_stream(state, addr, stream);
  }
  return rc;
}

int gap__heap_record_stream(gap_heap *heap, gap_addr addr, gap_stream stream) {
  int rc = addr ? GAP_ENOTMINE : 0;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) {
    struct gap__device *dev = &heap->devices[i].base;
    rc = record_on(dev, atomic_load_explicit(&dev->current, memory_order_acquire), addr, stream);
  }
  return rc;
}

static int retire_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  return policy->retire_stream(state, *(gap_stream *)arg);
}

int gap__heap_retire_stream(gap_heap *heap, int device, gap_stream stream) {
  return each(heap, device, retire_one, &stream);
}

/* ---- pools ---- */

static struct heap_pool_use *find_use(gap_heap *heap, int device, gap_pool_id id) {
  for (uint32_t i = 0; i < heap->pool_use_count; i++) {
    struct heap_pool_use *use = &heap->pool_uses[i];
    if (use->device == device && use->id.first == id.first && use->id.second == id.second) return use;
  }
  return NULL;
}

static struct heap_pool_use *add_use(gap_heap *heap, int device, gap_pool_id id) {
  if (heap->pool_use_count == heap->pool_use_room) {
    uint32_t room = heap->pool_use_room ? 2 * heap->pool_use_room : 8;
    struct heap_pool_use *more = realloc(heap->pool_uses, room * sizeof *more);
    if (!more) return NULL;
    heap->pool_uses = more;
    heap->pool_use_room = room;
  }
  struct heap_pool_use *use = &heap->pool_uses[heap->pool_use_count++];
  *use = (struct heap_pool_use){.device = device, .id = id};
  return use;
}

static int retain_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  return policy->pool_retain(state, *(gap_pool_id *)arg);
}

static int release_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  return policy->pool_release(state, *(gap_pool_id *)arg);
}

static bool is_default(gap_pool_id id) { return id.first == 0 && id.second == 0; }

int gap__heap_pool_retain(gap_heap *heap, int device, gap_pool_id id) {
  if (!heap_device_at(heap, device) || is_default(id)) return GAP_EINVAL;
  gap__lock(&heap->lock);
  struct heap_pool_use *use = find_use(heap, device, id);
  if (!use) use = add_use(heap, device, id);
  int rc = use ? each(heap, device, retain_one, &id) : GAP_ENOMETA;
  if (!rc) use->count++;
  gap__unlock(&heap->lock);
  return rc;
}

int gap__heap_pool_release(gap_heap *heap, int device, gap_pool_id id) {
  if (!heap_device_at(heap, device) || is_default(id)) return GAP_EINVAL;
  gap__lock(&heap->lock);
  struct heap_pool_use *use = find_use(heap, device, id);
  int rc = use && use->count ? each(heap, device, release_one, &id) : GAP_ESTATE;
  if (!rc && --use->count == 0) *use = heap->pool_uses[--heap->pool_use_count];
  gap__unlock(&heap->lock);
  return rc;
}

/* ---- trim ---- */

struct trim_call {
  gap_pool_id pool;
  uint64_t bytes;
};

static int trim_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct trim_call *call = arg;
  uint64_t bytes = 0;
  int rc = policy->trim(state, call->pool, &bytes);
  call->bytes += bytes;
  return rc;
}

int gap__heap_trim(gap_heap *heap, int device, gap_pool_id pool, uint64_t *bytes_returned) {
  struct trim_call call = {.pool = pool};
  int rc = each(heap, device, trim_one, &call);
  if (bytes_returned) *bytes_returned = call.bytes;
  return rc;
}

/* ---- looking ---- */

struct walk_call {
  gap__walk_fn *visit;
  void *arg;
};

static int walk_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct walk_call *call = arg;
  return policy->walk(state, call->visit, call->arg);
}

int gap__heap_walk(gap_heap *heap, int device, gap__walk_fn *visit, void *arg) {
  struct walk_call call = {visit, arg};
  return each(heap, device, walk_one, &call);
}

struct check_call {
  char *text;
  size_t bytes;
};

static int check_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct check_call *call = arg;
  return policy->check(state, call->text, call->bytes);
}

int gap__heap_check(gap_heap *heap, int device, char *text, size_t bytes) {
  struct check_call call = {text, bytes};
  if (bytes) text[0] = '\0';
  return each(heap, device, check_one, &call);
}

int gap__heap_diagnosis(gap_heap *heap, int device, char *text, size_t bytes) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  snprintf(text, bytes, "%s", at->base.diagnosis);
  return 0;
}
