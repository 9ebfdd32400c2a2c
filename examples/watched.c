/* A program whose memory can be looked at while it runs: `gapless explain PID`.  On a real card every program can be; on the
 * other backends it says so itself.  LINGER=20 in the environment gives you twenty seconds to try. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"

enum { BLOCKS = 16, MIB = 1 << 20 };

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, "serve:True");
  gap_stream stream = device_stream();
  gap_addr blocks[BLOCKS], refused;
  for (int i = 0; i < BLOCKS; i++) CHECK(gap_alloc(heap, 0, stream, 3 * MIB, &blocks[i]));
  for (int i = 0; i < BLOCKS; i += 2) CHECK(gap_free(heap, blocks[i])); /* every second one: holes of 3 MiB */

  CHECK(gap_set_cap(heap, 0, 64 * MIB));
  int rc = gap_alloc(heap, 0, stream, 100 * MIB, &refused); /* explain tells why */
  printf("process %ld: 24 MiB are live; try `gapless explain %ld`\n", (long)getpid(), (long)getpid());
  fflush(stdout);
  const char *linger = getenv("LINGER");
  if (linger) sleep((unsigned)atoi(linger));

  gap_heap_destroy(heap);
  if (rc != GAP_ENOMEM) return 1;
  printf("ok\n");
  return 0;
}
