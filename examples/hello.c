/* Allocating and freeing in stream order: the memory of a freed block serves the next request of its stream at once, since
 * a stream runs its work in order. */
#include <stdio.h>

#include "device.h"

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream stream = device_stream();
  gap_addr a, b;

  CHECK(gap_alloc(heap, 0, stream, 10 << 20, &a)); /* device 0, 10 MiB */
  device_fill(a, 1, 10 << 20, stream);
  CHECK(gap_free(heap, a)); /* the fill may still be running */

  CHECK(gap_alloc(heap, 0, stream, 10 << 20, &b)); /* no call of the driver */
  device_fill(b, 2, 10 << 20, stream);             /* runs after the first fill */
  int byte = device_first_byte(b, stream);
  CHECK(gap_free(heap, b));

  gap_heap_destroy(heap);
  if (a != b || (byte != 2 && byte != -1)) return 1;
  printf("ok\n");
  return 0;
}
