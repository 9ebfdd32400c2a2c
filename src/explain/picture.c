#include "explain/picture.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

/* ---- segments ------------------------------------------------------------------------------------------------------ */

/* The first segment that begins beyond the address. */
static uint32_t beyond(const struct gap__picture *picture, uint64_t addr) {
  uint32_t low = 0, high = picture->segment_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (picture->segments[middle].addr <= addr) low = middle + 1;
    else high = middle;
  }
  return low;
}

struct gap__picture_segment *gap__picture_segment_of(const struct gap__picture *picture, uint64_t addr) {
  uint32_t next = beyond(picture, addr);
  struct gap__picture_segment *segment = next ? &picture->segments[next - 1] : NULL;
  return segment && addr - segment->addr < segment->bytes ? segment : NULL;
}

static int insert_segment(struct gap__picture *picture, struct gap__picture_segment segment) {
  if (picture->segment_count == picture->segment_room) {
    uint32_t room = 2 * picture->segment_room + 64;
    void *grown = realloc(picture->segments, room * sizeof *picture->segments);
    if (!grown) return GAP_ENOMETA;
    picture->segments = grown;
    picture->segment_room = room;
  }
  uint32_t at = beyond(picture, segment.addr);
  memmove(&picture->segments[at + 1], &picture->segments[at], (picture->segment_count - at) * sizeof segment);
  picture->segments[at] = segment;
  picture->segment_count++;
  picture->held += segment.bytes;
  return 0;
}

static void remove_segment(struct gap__picture *picture, struct gap__picture_segment *segment) {
  uint32_t at = (uint32_t)(segment - picture->segments);
  picture->held -= segment->bytes;
  picture->segment_count--;
  memmove(segment, segment + 1, (picture->segment_count - at) * sizeof *segment);
}

static bool overlaps_segment(const struct gap__picture *picture, uint64_t addr, uint64_t bytes) {
  uint32_t next = beyond(picture, addr);
  if (next < picture->segment_count && picture->segments[next].addr - addr < bytes) return true;
  return gap__picture_segment_of(picture, addr) != NULL;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

static uint32_t find_block(const struct gap__picture *picture, uint64_t addr) {
  uint32_t index = gap__tree_at_least(&picture->blocks, &picture->slab, addr, 0);
  return index && gap__picture_block_at(picture, index)->node.major == addr ? index : 0;
}

/* A block that has no bytes, or would lie over another or outside of every segment, is left out. */
static int insert_block(struct gap__picture *picture, uint64_t addr, uint64_t bytes, uint32_t stack, bool pending) {
  struct gap__picture_segment *segment = gap__picture_segment_of(picture, addr);
  uint32_t next = gap__tree_at_least(&picture->blocks, &picture->slab, addr, 0);
  uint32_t last = gap__tree_below(&picture->blocks, &picture->slab, addr, 0);
  if (!segment || bytes == 0 || bytes > segment->bytes - (addr - segment->addr)) return 0;
  if (next && gap__picture_block_at(picture, next)->node.major - addr < bytes) return 0;
  if (last && addr - gap__picture_block_at(picture, last)->node.major < gap__picture_block_at(picture, last)->bytes)
    return 0;
  uint32_t index = gap__slab_take(&picture->slab);
  if (!index) return GAP_ENOMETA;
  *gap__picture_block_at(picture, index) =
      (struct gap__picture_block){.node = {.major = addr, .tag = pending}, .bytes = bytes, .stack = stack};
  gap__tree_insert(&picture->blocks, &picture->slab, index);
  segment->live += bytes;
  picture->live += bytes;
  picture->pending += pending ? bytes : 0;
  return 0;
}

static void remove_block(struct gap__picture *picture, uint64_t addr) {
  uint32_t index = find_block(picture, addr);
  struct gap__picture_segment *segment = gap__picture_segment_of(picture, addr);
  if (!index) return;
  const struct gap__picture_block *block = gap__picture_block_at(picture, index);
  if (segment) segment->live -= block->bytes;
  picture->live -= block->bytes;
  picture->pending -= block->node.tag ? block->bytes : 0;
  gap__tree_erase(&picture->blocks, &picture->slab, index);
  gap__slab_give(&picture->slab, index);
}

static void come_back(struct gap__picture *picture, uint64_t addr) {
  uint32_t index = find_block(picture, addr);
  if (!index || !gap__picture_block_at(picture, index)->node.tag) return;
  gap__picture_block_at(picture, index)->node.tag = 0;
  picture->pending -= gap__picture_block_at(picture, index)->bytes;
}

/* ---- the end of the file ------------------------------------------------------------------------------------------- */

static int take_segment(struct gap__picture *picture, const struct gap__hist_segment *from) {
  if (from->total_size == 0 || overlaps_segment(picture, from->addr, from->total_size)) return 0;
  int rc = insert_segment(picture, (struct gap__picture_segment){.addr = from->addr,
                                                                 .bytes = from->total_size,
                                                                 .stream = from->stream,
                                                                 .pool = from->pool,
                                                                 .is_large = from->is_large,
                                                                 .is_expandable = from->is_expandable,
                                                                 .is_paged = from->is_paged});
  for (uint32_t i = 0; !rc && i < from->block_count; i++) {
    const struct gap__hist_block *block = &picture->history->blocks[from->block_first + i];
    if (block->state) rc = insert_block(picture, block->addr, block->size, block->stack, block->state == 2);
  }
  return rc;
}

int gap__picture_begin(const struct gap__history *history, uint32_t device, struct gap__picture *picture) {
  uint64_t room = history->devices[device].event_count + history->block_count + 2;
  *picture = (struct gap__picture){.history = history, .device = device};
  int rc = gap__slab_init(&picture->slab, sizeof(struct gap__picture_block),
                          room < UINT32_MAX ? (uint32_t)room : UINT32_MAX);
  for (uint64_t i = 0; !rc && i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) rc = take_segment(picture, &history->segments[i]);
  return rc;
}

void gap__picture_end(struct gap__picture *picture) {
  gap__slab_destroy(&picture->slab);
  free(picture->segments);
  *picture = (struct gap__picture){0};
}

/* ---- undoing ------------------------------------------------------------------------------------------------------- */

static void recount(struct gap__picture *picture, uint64_t addr) {
  struct gap__picture_segment *segment = gap__picture_segment_of(picture, addr);
  if (!segment) return;
  uint64_t at = segment->addr, gap, bytes, idle = 0;
  while (gap__picture_next_gap(picture, segment, &at, &gap, &bytes)) idle += bytes;
  segment->live = segment->bytes - idle;
}

/* Pages of an expandable segment come and go at its ends and inside it. */
static int cut_pages(struct gap__picture *picture, uint64_t addr, uint64_t bytes) {
  struct gap__picture_segment *segment = gap__picture_segment_of(picture, addr);
  if (!segment || bytes > segment->bytes - (addr - segment->addr)) return 0;
  struct gap__picture_segment head = *segment, tail = *segment;
  head.bytes = addr - segment->addr;
  tail.addr = addr + bytes;
  tail.bytes -= head.bytes + bytes;
  remove_segment(picture, segment);
  int rc = head.bytes ? insert_segment(picture, head) : 0;
  if (!rc && tail.bytes) rc = insert_segment(picture, tail);
  recount(picture, head.addr);
  recount(picture, tail.addr);
  return rc;
}

static bool is_joined(const struct gap__picture_segment *left, const struct gap__picture_segment *right) {
  return left && right && left->addr + left->bytes == right->addr && left->is_expandable && right->is_expandable &&
         left->stream == right->stream && left->pool == right->pool && left->is_large == right->is_large;
}

/* Neighbours make one segment, as in the file. */
static void join(struct gap__picture *picture, uint64_t addr) {
  struct gap__picture_segment *right = gap__picture_segment_of(picture, addr);
  struct gap__picture_segment *left = addr ? gap__picture_segment_of(picture, addr - 1) : NULL;
  if (!is_joined(left, right)) return;
  uint64_t bytes = right->bytes, live = right->live;
  remove_segment(picture, right); /* the left one lies before it in the array and stays where it is */
  left->bytes += bytes;
  left->live += live;
  picture->held += bytes;
}

/* The pages of a segment for large blocks have 20 MiB each. */
static int map_pages(struct gap__picture *picture, const struct gap__hist_event *event) {
  if (event->size == 0 || overlaps_segment(picture, event->addr, event->size)) return 0;
  int rc = insert_segment(picture, (struct gap__picture_segment){.addr = event->addr,
                                                                 .bytes = event->size,
                                                                 .stream = event->stream,
                                                                 .pool = event->pool,
                                                                 .is_large = event->size % ((uint64_t)20 << 20) == 0,
                                                                 .is_expandable = true,
                                                                 .is_paged = picture->history->by_gapless});
  if (rc) return rc;
  join(picture, event->addr + event->size);
  join(picture, event->addr);
  return 0;
}

/* A native segment of 2 MiB is one for small blocks. */
static int bring_segment(struct gap__picture *picture, const struct gap__hist_event *event) {
  if (event->size == 0 || overlaps_segment(picture, event->addr, event->size)) return 0;
  return insert_segment(picture, (struct gap__picture_segment){.addr = event->addr,
                                                               .bytes = event->size,
                                                               .stream = event->stream,
                                                               .pool = event->pool,
                                                               .is_large = event->size != (uint64_t)2 << 20});
}

static void take_segment_away(struct gap__picture *picture, const struct gap__hist_event *event) {
  struct gap__picture_segment *segment = gap__picture_segment_of(picture, event->addr);
  if (segment && segment->addr == event->addr && segment->bytes == event->size && segment->live == 0)
    remove_segment(picture, segment);
}

static int undo_free(struct gap__picture *picture, const struct gap__lives *lives, uint32_t index) {
  const struct gap__hist_event *event = &picture->history->devices[picture->device].events[index];
  const struct gap__life *life = lives->of_event[index] == GAP__LIFE_NEVER ? NULL : &lives->at[lives->of_event[index]];
  bool pending = life && life->let_go < index;
  return insert_block(picture, event->addr, gap__lives_rounded(event->size), life ? life->stack : 0, pending);
}

int gap__picture_undo(struct gap__picture *picture, const struct gap__lives *lives, uint32_t index) {
  const struct gap__hist_event *event = &picture->history->devices[picture->device].events[index];
  switch (event->action) {
    case GAP__ACT_ALLOC: remove_block(picture, event->addr); return 0;
    case GAP__ACT_FREE_REQUESTED: come_back(picture, event->addr); return 0;
    case GAP__ACT_FREE_COMPLETED: return undo_free(picture, lives, index);
    case GAP__ACT_SEGMENT_ALLOC: take_segment_away(picture, event); return 0;
    case GAP__ACT_SEGMENT_FREE: return bring_segment(picture, event);
    case GAP__ACT_SEGMENT_MAP: return cut_pages(picture, event->addr, event->size);
    case GAP__ACT_SEGMENT_UNMAP: return map_pages(picture, event);
    default: return 0;
  }
}

/* ---- gaps ---------------------------------------------------------------------------------------------------------- */

bool gap__picture_next_gap(const struct gap__picture *picture, const struct gap__picture_segment *segment,
                           uint64_t *after, uint64_t *addr, uint64_t *bytes) {
  uint64_t end = segment->addr + segment->bytes;
  while (*after < end) {
    uint32_t index = gap__tree_at_least(&picture->blocks, &picture->slab, *after, 0);
    const struct gap__picture_block *block = index ? gap__picture_block_at(picture, index) : NULL;
    uint64_t stop = block && block->node.major < end ? block->node.major : end;
    *addr = *after;
    *bytes = stop - *after;
    *after = stop < end && block ? stop + block->bytes : end;
    if (*bytes) return true;
  }
  return false;
}
