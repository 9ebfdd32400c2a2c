/* The peaks of a history.  What a late-begun history frees without having allocated was live from its first event on: the
 * walk counts from zero, below it when need be, and adds those bytes at the end. */
#include "base/map.h"
#include "trace/history.h"

struct walk {
  const struct gap__hist_event *events;
  struct gap__map live;                     /* address -> 2 x index of the alloc, + 1 once its free was requested */
  uint64_t now, before, peak, peak_event;   /* rounded, to free_completed; `now` counts modulo 2^64 */
  uint64_t asked, asked_before, asked_peak; /* requested sizes, to free_requested */
  int rc;
};

static uint64_t rounded(uint64_t size) { return size ? (size + 511) & ~(uint64_t)511 : 512; }

static void raise_peaks(struct walk *walk, uint64_t event) {
  if ((int64_t)walk->now > (int64_t)walk->peak) {
    walk->peak = walk->now;
    walk->peak_event = event;
  }
  if ((int64_t)walk->asked > (int64_t)walk->asked_peak) walk->asked_peak = walk->asked;
}

static void drop(struct walk *walk, uint64_t note) {
  uint64_t size = walk->events[note >> 1].size;
  walk->now -= rounded(size);
  if (!(note & 1)) walk->asked -= size;
}

static void on_alloc(struct walk *walk, uint64_t index) {
  const struct gap__hist_event *event = &walk->events[index];
  uint64_t note;
  if (gap__map_remove(&walk->live, event->addr, &note)) drop(walk, note);
  walk->rc |= gap__map_put(&walk->live, event->addr, index << 1);
  walk->now += rounded(event->size);
  walk->asked += event->size;
  raise_peaks(walk, index);
}

/* A block from before the first event is put into the map when its free is requested, so that its completion finds it. */
static void on_free_requested(struct walk *walk, uint64_t index) {
  const struct gap__hist_event *event = &walk->events[index];
  uint64_t note;
  bool known = gap__map_get(&walk->live, event->addr, &note);
  if (known && (note & 1)) return;
  if (!known) {
    walk->before += rounded(event->size);
    walk->asked_before += event->size;
  }
  walk->asked -= event->size;
  walk->rc |= gap__map_put(&walk->live, event->addr, (known ? note : index << 1) | 1);
}

static void on_free_completed(struct walk *walk, uint64_t index) {
  const struct gap__hist_event *event = &walk->events[index];
  uint64_t note;
  if (gap__map_remove(&walk->live, event->addr, &note)) {
    drop(walk, note);
    return;
  }
  walk->before += rounded(event->size);
  walk->now -= rounded(event->size);
}

/* Blocks that were there before the first event and are still there after the last. */
static void add_untouched(struct walk *walk, const struct gap__history *history, uint32_t device) {
  for (uint64_t i = 0; i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    if ((uint32_t)segment->device != device) continue;
    for (uint32_t j = 0; j < segment->block_count; j++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + j];
      if (block->state == 0 || gap__map_get(&walk->live, block->addr, NULL)) continue;
      walk->before += block->size;
      walk->asked_before += block->state == 1 ? block->requested : 0;
    }
  }
}

int gap__history_peaks(const struct gap__history *history, uint32_t device, uint64_t *peak_live_bytes,
                       uint64_t *peak_requested_live_bytes, uint64_t *peak_event) {
  const struct gap__hist_device *events = &history->devices[device];
  struct walk walk = {.events = events->events};
  for (uint64_t i = 0; !walk.rc && i < events->event_count; i++) {
    switch (events->events[i].action) {
      case GAP__ACT_ALLOC: on_alloc(&walk, i); break;
      case GAP__ACT_FREE_REQUESTED: on_free_requested(&walk, i); break;
      case GAP__ACT_FREE_COMPLETED: on_free_completed(&walk, i); break;
      default: break;
    }
  }
  if (events->wrapped) add_untouched(&walk, history, device);
  gap__map_free(&walk.live);
  *peak_live_bytes = walk.peak + walk.before;
  *peak_requested_live_bytes = walk.asked_peak + walk.asked_before;
  *peak_event = walk.peak_event;
  return walk.rc;
}
