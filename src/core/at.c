/* Given addresses: see at.h. */
#include "core/at.h"

#include "core/arena.h"
#include "core/events.h"
#include "core/tally.h"

/* ---- a block at an address ---- */

/* The idle block that covers [unit, unit + units), or 0.  Cached blocks go back to the bins first: they are idle too. */
static uint32_t idle_covering(struct gap__range *range, uint32_t unit, uint64_t units) {
  gap__arena_flush(range->arena);
  uint32_t index = gap__block_covering(range, unit);
  const struct gap__block *b = gap__block(range->arena->lane, index);
  return b->state == GAP__IDLE && units <= (uint64_t)b->off + b->len - unit ? index : 0;
}

static int carve(struct gap__range *range, uint32_t unit, uint32_t units, uint32_t *out) {
  uint32_t index = idle_covering(range, unit, units);
  if (!index) return GAP_EAGAIN;
  gap__block_detach(range->arena, index);
  *out = gap__block_isolate(range->arena, index, unit, units, GAP__IDLE);
  if (!*out) gap__block_attach(range->arena, index, GAP__IDLE);
  return *out ? 0 : GAP_ENOMETA;
}

static bool make_live(struct gap__lane *lane, uint32_t index, uint64_t bytes) {
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__LIVE;
  b->link_next = 0;
  b->slack = (uint32_t)(((uint64_t)b->len << GAP__UNIT_SHIFT) - bytes);
  gap__events_block(lane, b, GAP_EVENT_ALLOC);
  return gap__tally_alloc(lane, b->len, b->slack);
}

int gap__at_alloc(struct gap__policy_state *s, gap_addr addr, uint64_t bytes) {
  struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  uint64_t first = (addr - range->base) >> GAP__UNIT_SHIFT, all = (uint64_t)range->pages << GAP__PAGE_UNIT_SHIFT;
  uint64_t units = (gap__conf_round(gap__device_conf(s->device), bytes) + GAP__UNIT - 1) >> GAP__UNIT_SHIFT;
  if (units > all - first) return GAP_EAGAIN;

  struct gap__lane *lane = range->arena->lane;
  uint32_t index = 0;
  gap__lock(&lane->lock);
  int rc = carve(range, (uint32_t)first, (uint32_t)units, &index);
  bool trip = !rc && make_live(lane, index, bytes);
  gap__unlock(&lane->lock);
  if (!trip) return rc;
  gap__lock(&s->lock);
  gap__tally_trip(s, lane);
  gap__unlock(&s->lock);
  return 0;
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
    int rc = visit(arg, s->dev, at, chunk->handle, (uint64_t)chunk->pages << GAP__PAGE_SHIFT);
    if (rc) return rc;
    page = m->page + chunk->pages;
  }
  return 0;
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
