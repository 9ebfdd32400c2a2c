#include "plan/board.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

enum { INDEX_BITS = 24, FEW = 48, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

static uint32_t born_before(const struct gap__plan_problem *problem, uint32_t moment) {
  uint32_t low = 0, high = problem->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (problem->at[middle].from < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

int gap__board_open(struct gap__board *board, const struct gap__plan_problem *problem) {
  *board = (struct gap__board){.problem = problem, .leaves = 1};
  while (board->leaves < problem->count) board->leaves *= 2;
  board->offsets = malloc((problem->count + 1) * sizeof *board->offsets);
  board->deaths = calloc((size_t)2 * board->leaves, sizeof *board->deaths);
  board->reach = malloc((problem->count + 1) * sizeof *board->reach);
  board->keys = malloc((problem->count + 1) * sizeof *board->keys);
  board->spare = malloc((problem->count + 1) * sizeof *board->spare);
  if (!board->offsets || !board->deaths || !board->reach || !board->keys || !board->spare) {
    gap__board_close(board);
    return GAP_ENOMETA;
  }
  for (uint32_t i = 0; i < problem->count; i++) board->reach[i] = born_before(problem, problem->at[i].to);
  gap__board_clear(board);
  return 0;
}

void gap__board_close(struct gap__board *board) {
  free(board->offsets);
  free(board->deaths);
  free(board->reach);
  free(board->keys);
  free(board->spare);
  *board = (struct gap__board){0};
}

void gap__board_clear(struct gap__board *board) {
  memset(board->deaths, 0, (size_t)2 * board->leaves * sizeof *board->deaths);
  for (uint32_t i = 0; i < board->problem->count; i++) board->offsets[i] = GAP__PLAN_UNPLACED;
}

static void set_death(struct gap__board *board, uint32_t index, uint32_t death) {
  uint32_t *tree = board->deaths, node = board->leaves + index;
  tree[node] = death;
  while (node > 1) {
    node /= 2;
    uint32_t left = tree[2 * node], right = tree[2 * node + 1], most = left > right ? left : right;
    if (tree[node] == most) return;
    tree[node] = most;
  }
}

void gap__board_place(struct gap__board *board, uint32_t index, uint64_t offset) {
  board->offsets[index] = offset;
  set_death(board, index, board->problem->at[index].to);
}

void gap__board_remove(struct gap__board *board, uint32_t index) {
  board->offsets[index] = GAP__PLAN_UNPLACED;
  set_death(board, index, 0);
}

void gap__board_load(struct gap__board *board, const uint64_t *offsets) {
  for (uint32_t i = 0; i < board->problem->count; i++) {
    board->offsets[i] = offsets[i];
    board->deaths[board->leaves + i] = offsets[i] == GAP__PLAN_UNPLACED ? 0 : board->problem->at[i].to;
  }
  for (uint32_t node = board->leaves - 1; node > 0; node--) {
    uint32_t left = board->deaths[2 * node], right = board->deaths[2 * node + 1];
    board->deaths[node] = left > right ? left : right;
  }
}

/* A node of the tree and the leaves under it. */
struct span {
  uint32_t node, first, width;
};

/* Depth first through the nodes whose latest death is after the block's birth; the stack holds what lies to the right. */
void gap__board_meet(struct gap__board *board, uint32_t index) {
  const uint32_t *tree = board->deaths, from = board->problem->at[index].from, reach = board->reach[index];
  struct span stack[INDEX_BITS + 8] = {{1, 0, board->leaves}};
  uint32_t depth = 1, count = 0;
  while (depth > 0) {
    struct span now = stack[--depth];
    if (tree[now.node] <= from || now.first >= reach) continue;
    if (now.width > 1) {
      uint32_t half = now.width / 2;
      stack[depth++] = (struct span){2 * now.node + 1, now.first + half, half};
      stack[depth++] = (struct span){2 * now.node, now.first, half};
    } else if (now.first != index) {
      board->keys[count++] = board->offsets[now.first] << INDEX_BITS | now.first;
    }
  }
  board->key_count = count;
}

static void sort_few(uint64_t *keys, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    uint64_t key = keys[i];
    uint32_t j = i;
    for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
    keys[j] = key;
  }
}

/* By the bits of the offset alone; bytes in which all keys agree take no pass. */
static void sort_many(struct gap__board *board) {
  uint64_t any = 0, all = ~(uint64_t)0;
  for (uint32_t i = 0; i < board->key_count; i++) {
    any |= board->keys[i];
    all &= board->keys[i];
  }
  for (unsigned shift = INDEX_BITS; shift < 64; shift += DIGIT_BITS) {
    uint32_t start[DIGITS + 1] = {0};
    if ((((any ^ all) >> shift) & (DIGITS - 1)) == 0) continue;
    for (uint32_t i = 0; i < board->key_count; i++) start[((board->keys[i] >> shift) & (DIGITS - 1)) + 1]++;
    for (uint32_t i = 0; i < DIGITS; i++) start[i + 1] += start[i];
    for (uint32_t i = 0; i < board->key_count; i++)
      board->spare[start[(board->keys[i] >> shift) & (DIGITS - 1)]++] = board->keys[i];
    uint64_t *swapped = board->keys;
    board->keys = board->spare;
    board->spare = swapped;
  }
}

uint64_t gap__board_lowest(struct gap__board *board, uint32_t index) {
  const struct gap__plan_block *block = &board->problem->at[index];
  uint64_t offset = 0;
  gap__board_meet(board, index);
  if (board->key_count <= FEW) sort_few(board->keys, board->key_count);
  else sort_many(board);
  for (uint32_t i = 0; i < board->key_count; i++) {
    uint64_t start = board->keys[i] >> INDEX_BITS;
    uint64_t end = start + board->problem->at[gap__board_key_block(board->keys[i])].size;
    if (start >= offset + block->size) break;
    if (end > offset) offset = gap__plan_align(end, block->align);
  }
  return offset;
}
