/* Hollow blocks: see hollow.h. */
#include "core/hollow.h"

#include "core/arena.h"
#include "core/chunk.h"
#include "core/limit.h"
#include "core/place.h"

bool gap__hollow_allowed(const struct gap__arena *arena) {
  bool pinned = atomic_load_explicit(&arena->lane->pinned, memory_order_relaxed);
  return arena->kind == GAP__ARENA_LARGE && !pinned && gap__limit_is_tight(arena->lane->owner);
}

/* Of two neighbouring pages one is the end of a mapped stretch when the next has no memory. */
static bool is_mapped(const struct gap__range *range, uint32_t page) {
  uint32_t block = gap__block_covering(range, page << GAP__PAGE_UNIT_SHIFT);
  return gap__block(range->arena->lane, block)->state != GAP__HOLE && !gap__page_is_bare(range, page);
}

/* By how many more stretches there are when [from, to) is not mapped. */
static int ends_made(const struct gap__range *range, uint32_t from, uint32_t to) {
  bool before = from && is_mapped(range, from - 1), behind = to < range->pages && !is_mapped(range, to);
  return before - behind;
}

static void make_bare(struct gap__range *range, uint32_t from, uint32_t to) {
  struct gap__arena *arena = range->arena;
  for (uint32_t page = from; page < to; page++) range->stamp[page] = GAP__BARE;
  arena->bare_pages += to - from;
  arena->lane->owner->runs[arena->kind] += ends_made(range, from, to);
}

/* All pages of [from, to) are bare. */
static void make_whole(struct gap__range *range, uint32_t from, uint32_t to) {
  struct gap__arena *arena = range->arena;
  const struct gap__policy_state *s = arena->lane->owner;
  arena->lane->owner->runs[arena->kind] -= ends_made(range, from, to);
  arena->bare_pages -= to - from;
  for (uint32_t page = from; page < to; page++)
    range->stamp[page] = range->slot[page] ? gap__mapping_at(s, range->slot[page])->stamp : 0;
}

int gap__hollow_take(struct gap__range *range, uint32_t block, uint32_t page) {
  struct gap__arena *arena = range->arena;
  struct gap__policy_state *s = arena->lane->owner;
  uint32_t mapping = range->slot[page], pages = gap__chunk_at(s, gap__mapping_at(s, mapping)->chunk)->pages;
  if (!gap__hollow_allowed(arena)) return gap__arena_withdraw(arena, block, page, pages);
  gap__mapping_at(s, mapping)->stamp = gap__mapping_last_use(s, mapping);
  make_bare(range, page, page + pages);
  struct gap__block *b = gap__block(arena->lane, block);
  arena->hollow_count += b->state == GAP__IDLE;
  b->state = GAP__HOLLOW;
  return 0;
}

void gap__hollow_return(struct gap__range *range, uint32_t page) {
  const struct gap__policy_state *s = range->arena->lane->owner;
  uint32_t pages = gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->pages;
  if (gap__page_is_bare(range, page)) make_whole(range, page, page + pages);
  else gap__arena_return(range, page, pages);
}

/* The next stretch of bare pages in [*from, to), with or without a home. */
static bool next_bare(const struct gap__range *range, bool home, uint32_t *from, uint32_t *end, uint32_t to) {
  const struct gap__policy_state *s = range->arena->lane->owner;
  uint32_t page = *from;
  while (page < to && !(gap__page_is_bare(range, page) && gap__slot_is_home(s, range, page) == home)) page++;
  *from = page;
  while (page < to && gap__page_is_bare(range, page) && gap__slot_is_home(s, range, page) == home) page++;
  *end = page;
  return *from < *end;
}

void gap__hollow_fill(struct gap__range *range, uint32_t from, uint32_t to) {
  if (!range->arena->bare_pages) return;
  for (uint32_t end; next_bare(range, true, &from, &end, to); from = end) make_whole(range, from, end);
}

/* ---- folding ---- */

/* It has a page or more, and is in a bin for such lengths. */
static uint32_t find_hollow(const struct gap__arena *arena) {
  for (uint32_t word = GAP__BIN_EXACT / 64; word < GAP__BIN_WORDS; word++)
    for (uint64_t bits = arena->bins.word[word]; bits; bits &= bits - 1)
      for (uint32_t i = arena->bins.head[word * 64 + (uint32_t)__builtin_ctzll(bits)]; i;
           i = gap__block(arena->lane, i)->link_next)
        if (gap__block(arena->lane, i)->state == GAP__HOLLOW) return i;
  return 0;
}

static bool fold_block(struct gap__arena *arena, uint32_t block) {
  const struct gap__block *b = gap__block(arena->lane, block);
  struct gap__range *range = gap__range_at(arena->lane->owner, b->range);
  uint32_t first = gap__page_of(b->off), to = gap__page_up(b->off + b->len), stretches = 0;
  for (uint32_t end, from = first; next_bare(range, false, &from, &end, to); from = end) stretches++;
  if (!gap__slab_assure(&arena->lane->blocks, 2 * stretches)) return false;
  gap__block_detach(arena, block);
  for (uint32_t end, from = first; next_bare(range, false, &from, &end, to); from = end) make_whole(range, from, end);
  gap__place_dissolve(arena, block);
  return true;
}

void gap__hollow_fold(struct gap__arena *arena) {
  while (arena->hollow_count && fold_block(arena, find_hollow(arena))) continue;
}
