/* Chunks and mappings: see chunk.h and the invariants in state.h. */
#include "core/chunk.h"

#include "core/arena.h"
#include "core/events.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/overflow.h"
#include "core/trouble.h"

static void run_by(struct gap__running *r, int64_t pages) {
  r->current += pages;
  if (pages > 0) r->added += pages;
  else r->removed -= pages;
  if (r->current > r->peak) r->peak = r->current;
}

static void count_held(struct gap__policy_state *s, int64_t pages) {
  s->held_pages += (uint64_t)pages;
  atomic_fetch_add_explicit(&s->device->held_bytes, (uint64_t)pages << GAP__PAGE_SHIFT, memory_order_relaxed);
  run_by(&s->held[0], pages);
}

static void count_made(struct gap__policy_state *s, const struct gap__chunk_rec *c, int64_t pages) {
  if (c->host) gap__overflow_count(s, pages);
  else count_held(s, pages);
}

/* A loose chunk has no arena whose kind it could count for. */
static void count_loose_device(struct gap__policy_state *s, int64_t pages) {
  s->loose_pages += (uint64_t)pages;
  run_by(&s->held[GAP__KIND_LARGE], pages);
}

static void count_loose(struct gap__policy_state *s, const struct gap__chunk_rec *c, int64_t pages) {
  if (c->host) s->overflow.loose_pages += (uint64_t)pages;
  else count_loose_device(s, pages);
}

void gap__chunk_count_extra(struct gap__policy_state *s, int64_t pages) {
  count_held(s, pages);
  count_loose_device(s, pages);
}

void gap__chunk_count_asleep(struct gap__policy_state *s, const struct gap__chunk_rec *c, int64_t pages) {
  const struct gap__arena *arena = gap__range_at(s, gap__mapping_at(s, c->home)->range)->arena;
  count_held(s, pages);
  run_by(&s->held[gap__arena_figure(arena)], pages);
}

void gap__chunk_forget_home(const struct gap__range *range, uint32_t pages) { range->arena->home_pages -= pages; }

/* The chunk's pages (or, `sign` -1, no more) have their home at `page`. */
static void count_home(struct gap__policy_state *s, const struct gap__chunk_rec *c, const struct gap__range *range,
                       uint32_t page, int sign) {
  int64_t pages = sign * (int64_t)c->pages;
  range->arena->home_pages += pages;
  if (c->host) range->arena->host_pages += pages;
  else run_by(&s->held[gap__arena_figure(range->arena)], pages);
  gap__events_pages(s, range, page, pages);
}

/* The card has no memory, or the host has none for its addresses. */
static void note_refused(struct gap__policy_state *s, enum gap__place place, int rc) {
  if (place == GAP__PLACE_HOST) gap__overflow_refused(s, rc);
  else gap__trouble_note(s, rc == GAP_ENOMEM ? GAP__TROUBLE_MEMORY : GAP__TROUBLE_DRIVER, GAP__CALL_chunk_create, rc);
}

int gap__chunk_create(struct gap__policy_state *s, uint32_t pages, enum gap__place place, uint32_t *out) {
  uint32_t index = gap__slab_take(&s->chunks);
  if (!index) {
    gap__trouble_records(s);
    return GAP_ENOMETA;
  }
  struct gap__chunk_rec *c = gap__chunk_at(s, index);
  *c = (struct gap__chunk_rec){.pages = pages, .host = place == GAP__PLACE_HOST};
  int rc = gap__dev_chunk_create(s->dev, (uint64_t)pages << GAP__PAGE_SHIFT, place, &c->handle);
  if (rc) {
    note_refused(s, place, rc);
    gap__slab_give(&s->chunks, index);
    return rc;
  }
  count_made(s, c, pages);
  s->device_allocs++;
  *out = index;
  return 0;
}

static void slots_set(struct gap__range *range, uint32_t page, uint32_t pages, uint32_t mapping) {
  for (uint32_t i = 0; i < pages; i++) range->slot[page + i] = mapping;
}

int gap__chunk_map(struct gap__policy_state *s, uint32_t chunk, struct gap__range *range, uint32_t page,
                   uint32_t *mapping) {
  uint32_t index = gap__slab_take(&s->mappings);
  if (!index) {
    gap__trouble_records(s);
    return GAP_ENOMETA;
  }
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  int rc = gap__dev_map(s->dev, range->base + ((uint64_t)page << GAP__PAGE_SHIFT),
                        (uint64_t)c->pages << GAP__PAGE_SHIFT, c->handle);
  if (rc) {
    gap__trouble_driver(s, GAP__CALL_map, rc);
    gap__slab_give(&s->mappings, index);
    return rc;
  }
  *gap__mapping_at(s, index) = (struct gap__mapping){
      .chunk = chunk, .page = page, .next = c->mappings, .range = (uint16_t)(range - s->ranges), .dark = true};
  c->mappings = index;
  if (c->home) {
    range->lent_pages += c->pages;
  } else {
    c->home = index;
    count_home(s, c, range, page, 1);
  }
  slots_set(range, page, c->pages, index);
  *mapping = index;
  return 0;
}

int gap__chunk_access(struct gap__policy_state *s, struct gap__range *range, uint32_t page, uint32_t pages) {
  if (!pages) return 0;
  int rc = gap__dev_set_access(s->dev, range->base + ((uint64_t)page << GAP__PAGE_SHIFT),
                               (uint64_t)pages << GAP__PAGE_SHIFT);
  if (rc) gap__trouble_driver(s, GAP__CALL_set_access, rc);
  for (uint32_t end = page + pages; !rc && page < end;) {
    struct gap__mapping *m = gap__mapping_at(s, range->slot[page]);
    m->dark = false;
    page += gap__chunk_at(s, m->chunk)->pages;
  }
  return rc;
}

uint32_t gap__mapping_last_use(const struct gap__policy_state *s, uint32_t mapping) {
  const struct gap__mapping *m = gap__mapping_at(s, mapping);
  const struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
  const struct gap__range *range = gap__range_at(s, m->range);
  uint32_t stamp = 0;
  if (c->home != mapping || gap__page_is_bare(range, m->page)) return m->stamp;
  for (uint32_t i = 0; i < c->pages; i++)
    if (range->stamp[m->page + i] > stamp) stamp = range->stamp[m->page + i];
  return stamp;
}

void gap__chunk_rehome(struct gap__policy_state *s, uint32_t mapping) {
  struct gap__mapping *to = gap__mapping_at(s, mapping);
  struct gap__chunk_rec *c = gap__chunk_at(s, to->chunk);
  if (c->home == mapping) return;
  struct gap__mapping *from = gap__mapping_at(s, c->home);
  struct gap__range *left = gap__range_at(s, from->range);
  from->stamp = gap__mapping_last_use(s, c->home);
  left->lent_pages += c->pages;
  struct gap__range *entered = gap__range_at(s, to->range);
  entered->lent_pages -= c->pages;
  c->home = mapping;
  count_home(s, c, left, from->page, -1);
  count_home(s, c, entered, to->page, 1);
}

int gap__mapping_unmap(struct gap__policy_state *s, uint32_t mapping) {
  struct gap__mapping *m = gap__mapping_at(s, mapping);
  struct gap__chunk_rec *c = gap__chunk_at(s, m->chunk);
  struct gap__range *range = gap__range_at(s, m->range);
  int rc = gap__dev_unmap(s->dev, range->base + ((uint64_t)m->page << GAP__PAGE_SHIFT),
                          (uint64_t)c->pages << GAP__PAGE_SHIFT);
  if (rc) {
    gap__trouble_driver(s, GAP__CALL_unmap, rc);
    return rc;
  }
  uint32_t *link = &c->mappings;
  while (*link != mapping) link = &gap__mapping_at(s, *link)->next;
  *link = m->next;
  if (c->home == mapping) {
    c->home = 0;
    count_home(s, c, range, m->page, -1);
  } else {
    range->lent_pages -= c->pages;
  }
  slots_set(range, m->page, c->pages, 0);
  gap__slab_give(&s->mappings, mapping);
  return 0;
}

static void loosen(struct gap__policy_state *s, uint32_t chunk) {
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  c->next_loose = s->loose;
  s->loose = chunk;
  count_loose(s, c, c->pages);
}

static bool is_listed_loose(const struct gap__policy_state *s, uint32_t chunk) {
  uint32_t i = s->loose;
  while (i && i != chunk) i = gap__chunk_at(s, i)->next_loose;
  return i != 0;
}

static void drop_loose(struct gap__policy_state *s, uint32_t chunk) {
  uint32_t *link = &s->loose;
  while (*link != chunk) link = &gap__chunk_at(s, *link)->next_loose;
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  *link = c->next_loose;
  count_loose(s, c, -(int64_t)c->pages);
}

/* A lent mapping if there is one: the home goes last. */
static uint32_t next_to_unmap(const struct gap__policy_state *s, const struct gap__chunk_rec *c) {
  uint32_t next = gap__mapping_at(s, c->mappings)->next;
  return c->mappings == c->home && next ? next : c->mappings;
}

int gap__chunk_release(struct gap__policy_state *s, uint32_t chunk) {
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  bool was_loose = is_listed_loose(s, chunk);
  while (c->mappings) {
    int rc = gap__mapping_unmap(s, next_to_unmap(s, c));
    if (rc) return rc;
  }
  int rc = gap__dev_chunk_release(s->dev, c->handle);
  if (rc) gap__trouble_driver(s, GAP__CALL_chunk_release, rc);
  if (rc && !was_loose) loosen(s, chunk);
  if (rc) return rc;
  if (was_loose) drop_loose(s, chunk);
  count_made(s, c, -(int64_t)c->pages);
  s->device_frees++;
  gap__slab_give(&s->chunks, chunk);
  return 0;
}

void gap__chunk_leave(struct gap__policy_state *s, uint32_t chunk) {
  struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  struct gap__mapping *home = gap__mapping_at(s, c->home);
  struct gap__range *range = gap__range_at(s, home->range);
  home->stamp = gap__mapping_last_use(s, c->home);
  range->lent_pages += c->pages;
  count_home(s, c, range, home->page, -1);
  c->home = 0;
  loosen(s, chunk);
}

int gap__chunk_abandon(struct gap__policy_state *s, uint32_t chunk) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  int rc = gap__chunk_release(s, chunk);
  if (rc && c->home) gap__chunk_leave(s, chunk);
  else if (rc && !is_listed_loose(s, chunk)) loosen(s, chunk);
  return rc;
}

bool gap__mapping_settled(const struct gap__policy_state *s, uint32_t mapping) {
  const struct gap__mapping *m = gap__mapping_at(s, mapping);
  const struct gap__lane *lane = gap__range_at(s, m->range)->arena->lane;
  return lane->completed >= m->stamp && !atomic_load_explicit(&lane->pinned, memory_order_relaxed);
}

bool gap__chunk_settled(const struct gap__policy_state *s, uint32_t chunk, bool wait) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next) {
    struct gap__lane *lane = gap__range_at(s, gap__mapping_at(s, m)->range)->arena->lane;
    if (m == c->home && atomic_load_explicit(&lane->pinned, memory_order_relaxed)) return false;
    uint32_t stamp = gap__mapping_last_use(s, m);
    if (lane->completed < stamp && (!wait || gap__lane_wait(lane, stamp))) return false;
  }
  return true;
}
