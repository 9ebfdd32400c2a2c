#include "explain/figures.h"

#include "base/map.h"

#define MIB ((uint64_t)1 << 20)

uint64_t gap__figures_segment_for(uint64_t request, bool in_pages) {
  if (request <= MIB) return 2 * MIB;
  if (request < 10 * MIB && !in_pages) return 20 * MIB;
  return request > UINT64_MAX - 2 * MIB ? UINT64_MAX : (request + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

bool gap__asker_may_use(const struct gap__asker *asker, const struct gap__picture_segment *segment) {
  bool suits = segment->is_paged || segment->is_large != asker->is_small;
  return segment->stream == asker->stream && segment->pool == asker->pool && suits;
}

uint64_t gap__figures_page(const struct gap__picture_segment *segment) {
  if (!segment->is_expandable) return 0;
  return segment->is_large && !segment->is_paged ? 20 * MIB : 2 * MIB;
}

uint64_t gap__figures_pages(const struct gap__picture_segment *segment, uint64_t addr, uint64_t bytes) {
  uint64_t page = gap__figures_page(segment), offset = addr - segment->addr;
  uint64_t first = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
  return end > first ? end - first : 0;
}

uint64_t gap__figures_returnable(const struct gap__picture *picture, const struct gap__picture_segment *segment) {
  uint64_t at = segment->addr, addr, bytes, sum = 0;
  if (segment->pool) return 0;
  if (!segment->is_expandable) return segment->live == 0 ? segment->bytes : 0;
  while (gap__picture_next_gap(picture, segment, &at, &addr, &bytes)) sum += gap__figures_pages(segment, addr, bytes);
  return sum;
}

static int sum_by_stream(const struct gap__picture *picture, struct gap__map *sums) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < picture->segment_count; i++) {
    uint64_t sum = 0;
    if (picture->segments[i].pool) continue;
    gap__map_get(sums, picture->segments[i].stream, &sum);
    rc = gap__map_put(sums, picture->segments[i].stream, sum + picture->segments[i].bytes);
  }
  return rc;
}

int gap__figures_main_stream(const struct gap__picture *picture, uint64_t *out) {
  struct gap__map sums = {0};
  struct gap__map_slot slot;
  uint64_t most = 0;
  int rc = sum_by_stream(picture, &sums);
  *out = 0;
  for (size_t cursor = 0; !rc && gap__map_next(&sums, &cursor, &slot);) {
    if (slot.value < most || (slot.value == most && slot.key > *out)) continue;
    most = slot.value;
    *out = slot.key;
  }
  gap__map_free(&sums);
  return rc;
}

/* The live blocks of a segment that is mostly idle. */
static void count_pins(const struct gap__picture *picture, const struct gap__picture_segment *segment,
                       struct gap__figures *figures) {
  uint64_t idle = segment->bytes - segment->live, at = segment->addr, end = segment->addr + segment->bytes;
  figures->pinned_segments++;
  figures->pinned_idle += idle;
  figures->pin_bytes += segment->live;
  for (;;) {
    uint32_t index = gap__tree_at_least(&picture->blocks, &picture->slab, at, 0);
    const struct gap__picture_block *block = index ? gap__picture_block_at(picture, index) : NULL;
    if (!block || block->node.major >= end) return;
    figures->pins++;
    if (idle > figures->pin_keeps || (idle == figures->pin_keeps && block->bytes < figures->pin_size)) {
      figures->pin_keeps = idle;
      figures->pin_size = block->bytes;
      figures->pin_stack = block->stack;
    }
    at = block->node.major + block->bytes;
  }
}

static void count_gaps(const struct gap__picture *picture, const struct gap__picture_segment *segment, bool is_own,
                       struct gap__figures *figures) {
  uint64_t at = segment->addr, addr, bytes;
  while (gap__picture_next_gap(picture, segment, &at, &addr, &bytes)) {
    if (bytes > figures->largest_any) figures->largest_any = bytes;
    if (is_own && bytes > figures->largest_own) figures->largest_own = bytes;
  }
}

static int count_owners(const struct gap__picture *picture, struct gap__figures *figures) {
  struct gap__map streams = {0}, pools = {0};
  int rc = 0;
  for (uint32_t i = 0; !rc && i < picture->segment_count; i++) {
    rc = gap__map_put(&streams, picture->segments[i].stream, 1);
    if (!rc && picture->segments[i].pool) rc = gap__map_put(&pools, picture->segments[i].pool, 1);
  }
  figures->streams = (uint32_t)streams.count;
  figures->pools = (uint32_t)pools.count;
  gap__map_free(&streams);
  gap__map_free(&pools);
  return rc;
}

static void count_segment(const struct gap__picture *picture, const struct gap__picture_segment *segment,
                          const struct gap__asker *asker, struct gap__figures *figures) {
  uint64_t idle = segment->bytes - segment->live, returnable = gap__figures_returnable(picture, segment);
  bool is_own = gap__asker_may_use(asker, segment);
  figures->returnable += returnable;
  if (segment->pool) {
    figures->pool_held += segment->bytes;
    figures->pool_idle += idle;
  } else if (segment->stream != asker->stream && !segment->is_paged) {
    figures->stream_held += segment->bytes;
    figures->stream_idle += idle;
  }
  if (is_own) figures->own_idle += idle;
  if (segment->live && returnable == 0 && idle >= segment->bytes / 2) count_pins(picture, segment, figures);
  count_gaps(picture, segment, is_own, figures);
}

int gap__figures_count(const struct gap__picture *picture, const struct gap__asker *asker,
                       struct gap__figures *figures) {
  *figures = (struct gap__figures){.held = picture->held,
                                   .live = picture->live - picture->pending,
                                   .pending = picture->pending,
                                   .idle = picture->held - picture->live,
                                   .segments = picture->segment_count};
  for (uint32_t i = 0; i < picture->segment_count; i++) count_segment(picture, &picture->segments[i], asker, figures);
  figures->stuck = figures->idle - figures->returnable;
  return count_owners(picture, figures);
}
