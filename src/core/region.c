#include "core/region.h"

#include "core/events.h"
#include "core/lane.h"
#include "core/reclaim.h"
#include "core/tally.h"

/* A range of the lane that is long enough; what was there is idle, since nobody else has had the lane's pool. */
static struct gap__range *range_for(struct gap__lane *lane, uint32_t pages) {
  struct gap__policy_state *s = lane->owner;
  for (uint16_t i = lane->arena[GAP__ARENA_PLANNED].range_newest; i; i = gap__range_at(s, i)->older)
    if (gap__range_at(s, i)->pages >= pages) return gap__range_at(s, i);
  return NULL;
}

/* Both locks are held. */
static int find_range(struct gap__lane *lane, uint32_t pages, gap_addr *base) {
  int rc = 0;
  struct gap__range *range = range_for(lane, pages);
  if (!range) rc = gap__arena_add_range(&lane->arena[GAP__ARENA_PLANNED], (uint64_t)pages << GAP__PAGE_UNIT_SHIFT);
  if (!rc && !range) range = range_for(lane, pages);
  if (range) *base = range->base;
  return rc ? rc : range ? 0 : GAP_ENOMEM;
}

int gap__region_open(struct gap__policy_state *s, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *base) {
  struct gap__lane *lane;
  stream = gap__stream_normal(stream);
  int rc = gap__lane_get(s, stream, gap__stream_thread(stream), pool, &lane);
  if (rc) return rc;
  lane->visitors++;
  gap__unlock(&lane->lock);
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  rc = find_range(lane, (uint32_t)((bytes + GAP__PAGE - 1) >> GAP__PAGE_SHIFT), base);
  if (rc) lane->visitors--; /* else a guest that stays: an empty lane would be given to somebody else */
  gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  return rc;
}

void gap__region_close(struct gap__policy_state *s, gap_addr base) {
  struct gap__lane *lane = gap__range_of(s, base)->arena->lane;
  gap__lock(&lane->lock);
  lane->visitors--;
  gap__unlock(&lane->lock);
}

/* The block is RESERVED; the lane is locked, and visited. */
static void make_live(struct gap__lane *lane, uint32_t index) {
  struct gap__policy_state *s = lane->owner;
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__LIVE;
  b->link_next = 0;
  b->slack = 0;
  lane->touched = true;
  bool trip = gap__tally_alloc(lane, b->len, 0);
  gap__events_block(lane, b, GAP_EVENT_ALLOC);
  gap__unlock(&lane->lock);
  if (!trip) return;
  gap__lock(&s->lock);
  gap__tally_trip(s, lane);
  gap__unlock(&s->lock);
}

int gap__region_commit(struct gap__policy_state *s, gap_addr addr, uint64_t bytes) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range || range->arena->kind != GAP__ARENA_PLANNED) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  const struct gap__request req = {.units = (uint32_t)(bytes >> GAP__UNIT_SHIFT), .bytes = bytes, .aligned = true};
  uint32_t block;
  bool contested;
  int rc = gap__reclaim_at(lane, &req, range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT), &block, &contested);
  if (rc) return rc;
  gap__lock(&lane->lock);
  make_live(lane, block);
  return 0;
}
