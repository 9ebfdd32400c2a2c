/* Blocks, streams, pools, limits: the core's calls under their public names. */
#include "api/client.h"
#include "api/frames.h"

/* ---- blocks ---- */

/* Out of line: a recorder wants to know who calls. */
static __attribute__((noinline)) int alloc_framed(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool,
                                                  uint64_t bytes, gap_addr *out) {
  uint32_t before = gap__frames_begin();
  int rc = gap__heap_alloc_in(heap, device, stream, pool, bytes, out);
  gap__frames_end(before);
  return rc;
}

static __attribute__((noinline)) int free_framed(gap_heap *heap, gap_addr addr) {
  uint32_t before = gap__frames_begin();
  int rc = gap__heap_free(heap, addr);
  gap__frames_end(before);
  return rc;
}

int gap_alloc(gap_heap *heap, int device, gap_stream stream, uint64_t bytes, gap_addr *out) {
  *out = 0;
  if (gap__frames_wanted()) return alloc_framed(heap, device, stream, (gap_pool_id){0, 0}, bytes, out);
  return gap__heap_alloc_default(heap, device, stream, bytes, out);
}

int gap_alloc_in(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  *out = 0;
  if (gap__frames_wanted()) return alloc_framed(heap, device, stream, pool, bytes, out);
  return gap__heap_alloc_in(heap, device, stream, pool, bytes, out);
}

int gap_free(gap_heap *heap, gap_addr addr) {
  return gap__frames_wanted() ? free_framed(heap, addr) : gap__heap_free(heap, addr);
}

int gap_free_on(gap_heap *heap, gap_addr addr, gap_stream stream) {
  int rc = gap__heap_record_stream(heap, addr, stream);
  return rc ? rc : gap_free(heap, addr);
}

int gap_record_stream(gap_heap *heap, gap_addr addr, gap_stream stream) {
  return gap__heap_record_stream(heap, addr, stream);
}

int gap_retire_stream(gap_heap *heap, int device, gap_stream stream) {
  return gap__heap_retire_stream(heap, device, stream);
}

/* ---- pools ---- */

int gap_pool_create(gap_heap *heap, int device, unsigned flags, const char *tag, gap_pool_id *out) {
  struct gap__pool_about about = {.flags = flags, .tag = tag};
  int rc = gap__heap_pool_create(heap, device, &about);
  if (!rc) *out = about.id;
  return rc;
}

int gap_pool_adopt(gap_heap *heap, int device, unsigned flags, const char *tag, gap_pool_id id) {
  return gap__heap_pool_adopt(heap, device, &(struct gap__pool_about){.id = id, .flags = flags, .tag = tag});
}

int gap_pool_retain(gap_heap *heap, int device, gap_pool_id id) { return gap__heap_pool_share(heap, device, id); }

int gap_pool_release(gap_heap *heap, int device, gap_pool_id id) { return gap__heap_pool_release(heap, device, id); }

int gap_pool_behave(gap_heap *heap, int device, gap_pool_id id, unsigned behaviour) {
  if (behaviour & ~(unsigned)(GAP_POOL_NO_SPLIT | GAP_POOL_USE_ON_OOM)) return GAP_EINVAL;
  return gap__heap_pool_behave(heap, device, id, behaviour);
}

/* ---- limits ---- */

int gap_set_cap(gap_heap *heap, int device, uint64_t bytes) { return gap__heap_set_cap(heap, device, bytes); }

int gap_set_fraction(gap_heap *heap, int device, double fraction) {
  return gap__heap_set_fraction(heap, device, fraction);
}

int gap_set_reserve(gap_heap *heap, int device, uint64_t bytes) { return gap__heap_set_reserve(heap, device, bytes); }

int gap_trim(gap_heap *heap, int device, gap_pool_id pool, uint64_t *returned) {
  return gap__heap_trim(heap, device, pool, returned);
}

int gap_hint(gap_heap *heap, gap_addr addr, gap_hint_kind hint) {
  if (hint != GAP_HINT_NONE && hint != GAP_HINT_COLD) return GAP_EINVAL;
  return gap__heap_hint(heap, addr, hint == GAP_HINT_COLD);
}

int gap_defragment(gap_heap *heap, int device, uint64_t *freed) { return gap__heap_defragment(heap, device, freed); }

int gap_keep_memory(gap_heap *heap, gap_addr addr) { return gap__heap_keep(heap, addr); }

int gap_enable_peer(gap_heap *heap, int device, int peer) { return gap__heap_enable_peer(heap, device, peer); }

/* ---- callbacks ---- */

/* The heaps whose callback this thread is inside, innermost first: a request made there that fails must not ask again,
 * without end. */
struct asking {
  const struct gap__client *client;
  const struct asking *outer;
};
static _Thread_local const struct asking *asking;

static bool is_asking(const struct gap__client *client) {
  const struct asking *at = asking;
  while (at && at->client != client) at = at->outer;
  return at != NULL;
}

/* The core asks with a bool, the program answers with an int. */
static bool ask_program(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct gap__client *client = arg;
  if (is_asking(client)) return false;
  gap__lock(&client->lock);
  gap_oom_fn oom = client->oom;
  void *oom_arg = client->oom_arg;
  gap__unlock(&client->lock);
  struct asking here = {client, asking};
  asking = &here;
  bool freed = oom && oom(oom_arg, device, stream, bytes) != 0;
  asking = here.outer;
  return freed;
}

int gap_set_oom(gap_heap *heap, gap_oom_fn fn, void *arg) {
  struct gap__client *client = gap__client_of(heap);
  if (gap__heap_forked(heap)) return GAP_EFORKED;
  gap__lock(&client->lock);
  client->oom = fn;
  client->oom_arg = arg;
  gap__unlock(&client->lock);
  gap__heap_set_oom_callback(heap, fn ? ask_program : NULL, client);
  return 0;
}

int gap_set_events(gap_heap *heap, gap_event_fn fn, void *arg) {
  if (gap__heap_forked(heap)) return GAP_EFORKED;
  gap__heap_set_events(heap, GAP__TAP_PROGRAM, fn, arg);
  return 0;
}
