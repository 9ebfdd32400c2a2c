#include "plan/eject.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

enum { LOOK_EVERY = 64 }; /* placements between two looks at the clock */

struct edge { /* where blocks in the way begin, or end; weight: prices of all up to here */
  uint64_t at, weight;
};

struct search {
  struct gap__board *board;
  const struct gap__plan_problem *problem;
  uint64_t target, random;
  bool by_size; /* prices count by size: small blocks give way to large ones */
  uint32_t *price;
  uint32_t *pool, pool_count; /* blocks to be placed; the last one is next */
  struct edge *starts, *ends;
};

static uint64_t next_random(struct search *search) {
  uint64_t x = search->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return search->random = x;
}

static int by_edge(const void *a, const void *b) {
  uint64_t left = ((const struct edge *)a)->at, right = ((const struct edge *)b)->at;
  return left < right ? -1 : left > right;
}

static uint64_t price_of(const struct search *search, uint32_t block) {
  return search->by_size ? (uint64_t)search->price[block] * (search->problem->at[block].size + 1)
                         : search->price[block];
}

/* The blocks met, which gap__board_lowest left sorted by offset, as edges with running sums of their prices. */
static uint32_t list_edges(struct search *search) {
  const struct gap__board *board = search->board;
  uint32_t count = board->key_count;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t block = gap__board_key_block(board->keys[i]);
    uint64_t price = price_of(search, block);
    search->starts[i] = (struct edge){board->offsets[block], sum += price};
    search->ends[i] = (struct edge){board->offsets[block] + search->problem->at[block].size, price};
  }
  qsort(search->ends, count, sizeof *search->ends, by_edge);
  for (uint32_t i = 1; i < count; i++) search->ends[i].weight += search->ends[i - 1].weight;
  return count;
}

static uint64_t weight_below(const struct edge *edges, uint32_t count, uint64_t bound) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (edges[middle].at < bound) low = middle + 1;
    else high = middle;
  }
  return low ? edges[low - 1].weight : 0;
}

struct choice {
  uint64_t offset, price;
  uint32_t ties;
};

static void consider(struct search *search, uint32_t count, const struct gap__plan_block *block, uint64_t offset,
                     struct choice *best) {
  if (offset + block->size > search->target) return;
  uint64_t price =
      weight_below(search->starts, count, offset + block->size) - weight_below(search->ends, count, offset + 1);
  if (price > best->price) return;
  if (price < best->price) best->ties = 0;
  if (next_random(search) % ++best->ties) return;
  best->price = price;
  best->offset = offset;
}

/* Where the blocks in the way cost least: above the end of one, or below the start of one. */
static uint64_t cheapest(struct search *search, const struct gap__plan_block *block) {
  struct choice best = {0, UINT64_MAX, 0};
  uint32_t count = list_edges(search);
  consider(search, count, block, 0, &best);
  for (uint32_t i = 0; i < count; i++) {
    consider(search, count, block, gap__plan_align(search->ends[i].at, block->align), &best);
    uint64_t start = search->starts[i].at;
    if (start >= block->size)
      consider(search, count, block, (start - block->size) / block->align * block->align, &best);
  }
  return best.offset;
}

static void eject_into_pool(struct search *search, uint64_t offset, uint64_t end) {
  struct gap__board *board = search->board;
  for (uint32_t i = 0; i < board->key_count; i++) {
    uint32_t block = gap__board_key_block(board->keys[i]);
    uint64_t start = board->offsets[block];
    if (start >= end) break;
    if (start + search->problem->at[block].size <= offset) continue;
    gap__board_remove(board, block);
    search->pool[search->pool_count++] = block;
  }
}

static void step(struct search *search) {
  uint32_t at = search->pool_count - 1;
  if (next_random(search) % 8 == 0) at = (uint32_t)(next_random(search) % search->pool_count);
  uint32_t index = search->pool[at];
  const struct gap__plan_block *block = &search->problem->at[index];
  search->pool[at] = search->pool[--search->pool_count];
  uint64_t offset = gap__board_lowest(search->board, index);
  if (offset + block->size > search->target) {
    search->price[index]++;
    offset = cheapest(search, block);
    eject_into_pool(search, offset, offset + block->size);
  }
  gap__board_place(search->board, index, offset);
}

static int open_search(struct search *search) {
  uint32_t count = search->problem->count;
  search->price = malloc((count + 1) * sizeof *search->price);
  search->pool = malloc((count + 1) * sizeof *search->pool);
  search->starts = malloc((count + 1) * sizeof *search->starts);
  search->ends = malloc((count + 1) * sizeof *search->ends);
  if (!search->price || !search->pool || !search->starts || !search->ends) return GAP_ENOMETA;
  for (uint32_t i = 0; i < count; i++) search->price[i] = 1;
  return 0;
}

static void close_search(struct search *search) {
  free(search->price);
  free(search->pool);
  free(search->starts);
  free(search->ends);
}

static void take_out_what_is_above(struct search *search) {
  for (uint32_t i = 0; i < search->problem->count; i++) {
    if (search->board->offsets[i] + search->problem->at[i].size <= search->target) continue;
    gap__board_remove(search->board, i);
    search->pool[search->pool_count++] = i;
  }
}

int gap__plan_eject(struct gap__board *board, uint64_t target, uint64_t seed, const struct gap__plan_clock *clock,
                    uint64_t until_ms, uint64_t *offsets, bool *found) {
  struct search search = {.board = board, .problem = board->problem, .target = target, .random = seed * 2 + 1};
  search.by_size = seed & 1;
  int rc = open_search(&search);
  *found = false;
  if (!rc) {
    gap__board_load(board, offsets);
    take_out_what_is_above(&search);
    for (uint64_t steps = 0; search.pool_count; steps++) {
      if (steps % LOOK_EVERY == 0 && gap__plan_is_late(clock, until_ms)) break;
      step(&search);
    }
    *found = search.pool_count == 0;
    if (*found) memcpy(offsets, board->offsets, board->problem->count * sizeof *offsets);
  }
  close_search(&search);
  return rc;
}
