/* Making and destroying heaps; the process's own. */
#include <pthread.h>
#include <stdlib.h>

#include "api/client.h"
#include "api/neighbours.h"
#include "api/ring.h"
#include "api/serve.h"
#include "api/trace.h"
#include "tier/tier.h"

enum { DEVICES_MAX = 64 };

/* ---- one heap ---- */

static bool options_fit(const gap_heap_options *o) {
  if (o->size != sizeof *o || o->flags & ~(unsigned)(GAP_HEAP_NO_ENVIRONMENT | GAP_HEAP_NO_THREAD)) return false;
  if (o->backend == GAP_BACKEND_CUDA) return o->device_count == 0 && o->device_bytes == 0;
  if (o->backend != GAP_BACKEND_HOST && o->backend != GAP_BACKEND_SIM) return false;
  return o->device_count >= 0 && o->device_count <= DEVICES_MAX &&
         (o->device_bytes == 0 || o->device_bytes >= GAP__PAGE);
}

static void client_free(void *arg) {
  struct gap__client *client = arg;
  gap__conf_free(client->conf);
  free(client);
}

static enum gap__maker maker_of(const gap_heap_options *o) {
  return o->flags & GAP_HEAP_NO_THREAD || o->backend == GAP_BACKEND_SIM ? GAP__MAKER_OFF : GAP__MAKER_THREAD;
}

static void opened(void *arg, int ordinal) {
  (void)ordinal;
  gap__neighbours_update(((struct gap__client *)arg)->heap);
}

/* When the heap ends its tiers have gone before. */
static bool host(void *arg, int64_t bytes, char *why, size_t why_bytes) {
  struct gap__tier *tier = ((struct gap__client *)arg)->tier;
  return !tier || gap__tier_overflow(tier, bytes, why, why_bytes);
}

static int create(struct gap__client *client, gap_heap **out) {
  struct gap__heap_params params = {.maker = maker_of(&client->options),
                                    .open = gap__backend_open,
                                    .opened = opened,
                                    .ask = gap__neighbours_ask,
                                    .host = host,
                                    .client = client,
                                    .client_free = client_free};
  int rc = gap__backend_count(&client->options, &params.dev_count);
  if (!rc) rc = gap__client_conf_begin(client);
  if (rc) {
    client_free(client);
    return rc;
  }
  params.conf = gap__conf_values(client->conf);
  gap__conf_freeze(client->conf);
  client->options.conf = NULL; /* the caller's text */
  gap_heap *heap;
  rc = gap__heap_create(&params, &heap);
  if (rc) return rc;
  rc = gap__tier_create(heap, params.conf->tiers, &client->tier);
  if (rc) {
    gap__heap_destroy(heap);
    return rc;
  }
  client->heap = *out = heap;
  gap__trace_begin(heap);
  gap__ring_begin(heap);
  gap__serve_update(heap);
  return 0;
}

int gap_heap_create(const gap_heap_options *options, gap_heap **out) {
  if (!options || !options_fit(options)) return GAP_EINVAL;
  struct gap__client *client = calloc(1, sizeof *client);
  if (!client) return GAP_ENOMETA;
  client->options = *options;
  return create(client, out);
}

void gap_heap_destroy(gap_heap *heap) {
  if (heap) {
    gap__serve_leave(heap);
    gap__neighbours_leave(heap);
    gap__trace_end(heap);
    gap__ring_end(heap);
    struct gap__client *client = gap__heap_client(heap);
    gap__tier_destroy(client->tier);
    client->tier = NULL;
  }
  gap__heap_destroy(heap);
}

int gap_device_count(gap_heap *heap) { return gap__heap_device_count(heap); }

/* ---- the process's own ---- */

static struct gap__lock process_lock; /* guards the making of the heap, and its end */
static _Atomic(gap_heap *) process_heap;

static void reset_lock(void) { process_lock = (struct gap__lock){0}; } /* its owner may be a thread that is gone */
static void install(void) { pthread_atfork(NULL, NULL, reset_lock); }

static int make_process_heap(gap_heap **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  pthread_once(&once, install);
  gap__lock(&process_lock);
  int rc = 0;
  *out = atomic_load(&process_heap); /* another thread may have been first */
  if (!*out && !(rc = gap_heap_create(&options, out))) atomic_store(&process_heap, *out);
  gap__unlock(&process_lock);
  return rc;
}

int gap_heap_default(gap_heap **out) {
  gap_heap *heap = atomic_load_explicit(&process_heap, memory_order_acquire);
  int rc = heap ? 0 : make_process_heap(&heap);
  if (!rc) *out = heap;
  return rc;
}

void gap_shutdown(void) {
  gap__lock(&process_lock);
  gap_heap_destroy(atomic_exchange(&process_heap, NULL));
  gap__unlock(&process_lock);
}

int gap_malloc(void **out, size_t bytes, gap_stream stream) {
  gap_heap *heap;
  gap_addr addr = 0;
  int rc = gap_heap_default(&heap);
  if (!rc) rc = gap_alloc(heap, gap__backend_current_device(heap), stream, bytes, &addr);
  *out = rc ? NULL : (void *)(uintptr_t)addr;
  return rc;
}

/* After gap_shutdown a late free finds no heap; it must not make one. */
int gap_mfree(void *memory, gap_stream stream) {
  gap_heap *heap = atomic_load_explicit(&process_heap, memory_order_acquire);
  if (!memory) return 0;
  return heap ? gap_free_on(heap, (gap_addr)(uintptr_t)memory, stream) : GAP_ENOTMINE;
}
