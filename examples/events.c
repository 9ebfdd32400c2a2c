/* Every event as a line of text: what PyTorch's memory history holds, for any program. */
#include <stdio.h>

#include "device.h"

struct trace {
  FILE *file;
  int live;
  long long mapped_bytes;
};

/* Called one event after the other, inside the call that causes it: it must be quick and must not call the heap. */
static void write_event(void *arg, const gap_event *event) {
  static const char *const names[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                      "segment_free", "segment_map",    "segment_unmap",  "oom"};
  struct trace *trace = arg;
  fprintf(trace->file, "%-14s %#14llx %10llu bytes (%llu asked) stream %#llx\n", names[event->kind],
          (unsigned long long)event->addr, (unsigned long long)event->bytes, (unsigned long long)event->requested,
          (unsigned long long)event->stream);
  trace->live += (event->kind == GAP_EVENT_ALLOC) - (event->kind == GAP_EVENT_FREE_COMPLETED);
  if (event->kind == GAP_EVENT_SEGMENT_MAP || event->kind == GAP_EVENT_SEGMENT_ALLOC)
    trace->mapped_bytes += (long long)event->bytes;
  if (event->kind == GAP_EVENT_SEGMENT_UNMAP || event->kind == GAP_EVENT_SEGMENT_FREE)
    trace->mapped_bytes -= (long long)event->bytes;
}

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, "page_maker:False"); /* no pages ahead of need: a short trace */
  gap_stream one = device_stream(), two = device_stream();
  struct trace trace = {.file = stdout};
  gap_addr a, b;

  CHECK(gap_set_events(heap, write_event, &trace));
  CHECK(gap_alloc(heap, 0, one, 5000000, &a));
  CHECK(gap_alloc(heap, 0, two, 300, &b));
  CHECK(gap_record_stream(heap, a, two));
  CHECK(gap_free(heap, a)); /* requested now, completed when `two` has got there */
  CHECK(gap_free(heap, b));
  CHECK(gap_trim(heap, 0, (gap_pool_id){0, 0}, NULL));
  CHECK(gap_set_events(heap, NULL, NULL)); /* from here on it is not called any more */

  gap_heap_destroy(heap);
  if (trace.live || trace.mapped_bytes) return 1;
  printf("ok\n");
  return 0;
}
