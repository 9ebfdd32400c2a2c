#include "plan/pile.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

/* ---- setting up ---------------------------------------------------------------------------------------------------- */

static bool meet(const struct gap__plan_block *a, const struct gap__plan_block *b) {
  return a->from < b->to && b->from < a->to;
}

/* Blocks are in order of birth: those that meet b and come later are born before it ends. */
static size_t list_near(struct gap__pile *pile, uint32_t *near) {
  size_t count = 0;
  for (uint32_t b = 0; b < pile->count; b++) {
    if (near) pile->near_start[b] = (uint32_t)count;
    for (uint32_t other = 0; other < pile->count && pile->at[other].from < pile->at[b].to; other++) {
      if (other == b || !meet(&pile->at[b], &pile->at[other])) continue;
      if (near) near[count] = other;
      count++;
    }
  }
  if (near) pile->near_start[pile->count] = (uint32_t)count;
  return count;
}

static size_t sum_of_lives(const struct gap__plan_problem *problem) {
  size_t sum = 0;
  for (uint32_t b = 0; b < problem->count; b++) sum += problem->at[b].to - problem->at[b].from;
  return sum;
}

static void list_members(struct gap__pile *pile) {
  uint32_t *start = pile->member_start;
  memset(start, 0, ((size_t)pile->section_count + 2) * sizeof *start);
  for (uint32_t b = 0; b < pile->count; b++)
    for (uint32_t s = pile->at[b].from; s < pile->at[b].to; s++) start[s + 2]++;
  for (uint32_t s = 0; s < pile->section_count; s++) start[s + 2] += start[s + 1];
  for (uint32_t b = 0; b < pile->count; b++)
    for (uint32_t s = pile->at[b].from; s < pile->at[b].to; s++) pile->members[start[s + 1]++] = b;
}

static void list_first(struct gap__pile *pile) {
  uint32_t b = 0;
  for (uint32_t s = 0; s <= pile->section_count; s++) {
    while (b < pile->count && pile->at[b].from < s) b++;
    pile->first[s] = b;
  }
}

static void fill(struct gap__pile *pile) {
  for (uint32_t b = 0; b < pile->count; b++) {
    pile->size[b] = (uint32_t)pile->at[b].size;
    for (uint32_t s = pile->at[b].from; s < pile->at[b].to; s++) {
      pile->left[s] += pile->size[b];
      pile->crossing[s] += s > pile->at[b].from;
      pile->witness[s] = b;
    }
  }
}

static bool allocate(struct gap__pile *pile, size_t near_count, size_t member_count) {
  size_t blocks = (size_t)pile->count + 1, sections = (size_t)pile->section_count + 2;
  pile->size = malloc(blocks * sizeof *pile->size);
  pile->near = malloc((near_count + 1) * sizeof *pile->near);
  pile->near_start = malloc(blocks * sizeof *pile->near_start);
  pile->members = malloc((member_count + 1) * sizeof *pile->members);
  pile->member_start = malloc(sections * sizeof *pile->member_start);
  pile->first = malloc(sections * sizeof *pile->first);
  pile->low = calloc(blocks, sizeof *pile->low);
  pile->left = calloc(sections, sizeof *pile->left);
  pile->crossing = calloc(sections, sizeof *pile->crossing);
  pile->placed = malloc(blocks * sizeof *pile->placed);
  pile->offset = malloc(blocks * sizeof *pile->offset);
  pile->changes = malloc((near_count + blocks) * sizeof *pile->changes); /* each placement raises its neighbours */
  pile->witness = malloc(sections * sizeof *pile->witness);
  return pile->size && pile->near && pile->near_start && pile->members && pile->member_start && pile->first &&
         pile->low && pile->left && pile->crossing && pile->placed && pile->offset && pile->changes && pile->witness;
}

int gap__pile_open(struct gap__pile *pile, const struct gap__plan_problem *problem, uint64_t target) {
  *pile = (struct gap__pile){
      .count = problem->count, .section_count = problem->moments, .target = (uint32_t)target, .at = problem->at};
  size_t near_count = list_near(pile, NULL);
  if (!allocate(pile, near_count, sum_of_lives(problem))) {
    gap__pile_close(pile);
    return GAP_ENOMETA;
  }
  list_near(pile, pile->near);
  list_members(pile);
  list_first(pile);
  fill(pile);
  return 0;
}

void gap__pile_close(struct gap__pile *pile) {
  free(pile->size);
  free(pile->near);
  free(pile->near_start);
  free(pile->members);
  free(pile->member_start);
  free(pile->first);
  free(pile->low);
  free(pile->left);
  free(pile->crossing);
  free(pile->placed);
  free(pile->offset);
  free(pile->changes);
  free(pile->witness);
  *pile = (struct gap__pile){0};
}

/* ---- placing ------------------------------------------------------------------------------------------------------- */

static void set_low(struct gap__pile *pile, uint32_t block, uint32_t low) {
  pile->changes[pile->change_count++] = (struct gap__pile_change){block, pile->low[block]};
  pile->low[block] = low;
}

static bool find_witness(struct gap__pile *pile, uint32_t section) {
  uint32_t limit = gap__pile_limit(pile, section);
  for (uint32_t i = pile->member_start[section]; i < pile->member_start[section + 1]; i++) {
    pile->witness[section] = pile->members[i];
    if (pile->low[pile->members[i]] <= limit) return true;
  }
  return false;
}

struct window { /* of sections */
  uint32_t from, to;
};

static bool have_room(struct gap__pile *pile, struct window window) {
  for (uint32_t s = window.from; s < window.to; s++) {
    if (pile->left[s] == 0 || pile->low[pile->witness[s]] <= gap__pile_limit(pile, s) || find_witness(pile, s))
      continue;
    pile->tight = s;
    return false;
  }
  return true;
}

/* Where one block found no room the next one mostly finds none either: asked before anything else. */
static bool has_room_where_tight(const struct gap__pile *pile, uint32_t block) {
  const struct gap__plan_block *placed = &pile->at[block];
  uint32_t s = pile->tight, limit = gap__pile_limit(pile, s), end = pile->offset[block] + pile->size[block];
  for (uint32_t i = pile->member_start[s]; i < pile->member_start[s + 1]; i++) {
    uint32_t other = pile->members[i];
    if (pile->low[other] > limit || other == block) continue;
    if (end <= limit || !meet(&pile->at[other], placed)) return true;
  }
  return pile->left[s] == 0;
}

/* The cheapest of bounds: room above the block for what must lie on it. */
static bool has_room_above(const struct gap__pile *pile, uint32_t block) {
  uint32_t most = 0;
  for (uint32_t s = pile->at[block].from; s < pile->at[block].to; s++)
    if (pile->left[s] > most) most = pile->left[s];
  return pile->offset[block] + pile->size[block] <= pile->target - most;
}

/* What meets the block now lies above it.  The window is where blocks have risen. */
static struct window raise_near(struct gap__pile *pile, uint32_t block) {
  struct window window = {pile->at[block].from, pile->at[block].to};
  uint32_t end = pile->offset[block] + pile->size[block];
  for (uint32_t i = pile->near_start[block]; i < pile->near_start[block + 1]; i++) {
    uint32_t other = pile->near[i];
    if (pile->low[other] >= end) continue; /* placed ones are gone, and so above */
    uint64_t low = gap__plan_align(end, pile->at[other].align);
    set_low(pile, other, low < GAP__PILE_TARGET_MAX ? (uint32_t)low : GAP__PILE_TARGET_MAX);
    if (pile->at[other].from < window.from) window.from = pile->at[other].from;
    if (pile->at[other].to > window.to) window.to = pile->at[other].to;
  }
  return window;
}

static void shift(struct gap__pile *pile, uint32_t block, bool out) {
  const struct gap__plan_block *at = &pile->at[block];
  uint32_t size = out ? -pile->size[block] : pile->size[block], one = out ? (uint32_t)-1 : 1;
  for (uint32_t s = at->from; s < at->to; s++) pile->left[s] += size;
  for (uint32_t s = at->from + 1; s < at->to; s++) pile->crossing[s] += one;
}

bool gap__pile_place(struct gap__pile *pile, uint32_t block) {
  pile->offset[block] = pile->low[block];
  pile->placed[pile->placed_count++] = block;
  shift(pile, block, true);
  if (!has_room_above(pile, block) || !has_room_where_tight(pile, block)) return false;
  set_low(pile, block, GAP__PILE_GONE);
  return have_room(pile, raise_near(pile, block));
}

void gap__pile_take_back(struct gap__pile *pile, struct gap__pile_mark mark) {
  while (pile->change_count > mark.changes) {
    struct gap__pile_change change = pile->changes[--pile->change_count];
    pile->low[change.block] = change.old;
  }
  while (pile->placed_count > mark.placed) shift(pile, pile->placed[--pile->placed_count], false);
}
