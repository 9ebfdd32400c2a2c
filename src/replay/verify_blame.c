#include "replay/verify_blame.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/addrmap.h"

struct inquiry {
  const struct gap__history *history;
  const struct gap__hist_device *device;
  uint32_t ordinal;
  const struct gap__verify_fault *fault;
  char *text;
  size_t bytes;
};

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

/* Calls `see` for every block of the device that is in use at the end. */
typedef void see_block(void *arg, const struct gap__hist_block *);
static void see_last_blocks(const struct inquiry *inquiry, see_block *see, void *arg) {
  const struct gap__history *history = inquiry->history;
  for (uint64_t s = 0; s < history->segment_count; s++) {
    const struct gap__hist_segment *segment = &history->segments[s];
    if ((uint32_t)segment->device != inquiry->ordinal) continue;
    for (uint32_t b = 0; b < segment->block_count; b++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + b];
      if (block->state != 0) see(arg, block);
    }
  }
}

struct sighting {
  uint64_t addr;
  bool seen;
};

static void look_for(void *arg, const struct gap__hist_block *block) {
  struct sighting *sighting = arg;
  sighting->seen |= block->addr == sighting->addr;
}

/* What was handed out or freed at `at` is freed at this address later on, or still there at the end. */
static bool lives_at(const struct inquiry *inquiry, uint64_t at, uint64_t addr) {
  if (next_of(inquiry->device, at + 1, GAP__ACT_FREE_REQUESTED, addr) < inquiry->device->event_count) return true;
  struct sighting sighting = {.addr = addr};
  see_last_blocks(inquiry, look_for, &sighting);
  return sighting.seen;
}

/* ---- an alloc whose size is contradicted ---- */

struct suspects {
  const struct gap__hist_device *device;
  struct gap__addrmap live; /* address -> alloc + 1 */
  uint64_t odd;             /* the first one */
};

/* Both ends of a free agree with each other and not with the alloc. */
static bool free_contradicts(const struct gap__hist_device *device, uint64_t alloc, uint64_t freed) {
  uint64_t size = device->events[freed].size, addr = device->events[freed].addr;
  if (device->events[alloc].size == size) return false;
  uint64_t completed = next_of(device, freed + 1, GAP__ACT_FREE_COMPLETED, addr);
  return completed < device->event_count && device->events[completed].size == size;
}

static void compare_last(void *arg, const struct gap__hist_block *block) {
  struct suspects *suspects = arg;
  uint32_t made = gap__addrmap_get(&suspects->live, block->addr);
  if (!made || made - 1 >= suspects->odd || suspects->device->events[made - 1].size == block->requested) return;
  suspects->odd = made - 1;
}

static bool follow(struct suspects *suspects, uint64_t at) {
  const struct gap__hist_event *event = &suspects->device->events[at];
  uint32_t made = gap__addrmap_get(&suspects->live, event->addr);
  if (event->action == GAP__ACT_ALLOC) {
    if (made) gap__addrmap_remove(&suspects->live, event->addr); /* its free is among what is altered */
    if (at >= suspects->odd) return true;
    if (gap__addrmap_reserve(&suspects->live)) return false;
    gap__addrmap_put(&suspects->live, event->addr, (uint32_t)at + 1);
  } else if (event->action == GAP__ACT_FREE_REQUESTED && made) {
    if (made - 1 < suspects->odd && free_contradicts(suspects->device, made - 1, at)) suspects->odd = made - 1;
    gap__addrmap_remove(&suspects->live, event->addr);
  }
  return true;
}

/* The first alloc before `limit` that its free, or the block at the end, contradicts; `limit` when there is none. */
static uint64_t odd_alloc(const struct inquiry *inquiry, uint64_t limit) {
  struct suspects suspects = {.device = inquiry->device, .odd = limit};
  if (gap__addrmap_init(&suspects.live)) return limit;
  bool whole = true;
  for (uint64_t at = 0; at < inquiry->device->event_count && whole; at++) whole = follow(&suspects, at);
  if (whole) see_last_blocks(inquiry, compare_last, &suspects);
  gap__addrmap_destroy(&suspects.live);
  return suspects.odd;
}

/* ---- who else may be odd ---- */

/* The alloc that ends the call whose driver call is at fault; otherwise the event itself. */
static uint64_t call_end(const struct gap__hist_device *device, uint64_t fault) {
  uint64_t at = fault;
  while (at < device->event_count && device->events[at].action >= GAP__ACT_FREE_COMPLETED &&
         device->events[at].action <= GAP__ACT_SEGMENT_UNMAP)
    at++;
  return at < device->event_count && device->events[at].action == GAP__ACT_ALLOC ? at : fault;
}

static bool is_growth(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP;
}

/* A new segment, from which the model serves, while the request's own address is in use later on. */
static bool segment_is_odd(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_event *alloc = &inquiry->device->events[fault], *segment = alloc - 1;
  return is_growth(segment) && segment->addr == inquiry->fault->served && lives_at(inquiry, fault, alloc->addr);
}

static bool overlap(const struct gap__hist_event *a, const struct gap__hist_event *b) {
  return a->addr < b->addr + b->size && b->addr < a->addr + a->size;
}

/* Growth that the request at the end of the call has no use for, and the one behind it has. */
static bool is_too_early(const struct gap__hist_device *device, uint64_t growth, uint64_t alloc) {
  const struct gap__hist_event *events = device->events;
  return growth < device->event_count && is_growth(&events[growth]) && alloc + 1 < device->event_count &&
         events[alloc].action == GAP__ACT_ALLOC && events[alloc + 1].action == GAP__ACT_ALLOC &&
         !overlap(&events[growth], &events[alloc]) && overlap(&events[growth], &events[alloc + 1]);
}

/* Was a block of this size handed out at the address and not freed before `at`? */
static bool is_live(const struct gap__hist_device *device, uint64_t at, uint64_t addr, uint64_t size) {
  while (at-- > 0) {
    const struct gap__hist_event *event = &device->events[at];
    if (event->addr == addr && event->action <= GAP__ACT_FREE_COMPLETED)
      return event->action == GAP__ACT_ALLOC && event->size == size;
  }
  return false;
}

/* Requested at one address, completed at another where a block is live, and the first one is in use after it. */
static bool free_is_odd(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_event *completed = &inquiry->device->events[fault], *requested = completed - 1;
  if (completed->action != GAP__ACT_FREE_COMPLETED || requested->action != GAP__ACT_FREE_REQUESTED) return false;
  if (fault + 1 < inquiry->device->event_count && completed[1].action == GAP__ACT_FREE_REQUESTED &&
      completed[1].addr == completed->addr)
    return false; /* that one came too early itself */
  return requested->addr != completed->addr && is_live(inquiry->device, fault, completed->addr, completed->size) &&
         lives_at(inquiry, fault, requested->addr);
}

/* A lone completion, one event after its own free_requested. */
static bool intruder_is_odd(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_event *completed = &inquiry->device->events[fault];
  if (fault < 2 || !inquiry->fault->lone) return false;
  return completed[-2].action == GAP__ACT_FREE_REQUESTED && completed[-2].addr == completed->addr;
}

/* Lone completions; then a free_requested, and only then an alloc that would have looked for them.  The event count: there is
 * none. */
static uint64_t early_free(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_event *events = inquiry->device->events;
  uint64_t at = fault, count = inquiry->device->event_count;
  if (!inquiry->fault->lone) return count;
  while (at < count && events[at].action == GAP__ACT_FREE_COMPLETED) at++;
  bool early =
      at + 1 < count && events[at].action == GAP__ACT_FREE_REQUESTED && events[at + 1].action == GAP__ACT_ALLOC;
  return early ? at : count;
}

/* Says why the event before the fault is the odd one, if it is. */
static bool blame_the_one_before(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_event *event = &inquiry->device->events[fault], *before = event - 1;
  const char *name = gap__action_name((enum gap__action)before->action);
  if (segment_is_odd(inquiry, fault)) {
    snprintf(inquiry->text, inquiry->bytes,
             "%s at %#" PRIx64 ", but the request it serves lies at %#" PRIx64 ", where it is in use later", name,
             before->addr, event->addr);
    return true;
  }
  if (free_is_odd(inquiry, fault)) {
    snprintf(inquiry->text, inquiry->bytes,
             "free_requested of %#" PRIx64 ", but %#" PRIx64 " completes, and the first is freed later", before->addr,
             event->addr);
    return true;
  }
  if (!intruder_is_odd(inquiry, fault)) return false;
  snprintf(inquiry->text, inquiry->bytes,
           "%s between free_requested and free_completed of %#" PRIx64 ", though no other stream uses that block", name,
           event->addr);
  return true;
}

/* Says why another event than the fault is the odd one, if it is. */
static uint64_t blame_another(const struct inquiry *inquiry, uint64_t fault) {
  const struct gap__hist_device *device = inquiry->device;
  uint64_t end = call_end(device, fault), odd = odd_alloc(inquiry, end + 1), early = early_free(inquiry, fault);
  if (early < device->event_count) {
    snprintf(inquiry->text, inquiry->bytes, "free_requested of %#" PRIx64 " before the alloc that blocks complete for",
             device->events[early].addr);
    return early;
  }
  if (odd > end && is_too_early(device, fault, end)) {
    snprintf(inquiry->text, inquiry->bytes,
             "alloc of %" PRIu64 " bytes at %#" PRIx64 " before the one that the new memory is for",
             device->events[end].size, device->events[end].addr);
    return end;
  }
  if (odd > end || odd == fault) return fault;
  snprintf(inquiry->text, inquiry->bytes,
           "alloc of %" PRIu64 " bytes at %#" PRIx64 ", which later is there with another size",
           device->events[odd].size, device->events[odd].addr);
  return odd;
}

uint64_t gap__verify_blame(const struct gap__history *history, uint32_t ordinal, const struct gap__verify_fault *fault,
                           char *text, size_t bytes) {
  struct inquiry inquiry = {history, &history->devices[ordinal], ordinal, fault, text, bytes};
  uint64_t at = fault->event;
  if (at > 0 && at < inquiry.device->event_count && blame_the_one_before(&inquiry, at)) return at - 1;
  return blame_another(&inquiry, at);
}
