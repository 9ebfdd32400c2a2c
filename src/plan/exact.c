#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

enum { RANKINGS = 5, LOOK_EVERY = 1024, BUDGET_FIRST = 512 };

struct piece { /* a block, in the order of the present ranking; its rank is its index */
  uint64_t size, align;
  uint32_t from, to; /* sections */
  uint32_t block;
};

struct open_piece { /* one that is not placed yet, and the lowest offset that is left to it */
  uint64_t low;
  uint32_t rank, from, to; /* sections, as in its piece */
};

struct section {        /* the time between two neighbouring moments at which a block begins or ends */
  uint64_t floor, left; /* highest end of the placed blocks; sum of the others */
};

struct choice {
  uint64_t offset;
  uint32_t rank, position; /* in the node's list */
};

struct search {
  struct piece *pieces;
  uint32_t count, section_count;
  uint32_t tight; /* the section that last had no room */
  uint64_t target;
  uint64_t *placed; /* of each rank */
  struct section *sections;
  uint64_t *least; /* scratch, a section each: the lowest offset that an unplaced block there can have */
  /* stacks, as deep as the search */
  struct open_piece *open;
  struct choice *choices;
  uint64_t *floors;
  size_t open_top, choice_top, floor_top;
  size_t open_room, floor_room;
  const struct gap__plan_clock *clock;
  uint64_t until_ms, nodes, budget;
  bool gave_up;
};

/* Unplaced blocks of a stretch of sections, the last block placed below them, and where their list lies in search.open. */
struct node {
  size_t first;
  uint32_t count;
  uint64_t offset;
  uint32_t rank;
};

/* ---- bounds -------------------------------------------------------------------------------------------------------- */

static bool is_spent(struct search *search) {
  search->nodes++;
  if (search->nodes >= search->budget) search->gave_up = true;
  if (search->nodes % LOOK_EVERY == 0 && gap__plan_is_late(search->clock, search->until_ms)) search->gave_up = true;
  return search->gave_up;
}

struct window { /* of sections */
  uint32_t from, to;
};

/* Where a choice changes more than that everything lies above its foot: all that blocks which meet it reach. */
static struct window window_of(const struct search *search, const struct open_piece *open, uint32_t count,
                               uint32_t rank) {
  const struct piece *placed = &search->pieces[rank];
  struct window window = {placed->from, placed->to};
  for (uint32_t i = 0; i < count; i++) {
    if (open[i].from >= placed->to || placed->from >= open[i].to) continue;
    if (open[i].from < window.from) window.from = open[i].from;
    if (open[i].to > window.to) window.to = open[i].to;
  }
  return window;
}

/* Does every section of the window have room for its unplaced blocks, the lowest of which lies no lower than any may? */
static bool has_room(struct search *search, const struct open_piece *open, uint32_t count, struct window window) {
  for (uint32_t s = window.from; s < window.to; s++) search->least[s] = UINT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t from = open[i].from > window.from ? open[i].from : window.from;
    uint32_t to = open[i].to < window.to ? open[i].to : window.to;
    for (uint32_t s = from; s < to; s++)
      if (open[i].low < search->least[s]) search->least[s] = open[i].low;
  }
  for (uint32_t s = window.from; s < window.to; s++)
    if (search->least[s] != UINT64_MAX && search->least[s] + search->sections[s].left > search->target) {
      search->tight = s;
      return false;
    }
  return true;
}

/* ---- placing and taking back --------------------------------------------------------------------------------------- */

static void place(struct search *search, uint32_t rank, uint64_t offset) {
  const struct piece *piece = &search->pieces[rank];
  search->placed[rank] = offset;
  for (uint32_t s = piece->from; s < piece->to; s++) search->sections[s].left -= piece->size;
}

static void take_back(struct search *search, uint32_t rank) {
  const struct piece *piece = &search->pieces[rank];
  search->placed[rank] = GAP__PLAN_UNPLACED;
  for (uint32_t s = piece->from; s < piece->to; s++) search->sections[s].left += piece->size;
}

static bool is_hatless(const struct search *search, const struct piece *piece) {
  for (uint32_t s = piece->from; s < piece->to; s++)
    if (search->sections[s].left) return false;
  return true;
}

/* The unplaced blocks after a choice, with their lowest offsets raised, on top of the stack. */
static void push_open(struct search *search, const struct node *node, const struct choice *choice) {
  const struct piece *placed = &search->pieces[choice->rank];
  uint64_t end = choice->offset + placed->size;
  for (uint32_t i = 0; i < node->count; i++) {
    struct open_piece open = search->open[node->first + i];
    if (i == choice->position) continue;
    uint64_t low = open.from < placed->to && placed->from < open.to ? end : choice->offset;
    if (low > open.low) open.low = gap__plan_align(low, search->pieces[open.rank].align);
    search->open[search->open_top++] = open;
  }
}

/* ---- the search ---------------------------------------------------------------------------------------------------- */

static int by_choice(const void *a, const void *b) {
  const struct choice *left = a, *right = b;
  if (left->offset != right->offset) return left->offset < right->offset ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Whatever comes next lies no lower than its predecessor, so the most crowded section bounds it. */
static uint64_t highest_next(const struct search *search, const struct node *node) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < node->count; i++) {
    uint32_t from = search->open[node->first + i].from;
    if (search->sections[from].left > most) most = search->sections[from].left;
  }
  return search->target - most;
}

static uint32_t list_choices(struct search *search, const struct node *node) {
  uint64_t ceiling = highest_next(search, node) + 1;
  struct choice *choices = search->choices + search->choice_top;
  uint32_t count = 0;
  for (uint32_t i = 0; i < node->count; i++) {
    const struct open_piece *open = &search->open[node->first + i];
    uint64_t end = open->low + search->pieces[open->rank].size;
    if (end < ceiling) ceiling = end;
  }
  for (uint32_t i = 0; i < node->count; i++) {
    const struct open_piece *open = &search->open[node->first + i];
    if (open->low >= ceiling || (open->low == node->offset && open->rank < node->rank)) continue;
    choices[count++] = (struct choice){open->low, open->rank, i};
  }
  qsort(choices, count, sizeof *choices, by_choice);
  return count;
}

static bool solve(struct search *search, struct node node);

/* Splits a list, sorted by first section, where nothing reaches over, and searches the parts. */
static bool solve_apart(struct search *search, const struct node *node) {
  struct open_piece *open = search->open + node->first;
  uint32_t start = 0, reach = 0;
  for (uint32_t i = 0; i <= node->count; i++) {
    const struct piece *piece = i < node->count ? &search->pieces[open[i].rank] : NULL;
    if (i > start && (!piece || piece->from >= reach)) {
      struct node part = {node->first + start, i - start, node->offset, node->rank};
      if (!solve(search, part)) return false;
      start = i;
    }
    if (piece && piece->to > reach) reach = piece->to;
  }
  return true;
}

static void forget(struct search *search, const struct node *node) {
  for (uint32_t i = 0; i < node->count; i++) {
    uint32_t rank = search->open[node->first + i].rank;
    if (search->placed[rank] != GAP__PLAN_UNPLACED) take_back(search, rank);
  }
}

/* The cheapest of bounds: is there room above the block just placed for what must lie on it? */
static bool has_room_above(const struct search *search, uint32_t rank, uint64_t offset) {
  const struct piece *piece = &search->pieces[rank];
  uint64_t most = 0;
  for (uint32_t s = piece->from; s < piece->to; s++)
    if (search->sections[s].left > most) most = search->sections[s].left;
  return offset + piece->size + most <= search->target;
}

/* Where one choice found no room the next one mostly finds none either: asked before anything is copied. */
static bool has_room_where_tight(const struct search *search, const struct node *node, const struct choice *choice) {
  const struct piece *placed = &search->pieces[choice->rank];
  uint64_t least = UINT64_MAX, end = choice->offset + placed->size;
  for (uint32_t i = 0; i < node->count; i++) {
    const struct open_piece *open = &search->open[node->first + i];
    if (open->from > search->tight || open->to <= search->tight || i == choice->position) continue;
    uint64_t foot = open->from < placed->to && placed->from < open->to ? end : choice->offset;
    uint64_t low = open->low > foot ? open->low : foot;
    if (low < least) least = low;
  }
  return least == UINT64_MAX || least + search->sections[search->tight].left <= search->target;
}

/* One choice and all that follows from it. */
static bool try_choice(struct search *search, const struct node *node, const struct choice *choice) {
  size_t top = search->open_top;
  place(search, choice->rank, choice->offset);
  if (!has_room_above(search, choice->rank, choice->offset) || !has_room_where_tight(search, node, choice))
    return false;
  push_open(search, node, choice);
  struct node rest = {top, node->count - 1, choice->offset, choice->rank};
  struct window window = window_of(search, search->open + top, rest.count, choice->rank);
  bool found = has_room(search, search->open + top, rest.count, window) && solve_apart(search, &rest);
  search->open_top = top;
  return found;
}

static bool solve(struct search *search, struct node node) {
  if (node.count == 0) return true;
  if (is_spent(search)) return false;
  size_t top = search->choice_top;
  uint32_t count = list_choices(search, &node);
  bool found = false, hatless = false;
  search->choice_top += count;
  for (uint32_t i = 0; i < count && !found && !hatless && !search->gave_up; i++) {
    const struct choice choice = search->choices[top + i];
    found = try_choice(search, &node, &choice);
    if (found) break;
    hatless = is_hatless(search, &search->pieces[choice.rank]);
    forget(search, &node);
  }
  search->choice_top = top;
  return found;
}

/* ---- setting up ---------------------------------------------------------------------------------------------------- */

struct ranked {
  double keys[3]; /* highest first, the first one first */
  uint32_t block;
};

static int by_keys(const void *a, const void *b) {
  const struct ranked *left = a, *right = b;
  for (int i = 0; i < 3; i++)
    if (left->keys[i] != right->keys[i]) return left->keys[i] > right->keys[i] ? -1 : 1;
  return left->block < right->block ? -1 : left->block > right->block;
}

/* The most that lives at any moment of a block's life. */
static uint64_t crowd_of(const struct search *search, const struct gap__plan_block *block) {
  uint64_t most = 0;
  for (uint32_t s = block->from; s < block->to; s++)
    if (search->sections[s].left > most) most = search->sections[s].left;
  return most;
}

static struct ranked ranked(const struct search *search, const struct gap__plan_block *block, uint32_t index,
                            unsigned ranking) {
  double crowd = (double)crowd_of(search, block), length = (double)(block->to - block->from),
         size = (double)block->size;
  switch (ranking % RANKINGS) {
    case 0: return (struct ranked){{crowd, length * size, length}, index};
    case 1: return (struct ranked){{crowd, length, length * size}, index};
    case 2: return (struct ranked){{length, length * size, crowd}, index};
    case 3: return (struct ranked){{length * size, length, crowd}, index};
    default: return (struct ranked){{size, length, crowd}, index};
  }
}

static void fill_sections(struct search *search, const struct gap__plan_problem *problem) {
  memset(search->sections, 0, search->section_count * sizeof *search->sections);
  for (uint32_t i = 0; i < search->count; i++)
    for (uint32_t s = problem->at[i].from; s < problem->at[i].to; s++) search->sections[s].left += problem->at[i].size;
}

static int rank(struct search *search, const struct gap__plan_problem *problem, unsigned ranking) {
  struct ranked *order = malloc((problem->count + 1) * sizeof *order);
  if (!order) return GAP_ENOMETA;
  for (uint32_t i = 0; i < problem->count; i++) order[i] = ranked(search, &problem->at[i], i, ranking);
  qsort(order, problem->count, sizeof *order, by_keys);
  for (uint32_t i = 0; i < problem->count; i++) {
    const struct gap__plan_block *block = &problem->at[order[i].block];
    search->pieces[i] = (struct piece){block->size, block->align, block->from, block->to, order[i].block};
  }
  free(order);
  return 0;
}

/* Everything unplaced, in the problem's order, which is that of first sections. */
static void reset(struct search *search) {
  uint32_t *rank_of = (uint32_t *)search->choices; /* scratch: as many words as blocks fit well */
  for (uint32_t i = 0; i < search->count; i++) {
    search->placed[i] = GAP__PLAN_UNPLACED;
    rank_of[search->pieces[i].block] = i;
  }
  for (uint32_t i = 0; i < search->count; i++) {
    const struct piece *piece = &search->pieces[rank_of[i]];
    search->open[i] = (struct open_piece){0, rank_of[i], piece->from, piece->to};
  }
  search->open_top = search->count;
  search->choice_top = 0;
  search->nodes = 0;
  search->gave_up = false;
}

static int open_search(struct search *search, const struct gap__plan_problem *problem) {
  size_t count = problem->count + 1, deep = count * (count + 1) / 2 + count;
  search->count = problem->count;
  search->section_count = problem->moments + 1;
  search->pieces = malloc(count * sizeof *search->pieces);
  search->placed = malloc(count * sizeof *search->placed);
  search->sections = malloc(search->section_count * sizeof *search->sections);
  search->least = malloc(search->section_count * sizeof *search->least);
  search->open = malloc(deep * sizeof *search->open);
  search->choices = malloc(deep * sizeof *search->choices);
  bool ok = search->pieces && search->placed && search->sections && search->least && search->open && search->choices;
  return ok ? 0 : GAP_ENOMETA;
}

static void close_search(struct search *search) {
  free(search->pieces);
  free(search->placed);
  free(search->sections);
  free(search->least);
  free(search->open);
  free(search->choices);
}

static enum gap__plan_answer run(struct search *search, uint64_t *offsets) {
  struct node all = {0, search->count, 0, 0};
  if (!has_room(search, search->open, search->count, (struct window){0, search->section_count})) return GAP__PLAN_NONE;
  if (!solve_apart(search, &all)) return search->gave_up ? GAP__PLAN_UNKNOWN : GAP__PLAN_NONE;
  for (uint32_t i = 0; i < search->count; i++) offsets[search->pieces[i].block] = search->placed[i];
  return GAP__PLAN_FOUND;
}

int gap__plan_exact(const struct gap__plan_problem *problem, uint64_t target, const struct gap__plan_clock *clock,
                    uint64_t until_ms, uint64_t *offsets, enum gap__plan_answer *answer) {
  struct search search = {.target = target, .clock = clock, .until_ms = until_ms};
  *answer = GAP__PLAN_UNKNOWN;
  if (problem->count > GAP__PLAN_EXACT_BLOCKS_MAX) return 0;
  int rc = open_search(&search, problem);
  uint64_t budget = BUDGET_FIRST;
  for (unsigned round = 0; !rc && *answer == GAP__PLAN_UNKNOWN && !gap__plan_is_late(clock, until_ms); round++) {
    fill_sections(&search, problem);
    rc = rank(&search, problem, round);
    if (rc) break;
    reset(&search);
    search.budget = budget;
    *answer = run(&search, offsets);
    if (round % RANKINGS == RANKINGS - 1) budget *= 2;
  }
  close_search(&search);
  return rc;
}
