#include "trace/pools.h"

#include <stdlib.h>

#include "base/map.h"
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
    if (ranges[middle].first <= addr) low = middle + 1;
    else high = middle;
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

/* The memory that the history makes, sorted by address; `end` of each is the furthest of all up to it, so that one look
 * tells whether an address is in any. */
struct made {
  struct range *ranges;
  size_t count;
};

static int find_made(const struct gap__hist_device *device, uint64_t event_count, struct made *made) {
  size_t count = 0;
  for (uint64_t i = 0; i < event_count; i++) count += makes_memory(&device->events[i]);
  *made = (struct made){calloc(count + 1, sizeof *made->ranges), 0};
  if (!made->ranges) return GAP_ENOMETA;
  for (uint64_t i = 0; made->count < count; i++) {
    const struct gap__hist_event *event = &device->events[i];
    if (makes_memory(event))
      made->ranges[made->count++] = (struct range){.first = event->addr, .end = event->addr + event->size};
  }
  qsort(made->ranges, count, sizeof *made->ranges, by_address);
  for (size_t i = 1; i < count; i++)
    if (made->ranges[i].end < made->ranges[i - 1].end) made->ranges[i].end = made->ranges[i - 1].end;
  return 0;
}

/* Is the first event that needs memory in memory made before it? */
static int begins_with_memory(const struct gap__hist_device *device, bool *answer) {
  struct made made;
  uint64_t first = 0;
  while (first < device->event_count && (!has_address(&device->events[first]) || makes_memory(&device->events[first])))
    first++;
  int rc = find_made(device, first, &made);
  *answer = first == device->event_count || (!rc && range_of(made.ranges, made.count, device->events[first].addr));
  free(made.ranges);
  return rc;
}

static int made_what_remains(const struct gap__history *history, uint32_t device, bool *answer) {
  struct made made;
  int rc = find_made(&history->devices[device], history->devices[device].event_count, &made);
  *answer = true;
  for (uint64_t i = 0; !rc && i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device &&
        !range_of(made.ranges, made.count, history->segments[i].addr))
      *answer = false;
  free(made.ranges);
  return rc;
}

bool gap__history_tells_driver(const struct gap__history *history, uint32_t device) {
  const struct gap__hist_device *from = &history->devices[device];
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) return true;
  for (uint64_t i = 0; i < from->event_count; i++)
    if (makes_memory(&from->events[i]) || drops_memory(&from->events[i])) return true;
  return false;
}

/* Of a log of requests alone: is a block freed that it did not allocate? */
static int frees_are_known(const struct gap__hist_device *device, bool *answer) {
  struct gap__map met = {0};
  int rc = 0;
  *answer = true;
  for (uint64_t i = 0; !rc && *answer && i < device->event_count; i++) {
    const struct gap__hist_event *event = &device->events[i];
    if (event->action == GAP__ACT_ALLOC) rc = gap__map_put(&met, event->addr, 1);
    else if (has_address(event) && !gap__map_get(&met, event->addr, NULL)) *answer = false;
  }
  gap__map_free(&met);
  return rc;
}

static int is_whole(const struct gap__history *history, uint32_t device, bool *answer) {
  bool begins = true;
  if (!gap__history_tells_driver(history, device)) return frees_are_known(&history->devices[device], answer);
  int rc = begins_with_memory(&history->devices[device], &begins);
  *answer = begins;
  return rc || !begins ? rc : made_what_remains(history, device, answer);
}

int gap__history_find_wrapped(struct gap__history *history) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < history->device_count; i++) {
    bool whole = true;
    if (history->devices[i].event_count == 0) continue;
    rc = is_whole(history, i, &whole);
    history->devices[i].wrapped = !whole;
  }
  return rc;
}
