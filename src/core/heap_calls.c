/* The rarer calls of a heap: streams, trim, walk, check.  Each goes to every strategy that exists on the device. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/heap_state.h"

int gap__heap_each(gap_heap *heap, int device, gap__heap_each_fn *call, void *arg) {
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
    rc = record_on(dev, heap_current(dev), addr, stream);
  }
  return rc;
}

static int retire_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  return policy->retire_stream(state, *(gap_stream *)arg);
}

int gap__heap_retire_stream(gap_heap *heap, int device, gap_stream stream) {
  return gap__heap_each(heap, device, retire_one, &stream);
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
  if (!rc && policy->trim_host) policy->trim_host(state, call->pool);
  call->bytes += bytes;
  return rc;
}

int gap__heap_trim(gap_heap *heap, int device, gap_pool_id pool, uint64_t *bytes_returned) {
  struct trim_call call = {.pool = pool};
  int rc = gap__heap_each(heap, device, trim_one, &call);
  if (bytes_returned) *bytes_returned = call.bytes;
  return rc;
}

/* ---- conversion ---- */

static int defragment_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  uint64_t bytes = 0;
  int rc = policy->defragment ? policy->defragment(state, &bytes) : 0;
  *(uint64_t *)arg += bytes;
  return rc;
}

int gap__heap_defragment(gap_heap *heap, int device, uint64_t *bytes_freed) {
  struct heap_device *at = heap_device_at(heap, device);
  uint64_t bytes = 0;
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  const struct gap__conf *conf = gap__device_conf(&at->base);
  bool off = conf->convert == GAP__CONVERT_OFF && !conf->overflow;
  int rc = off ? GAP_ESTATE : gap__heap_each(heap, device, defragment_one, &bytes);
  if (bytes_freed) *bytes_freed = bytes;
  return rc;
}

static int keep_on(struct gap__device *dev, gap_addr addr) {
  struct gap__block_info found;
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    const struct gap__policy *policy = gap__heap_policy(s);
    if (state) rc = policy->keep ? policy->keep(state, addr) : policy->find(state, addr, &found);
  }
  return rc;
}

int gap__heap_keep(gap_heap *heap, gap_addr addr) {
  int rc = GAP_ENOTMINE;
  if (heap->forked) return GAP_EFORKED;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) rc = keep_on(&heap->devices[i].base, addr);
  return rc;
}

static int hint_on(struct gap__device *dev, gap_addr addr, bool cold) {
  struct gap__block_info found;
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    const struct gap__policy *policy = gap__heap_policy(s);
    if (state) rc = policy->hint ? policy->hint(state, addr, cold) : policy->find(state, addr, &found);
  }
  return rc;
}

int gap__heap_hint(gap_heap *heap, gap_addr addr, bool cold) {
  int rc = GAP_ENOTMINE;
  if (heap->forked) return GAP_EFORKED;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) rc = hint_on(&heap->devices[i].base, addr, cold);
  return rc;
}

struct streams_call {
  gap_stream *streams;
  uint32_t count, max;
};

static int add_stream(void *arg, const struct gap__block_info *block) {
  struct streams_call *call = arg;
  for (uint32_t i = 0; i < call->count; i++)
    if (call->streams[i] == block->stream) return 0;
  if (call->count == call->max) return GAP_ELIMIT;
  call->streams[call->count++] = block->stream;
  return 0;
}

bool gap__heap_other_streams(struct gap__device *dev, enum gap__strategy own, gap_stream *out, uint32_t *count) {
  struct streams_call call = {.streams = out, .max = *count};
  int rc = 0;
  for (int s = 0; s < GAP__STRATEGY_COUNT && !rc; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state && s != (int)own) rc = gap__heap_policy(s)->walk(state, add_stream, &call);
  }
  *count = call.count;
  return !rc;
}

/* ---- peers ---- */

static int renew_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  (void)arg;
  return policy->renew_access ? policy->renew_access(state) : 0;
}

int gap__heap_enable_peer(gap_heap *heap, int device, int peer) {
  if (!heap_device_at(heap, device) || !heap_device_at(heap, peer) || device == peer) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&heap->lock);
  int rc = gap__heap_open_device(heap, device);
  atomic_store(&heap->devices[device].base.peered, true);
  if (!rc) rc = gap__dev_peer_enable(heap->devices[device].base.dev, peer);
  if (!rc) rc = gap__heap_each(heap, device, renew_one, NULL);
  if (!rc) rc = gap__heap_imports_renew(heap, device);
  gap__unlock(&heap->lock);
  if (!rc) gap__heap_tell_opened(heap, device);
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
  return gap__heap_each(heap, device, walk_one, &call);
}

static int find_in(struct gap__device *dev, gap_addr addr, struct gap__block_info *out) {
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state) rc = gap__heap_policy(s)->find(state, addr, out);
  }
  return rc;
}

int gap__heap_find(gap_heap *heap, gap_addr addr, struct gap__block_info *out, int *device) {
  if (heap->forked) return GAP_EFORKED;
  int rc = GAP_ENOTMINE;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++) {
    rc = find_in(&heap->devices[i].base, addr, out);
    if (!rc && device) *device = i;
  }
  return rc;
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
  return gap__heap_each(heap, device, check_one, &call);
}

void gap__device_explain(struct gap__device *dev, const char *format, ...) {
  char text[sizeof dev->diagnosis];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  gap__lock(&dev->diagnosis_lock);
  memcpy(dev->diagnosis, text, sizeof text);
  gap__unlock(&dev->diagnosis_lock);
}

void gap__heap_explain(gap_heap *heap, int device, const char *text) {
  struct heap_device *at = heap_device_at(heap, device);
  if (at) gap__device_explain(&at->base, "%s", text);
}

int gap__heap_diagnosis(gap_heap *heap, int device, char *text, size_t bytes) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  gap__lock(&at->base.diagnosis_lock);
  snprintf(text, bytes, "%s", at->base.diagnosis);
  gap__unlock(&at->base.diagnosis_lock);
  return 0;
}
