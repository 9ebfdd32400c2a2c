/* The functions behind CUDAPluggableAllocator: the default heap in torch's shapes, and which streams a graph pool wants.
 *
 * Routes: a list, newest first, of pools that are being allocated to.  `route_count` is looked at without the lock, so that
 * programs without a capture pay one load; a capture's own allocations come from the thread that began it, or from threads
 * that it has synchronised with. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "gapless/pluggable.h"

/* std::function<bool(cudaStream_t)> as libstdc++ lays it out, unchanged since GCC 5: the callable or a pointer to it, the function that
 * copies and destroys it, the function that calls it (its argument comes by address). */
struct filter {
  char callable[16] __attribute__((aligned(16)));
  bool (*manage)(void *to, const void *from, int operation);
  bool (*call)(const void *callable, void *const *stream);
};
enum { FILTER_CLONE = 2, FILTER_DESTROY = 3 };
_Static_assert(sizeof(struct filter) == 32, "libstdc++'s std::function takes 32 bytes");

struct route {
  struct route *next;
  int device;
  gap_pool_id pool;
  struct filter filter;
};

static struct {
  struct gap__lock lock; /* guards the list */
  struct route *first;
  atomic_uint count;
} routes;

/* The child of a fork may find the lock taken by a thread that is gone.  The list is whole at any time. */
static void in_child(void) { routes.lock = (struct gap__lock){0}; }
static void install(void) { pthread_atfork(NULL, NULL, in_child); }

static _Atomic(gap_torch_throw_fn) thrower;

void gap_torch_set_throw(gap_torch_throw_fn fn) { atomic_store(&thrower, fn); }

static gap_addr address(const void *memory) { return (gap_addr)(uintptr_t)memory; }
static gap_stream handle(const void *stream) { return (gap_stream)(uintptr_t)stream; }
static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

static void report(const char *what, int result) {
  if (result) gap__log(GAP__LOG_ERROR, "%s: %s", what, gap_strerror(result));
}

/* The default heap, or NULL with a line in the log. */
static gap_heap *heap_for(const char *what) {
  gap_heap *heap = NULL;
  report(what, gap_heap_default(&heap));
  return heap;
}

static bool wants(const struct route *route, int device, void *stream) {
  return route->device == device && route->filter.manage && route->filter.call(route->filter.callable, &stream);
}

static gap_pool_id pool_for(int device, void *stream) {
  gap_pool_id pool = {0, 0};
  if (!atomic_load_explicit(&routes.count, memory_order_acquire)) return pool;
  gap__lock(&routes.lock);
  for (struct route *route = routes.first; route; route = route->next)
    if (wants(route, device, stream)) {
      pool = route->pool;
      break;
    }
  gap__unlock(&routes.lock);
  return pool;
}

/* Throws where torch has lent us its thrower. */
static void fail(int device, intptr_t bytes, int result) {
  char message[4096] = "";
  gap_torch_throw_fn fn = atomic_load(&thrower);
  int used = snprintf(message, sizeof message,
                      result == GAP_ENOMEM || result == GAP_ETOOBIG
                          ? "CUDA out of memory. Tried to allocate %.2f MiB on GPU %d. "
                          : "gapless: %.2f MiB on GPU %d: ",
                      (double)bytes / (1024 * 1024), device);
  gap_heap *heap = NULL;
  if (result == GAP_ENOMEM && !gap_heap_default(&heap))
    (void)gap_explain(heap, device, message + used, sizeof message - (size_t)used, NULL);
  else (void)snprintf(message + used, sizeof message - (size_t)used, "%s", gap_strerror(result));
  if (fn) fn("gap_torch_alloc", "gapless", 0, message);
  gap__log(GAP__LOG_ERROR, "%s", message);
}

void *gap_torch_alloc(intptr_t bytes, int device, void *stream) {
  gap_heap *heap;
  gap_addr out = 0;
  int result = gap_heap_default(&heap);
  if (!result) result = gap_alloc_in(heap, device, handle(stream), pool_for(device, stream), (uint64_t)bytes, &out);
  if (result) fail(device, bytes, result);
  return (void *)(uintptr_t)out;
}

void gap_torch_free(void *memory, intptr_t bytes, int device, void *stream) {
  (void)bytes, (void)device, (void)stream;
  gap_heap *heap = memory ? heap_for("free") : NULL;
  int result = heap ? gap_free(heap, address(memory)) : 0;
  if (result != GAP_EFORKED) report("free", result);
}

void gap_torch_init(int device_count) {
  (void)device_count;
  (void)heap_for("start");
}

void gap_torch_reset(void) {
  gap_heap *heap = heap_for("empty_cache");
  for (int device = 0; heap && device < gap_device_count(heap); device++)
    report("empty_cache", gap_trim(heap, device, (gap_pool_id){0, 0}, NULL));
}

void gap_torch_memory_fraction(double fraction, int device) {
  gap_heap *heap = heap_for("memory fraction");
  if (heap) report("memory fraction", gap_set_fraction(heap, device, fraction));
}

void *gap_torch_base_alloc(void *memory, size_t *bytes) {
  gap_heap *heap = heap_for("base allocation");
  gap_block block;
  int device;
  int result = heap ? gap_find_block(heap, address(memory), &block, &device) : GAP_ENOTMINE;
  if (bytes) *bytes = result ? 0 : block.segment_bytes;
  return result ? NULL : (void *)(uintptr_t)block.segment;
}

void gap_torch_record_stream(void *memory, void *stream) {
  gap_heap *heap = memory ? heap_for("record_stream") : NULL;
  if (heap) report("record_stream", gap_record_stream(heap, address(memory), handle(stream)));
}

static void copy_filter(const struct filter *from, struct filter *to) {
  *to = *from;
  if (from->manage) from->manage(to->callable, from->callable, FILTER_CLONE);
}

/* A pool that is in use already gets one user more, as with graphs that share it. */
static int open_pool(gap_heap *heap, int device, gap_pool_id pool) {
  int result = gap_pool_retain(heap, device, pool);
  return result == GAP_ESTATE ? gap_pool_adopt(heap, device, GAP_POOL_PRIVATE, "graph", pool) : result;
}

void gap_torch_begin_pool(int device, gap_pool_id pool, const void *filter) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  gap_heap *heap = heap_for("graph pool");
  int result = heap ? open_pool(heap, device, pool) : 0;
  report("graph pool", result);
  if (!heap || result) return;
  struct route *route = calloc(1, sizeof *route);
  if (!route) {
    report("graph pool", GAP_ENOMETA);
    return;
  }
  route->device = device;
  route->pool = pool;
  copy_filter(filter, &route->filter);
  gap__lock(&routes.lock);
  route->next = routes.first;
  routes.first = route;
  atomic_fetch_add(&routes.count, 1);
  gap__unlock(&routes.lock);
}

static struct route *take_route(int device, gap_pool_id pool) {
  gap__lock(&routes.lock);
  struct route **link = &routes.first;
  while (*link && !((*link)->device == device && same_pool((*link)->pool, pool))) link = &(*link)->next;
  struct route *found = *link;
  if (found) {
    *link = found->next;
    atomic_fetch_sub(&routes.count, 1);
  }
  gap__unlock(&routes.lock);
  return found;
}

void gap_torch_end_pool(int device, gap_pool_id pool) {
  struct route *route = take_route(device, pool);
  if (!route) {
    gap__log(GAP__LOG_ERROR, "graph pool: ended without a beginning");
    return;
  }
  if (route->filter.manage) route->filter.manage(route->filter.callable, route->filter.callable, FILTER_DESTROY);
  free(route);
}

void gap_torch_release_pool(int device, gap_pool_id pool) {
  gap_heap *heap = heap_for("graph pool");
  if (heap) report("graph pool", gap_pool_release(heap, device, pool));
}
