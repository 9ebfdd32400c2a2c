/* Blocks by address: split, merge, look up; ranges.  See arena.h and state.h. */
#include "core/arena.h"

#include <string.h>

#include "base/room.h"
#include "core/hollow.h"
#include "core/tray.h"
#include "core/trouble.h"

#define WINDOW_BYTES_MIN ((uint64_t)1 << GAP__WINDOW_SHIFT)
#define WINDOW_BYTES_SMALL ((uint64_t)8 << 30)
#define WINDOW_BYTES_LARGE ((uint64_t)64 << 30)
#define ADDRESS_BUDGET ((uint64_t)60 << 40)
enum { SMALL_GRANULE_SHIFT = 3, PLANNED_GRANULE_SHIFT = 6, LARGE_GRANULE_SHIFT = 11, RANGES_MAX = 65535 };

void gap__arena_init(struct gap__arena *arena, struct gap__lane *lane, uint8_t kind) {
  arena->lane = lane;
  arena->kind = kind;
}

/* ---- look-up: the first block of each granule, kept exactly ----
 *
 * A planned range has blocks of all sizes at addresses that somebody else has chosen, and one of the overflow has them
 * too: its granules are small, and a bit for each says whether a block starts there, so that the block around an
 * address is found quickly however long it is. */

static inline bool has_marks(const struct gap__range *range) { return range->granule_shift == PLANNED_GRANULE_SHIFT; }

/* They lie behind the table: with a pointer of their own a range would not have a power of two of bytes any more. */
static inline uint64_t *marks_of(const struct gap__range *range) {
  uint64_t granules = (uint64_t)range->pages << GAP__PAGE_UNIT_SHIFT >> PLANNED_GRANULE_SHIFT;
  return (uint64_t *)(void *)(range->first + granules);
}

static inline void mark(struct gap__range *range, uint32_t granule) {
  if (__builtin_expect(has_marks(range), 0)) marks_of(range)[granule >> 6] |= 1ull << (granule & 63);
}
static inline void unmark(struct gap__range *range, uint32_t granule) {
  if (__builtin_expect(has_marks(range), 0)) marks_of(range)[granule >> 6] &= ~(1ull << (granule & 63));
}

static inline void index_remove(struct gap__lane *lane, struct gap__range *range, uint32_t index) {
  const struct gap__block *b = gap__block(lane, index);
  uint32_t granule = b->off >> range->granule_shift;
  if (range->first[granule] != index) return;
  bool next_too = b->next && gap__block(lane, b->next)->off >> range->granule_shift == granule;
  range->first[granule] = next_too ? b->next : 0;
  if (!next_too) unmark(range, granule);
}

/* The last granule up to `granule` in which a block starts. */
static uint32_t granule_up_to(const struct gap__range *range, uint32_t granule) {
  if (!has_marks(range)) {
    while (!range->first[granule]) granule--;
    return granule;
  }
  const uint64_t *marks = marks_of(range);
  uint32_t word = granule >> 6;
  uint64_t bits = marks[word] & (~0ull >> (63 - (granule & 63)));
  while (!bits) bits = marks[--word];
  return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
}

uint32_t gap__block_covering(const struct gap__range *range, uint32_t unit) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t granule = granule_up_to(range, unit >> range->granule_shift);
  if (gap__block(lane, range->first[granule])->off > unit) granule = granule_up_to(range, granule - 1);
  uint32_t i = range->first[granule];
  for (uint32_t next; (next = gap__block(lane, i)->next) && gap__block(lane, next)->off <= unit;) i = next;
  return i;
}

/* ---- state changes ---- */

/* Mapped stretches that a hole ends: the one before it, unless it is bare or bare pages behind end it already. */
static int stretches_ended(const struct gap__arena *arena, const struct gap__block *b) {
  const struct gap__range *range = gap__range_at(arena->lane->owner, b->range);
  bool before = b->prev && !gap__page_is_bare(range, gap__page_of(b->off) - 1);
  return before - (b->next && gap__page_is_bare(range, gap__page_of(b->off + b->len)));
}

static void hole_insert(struct gap__arena *arena, uint32_t index) {
  struct gap__block *b = gap__block(arena->lane, index);
  b->link_prev = 0;
  b->link_next = arena->hole_head;
  if (arena->hole_head) gap__block(arena->lane, arena->hole_head)->link_prev = index;
  arena->hole_head = index;
  arena->hole_count++;
  arena->lane->owner->runs[arena->kind] += stretches_ended(arena, b);
}

static void hole_remove(struct gap__arena *arena, uint32_t index) {
  struct gap__block *b = gap__block(arena->lane, index);
  if (b->link_next) gap__block(arena->lane, b->link_next)->link_prev = b->link_prev;
  if (b->link_prev) gap__block(arena->lane, b->link_prev)->link_next = b->link_next;
  else arena->hole_head = b->link_next;
  arena->hole_count--;
  arena->lane->owner->runs[arena->kind] -= stretches_ended(arena, b);
}

void gap__block_detach(struct gap__arena *arena, uint32_t index) {
  struct gap__block *b = gap__block(arena->lane, index);
  if (gap__block_is_idle(b)) gap__bin_remove(arena, index);
  else if (b->state == GAP__HOLE) hole_remove(arena, index);
  b->state = GAP__RESERVED;
}

static void drop_next(struct gap__arena *arena, struct gap__block *b) {
  struct gap__lane *lane = arena->lane;
  uint32_t gone = b->next;
  struct gap__block *n = gap__block(lane, gone);
  struct gap__range *range = gap__range_at(lane->owner, n->range);
  index_remove(lane, range, gone);
  b->len += n->len;
  b->next = n->next;
  if (n->next) gap__block(lane, n->next)->prev = n->prev;
  else range->tail = n->prev;
  n->state = GAP__UNUSED;
  gap__slab_give(&lane->blocks, gone);
}

void gap__block_absorb_next(struct gap__arena *arena, uint32_t index) {
  drop_next(arena, gap__block(arena->lane, index));
}

static bool merges(const struct gap__block *b, enum gap__state state) {
  return state == GAP__HOLE ? b->state == GAP__HOLE : gap__block_is_idle(b);
}

uint32_t gap__block_attach(struct gap__arena *arena, uint32_t index, enum gap__state state) {
  struct gap__lane *lane = arena->lane;
  struct gap__block *b = gap__block(lane, index);
  if (b->next && merges(gap__block(lane, b->next), state)) {
    if (gap__block(lane, b->next)->state == GAP__HOLLOW) state = GAP__HOLLOW;
    gap__block_detach(arena, b->next);
    drop_next(arena, b);
  }
  if (b->prev && merges(gap__block(lane, b->prev), state)) {
    index = b->prev;
    b = gap__block(lane, index);
    if (b->state == GAP__HOLLOW) state = GAP__HOLLOW;
    gap__block_detach(arena, index);
    drop_next(arena, b);
  }
  if (state == GAP__HOLLOW && b->len < GAP__PAGE_UNITS) state = GAP__IDLE; /* no page lies in it */
  b->state = (uint8_t)state;
  if (state == GAP__HOLE) hole_insert(arena, index);
  else gap__bin_insert(arena, index);
  return index;
}

uint32_t gap__block_cut(struct gap__arena *arena, uint32_t index, uint32_t units) {
  struct gap__lane *lane = arena->lane;
  uint32_t high = gap__slab_take(&lane->blocks);
  if (!high) return 0;
  struct gap__block *b = gap__block(lane, index), *h = gap__block(lane, high);
  struct gap__range *range = gap__range_at(lane->owner, b->range);
  *h = (struct gap__block){.off = b->off + units,
                           .len = b->len - units,
                           .prev = index,
                           .next = b->next,
                           .state = GAP__RESERVED,
                           .range = b->range};
  if (b->next) gap__block(lane, b->next)->prev = high;
  else range->tail = high;
  b->next = high;
  b->len = units;
  /* what started behind in this granule starts behind `high` now: only an entry that points there must change */
  uint32_t granule = h->off >> range->granule_shift;
  if (b->off >> range->granule_shift != granule) {
    range->first[granule] = high;
    mark(range, granule);
  }
  return high;
}

uint32_t gap__block_isolate(struct gap__arena *arena, uint32_t index, uint32_t off, uint32_t len,
                            enum gap__state rest) {
  struct gap__lane *lane = arena->lane;
  struct gap__block *b = gap__block(lane, index);
  uint32_t before = off - b->off, after = b->len - before - len;
  uint32_t high = 0;
  if (after && !(high = gap__block_cut(arena, index, before + len))) return 0;
  uint32_t wanted = index;
  if (before && !(wanted = gap__block_cut(arena, index, before))) {
    if (high) gap__block_absorb_next(arena, index);
    return 0;
  }
  if (high) gap__block_attach(arena, high, rest);
  if (before) gap__block_attach(arena, index, rest);
  return wanted;
}

int gap__arena_withdraw(struct gap__arena *arena, uint32_t index, uint32_t page, uint32_t pages) {
  enum gap__state was = gap__block(arena->lane, index)->state;
  gap__block_detach(arena, index);
  uint32_t off = page << GAP__PAGE_UNIT_SHIFT, len = pages << GAP__PAGE_UNIT_SHIFT;
  uint32_t wanted = gap__block_isolate(arena, index, off, len, was);
  gap__block_attach(arena, wanted ? wanted : index, wanted ? GAP__HOLE : was);
  return wanted ? 0 : GAP_ENOMETA;
}

void gap__arena_return(struct gap__range *range, uint32_t page, uint32_t pages) {
  struct gap__arena *arena = range->arena;
  uint32_t off = page << GAP__PAGE_UNIT_SHIFT, len = pages << GAP__PAGE_UNIT_SHIFT;
  gap__slab_assure(&arena->lane->blocks, 2);
  uint32_t hole = gap__block_covering(range, off);
  gap__block_detach(arena, hole);
  uint32_t block = gap__block_isolate(arena, hole, off, len, GAP__HOLE);
  gap__block_attach(arena, block ? block : hole, block ? GAP__IDLE : GAP__HOLE);
}

/* A page at its ends may carry a neighbour's later free already. */
void gap__arena_cool(struct gap__arena *arena) {
  if (!arena->hot) return;
  const struct gap__block *b = gap__block(arena->lane, arena->hot);
  struct gap__range *range = gap__range_at(arena->lane->owner, b->range);
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++)
    if (range->stamp[page] < arena->hot_epoch) range->stamp[page] = arena->hot_epoch;
  gap__block_attach(arena, arena->hot, GAP__IDLE);
  arena->hot = 0;
}

void gap__arena_flush(struct gap__arena *arena) {
  struct gap__lane *lane = arena->lane;
  gap__arena_cool(arena);
  if (arena->empty_trays) gap__tray_dissolve_empty(arena);
  if (arena->kind != GAP__ARENA_SMALL) return;
  for (uint32_t units = 1; units <= GAP__SMALL_UNITS; units++) {
    uint32_t next;
    for (uint32_t i = arena->front[units]; i; i = next) {
      next = gap__block(lane, i)->link_next;
      gap__block_attach(arena, i, GAP__IDLE);
    }
    arena->front[units] = 0;
  }
}

/* Cuts `units` out of an idle block in which they fit. */
__attribute__((always_inline)) static inline uint32_t serve_from(struct gap__arena *arena, uint32_t index,
                                                                 uint32_t units, bool aligned) {
  const struct gap__block *b = gap__block(arena->lane, index);
  enum gap__state was = b->state;
  uint32_t off = gap__place_low(b->off, aligned);
  gap__block_detach(arena, index);
  uint32_t wanted = gap__block_isolate(arena, index, off, units, was);
  if (!wanted) gap__block_attach(arena, index, was);
  return wanted;
}

uint32_t gap__arena_fit(struct gap__arena *arena, uint32_t units, bool aligned) {
  uint32_t index = gap__bin_find(arena, units, aligned);
  if (!index) return 0;
  const struct gap__block *b = gap__block(arena->lane, index);
  if (__builtin_expect(b->state == GAP__HOLLOW, 0) &&
      gap__hollow_any(gap__range_at(arena->lane->owner, b->range), gap__place_low(b->off, aligned), units))
    return 0;
  return serve_from(arena, index, units, aligned);
}

uint32_t gap__arena_fit_mapped(struct gap__arena *arena, uint32_t units, bool aligned) {
  uint32_t index = arena->hollow_count ? gap__bin_find_mapped(arena, units, aligned) : 0;
  return index ? serve_from(arena, index, units, aligned) : 0;
}

/* ---- ranges ---- */

/* At most an eighth of what is left of the budget, and a 32nd of what the process may still take. */
static uint64_t window_bytes(const struct gap__policy_state *s, const struct gap__arena *arena, uint64_t bytes) {
  static const uint64_t usual[] = {WINDOW_BYTES_SMALL, WINDOW_BYTES_LARGE, WINDOW_BYTES_MIN, WINDOW_BYTES_LARGE};
  uint64_t window = usual[arena->kind], room = gap__room_addresses() / 32;
  while (window > WINDOW_BYTES_MIN && (s->address_bytes + window > ADDRESS_BUDGET / 8 || window > room)) window /= 2;
  uint64_t least = (bytes + WINDOW_BYTES_MIN - 1) / WINDOW_BYTES_MIN * WINDOW_BYTES_MIN;
  return window > least ? window : least;
}

/* Reserves addresses: the usual window, halved while the driver refuses, never less than `bytes`. */
static int reserve_window(struct gap__policy_state *s, const struct gap__arena *arena, uint64_t bytes, gap_addr *base,
                          uint64_t *window) {
  uint64_t least = (bytes + WINDOW_BYTES_MIN - 1) / WINDOW_BYTES_MIN * WINDOW_BYTES_MIN;
  for (*window = window_bytes(s, arena, bytes);;) {
    int rc = gap__dev_reserve(s->dev, *window, WINDOW_BYTES_MIN, base);
    if (!rc && (*base + *window) >> GAP__ADDRESS_BITS == 0) return 0;
    if (!rc) gap__dev_unreserve(s->dev, *base, *window), rc = GAP_ENOTSUP;
    if (*window == least) return rc;
    *window = *window / 2 > least ? *window / 2 / WINDOW_BYTES_MIN * WINDOW_BYTES_MIN : least;
  }
}

static const uint32_t granule_shifts[] = {SMALL_GRANULE_SHIFT, LARGE_GRANULE_SHIFT, PLANNED_GRANULE_SHIFT,
                                          PLANNED_GRANULE_SHIFT};

/* A range has a multiple of 64 granules: WINDOW_BYTES_MIN does. */
static uint64_t first_bytes(const struct gap__range *range, uint64_t granules) {
  return granules * sizeof(uint32_t) + (has_marks(range) ? granules / 64 * sizeof(uint64_t) : 0);
}

static void range_unmap_tables(struct gap__range *range, uint64_t granules) {
  gap__meta_unmap(range->first, first_bytes(range, granules));
  gap__meta_unmap(range->stamp, range->pages * sizeof(uint32_t));
  gap__meta_unmap(range->slot, range->pages * sizeof(uint32_t));
}

static int range_map_tables(struct gap__range *range, uint64_t granules) {
  range->first = gap__meta_map(first_bytes(range, granules));
  range->stamp = gap__meta_map(range->pages * sizeof(uint32_t));
  range->slot = gap__meta_map(range->pages * sizeof(uint32_t));
  if (range->first && range->stamp && range->slot) return 0;
  range_unmap_tables(range, granules);
  return GAP_ENOMETA;
}

static enum gap__trouble_kind trouble_of(int rc) {
  if (rc == GAP_ELIMIT) return GAP__TROUBLE_LIMIT;
  return rc == GAP_ENOTSUP || rc == GAP_ENOMEM ? GAP__TROUBLE_ADDRESSES : GAP__TROUBLE_DRIVER;
}

int gap__arena_add_range(struct gap__arena *arena, uint64_t units) {
  struct gap__policy_state *s = arena->lane->owner;
  gap_addr base;
  uint64_t bytes;
  int rc =
      s->range_count == RANGES_MAX ? GAP_ELIMIT : reserve_window(s, arena, units << GAP__UNIT_SHIFT, &base, &bytes);
  if (rc) {
    gap__trouble_note(s, trouble_of(rc), GAP__CALL_reserve, rc);
    return rc;
  }

  uint16_t number = (uint16_t)(s->range_count + 1);
  struct gap__range *range = gap__range_at(s, number);
  *range = (struct gap__range){.base = base, .arena = arena, .pages = (uint32_t)(bytes >> GAP__PAGE_SHIFT)};
  range->granule_shift = granule_shifts[arena->kind];
  uint64_t granules = bytes >> GAP__UNIT_SHIFT >> range->granule_shift;
  uint32_t block = gap__slab_take(&arena->lane->blocks);
  rc = block ? range_map_tables(range, granules) : GAP_ENOMETA;
  if (rc) {
    if (block) gap__slab_give(&arena->lane->blocks, block);
    gap__dev_unreserve(s->dev, base, bytes);
    gap__trouble_records(s);
    return rc;
  }
  s->range_count++;
  s->address_bytes += bytes;
  *gap__block(arena->lane, block) =
      (struct gap__block){.len = (uint32_t)(bytes >> GAP__UNIT_SHIFT), .state = GAP__RESERVED, .range = number};
  range->first[0] = range->tail = block;
  mark(range, 0);
  gap__block_attach(arena, block, GAP__HOLE);
  range->older = arena->range_newest;
  arena->range_newest = number;
  for (uint64_t w = base >> GAP__WINDOW_SHIFT; w < (base + bytes) >> GAP__WINDOW_SHIFT; w++)
    __atomic_store_n(&s->range_of[w], number, __ATOMIC_RELEASE);
  return 0;
}

void gap__range_destroy(struct gap__policy_state *s, struct gap__range *range) {
  uint64_t bytes = (uint64_t)range->pages << GAP__PAGE_SHIFT;
  range_unmap_tables(range, bytes >> GAP__UNIT_SHIFT >> range->granule_shift);
  gap__dev_unreserve(s->dev, range->base, bytes);
}
