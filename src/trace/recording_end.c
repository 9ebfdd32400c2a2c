/* What a device holds at the end of a trace that does not say so, because its program was killed: the events tell, from the last state
 * on where there was one.  A state may have been taken while the program ran on, so that some of the events behind it are in it
 * already: following them once more changes nothing, since each says what is at its address from then on.
 *
 * Memory is followed in pages of 2 MiB, the least that any of our sources maps; what is of another shape, or too much for a
 * device, is left without an end, as it is. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "gapless/gapless.h"
#include "trace/recording_get.h"

#define PAGE ((uint64_t)2 << 20)
#define PAGES_MOST ((uint64_t)1 << 20) /* mapped at a time: 2 TiB */
/* Mapped and unmapped in all, a bound on the time this takes: for any trace, and for each event. */
#define TOUCHES_MOST ((uint64_t)1 << 26)
#define TOUCHES_AN_EVENT 64

struct piece { /* a mapped page, a driver allocation or a block */
  uint64_t addr, bytes;
  uint32_t event; /* that made it */
  bool pending;
};

struct ending {
  struct gap__recording *r;
  struct gap__recording_device *device;
  GAP__VEC(struct gap__hist_event) seeds; /* that would have made the state; events are numbered from 0, these first */
  uint32_t since;                         /* the event behind them */
  struct gap__map pages, allocations;     /* address -> event */
  struct gap__map blocks;                 /* address -> event, twice, and 1 where it is pending */
  uint64_t touches;
  bool gives_up;
};

static const struct gap__hist_event *event_at(const struct ending *ending, uint32_t index) {
  uint32_t seeds = ending->seeds.count;
  return index < seeds ? &ending->seeds.at[index] : &ending->device->events.at[ending->since + index - seeds];
}

static uint32_t event_count(const struct ending *ending) {
  return ending->seeds.count + ending->device->events.count - ending->since;
}

/* ---- the state before ---- */

enum { SEED_SMALL = 1, SEED_LARGE = 2 }; /* `spare` of a segment's seed */

static int add_seed(struct ending *ending, struct gap__hist_event seed) {
  struct gap__hist_event *kept = GAP__RECORDING_ADD(ending->seeds);
  if (!kept) return GAP_ENOMETA;
  *kept = seed;
  return 0;
}

static int seed_block(struct ending *ending, const struct gap__hist_block *block) {
  struct gap__hist_event seed = {
      .action = GAP__ACT_ALLOC, .addr = block->addr, .size = block->requested, .stack = block->stack};
  int rc = block->state ? add_seed(ending, seed) : 0;
  seed.action = GAP__ACT_FREE_REQUESTED;
  return rc || block->state != 2 ? rc : add_seed(ending, seed);
}

static int seed_segment(struct ending *ending, const struct gap__hist_segment *segment) {
  int rc = add_seed(
      ending, (struct gap__hist_event){.action = segment->is_expandable ? GAP__ACT_SEGMENT_MAP : GAP__ACT_SEGMENT_ALLOC,
                                       .addr = segment->addr,
                                       .size = segment->total_size,
                                       .stream = segment->stream,
                                       .pool = segment->pool,
                                       .spare = segment->is_large ? SEED_LARGE : SEED_SMALL});
  for (uint32_t i = 0; !rc && i < segment->block_count; i++) /* there may be no blocks at all, and no list */
    rc = seed_block(ending, &ending->device->blocks.at[segment->block_first + i]);
  return rc;
}

static int seed(struct ending *ending) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < ending->device->segments.count; i++)
    rc = seed_segment(ending, &ending->device->segments.at[i]);
  return rc;
}

/* ---- following the events ---- */

static uint64_t touches_most(const struct ending *ending) {
  return TOUCHES_MOST + TOUCHES_AN_EVENT * event_count(ending);
}

static int touch_pages(struct ending *ending, const struct gap__hist_event *event, uint32_t index) {
  uint64_t pages = event->size / PAGE;
  int rc = 0;
  ending->touches += pages;
  ending->gives_up |= event->addr % PAGE || event->size % PAGE || ending->touches > touches_most(ending) ||
                      ending->pages.count + pages > PAGES_MOST;
  for (uint64_t i = 0; !rc && !ending->gives_up && i < pages; i++) {
    if (event->action == GAP__ACT_SEGMENT_MAP) rc = gap__map_put(&ending->pages, event->addr + i * PAGE, index);
    else gap__map_remove(&ending->pages, event->addr + i * PAGE, NULL);
  }
  return rc;
}

static int let_go(struct ending *ending, uint64_t addr) {
  uint64_t event;
  if (!gap__map_get(&ending->blocks, addr, &event)) return 0;
  return gap__map_put(&ending->blocks, addr, event | 1);
}

static int follow(struct ending *ending, uint32_t index) {
  const struct gap__hist_event *event = event_at(ending, index);
  switch (event->action) {
    case GAP__ACT_ALLOC: return gap__map_put(&ending->blocks, event->addr, (uint64_t)index << 1);
    case GAP__ACT_FREE_REQUESTED: return let_go(ending, event->addr);
    case GAP__ACT_FREE_COMPLETED: gap__map_remove(&ending->blocks, event->addr, NULL); return 0;
    case GAP__ACT_SEGMENT_ALLOC: return gap__map_put(&ending->allocations, event->addr, index);
    case GAP__ACT_SEGMENT_FREE: gap__map_remove(&ending->allocations, event->addr, NULL); return 0;
    case GAP__ACT_SEGMENT_MAP:
    case GAP__ACT_SEGMENT_UNMAP: return touch_pages(ending, event, index);
    default: return 0;
  }
}

/* ---- in order of address ---- */

static int by_address(const void *left, const void *right) {
  const struct piece *a = left, *b = right;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static uint64_t rounded(uint64_t bytes) { return bytes > UINT64_MAX - 511 ? bytes : (bytes + 511) / 512 * 512; }

static struct piece *sort_blocks(const struct ending *ending) {
  struct piece *pieces = calloc(ending->blocks.count + 1, sizeof *pieces), *to = pieces;
  struct gap__map_slot slot;
  for (size_t cursor = 0; pieces && gap__map_next(&ending->blocks, &cursor, &slot); to++) {
    uint32_t event = (uint32_t)(slot.value >> 1);
    *to = (struct piece){slot.key, rounded(event_at(ending, event)->size), event, slot.value & 1};
  }
  if (pieces) qsort(pieces, ending->blocks.count, sizeof *pieces, by_address);
  return pieces;
}

static struct piece *sort_memory(const struct ending *ending) {
  size_t count = ending->pages.count + ending->allocations.count;
  struct piece *pieces = calloc(count + 1, sizeof *pieces), *to = pieces;
  struct gap__map_slot slot;
  for (size_t cursor = 0; pieces && gap__map_next(&ending->pages, &cursor, &slot); to++)
    *to = (struct piece){slot.key, PAGE, (uint32_t)slot.value, false};
  for (size_t cursor = 0; pieces && gap__map_next(&ending->allocations, &cursor, &slot); to++)
    *to = (struct piece){slot.key, event_at(ending, (uint32_t)slot.value)->size, (uint32_t)slot.value, false};
  if (pieces) qsort(pieces, count, sizeof *pieces, by_address);
  return pieces;
}

/* ---- segments and blocks ---- */

static bool continues(const struct ending *ending, const struct gap__hist_segment *segment, const struct piece *piece) {
  const struct gap__hist_event *event = event_at(ending, piece->event);
  return segment->is_expandable && event->action == GAP__ACT_SEGMENT_MAP &&
         segment->addr + segment->total_size == piece->addr && segment->stream == event->stream &&
         segment->pool == event->pool;
}

static bool is_large(const struct gap__hist_event *event, bool by_gapless) {
  if (event->spare) return event->spare == SEED_LARGE;
  if (event->action == GAP__ACT_SEGMENT_ALLOC) return event->size != PAGE;
  return by_gapless || event->size % (10 * PAGE) == 0;
}

static int add_memory(struct ending *ending, const struct piece *piece) {
  struct gap__recording_device *device = ending->device;
  const struct gap__hist_event *event = event_at(ending, piece->event);
  struct gap__hist_segment *last = device->segments.count ? &device->segments.at[device->segments.count - 1] : NULL;
  bool is_mapped = event->action == GAP__ACT_SEGMENT_MAP, by_gapless = ending->r->history->by_gapless;
  if (piece->addr + piece->bytes < piece->addr) return 0;
  if (last && continues(ending, last, piece)) {
    last->total_size += piece->bytes;
    return 0;
  }
  struct gap__hist_segment *segment = GAP__RECORDING_ADD(device->segments);
  if (!segment) return GAP_ENOMETA;
  *segment = (struct gap__hist_segment){.addr = piece->addr,
                                        .total_size = piece->bytes,
                                        .stream = event->stream,
                                        .pool = event->pool,
                                        .device = (int)(device - ending->r->devices.at),
                                        .is_large = is_large(event, by_gapless),
                                        .is_expandable = is_mapped,
                                        .is_paged = is_mapped && by_gapless};
  return 0;
}

static int add_block(struct gap__recording_device *device, struct gap__hist_segment *segment,
                     struct gap__hist_block block) {
  struct gap__hist_block *kept = GAP__RECORDING_ADD(device->blocks);
  if (!kept) return GAP_ENOMETA;
  *kept = block;
  segment->block_count++;
  gap__recording_count_block(segment, kept);
  return 0;
}

/* The blocks in a segment, and idle ones between.  *next goes on behind it.  A block that lies in no memory that was seen to come is of a
 * history that begins late: then the rest of the memory is not known either. */
static int fill_segment(struct ending *ending, struct gap__hist_segment *segment, const struct piece *blocks,
                        size_t count, size_t *next) {
  struct gap__recording_device *device = ending->device;
  uint64_t at = segment->addr, end = segment->addr + segment->total_size;
  int rc = 0;
  segment->block_first = device->blocks.count;
  for (; !rc && *next < count && blocks[*next].addr < end; ++*next) {
    const struct piece *block = &blocks[*next];
    const struct gap__hist_event *event = event_at(ending, block->event);
    if (block->bytes == 0) continue;
    ending->gives_up |= block->addr < at || block->bytes > end - block->addr;
    if (ending->gives_up) break;
    if (block->addr > at)
      rc = add_block(device, segment, (struct gap__hist_block){.addr = at, .size = block->addr - at});
    if (!rc)
      rc = add_block(device, segment,
                     (struct gap__hist_block){.addr = block->addr,
                                              .size = block->bytes,
                                              .requested = event->size,
                                              .stack = event->stack,
                                              .state = block->pending ? 2 : 1});
    at = block->addr + block->bytes;
  }
  if (!rc && at < end) rc = add_block(device, segment, (struct gap__hist_block){.addr = at, .size = end - at});
  return rc;
}

static int build(struct ending *ending) {
  struct gap__recording_device *device = ending->device;
  struct piece *memory = sort_memory(ending), *blocks = sort_blocks(ending);
  size_t pieces = ending->pages.count + ending->allocations.count, next = 0;
  int rc = memory && blocks ? 0 : GAP_ENOMETA;
  for (size_t i = 0; !rc && i < pieces; i++) rc = add_memory(ending, &memory[i]);
  for (uint32_t i = 0; !rc && !ending->gives_up && i < device->segments.count; i++)
    rc = fill_segment(ending, &device->segments.at[i], blocks, ending->blocks.count, &next);
  ending->gives_up |= next < ending->blocks.count;
  free(memory);
  free(blocks);
  return rc;
}

int gap__recording_find_end(struct gap__recording *r, struct gap__recording_device *device) {
  struct ending ending = {.r = r, .device = device, .since = device->has_state ? device->since : 0};
  int rc = device->has_state ? seed(&ending) : 0;
  gap__recording_forget_state(device);
  for (uint32_t i = 0; !rc && !ending.gives_up && i < event_count(&ending); i++) rc = follow(&ending, i);
  if (!rc && !ending.gives_up) rc = build(&ending);
  device->is_whole = !rc && !ending.gives_up;
  free(ending.seeds.at);
  gap__map_free(&ending.pages);
  gap__map_free(&ending.allocations);
  gap__map_free(&ending.blocks);
  return rc ? gap__recording_no_room(r) : 0;
}
