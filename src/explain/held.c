#include "explain/held.h"

int64_t gap__held_change(const struct gap__hist_event *event) {
  int64_t bytes = (int64_t)event->size;
  if (event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP) return bytes;
  bool gives = event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP;
  return gives ? gap__held_less(0, bytes) : 0;
}

int64_t gap__held_at_end(const struct gap__history *history, uint32_t device) {
  int64_t held = 0;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device)
      held = gap__held_sum(held, (int64_t)history->segments[i].total_size);
  return held;
}

int64_t gap__held_at_start(const struct gap__history *history, uint32_t device, bool has_segments) {
  const struct gap__hist_device *from = &history->devices[device];
  if (!has_segments) return 0;
  int64_t held = gap__held_at_end(history, device);
  for (uint64_t i = 0; i < from->event_count; i++) held = gap__held_less(held, gap__held_change(&from->events[i]));
  return held;
}
