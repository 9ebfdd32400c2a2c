#include "dev/soft/space.h"

#include <stdlib.h>
#include <string.h>

enum { LEAF_SHIFT = 13, LEAF_PAGES = 1 << LEAF_SHIFT };
#define PAGE_COUNT (GAP__SPACE_END >> GAP__PAGE_SHIFT)
#define LEAF_COUNT (PAGE_COUNT >> LEAF_SHIFT)

int gap__space_init(struct gap__space *space) {
  *space = (struct gap__space){.leaves = calloc(LEAF_COUNT, sizeof *space->leaves)};
  return space->leaves ? 0 : GAP_ENOMETA;
}

void gap__space_destroy(struct gap__space *space) {
  for (size_t i = 0; space->leaves && i < LEAF_COUNT; i++) free(space->leaves[i]);
  free(space->leaves);
  free(space->windows);
  *space = (struct gap__space){0};
}

bool gap__space_is_range(gap_addr addr, uint64_t bytes) {
  return addr != 0 && bytes != 0 && (addr | bytes) % GAP__PAGE == 0 && addr < GAP__SPACE_END &&
         bytes <= GAP__SPACE_END - addr;
}

static uint32_t record_of_page(const struct gap__space *space, uint64_t page) {
  const uint32_t *leaf = space->leaves[page >> LEAF_SHIFT];
  return leaf ? leaf[page % LEAF_PAGES] : 0;
}

uint32_t gap__space_at(const struct gap__space *space, gap_addr addr) {
  return addr < GAP__SPACE_END ? record_of_page(space, addr >> GAP__PAGE_SHIFT) : 0;
}

gap_addr gap__space_first(const struct gap__space *space, gap_addr addr, uint64_t bytes) {
  uint64_t page = addr >> GAP__PAGE_SHIFT, end = (addr + bytes) >> GAP__PAGE_SHIFT;
  while (page < end) {
    if (!space->leaves[page >> LEAF_SHIFT]) page = ((page >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
    else if (record_of_page(space, page)) return page << GAP__PAGE_SHIFT;
    else page++;
  }
  return 0;
}

static void count_mapped(struct gap__space *space, gap_addr addr, uint64_t bytes, bool more) {
  struct gap__window *window = gap__space_window(space, addr, bytes);
  if (window && more) window->mapped_bytes += bytes;
  if (window && !more) window->mapped_bytes -= bytes;
}

static void set_pages(struct gap__space *space, gap_addr addr, uint64_t bytes, uint32_t record) {
  uint64_t end = (addr + bytes) >> GAP__PAGE_SHIFT;
  for (uint64_t page = addr >> GAP__PAGE_SHIFT; page < end; page++)
    space->leaves[page >> LEAF_SHIFT][page % LEAF_PAGES] = record;
}

int gap__space_put(struct gap__space *space, gap_addr addr, uint64_t bytes, uint32_t record) {
  uint64_t last = (addr + bytes - 1) >> GAP__PAGE_SHIFT >> LEAF_SHIFT;
  for (uint64_t leaf = addr >> GAP__PAGE_SHIFT >> LEAF_SHIFT; leaf <= last; leaf++) {
    if (!space->leaves[leaf]) space->leaves[leaf] = calloc(LEAF_PAGES, sizeof **space->leaves);
    if (!space->leaves[leaf]) return GAP_ENOMETA;
  }
  set_pages(space, addr, bytes, record);
  count_mapped(space, addr, bytes, true);
  return 0;
}

void gap__space_clear(struct gap__space *space, gap_addr addr, uint64_t bytes) {
  set_pages(space, addr, bytes, 0);
  count_mapped(space, addr, bytes, false);
}

/* The number of windows that start at or below `addr`. */
static size_t windows_upto(const struct gap__space *space, gap_addr addr) {
  size_t low = 0, high = space->window_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (space->windows[middle].addr <= addr) low = middle + 1;
    else high = middle;
  }
  return low;
}

struct gap__window *gap__space_window(const struct gap__space *space, gap_addr addr, uint64_t bytes) {
  size_t count = windows_upto(space, addr);
  if (count == 0) return NULL;
  struct gap__window *window = &space->windows[count - 1];
  uint64_t offset = addr - window->addr;
  return offset < window->bytes && bytes <= window->bytes - offset ? window : NULL;
}

static int make_room(struct gap__space *space) {
  if (space->window_count < space->window_max) return 0;
  size_t wanted = space->window_max ? space->window_max * 2 : 16;
  struct gap__window *windows = realloc(space->windows, wanted * sizeof *windows);
  if (!windows) return GAP_ENOMETA;
  space->windows = windows;
  space->window_max = wanted;
  return 0;
}

int gap__space_reserve(struct gap__space *space, gap_addr addr, uint64_t bytes) {
  int rc = make_room(space);
  if (rc != 0) return rc;
  size_t at = windows_upto(space, addr);
  memmove(&space->windows[at + 1], &space->windows[at], (space->window_count - at) * sizeof *space->windows);
  space->windows[at] = (struct gap__window){.addr = addr, .bytes = bytes};
  space->window_count++;
  space->reserved_bytes += bytes;
  return 0;
}

int gap__space_unreserve(struct gap__space *space, gap_addr addr, uint64_t bytes) {
  struct gap__window *window = gap__space_window(space, addr, bytes);
  if (!window || window->addr != addr || window->bytes != bytes || window->mapped_bytes != 0) return GAP_EINVAL;
  size_t after = (size_t)(space->windows + space->window_count - (window + 1));
  memmove(window, window + 1, after * sizeof *window);
  space->window_count--;
  space->reserved_bytes -= bytes;
  return 0;
}

static gap_addr align_up(gap_addr addr, uint64_t align) { return (addr + align - 1) & ~(align - 1); }

gap_addr gap__space_find(const struct gap__space *space, gap_addr first, gap_addr end, uint64_t bytes, uint64_t align) {
  gap_addr addr = align_up(first, align);
  size_t at = windows_upto(space, addr);
  if (at > 0) { /* the window below may reach over `addr` */
    const struct gap__window *below = &space->windows[at - 1];
    if (below->addr + below->bytes > addr) addr = align_up(below->addr + below->bytes, align);
  }
  for (; addr < end && bytes <= end - addr; at++) {
    if (at == space->window_count || addr + bytes <= space->windows[at].addr) return addr;
    addr = align_up(space->windows[at].addr + space->windows[at].bytes, align);
  }
  return 0;
}

uint64_t gap__space_stream_key(gap_stream stream) {
  static _Atomic uint64_t thread_count;
  static _Thread_local uint64_t thread;
  if (stream == 0) return 1;
  if (stream != 2) return stream;
  if (thread == 0) thread = atomic_fetch_add(&thread_count, 1) + 1;
  return (uint64_t)1 << 63 | thread;
}
