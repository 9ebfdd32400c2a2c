/* Given addresses: see at.h.
 *
 * Most addresses that are asked for lie in one idle block.  Where a pinned pool has moved pages inside itself, some lie in
 * holes that their chunks are still mapped at: these chunks are taken back, so that what was written there is there. */
#include "core/at.h"

#include "core/arena.h"
#include "core/events.h"
#include "core/figures.h"
#include "core/hollow.h"
#include "core/place.h"
#include "core/supply.h"
#include "core/tally.h"
#include "core/tray.h"

/* ---- a block at an address ---- */

/* The idle block that covers [unit, unit + units), or 0.  Cached blocks go back to the bins first: they are idle too. */
static uint32_t idle_covering(struct gap__range *range, uint32_t unit, uint64_t units) {
  gap__arena_flush(range->arena);
  gap__hollow_fold(range->arena);
  uint32_t index = gap__block_covering(range, unit);
  const struct gap__block *b = gap__block(range->arena->lane, index);
  return b->state == GAP__IDLE && units <= (uint64_t)b->off + b->len - unit ? index : 0;
}

/* A cached block of a tray that starts at `unit`, or 0. */
static uint32_t tray_block_at(struct gap__range *range, uint32_t unit, uint32_t units) {
  struct gap__lane *lane = range->arena->lane;
  uint32_t index = gap__block_starting(range, unit);
  const struct gap__block *b = gap__block(lane, index);
  if (!index || !b->tray || b->state != GAP__CACHED || b->len < units) return 0;
  gap__tray_pick(lane, index);
  return index;
}

/* Lane lock held. */
static int carve(struct gap__range *range, uint32_t unit, uint32_t units, uint32_t *out) {
  if ((*out = tray_block_at(range, unit, units)) != 0) return 0;
  uint32_t index = idle_covering(range, unit, units);
  if (!index) return GAP_EAGAIN;
  gap__block_detach(range->arena, index);
  *out = gap__block_isolate(range->arena, index, unit, units, GAP__IDLE);
  if (!*out) gap__block_attach(range->arena, index, GAP__IDLE);
  return *out ? 0 : GAP_ENOMETA;
}

static bool only_idle_and_holes(const struct gap__range *range, uint32_t unit, uint32_t units) {
  const struct gap__lane *lane = range->arena->lane;
  for (uint32_t i = gap__block_covering(range, unit); i && gap__block(lane, i)->off < unit + units;
       i = gap__block(lane, i)->next) {
    uint8_t state = gap__block(lane, i)->state;
    if (state != GAP__IDLE && state != GAP__HOLE) return false;
  }
  return true;
}

/* Device lock held.  The chunks that the place needs must be mapped there; nothing is stolen or made for it. */
static int take_back(struct gap__policy_state *s, struct gap__range *range, uint32_t unit, uint32_t units,
                     uint32_t *out) {
  struct gap__arena *arena = range->arena;
  struct gap__lane *lane = arena->lane;
  struct gap__supply q = {.lane = lane, .range = range, .soft = UINT64_MAX, .firm = UINT64_MAX, .hard = 0};
  const struct gap__spot spot = {.range = range, .off = unit};
  gap__lock(&lane->lock);
  bool possible = only_idle_and_holes(range, unit, units);
  if (possible) q.block = gap__place_reserve(arena, &spot, units);
  gap__unlock(&lane->lock);
  if (!q.block) return possible ? GAP_ENOMETA : GAP_EAGAIN;

  int rc = gap__supply_pages(&q);
  gap__lock(&lane->lock);
  *out = rc ? 0 : gap__place_settle(arena, q.block, unit, units);
  if (!*out) gap__place_dissolve(arena, q.block);
  gap__unlock(&lane->lock);
  gap__figures_sample(s);
  return *out ? 0 : rc == GAP_ENOMEM ? GAP_EAGAIN : rc ? rc : GAP_ENOMETA;
}

static bool make_live(struct gap__lane *lane, uint32_t index, uint64_t bytes) {
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__LIVE;
  b->link_next = 0;
  b->slack = (uint32_t)(((uint64_t)b->len << GAP__UNIT_SHIFT) - bytes);
  lane->touched = true;
  gap__events_block(lane, b, GAP_EVENT_ALLOC);
  return gap__tally_alloc(lane, b->len, b->slack);
}

int gap__at_alloc(struct gap__policy_state *s, gap_addr addr, uint64_t bytes) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  uint64_t first = (addr - range->base) >> GAP__UNIT_SHIFT, all = (uint64_t)range->pages << GAP__PAGE_UNIT_SHIFT;
  uint64_t units = (gap__conf_round(gap__device_conf(s->device), bytes) + GAP__UNIT - 1) >> GAP__UNIT_SHIFT;
  units = gap__tray_units(s, units);
  if (units > all - first) return GAP_EAGAIN;

  struct gap__lane *lane = range->arena->lane;
  uint32_t index = 0;
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  int rc = lane->asleep ? GAP_ESTATE : carve(range, (uint32_t)first, (uint32_t)units, &index);
  gap__unlock(&lane->lock);
  if (rc == GAP_EAGAIN) rc = take_back(s, range, (uint32_t)first, (uint32_t)units, &index);
  gap__lock(&lane->lock);
  bool trip = !rc && make_live(lane, index, bytes);
  gap__unlock(&lane->lock);
  if (trip) gap__tally_trip(s, lane);
  gap__unlock(&s->lock);
  return rc;
}

/* ---- the chunks behind a block ---- */

static int pages_of(struct gap__range *range, gap_addr addr, uint32_t *page, uint32_t *end) {
  struct gap__lane *lane = range->arena->lane;
  gap__lock(&lane->lock);
  uint32_t index = gap__block_covering(range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT));
  const struct gap__block *b = gap__block(lane, index);
  int rc = b->state == GAP__LIVE || b->state == GAP__PENDING ? 0 : GAP_EFREED;
  *page = gap__page_of(b->off);
  *end = gap__page_up(b->off + b->len);
  gap__unlock(&lane->lock);
  return rc;
}

static int visit_pages(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t end,
                       gap__piece_fn *visit, void *arg) {
  while (page < end) {
    const struct gap__mapping *m = gap__mapping_at(s, range->slot[page]);
    const struct gap__chunk_rec *chunk = gap__chunk_at(s, m->chunk);
    gap_addr at = gap__range_addr(range, m->page << GAP__PAGE_UNIT_SHIFT);
    if (chunk->asleep) return GAP_ESTATE;
    int rc = visit(arg, s->dev, at, chunk->handle, (uint64_t)chunk->pages << GAP__PAGE_SHIFT);
    if (rc) return rc;
    page = m->page + chunk->pages;
  }
  return 0;
}

/* Nobody but this device can use host memory at its addresses. */
static int refuse_overflow(struct gap__policy_state *s, const struct gap__range *range, uint32_t page, uint32_t end) {
  for (; page < end; page++) {
    if (!gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->host) continue;
    gap__device_explain(s->device,
                        "the block lies in host memory (overflow): it cannot be exported or registered before it is "
                        "back on the device (gap_defragment)");
    return GAP_ESTATE;
  }
  return 0;
}

/* The chunks of [page, end) are known from here on. */
static void mark_known(struct gap__policy_state *s, const struct gap__range *range, uint32_t page, uint32_t end) {
  while (page < end) {
    const struct gap__mapping *m = gap__mapping_at(s, range->slot[page]);
    gap__chunk_at(s, m->chunk)->known = true;
    page = m->page + gap__chunk_at(s, m->chunk)->pages;
  }
}

int gap__at_keep(struct gap__policy_state *s, gap_addr addr) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  uint32_t page, end;
  gap__lock(&s->lock);
  int rc = pages_of(range, addr, &page, &end);
  if (!rc) rc = refuse_overflow(s, range, page, end);
  if (!rc) mark_known(s, range, page, end);
  gap__unlock(&s->lock);
  return rc;
}

int gap__at_pieces(struct gap__policy_state *s, gap_addr addr, gap__piece_fn *visit, void *arg) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  uint32_t page, end;
  gap__lock(&s->lock);
  int rc = pages_of(range, addr, &page, &end);
  if (!rc) rc = visit_pages(s, range, page, end, visit, arg);
  gap__unlock(&s->lock);
  return rc;
}
