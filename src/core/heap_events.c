/* Events: what the program's listener hears. */
#include "core/heap_state.h"

/* Calls are one after the other, in one order for all devices. */
void gap__report(struct gap__device *device, const struct gap_event *event) {
  gap_heap *heap = device->heap;
  struct gap_event told = *event;
  told.device = device->ordinal;
  gap__lock(&heap->event_lock);
  if (heap->event) heap->event(heap->event_arg, &told);
  gap__unlock(&heap->event_lock);
}

void gap__report_oom(struct gap__device *device, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  if (!gap__watched(device)) return;
  uint64_t free_bytes = 0, total = 0;
  gap__dev_mem_info(device->dev, &free_bytes, &total);
  gap__report(device, &(struct gap_event){.kind = GAP_EVENT_OOM,
                                          .addr = free_bytes,
                                          .bytes = bytes,
                                          .requested = bytes,
                                          .stream = stream,
                                          .pool = pool});
}

void gap__heap_set_events(gap_heap *heap, gap_event_fn fn, void *arg) {
  gap__lock(&heap->event_lock);
  heap->event = fn;
  heap->event_arg = arg;
  gap__unlock(&heap->event_lock);
  for (int i = 0; i < heap->device_count; i++) atomic_store(&heap->devices[i].base.watched, fn != NULL);
}
