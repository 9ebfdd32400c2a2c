#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "plan/pile.h"
#include "plan/ranking.h"

enum { LOOK_EVERY = 1024, LEVELS = 40, FEW = 48 };

struct choice {
  uint32_t offset, rank, block;
};

struct search {
  struct gap__pile pile;
  struct gap__rankings rankings;
  const uint32_t *rank;   /* of each block, in this run */
  uint32_t *disturbed;    /* where disturbed ones are kept */
  uint32_t servers_most;  /* an urgent section decides what comes next when so many blocks or fewer can serve it */
  struct choice *choices; /* a stack, as deep as the search */
  size_t choice_count;
  uint64_t nodes, budget;
  bool gave_up;
  const struct gap__plan_clock *clock;
  uint64_t until_ms;
};

/* The unplaced blocks of sections [from, to).  Whatever comes next lies at `offset` or above, and at `offset` only with this
 * rank or a later one. */
struct node {
  uint32_t from, to;
  uint32_t offset, rank;
};

static bool is_spent(struct search *search) {
  search->nodes++;
  if (search->nodes >= search->budget) search->gave_up = true;
  if (search->nodes % LOOK_EVERY == 0 && gap__plan_is_late(search->clock, search->until_ms)) search->gave_up = true;
  return search->gave_up;
}

/* Was this block passed over?  Then another must raise it. */
static bool is_sunk(const struct search *search, const struct node *node, uint32_t block) {
  uint32_t low = search->pile.low[block];
  return low < node->offset || (low == node->offset && search->rank[block] < node->rank);
}

/* ---- what a node knows --------------------------------------------------------------------------------------------- */

struct view {
  uint32_t next;     /* the lowest offset of a block that is not sunk; GAP__PILE_GONE: there is none */
  uint32_t smallest; /* size of an unplaced block; GAP__PILE_GONE: all are placed */
  uint32_t end;      /* the lowest at which an unplaced block could end: whatever comes next begins below */
  uint32_t limit;    /* no block can lie higher and still be the lowest of the most crowded section */
};

static struct view view_of(const struct search *search, const struct node *node) {
  const struct gap__pile *pile = &search->pile;
  struct view view = {GAP__PILE_GONE, GAP__PILE_GONE, GAP__PILE_GONE, pile->target};
  for (uint32_t b = pile->first[node->from]; b < pile->first[node->to]; b++) {
    uint32_t low = pile->low[b], size = pile->size[b];
    if (low == GAP__PILE_GONE) continue;
    if (size < view.smallest) view.smallest = size;
    if (low + size < view.end) view.end = low + size;
    if (low < view.next && !is_sunk(search, node, b)) view.next = low;
  }
  for (uint32_t s = node->from; s < node->to; s++)
    if (gap__pile_limit(pile, s) < view.limit) view.limit = gap__pile_limit(pile, s);
  return view;
}

/* ---- choices ------------------------------------------------------------------------------------------------------- */

static int by_choice(const void *a, const void *b) {
  const struct choice *left = a, *right = b;
  if (left->offset != right->offset) return left->offset < right->offset ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Those above `first` on the stack.  They are few, but for the first ones of all. */
static void sort_choices(struct search *search, size_t first) {
  struct choice *choices = search->choices + first;
  size_t count = search->choice_count - first;
  if (count > FEW) qsort(choices, count, sizeof *choices, by_choice);
  for (size_t i = 1; i < count && count <= FEW; i++) {
    struct choice choice = choices[i];
    size_t j = i;
    for (; j > 0 && by_choice(&choice, &choices[j - 1]) < 0; j--) choices[j] = choices[j - 1];
    choices[j] = choice;
  }
}

static void push(struct search *search, uint32_t block) {
  search->choices[search->choice_count++] = (struct choice){search->pile.low[block], search->rank[block], block};
}

/* Blocks that can be the lowest of a section. */
static uint32_t count_servers(const struct search *search, const struct node *node, uint32_t section) {
  const struct gap__pile *pile = &search->pile;
  uint32_t count = 0, limit = gap__pile_limit(pile, section);
  for (uint32_t i = pile->member_start[section]; i < pile->member_start[section + 1]; i++)
    count += pile->low[pile->members[i]] <= limit && !is_sunk(search, node, pile->members[i]);
  return count;
}

/* The section that is served by the fewest, if these are few: its lowest block must come before any that is raised. */
static bool find_urgent(const struct search *search, const struct node *node, const struct view *view,
                        uint32_t *urgent) {
  const struct gap__pile *pile = &search->pile;
  uint32_t fewest = search->servers_most + 1, raised = view->next + view->smallest;
  if (view->limit >= raised) return false;
  for (uint32_t s = node->from; s < node->to && fewest > 1; s++) {
    if (pile->left[s] == 0 || gap__pile_limit(pile, s) >= raised) continue;
    uint32_t count = count_servers(search, node, s);
    if (count >= fewest) continue;
    fewest = count;
    *urgent = s;
  }
  return fewest <= search->servers_most;
}

static void list_servers(struct search *search, const struct node *node, uint32_t section) {
  const struct gap__pile *pile = &search->pile;
  size_t first = search->choice_count;
  uint32_t limit = gap__pile_limit(pile, section);
  for (uint32_t i = pile->member_start[section]; i < pile->member_start[section + 1]; i++) {
    uint32_t block = pile->members[i];
    if (pile->low[block] <= limit && !is_sunk(search, node, block)) push(search, block);
  }
  sort_choices(search, first);
}

static bool comes_after(const struct search *search, const struct choice *choice, uint32_t block) {
  uint32_t low = search->pile.low[block];
  return low > choice->offset || (low == choice->offset && search->rank[block] > choice->rank);
}

/* Could a block that was passed over be raised so little that it ends up below `end`?  One that is sunk too may be raised. */
static bool may_rise(const struct search *search, const struct choice *choice, uint32_t block, uint32_t end) {
  const struct gap__pile *pile = &search->pile;
  for (uint32_t i = pile->near_start[block]; i < pile->near_start[block + 1]; i++) {
    uint32_t other = pile->near[i];
    if (pile->low[other] == GAP__PILE_GONE || other == choice->block) continue;
    uint32_t low = comes_after(search, choice, other) ? pile->low[other] : choice->offset + 1;
    if (low + pile->size[other] < end) return true;
  }
  return false;
}

/* Could an unplaced block still come below this one, once that has been passed over, but not so high that it fits between? */
static bool may_be_raised(const struct search *search, const struct choice *choice) {
  const struct gap__pile *pile = &search->pile;
  const uint32_t *near = pile->near + pile->near_start[choice->block];
  uint32_t count = pile->near_start[choice->block + 1] - pile->near_start[choice->block];
  uint32_t end = choice->offset + pile->size[choice->block];
  for (uint32_t i = 0; i < count; i++)
    if (pile->low[near[i]] < end && comes_after(search, choice, near[i])) return true;
  for (uint32_t i = 0; i < count; i++)
    if (pile->low[near[i]] < end && may_rise(search, choice, near[i], end)) return true;
  return false;
}

static void list_choices(struct search *search, const struct node *node, const struct view *view) {
  const struct gap__pile *pile = &search->pile;
  size_t first = search->choice_count;
  for (uint32_t b = pile->first[node->from]; b < pile->first[node->to]; b++)
    if (pile->low[b] < view->end && pile->low[b] <= view->limit && !is_sunk(search, node, b)) push(search, b);
  sort_choices(search, first);
  for (size_t i = first; i < search->choice_count; i++)
    if (!may_be_raised(search, &search->choices[i])) search->choice_count = i + 1;
}

/* ---- the search ---------------------------------------------------------------------------------------------------- */

static bool solve(struct search *search, struct node node);

/* Splits a node where nothing reaches over any more, after changes in `window`, and searches the parts. */
static bool solve_apart(struct search *search, struct node node, uint32_t from, uint32_t to) {
  struct node part = node;
  for (uint32_t s = from + 1; s < to; s++) {
    if (search->pile.crossing[s]) continue;
    part.to = s;
    if (!solve(search, part)) return false;
    part.from = s;
  }
  part.to = node.to;
  return solve(search, part);
}

/* What is tried in order, one of which must come next.  Those that serve a section exclude each other, so that nothing is
 * passed over. */
static bool list(struct search *search, struct node *node, const struct view *view) {
  uint32_t urgent = 0;
  if (!find_urgent(search, node, view, &urgent)) {
    list_choices(search, node, view);
    return false;
  }
  list_servers(search, node, urgent);
  if (view->next > node->offset) *node = (struct node){node->from, node->to, view->next, 0};
  return true;
}

static bool solve(struct search *search, struct node node) {
  struct view view = view_of(search, &node);
  if (view.smallest == GAP__PILE_GONE) return true;
  if (is_spent(search) || view.next == GAP__PILE_GONE) return false;
  struct gap__pile_mark mark = gap__pile_mark(&search->pile);
  size_t first = search->choice_count;
  bool urgent = list(search, &node, &view), found = false;
  size_t last = search->choice_count;
  for (size_t i = first; i < last && !found && !search->gave_up; i++) {
    struct choice choice = search->choices[i];
    const struct gap__plan_block *block = &search->pile.at[choice.block];
    if (!urgent) node = (struct node){node.from, node.to, choice.offset, choice.rank};
    found = gap__pile_place(&search->pile, choice.block) && solve_apart(search, node, block->from, block->to);
    if (!found) gap__pile_take_back(&search->pile, mark);
  }
  search->choice_count = first;
  return found;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

static enum gap__plan_answer run(struct search *search, const uint32_t *rank, uint32_t servers_most, uint64_t budget) {
  struct node all = {0, search->pile.section_count, 0, 0};
  search->rank = rank;
  search->servers_most = servers_most;
  search->budget = search->nodes + budget;
  search->gave_up = false;
  if (solve_apart(search, all, all.from, all.to)) return GAP__PLAN_FOUND;
  return search->gave_up ? GAP__PLAN_UNKNOWN : GAP__PLAN_NONE;
}

/* 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ...; index from 1. */
static uint64_t luby(uint64_t index) {
  uint64_t power = 1;
  while (power - 1 < index) power *= 2;
  while (power - 1 != index) {
    if (power / 2 - 1 < index) index -= power / 2 - 1;
    power /= 2;
  }
  return power / 2;
}

static bool is_over(const struct search *search, enum gap__plan_answer answer) {
  return answer != GAP__PLAN_UNKNOWN || gap__plan_is_late(search->clock, search->until_ms);
}

static uint32_t servers_of(uint64_t number) { return number % 2 ? UINT32_MAX - 1 : 2; }

/* Each plain ranking with the level's budget, then three times as many nodes with disturbed ones. */
static int run_level(struct search *search, unsigned level, uint64_t *index, enum gap__plan_answer *answer) {
  uint64_t began = search->nodes, unit = 1000 + 2 * (uint64_t)search->pile.count;
  for (uint32_t i = 0; i < search->rankings.count && !is_over(search, *answer); i++)
    *answer = run(search, gap__rankings_plain(&search->rankings, i), servers_of(level), unit << level);
  uint64_t end = search->nodes + 3 * (search->nodes - began);
  while (search->nodes < end && !is_over(search, *answer)) {
    int rc = gap__rankings_disturbed(&search->rankings, search->disturbed);
    if (rc) return rc;
    *answer =
        run(search, search->disturbed, servers_of(gap__rankings_random(&search->rankings)), unit * luby(++*index));
  }
  return 0;
}

static int open_search(struct search *search, const struct gap__plan_problem *problem, uint64_t target, uint64_t seed) {
  size_t count = problem->count + 1;
  search->choices = malloc(count * (count + 1) / 2 * sizeof *search->choices);
  search->disturbed = malloc(count * sizeof *search->disturbed);
  int rc = search->choices && search->disturbed ? 0 : GAP_ENOMETA;
  if (!rc) rc = gap__rankings_open(&search->rankings, problem, seed);
  if (!rc) rc = gap__pile_open(&search->pile, problem, target);
  return rc;
}

static void close_search(struct search *search) {
  gap__pile_close(&search->pile);
  gap__rankings_close(&search->rankings);
  free(search->choices);
  free(search->disturbed);
}

int gap__plan_exact(const struct gap__plan_problem *problem, uint64_t target, uint64_t seed,
                    const struct gap__plan_clock *clock, uint64_t until_ms, uint64_t *offsets,
                    enum gap__plan_answer *answer) {
  struct search search = {.clock = clock, .until_ms = until_ms};
  uint64_t bound, index = 0;
  *answer = GAP__PLAN_UNKNOWN;
  if (problem->count > GAP__PLAN_EXACT_BLOCKS_MAX || target > GAP__PILE_TARGET_MAX) return 0;
  int rc = gap__plan_bound(problem, &bound);
  if (!rc && target < bound) *answer = GAP__PLAN_NONE;
  if (rc || target < bound) return rc;
  rc = open_search(&search, problem, target, seed);
  for (unsigned level = 0; !rc && level < LEVELS && !is_over(&search, *answer); level++)
    rc = run_level(&search, level, &index, answer);
  for (uint32_t b = 0; *answer == GAP__PLAN_FOUND && b < problem->count; b++) offsets[b] = search.pile.offset[b];
  close_search(&search);
  return rc;
}
