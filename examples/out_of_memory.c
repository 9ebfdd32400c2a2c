/* A cap, a callback that makes room, and the reason when nothing helped. */
#include <stdio.h>
#include <string.h>

#include "device.h"

enum { BLOCK = 16 << 20, CACHE_MAX = 3 };

struct cache { /* results that could be computed again */
  gap_heap *heap;
  gap_addr blocks[CACHE_MAX];
  int count;
};

/* Called when a request found no memory; frees the oldest result. */
static int make_room(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct cache *cache = arg;
  (void)device, (void)stream;
  if (!cache->count) return 0;
  printf("no room for %llu bytes: dropping a cached result\n", (unsigned long long)bytes);
  return gap_free(cache->heap, cache->blocks[--cache->count]) == 0;
}

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream stream = device_stream();
  struct cache cache = {.heap = heap};
  gap_addr work, more;

  CHECK(gap_set_cap(heap, 0, 4ull * BLOCK));
  CHECK(gap_set_oom(heap, make_room, &cache));
  while (cache.count < CACHE_MAX) {
    CHECK(gap_alloc(heap, 0, stream, BLOCK, &cache.blocks[cache.count]));
    cache.count++;
  }
  CHECK(gap_alloc(heap, 0, stream, 2 * BLOCK, &work)); /* one cached result has to go */

  CHECK(gap_set_oom(heap, NULL, NULL));
  char why[1000];
  int rc = gap_alloc(heap, 0, stream, BLOCK, &more);
  CHECK(gap_explain(heap, 0, why, sizeof why, NULL));
  printf("%s: %s\n", gap_strerror(rc), why);

  gap_heap_destroy(heap);
  if (rc != GAP_ENOMEM || cache.count != CACHE_MAX - 1 || !strstr(why, "16 MiB")) return 1;
  printf("ok\n");
  return 0;
}
