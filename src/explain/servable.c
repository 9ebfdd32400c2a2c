#include "explain/servable.h"

struct scan {
  struct gap__picture picture;
  const struct gap__asker *asker;
  uint64_t request, limit;
  int64_t fitting; /* idle pieces as large as the request, that the asker may use */
  uint64_t returnable;
};

static bool can_be_had(const struct scan *scan) {
  uint64_t segment = gap__figures_segment_for(scan->request, scan->picture.history->by_gapless),
           held = scan->picture.held;
  if (scan->fitting > 0) return true;
  uint64_t kept = held > scan->returnable ? held - scan->returnable : 0;
  return kept <= scan->limit && segment <= scan->limit - kept;
}

/* What one segment adds to the two sums. */
static void weigh(struct scan *scan, const struct gap__picture_segment *segment, int64_t sign) {
  uint64_t at = segment->addr, addr, bytes, returnable = gap__figures_returnable(&scan->picture, segment);
  scan->returnable += sign > 0 ? returnable : -returnable;
  if (!gap__asker_may_use(scan->asker, segment)) return;
  while (gap__picture_next_gap(&scan->picture, segment, &at, &addr, &bytes))
    if (bytes >= scan->request) scan->fitting += sign;
}

/* Segments that begin, end or lie at what an event of memory touches. */
static void weigh_near(struct scan *scan, uint64_t addr, uint64_t bytes, int64_t sign) {
  const struct gap__picture_segment *seen[3] = {addr ? gap__picture_segment_of(&scan->picture, addr - 1) : NULL,
                                                gap__picture_segment_of(&scan->picture, addr),
                                                gap__picture_segment_of(&scan->picture, addr + bytes)};
  for (int i = 0; i < 3; i++)
    if (seen[i] && (i < 1 || seen[i] != seen[0]) && (i < 2 || seen[i] != seen[1])) weigh(scan, seen[i], sign);
}

static void weigh_gap(struct scan *scan, const struct gap__picture_segment *segment, uint64_t addr, uint64_t bytes,
                      int64_t sign) {
  uint64_t pages = segment->is_expandable && !segment->pool ? gap__figures_pages(segment, addr, bytes) : 0;
  scan->returnable += sign > 0 ? pages : -pages;
  if (bytes >= scan->request && gap__asker_may_use(scan->asker, segment)) scan->fitting += sign;
}

/* The gaps on both sides of the block at an address, or the one around it where there is none. */
static void weigh_gaps(struct scan *scan, uint64_t addr, int64_t sign) {
  const struct gap__picture *picture = &scan->picture;
  const struct gap__picture_segment *segment = gap__picture_segment_of(picture, addr);
  if (!segment) return;
  if (!segment->is_expandable && !segment->pool && segment->live == 0)
    scan->returnable += sign > 0 ? segment->bytes : -segment->bytes;
  uint32_t before = gap__tree_below(&picture->blocks, &picture->slab, addr, 0);
  uint32_t here = gap__tree_at_least(&picture->blocks, &picture->slab, addr, 0);
  const struct gap__picture_block *last = before ? gap__picture_block_at(picture, before) : NULL;
  const struct gap__picture_block *block = here ? gap__picture_block_at(picture, here) : NULL;
  uint64_t at = last && last->node.major >= segment->addr ? last->node.major + last->bytes : segment->addr;
  uint64_t end = block && block->node.major == addr ? addr + block->bytes : addr, gap, bytes;
  while (gap__picture_next_gap(picture, segment, &at, &gap, &bytes) && gap <= end)
    weigh_gap(scan, segment, gap, bytes, sign);
}

static bool is_block_event(uint8_t action) {
  return action == GAP__ACT_ALLOC || action == GAP__ACT_FREE_REQUESTED || action == GAP__ACT_FREE_COMPLETED;
}

static int undo(struct scan *scan, const struct gap__lives *lives, uint32_t index) {
  const struct gap__hist_event *event = &scan->picture.history->devices[scan->picture.device].events[index];
  bool of_block = is_block_event(event->action);
  if (event->action >= GAP__ACT_SNAPSHOT || event->action == GAP__ACT_FREE_REQUESTED)
    return gap__picture_undo(&scan->picture, lives, index);
  if (of_block) weigh_gaps(scan, event->addr, -1);
  else weigh_near(scan, event->addr, event->size, -1);
  int rc = gap__picture_undo(&scan->picture, lives, index);
  if (of_block) weigh_gaps(scan, event->addr, 1);
  else weigh_near(scan, event->addr, event->size, 1);
  return rc;
}

/* Backwards: the last loss met is the first in time. */
static int walk(struct scan *scan, const struct gap__lives *lives, struct gap__servable *out) {
  bool later = can_be_had(scan);
  out->at_end = later;
  for (uint32_t i = lives->event_count; i-- > 0;) {
    uint64_t held = scan->picture.held, live = scan->picture.live, returnable = scan->returnable;
    int rc = undo(scan, lives, i);
    if (rc) return rc;
    bool now = can_be_had(scan);
    if (now && !later) {
      out->first_lost = i;
      out->held_then = held;
      out->live_then = live;
      out->returnable_then = returnable;
      if (out->last_lost == GAP__LIFE_NEVER && !out->at_end) out->last_lost = i;
    }
    later = now;
  }
  out->at_start = later;
  return 0;
}

int gap__servable_find(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                       const struct gap__asker *asker, uint64_t request, uint64_t limit_bytes,
                       struct gap__servable *out) {
  struct scan scan = {.asker = asker, .request = request, .limit = limit_bytes};
  *out = (struct gap__servable){.first_lost = GAP__LIFE_NEVER, .last_lost = GAP__LIFE_NEVER};
  int rc = gap__picture_begin(history, device, &scan.picture);
  for (uint32_t i = 0; !rc && i < scan.picture.segment_count; i++) weigh(&scan, &scan.picture.segments[i], 1);
  if (!rc) rc = walk(&scan, lives, out);
  gap__picture_end(&scan.picture);
  return rc;
}
