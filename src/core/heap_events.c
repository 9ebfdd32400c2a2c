/* Events: what the program's listener hears. */
#include "core/heap_state.h"

/* Calls are one after the other, in one order for all devices. */
static void tell_taps(gap_heap *heap, const struct gap_event *event) {
  gap__lock(&heap->event_lock);
  for (int tap = 0; tap < GAP__TAP_COUNT; tap++)
    if (heap->taps[tap].fn) heap->taps[tap].fn(heap->taps[tap].arg, event);
  gap__unlock(&heap->event_lock);
}

void gap__report(struct gap__device *device, struct gap_event *event) {
  gap_heap *heap = device->heap;
  event->device = device->ordinal;
  if (heap->recorder.fn) heap->recorder.fn(heap->recorder.arg, event);
  if (atomic_load_explicit(&heap->tapped, memory_order_relaxed)) tell_taps(heap, event);
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

static bool is_tapped(const gap_heap *heap) {
  for (int tap = 0; tap < GAP__TAP_COUNT; tap++)
    if (heap->taps[tap].fn) return true;
  return false;
}

/* Under the event lock. */
static void look_who_hears(gap_heap *heap) {
  bool tapped = is_tapped(heap), watched = tapped || heap->recorder.fn;
  atomic_store(&heap->tapped, tapped);
  for (int i = 0; i < heap->device_count; i++) atomic_store(&heap->devices[i].base.watched, watched);
}

void gap__heap_set_events(gap_heap *heap, enum gap__tap tap, gap_event_fn fn, void *arg) {
  gap__lock(&heap->event_lock);
  heap->taps[tap] = (struct heap_tap){fn, arg};
  look_who_hears(heap);
  gap__unlock(&heap->event_lock);
}

void gap__heap_set_recorder(gap_heap *heap, gap_event_fn fn, void *arg) {
  gap__lock(&heap->event_lock);
  heap->recorder = (struct heap_tap){fn, arg};
  look_who_hears(heap);
  gap__unlock(&heap->event_lock);
}
