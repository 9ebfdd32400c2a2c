/* Looking: usage, figures by name, a page for a person, and every block. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

static int print_figure(void *arg, const char *name, int64_t value) {
  int *count = arg;
  if (value) printf("  %-40s %" PRId64 "\n", name, value);
  ++*count;
  return 0; /* anything else would end the list */
}

static int print_block(void *arg, const gap_block *block) {
  static const char *const states[] = {"idle", "live", "pending", "no memory"};
  uint64_t *live = arg;
  if (block->state == GAP_BLOCK_LIVE) *live += block->bytes;
  printf("  %#14" PRIx64 " %12" PRIu64 " bytes, %s\n", block->addr, block->bytes, states[block->state]);
  return 0;
}

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, NULL);
  gap_stream stream = device_stream();
  gap_addr a, b;
  CHECK(gap_alloc(heap, 0, stream, 3 << 20, &a));
  CHECK(gap_alloc(heap, 0, stream, 700, &b));
  CHECK(gap_free(heap, a));

  gap_usage usage = {.size = sizeof usage};
  CHECK(gap_get_usage(heap, 0, &usage));
  printf("%" PRIu64 " bytes live, %" PRIu64 " held, the card has %" PRIu64 " free of %" PRIu64 "\n", usage.live_bytes,
         usage.held_bytes, usage.card_free_bytes, usage.card_total_bytes);

  int64_t peak;
  CHECK(gap_stat(heap, 0, "allocated_bytes.all.peak", &peak)); /* PyTorch's names */

  int figures = 0;
  printf("figures that are not 0:\n");
  CHECK(gap_stats(heap, 0, print_figure, &figures));

  size_t length;
  CHECK(gap_summary(heap, 0, NULL, 0, &length)); /* how long is it? */
  char *text = malloc(length + 1);
  if (!text) return 1;
  CHECK(gap_summary(heap, 0, text, length + 1, NULL));
  printf("%s", text);
  free(text);

  uint64_t live = 0;
  printf("blocks:\n");
  CHECK(gap_walk(heap, 0, print_block, &live));

  gap_heap_destroy(heap);
  if (live != usage.live_bytes || live != 1024 || peak < (3 << 20) || figures < 122) return 1;
  printf("ok\n");
  return 0;
}
