#include "explain/honest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/map.h"
#include "explain/phrase.h"
#include "gapless/gapless.h"

enum { TOLD_MAX = 3 }; /* contradictions that are put into words; the others are counted */

static void contradict(struct gap__honest *honest, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void contradict(struct gap__honest *honest, const char *format, ...) {
  va_list args;
  if (honest->contradictions++ >= TOLD_MAX) return;
  if (honest->first.length) gap__text_add_char(&honest->first, ' ');
  va_start(args, format);
  gap__text_addv(&honest->first, format, args);
  va_end(args);
}

static int check_events(const struct gap__history *history, uint32_t device, struct gap__honest *honest) {
  uint64_t event = 0;
  char *message = NULL;
  int rc = gap__history_check(history, device, &event, &message);
  if (rc == GAP_EFORMAT) contradict(honest, "Event %" PRIu64 ": %s.", event, message ? message : "it cannot be");
  free(message);
  return rc == GAP_ENOMETA ? rc : 0;
}

/* A segment's own sums against its blocks. */
static void check_segment(const struct gap__history *history, const struct gap__hist_segment *segment,
                          struct gap__honest *honest) {
  uint64_t sum = 0, active = 0, at = segment->addr;
  bool in_order = true;
  for (uint32_t i = 0; i < segment->block_count; i++) {
    const struct gap__hist_block *block = &history->blocks[segment->block_first + i];
    in_order &= block->addr == at;
    at = block->addr + block->size;
    sum += block->size;
    active += block->state ? block->size : 0;
  }
  if (segment->block_count && sum != segment->total_size)
    contradict(honest, "The segment at %#" PRIx64 " has %s, but its blocks add up to %s.", segment->addr,
               GAP__SIZE(segment->total_size), GAP__SIZE(sum));
  else if (segment->block_count && !in_order)
    contradict(honest, "The blocks of the segment at %#" PRIx64 " do not follow each other.", segment->addr);
  if (segment->block_count && active != segment->active_size)
    contradict(honest, "The segment at %#" PRIx64 " says that %s of it are in use, but its blocks in use add up to %s.",
               segment->addr, GAP__SIZE(segment->active_size), GAP__SIZE(active));
}

static int by_address(const void *left, const void *right) {
  const struct gap__hist_segment *a = *(const struct gap__hist_segment *const *)left;
  const struct gap__hist_segment *b = *(const struct gap__hist_segment *const *)right;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int check_segments(const struct gap__history *history, uint32_t device, struct gap__honest *honest) {
  size_t count = 0;
  const struct gap__hist_segment **sorted = malloc((history->segment_count + 1) * sizeof *sorted);
  if (!sorted) return GAP_ENOMETA;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) sorted[count++] = &history->segments[i];
  honest->has_segments = count > 0;
  qsort(sorted, count, sizeof *sorted, by_address);
  for (size_t i = 0; i < count; i++) {
    check_segment(history, sorted[i], honest);
    if (i && sorted[i]->addr - sorted[i - 1]->addr < sorted[i - 1]->total_size)
      contradict(honest, "The segments at %#" PRIx64 " and %#" PRIx64 " overlap.", sorted[i - 1]->addr,
                 sorted[i]->addr);
  }
  free(sorted);
  return 0;
}

/* What the events leave live must be in the segments, and where they begin at the beginning nothing else may be. */
static int check_end(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                     struct gap__honest *honest) {
  struct gap__map blocks = {0};
  uint64_t missing = 0, missing_bytes = 0, extra = 0, extra_bytes = 0;
  int rc = 0;
  for (uint64_t i = 0; !rc && i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    for (uint32_t j = 0; !rc && (uint32_t)segment->device == device && j < segment->block_count; j++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + j];
      if (block->state) rc = gap__map_put(&blocks, block->addr, block->size);
    }
  }
  for (uint32_t i = 0; !rc && i < lives->count; i++) {
    if (lives->at[i].gone != GAP__LIFE_NEVER || lives->at[i].before) continue;
    if (gap__map_remove(&blocks, lives->at[i].addr, NULL)) continue;
    missing++;
    missing_bytes += lives->at[i].bytes;
  }
  struct gap__map_slot slot;
  for (size_t cursor = 0; !rc && !honest->wrapped && gap__map_next(&blocks, &cursor, &slot); extra++)
    extra_bytes += slot.value;
  gap__map_free(&blocks);
  if (missing)
    contradict(honest, "The events leave %s in %" PRIu64 " blocks that no segment has.", GAP__SIZE(missing_bytes),
               missing);
  if (extra)
    contradict(honest, "The segments have %s in %" PRIu64 " blocks that the events do not leave live.",
               GAP__SIZE(extra_bytes), extra);
  return rc;
}

static void look_at_events(const struct gap__hist_device *from, struct gap__honest *honest) {
  for (uint64_t i = 0; i < from->event_count; i++) {
    honest->has_events |= from->events[i].action <= GAP__ACT_SEGMENT_UNMAP;
    honest->has_times |= from->events[i].time_us != 0;
    honest->has_stacks |= from->events[i].stack != 0;
  }
  honest->wrapped = from->wrapped && honest->has_events;
}

int gap__honest_find(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                     struct gap__honest *honest) {
  *honest = (struct gap__honest){.has_settings = history->settings.present};
  look_at_events(&history->devices[device], honest);
  honest->tells_driver = !honest->has_events || gap__history_tells_driver(history, device);
  for (uint32_t i = 0; i < lives->count; i++) {
    honest->lives_before += lives->at[i].before;
    honest->has_stacks |= lives->at[i].stack != 0;
  }
  int rc = check_events(history, device, honest);
  if (!rc) rc = check_segments(history, device, honest);
  honest->is_empty = !history->devices[device].event_count && !honest->has_segments;
  if (!rc && honest->has_events && honest->has_segments) rc = check_end(history, device, lives, honest);
  return rc ? rc : honest->first.failed ? GAP_ENOMETA : 0;
}

void gap__honest_free(struct gap__honest *honest) { gap__text_free(&honest->first); }
