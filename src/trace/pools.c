#include "trace/pools.h"

#include <stdlib.h>

#include "gapless/gapless.h"

/* A final segment that belongs to a pool. */
struct range {
  uint64_t first, end;
  uint64_t mapped;     /* bytes of it that are mapped while the events are walked */
  uint64_t born_event; /* events before this one met other memory at the same addresses */
  uint16_t pool;
};

static int by_address(const void *left, const void *right) {
  const struct range *a = left, *b = right;
  return a->first < b->first ? -1 : a->first > b->first;
}

static size_t collect(const struct gap__history *history, uint32_t device, struct range *ranges) {
  size_t count = 0;
  for (uint64_t i = 0; i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    if ((uint32_t)segment->device == device && segment->pool)
      ranges[count++] = (struct range){segment->addr, segment->addr + segment->total_size, 0, 0, segment->pool};
  }
  qsort(ranges, count, sizeof *ranges, by_address);
  return count;
}

static bool makes_memory(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP;
}
static bool drops_memory(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP;
}
static bool has_address(const struct gap__hist_event *event) { return event->action < GAP__ACT_SNAPSHOT; }

static uint64_t overlap(const struct range *range, const struct gap__hist_event *event) {
  uint64_t end = event->addr + event->size < event->addr ? UINT64_MAX : event->addr + event->size;
  uint64_t first = event->addr > range->first ? event->addr : range->first;
  if (end > range->end) end = range->end;
  return first < end ? end - first : 0;
}

/* A segment is born with the first event after the last time at which nothing of it was mapped. */
static void note_births(const struct gap__hist_device *device, struct range *ranges, size_t count) {
  for (uint64_t i = 0; i < device->event_count; i++) {
    const struct gap__hist_event *event = &device->events[i];
    if (!makes_memory(event) && !drops_memory(event)) continue;
    for (size_t r = 0; r < count; r++) {
      uint64_t bytes = overlap(&ranges[r], event);
      if (bytes == 0) continue;
      if (makes_memory(event)) {
        ranges[r].mapped += bytes;
      } else {
        ranges[r].mapped -= bytes < ranges[r].mapped ? bytes : ranges[r].mapped;
        if (ranges[r].mapped == 0) ranges[r].born_event = i + 1;
      }
    }
  }
}

/* The last range that begins at or below the address, if the address is inside. */
static const struct range *range_of(const struct range *ranges, size_t count, uint64_t addr) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges[middle].first <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low && addr < ranges[low - 1].end ? &ranges[low - 1] : NULL;
}

static void mark_events(struct gap__hist_device *device, const struct range *ranges, size_t count) {
  for (uint64_t i = 0; i < device->event_count; i++) {
    struct gap__hist_event *event = &device->events[i];
    const struct range *range = has_address(event) ? range_of(ranges, count, event->addr) : NULL;
    if (range && i >= range->born_event) event->pool = range->pool;
  }
}

int gap__pools_assign(struct gap__history *history) {
  if (history->pool_count < 2) return 0;
  struct range *ranges = calloc((size_t)history->segment_count + 1, sizeof *ranges);
  if (!ranges) return GAP_ENOMETA;
  for (uint32_t i = 0; i < history->device_count; i++) {
    size_t count = collect(history, i, ranges);
    if (count == 0) continue;
    note_births(&history->devices[i], ranges, count);
    mark_events(&history->devices[i], ranges, count);
  }
  free(ranges);
  return 0;
}

/* ---- where a history begins ---------------------------------------------------------------------------------------- */

/* Is the address in memory that one of the first `count` events made?  Searched backwards: it is usually a late one. */
static bool was_made(const struct gap__hist_device *device, uint64_t count, uint64_t addr) {
  for (uint64_t i = count; i-- > 0;) {
    const struct gap__hist_event *event = &device->events[i];
    if (makes_memory(event) && addr >= event->addr && addr - event->addr < event->size) return true;
  }
  return false;
}

static bool begins_late(const struct gap__hist_device *device) {
  uint64_t first = 0;
  while (first < device->event_count && (!has_address(&device->events[first]) || makes_memory(&device->events[first])))
    first++;
  return first < device->event_count && !was_made(device, first, device->events[first].addr);
}

void gap__history_find_wrapped(struct gap__history *history) {
  for (uint32_t i = 0; i < history->device_count; i++)
    history->devices[i].wrapped = history->devices[i].event_count && begins_late(&history->devices[i]);
}
