#include "replay/verify_blame.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/addrmap.h"

/* The next event of this kind at the address, before the address is handed out again; `count` when there is none. */
static uint64_t next_of(const struct gap__hist_device *device, uint64_t from, enum gap__action action, uint64_t addr) {
  for (uint64_t at = from; at < device->event_count; at++) {
    const struct gap__hist_event *event = &device->events[at];
    if (event->addr != addr) continue;
    if (event->action == action) return at;
    if (event->action == GAP__ACT_ALLOC) break;
  }
  return device->event_count;
}

/* Both ends of a free agree with each other and not with the alloc. */
static bool alloc_is_odd(const struct gap__hist_device *device, uint64_t alloc, uint64_t freed) {
  uint64_t size = device->events[freed].size, addr = device->events[freed].addr;
  if (device->events[alloc].size == size) return false;
  uint64_t completed = next_of(device, freed + 1, GAP__ACT_FREE_COMPLETED, addr);
  return completed < device->event_count && device->events[completed].size == size;
}

/* The first alloc before `fault` whose size both ends of its free contradict; `fault` when there is none. */
static uint64_t odd_alloc(const struct gap__hist_device *device, uint64_t fault) {
  struct gap__addrmap live;
  uint64_t odd = fault;
  if (gap__addrmap_init(&live)) return fault;
  for (uint64_t at = 0; at < device->event_count; at++) {
    const struct gap__hist_event *event = &device->events[at];
    uint32_t made = gap__addrmap_get(&live, event->addr);
    if (event->action == GAP__ACT_ALLOC && !made && at < odd) {
      if (gap__addrmap_reserve(&live)) break;
      gap__addrmap_put(&live, event->addr, (uint32_t)at + 1);
    } else if (event->action == GAP__ACT_FREE_REQUESTED && made) {
      if (made - 1 < odd && alloc_is_odd(device, made - 1, at)) odd = made - 1;
      gap__addrmap_remove(&live, event->addr);
    }
  }
  gap__addrmap_destroy(&live);
  return odd;
}

/* A segment that no request came for, while the request's own address is freed later on. */
static bool segment_is_odd(const struct gap__hist_device *device, uint64_t fault) {
  const struct gap__hist_event *alloc = &device->events[fault], *segment = alloc - 1;
  if (alloc->action != GAP__ACT_ALLOC || segment->action != GAP__ACT_SEGMENT_ALLOC) return false;
  return segment->addr != alloc->addr &&
         next_of(device, fault + 1, GAP__ACT_FREE_REQUESTED, alloc->addr) < device->event_count;
}

/* Requested at one address, completed at another, and the first one is freed once more. */
static bool free_is_odd(const struct gap__hist_device *device, uint64_t fault) {
  const struct gap__hist_event *completed = &device->events[fault], *requested = completed - 1;
  if (completed->action != GAP__ACT_FREE_COMPLETED || requested->action != GAP__ACT_FREE_REQUESTED) return false;
  return requested->addr != completed->addr &&
         next_of(device, fault + 1, GAP__ACT_FREE_REQUESTED, requested->addr) < device->event_count;
}

uint64_t gap__verify_blame(const struct gap__hist_device *device, uint64_t fault, char *text, size_t bytes) {
  if (fault == 0 || fault >= device->event_count) return fault;
  const struct gap__hist_event *before = &device->events[fault - 1];
  if (segment_is_odd(device, fault)) {
    snprintf(text, bytes, "segment_alloc at %#" PRIx64 ", but the request it serves lies, and is freed, at %#" PRIx64,
             before->addr, device->events[fault].addr);
    return fault - 1;
  }
  if (free_is_odd(device, fault)) {
    snprintf(text, bytes, "free_requested of %#" PRIx64 ", but %#" PRIx64 " completes, and the first is freed later",
             before->addr, device->events[fault].addr);
    return fault - 1;
  }
  uint64_t odd = odd_alloc(device, fault);
  if (odd < fault)
    snprintf(text, bytes, "alloc of %" PRIu64 " bytes at %#" PRIx64 ", which is freed with another size",
             device->events[odd].size, device->events[odd].addr);
  return odd;
}
