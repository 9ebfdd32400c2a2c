/* Memory of a CUDA graph.  A graph replays the addresses that were current when it was captured, so its memory comes from a
 * private pool: the addresses and the pages behind them stay until the pool is released, whatever else runs meanwhile. */
#include <stdio.h>

#include "device.h"

enum { BYTES = 8 << 20 };

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream stream = device_stream();
  gap_pool_id pool;
  gap_addr input, scratch, other;

  CHECK(gap_pool_create(heap, 0, GAP_POOL_PRIVATE, "graph", &pool));
  CHECK(gap_alloc_in(heap, 0, stream, pool, BYTES, &input));

  device_capture_begin(stream);
  CHECK(gap_alloc_in(heap, 0, stream, pool, BYTES, &scratch)); /* allocation works during a capture */
  device_fill(scratch, 7, BYTES, stream);
  CHECK(gap_free(heap, scratch)); /* free for the rest of the capture; a replay writes there again */
  device_fill(input, 9, BYTES, stream);
  void *graph = device_capture_end(stream);

  CHECK(gap_alloc(heap, 0, stream, BYTES, &other)); /* never from the pool */
  if (other == scratch) return 1;
  for (int i = 0; i < 10; i++) device_graph_run(graph, stream);
  int byte = device_first_byte(input, stream);

  CHECK(gap_free(heap, input));
  CHECK(gap_free(heap, other));
  CHECK(gap_pool_release(heap, 0, pool)); /* the graph must not run any more */
  gap_heap_destroy(heap);
  if (byte != 9 && byte != -1) return 1;
  printf("ok\n");
  return 0;
}
