/* A block that two streams use.  It belongs to the stream it was allocated for; use on another one is recorded, so that
 * the memory is reused only after that work has ended too.  gap_free_on says both at once. */
#include <stdio.h>

#include "device.h"

enum { BYTES = 32 << 20 };

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream copy = device_stream(), compute = device_stream();

  for (int i = 0; i < 20; i++) {
    gap_addr batch, result;
    CHECK(gap_alloc(heap, 0, copy, BYTES, &batch));
    device_fill(batch, i, BYTES, copy); /* loads the next batch; `compute` would wait for an event here */

    CHECK(gap_record_stream(heap, batch, compute)); /* it reads what `copy` has loaded */
    CHECK(gap_alloc(heap, 0, compute, BYTES, &result));
    device_fill(result, i, BYTES, compute);

    CHECK(gap_free(heap, batch));           /* waits for `compute` behind the scenes, not here */
    CHECK(gap_free_on(heap, result, copy)); /* its last use was queued on `copy` */
  }

  /* The stream goes: what it leaves idle becomes anybody's, and its handle may name another stream some day. */
  CHECK(gap_retire_stream(heap, 0, copy));
  device_stream_destroy(copy);

  gap_usage usage = {.size = sizeof usage};
  CHECK(gap_trim(heap, 0, (gap_pool_id){0, 0}, NULL)); /* waits for what is pending */
  CHECK(gap_get_usage(heap, 0, &usage));
  gap_heap_destroy(heap);
  if (usage.live_bytes || usage.pending_bytes || usage.held_bytes) return 1;
  printf("ok\n");
  return 0;
}
