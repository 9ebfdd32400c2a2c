#include "replay/live.h"

#include "gapless/gapless.h"
#include "replay/blockmap.h"

static int begin(struct gap__blockmap *map, struct gap__live *live, const struct gap__hist_event *event) {
  if (gap__blockmap_find(map, event->addr)) return GAP_EFORMAT;
  struct gap__blockmap_entry *entry = gap__blockmap_put(map, event->addr);
  if (!entry) return GAP_ENOMETA;
  *entry = (struct gap__blockmap_entry){.key = event->addr, .size = event->size};
  gap__live_alloc(live, event->size);
  return 0;
}

static void let_go(struct gap__blockmap *map, struct gap__live *live, uint64_t addr) {
  struct gap__blockmap_entry *entry = gap__blockmap_find(map, addr);
  if (!entry || entry->stream != 0) return;
  entry->stream = 1;
  gap__live_let_go(live, entry->size);
}

static void end(struct gap__blockmap *map, struct gap__live *live, uint64_t addr) {
  let_go(map, live, addr);
  struct gap__blockmap_entry *entry = gap__blockmap_find(map, addr);
  if (!entry) return;
  gap__live_end(live, entry->size);
  gap__blockmap_take(map, entry);
}

static int count(struct gap__blockmap *map, struct gap__live *live, const struct gap__hist_event *event) {
  switch (event->action) {
    case GAP__ACT_ALLOC: return begin(map, live, event);
    case GAP__ACT_FREE_REQUESTED: let_go(map, live, event->addr); return 0;
    case GAP__ACT_FREE_COMPLETED: end(map, live, event->addr); return 0;
    case GAP__ACT_OOM: gap__live_alloc(live, event->size); return 0;
    default: return 0;
  }
}

int gap__live_peaks(const struct gap__history *history, uint32_t device, uint64_t limit_bytes, struct gap__live *out,
                    uint64_t *over) {
  const struct gap__hist_device *events = &history->devices[device];
  struct gap__blockmap map;
  int rc = gap__blockmap_init(&map);
  *out = (struct gap__live){0};
  *over = events->event_count;
  for (uint64_t i = 0; rc == 0 && i < events->event_count; i++) {
    rc = count(&map, out, &events->events[i]);
    if (out->bytes > limit_bytes && *over == events->event_count) *over = i;
  }
  gap__blockmap_destroy(&map);
  return rc;
}
