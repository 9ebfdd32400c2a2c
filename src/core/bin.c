/* Bins of idle blocks: see bin.h. */
#include "core/bin.h"

#include "core/hollow.h"

enum { LOOK = 8, ORDER = 3 }; /* blocks compared: when looking for one (or for a page border), when filing one */

static inline uint32_t bin_of(uint32_t units) {
  if (units < GAP__BIN_EXACT) return units;
  uint32_t log = 31u - (uint32_t)__builtin_clz(units);
  return GAP__BIN_EXACT + (log - GAP__BIN_EXACT_LOG) * 64u + ((units >> (log - 6u)) & 63u);
}

static inline uint64_t address_order(const struct gap__block *b) { return (uint64_t)b->range << 32 | b->off; }

/* The block of a bin behind which `b` belongs, 0: at its head.  Low addresses come first (of the first few), so that high
 * ones drain; in the small arena the warmest comes first. */
static uint32_t insert_behind(const struct gap__arena *arena, uint32_t head, const struct gap__block *b) {
  uint32_t behind = 0, looked = 0;
  if (arena->kind == GAP__ARENA_SMALL) return 0;
  for (uint32_t i = head; i && looked++ < ORDER; i = gap__block(arena->lane, i)->link_next) {
    if (address_order(gap__block(arena->lane, i)) > address_order(b)) break;
    behind = i;
  }
  return behind;
}

void gap__bin_insert(struct gap__arena *arena, uint32_t index) {
  struct gap__lane *lane = arena->lane;
  struct gap__bins *bins = &arena->bins;
  struct gap__block *b = gap__block(lane, index);
  uint32_t bin = bin_of(b->len);
  uint32_t *link = &bins->head[bin];
  b->link_prev = insert_behind(arena, *link, b);
  if (b->link_prev) link = &gap__block(lane, b->link_prev)->link_next;
  b->link_next = *link;
  *link = index;
  if (b->link_next) gap__block(lane, b->link_next)->link_prev = index;
  bins->word[bin >> 6] |= 1ull << (bin & 63);
  bins->summary |= 1ull << (bin >> 6);
  arena->idle_count++;
  arena->hollow_count += b->state == GAP__HOLLOW;
  arena->idle_units += b->len;
}

void gap__bin_remove(struct gap__arena *arena, uint32_t index) {
  struct gap__lane *lane = arena->lane;
  struct gap__bins *bins = &arena->bins;
  struct gap__block *b = gap__block(lane, index);
  if (b->link_next) gap__block(lane, b->link_next)->link_prev = b->link_prev;
  if (b->link_prev) {
    gap__block(lane, b->link_prev)->link_next = b->link_next;
  } else {
    uint32_t bin = bin_of(b->len);
    bins->head[bin] = b->link_next;
    if (!b->link_next && !(bins->word[bin >> 6] &= ~(1ull << (bin & 63)))) bins->summary &= ~(1ull << (bin >> 6));
  }
  arena->idle_count--;
  arena->hollow_count -= b->state == GAP__HOLLOW;
  arena->idle_units -= b->len;
}

/* The first bin that is not empty, from `bin` on; GAP__BIN_COUNT: none. */
static inline uint32_t next_bin(const struct gap__bins *bins, uint32_t bin) {
  if (bin >= GAP__BIN_COUNT) return GAP__BIN_COUNT;
  uint32_t w = bin >> 6;
  uint64_t word = bins->word[w] & (~0ull << (bin & 63));
  if (word) return w * 64u + (uint32_t)__builtin_ctzll(word);
  uint64_t later = w == 63 ? 0 : bins->summary & (~0ull << (w + 1));
  if (!later) return GAP__BIN_COUNT;
  w = (uint32_t)__builtin_ctzll(later);
  return w * 64u + (uint32_t)__builtin_ctzll(bins->word[w]);
}

static inline bool fits(const struct gap__block *b, uint32_t units, bool aligned) {
  uint64_t start = gap__place_low(b->off, aligned);
  return start + units <= (uint64_t)b->off + b->len;
}

static uint32_t find_aligned(const struct gap__arena *arena, uint32_t units) {
  uint32_t best = 0, best_len = UINT32_MAX, looked = 0;
  for (uint32_t bin = next_bin(&arena->bins, bin_of(units)); bin < GAP__BIN_COUNT && !best && looked < LOOK;
       bin = next_bin(&arena->bins, bin + 1)) {
    for (uint32_t i = arena->bins.head[bin]; i && looked < LOOK; i = gap__block(arena->lane, i)->link_next) {
      const struct gap__block *b = gap__block(arena->lane, i);
      looked++;
      if (b->len < best_len && fits(b, units, true)) best = i, best_len = b->len;
    }
  }
  return best;
}

uint32_t gap__bin_find(const struct gap__arena *arena, uint32_t units, bool aligned) {
  if (aligned) return find_aligned(arena, units);
  uint32_t bin = next_bin(&arena->bins, bin_of(units));
  if (bin < GAP__BIN_EXACT) return arena->bins.head[bin];
  while (bin < GAP__BIN_COUNT) { /* the first bin may hold shorter blocks; in a later one every block fits */
    uint32_t best = 0, best_len = UINT32_MAX, looked = 0;
    for (uint32_t i = arena->bins.head[bin]; i && looked < LOOK; i = gap__block(arena->lane, i)->link_next, looked++) {
      const struct gap__block *b = gap__block(arena->lane, i);
      if (b->len >= units && b->len < best_len) best = i, best_len = b->len;
    }
    if (best) return best;
    bin = next_bin(&arena->bins, bin + 1);
  }
  return 0;
}

static bool is_mapped(const struct gap__arena *arena, const struct gap__block *b, uint32_t units, bool aligned) {
  const struct gap__range *range = gap__range_at(arena->lane->owner, b->range);
  return b->state == GAP__IDLE || !gap__hollow_any(range, gap__place_low(b->off, aligned), units);
}

uint32_t gap__bin_find_mapped(const struct gap__arena *arena, uint32_t units, bool aligned) {
  for (uint32_t bin = next_bin(&arena->bins, bin_of(units)); bin < GAP__BIN_COUNT;
       bin = next_bin(&arena->bins, bin + 1)) {
    uint32_t best = 0, best_len = UINT32_MAX;
    for (uint32_t i = arena->bins.head[bin]; i; i = gap__block(arena->lane, i)->link_next) {
      const struct gap__block *b = gap__block(arena->lane, i);
      if (b->len < best_len && fits(b, units, aligned) && is_mapped(arena, b, units, aligned))
        best = i, best_len = b->len;
    }
    if (best) return best;
  }
  return 0;
}
