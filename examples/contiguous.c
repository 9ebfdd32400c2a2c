/* Buffers for a network card, NCCL or cudaIpcGetMemHandle: each must lie inside one driver allocation, which ordinary blocks
 * do not (their pages may come from many).  A contiguous pool gives such blocks; the rest of the heap stays as it is. */
#include <stdio.h>

#include "device.h"

enum { BYTES = 24 << 20 };

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream stream = device_stream();
  gap_pool_id pool;
  gap_addr buffer;
  gap_block block;

  CHECK(gap_pool_create(heap, 0, GAP_POOL_CONTIGUOUS, "network buffers", &pool));
  CHECK(gap_alloc_in(heap, 0, stream, pool, BYTES, &buffer));

  /* What has to be registered is the driver allocation around the block. */
  CHECK(gap_find_block(heap, buffer, &block, NULL));
  printf("register %llu bytes from %#llx on; the buffer begins %llu bytes into it\n",
         (unsigned long long)block.segment_bytes, (unsigned long long)block.segment,
         (unsigned long long)(buffer - block.segment));
  int inside = block.segment <= buffer && buffer + BYTES <= block.segment + block.segment_bytes;

  CHECK(gap_free(heap, buffer));
  CHECK(gap_pool_release(heap, 0, pool));
  gap_heap_destroy(heap);
  if (!inside) return 1;
  printf("ok\n");
  return 0;
}
