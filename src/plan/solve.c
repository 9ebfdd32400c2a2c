#include "plan/solve.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "plan/eject.h"
#include "plan/exact.h"
#include "plan/wheel.h"

enum { TURNS = 16 };

struct solver {
  const struct gap__plan_problem *problem;
  const struct gap__plan_clock *clock;
  struct gap__plan_solution *solution;
  struct gap__board board;
  uint64_t target; /* good enough */
  uint64_t proved; /* nothing lower exists */
  uint64_t tries;  /* of exact search: each has a seed of its own */
};

static bool is_done(const struct solver *solver) {
  return solver->solution->height <= solver->target || gap__plan_is_late(solver->clock, UINT64_MAX);
}

/* A share of the time that is left. */
static uint64_t until(const struct solver *solver, double share) {
  uint64_t now = gap__plan_elapsed_ms(solver->clock), limit = solver->clock->limit_ms;
  return limit > now ? now + (uint64_t)((double)(limit - now) * share) : now;
}

static void note(struct solver *solver, const char *method, uint64_t before) {
  if (solver->solution->height < before) solver->solution->method = method;
}

/* ---- greedy -------------------------------------------------------------------------------------------------------- */

static int try_order(struct solver *solver, enum gap__plan_order order, double *keys, uint32_t *indices) {
  const struct gap__plan_problem *problem = solver->problem;
  struct gap__plan_solution *solution = solver->solution;
  gap__plan_order_keys(&solver->board, order, keys);
  for (uint32_t i = 0; i < problem->count; i++) indices[i] = i;
  int rc = gap__plan_order_sort(keys, indices, problem->count);
  if (rc) return rc;
  gap__board_clear(&solver->board);
  uint64_t height = gap__plan_order_place(&solver->board, indices, problem->count);
  if (height >= solution->height) return 0;
  solution->height = solution->greedy_height = height;
  solution->greedy_order = order;
  memcpy(solution->offsets, solver->board.offsets, problem->count * sizeof *solution->offsets);
  return 0;
}

/* The first order always runs to its end: there is a placement whatever the time limit. */
static int greedy(struct solver *solver) {
  double *keys = malloc((solver->problem->count + 1) * sizeof *keys);
  uint32_t *indices = malloc((solver->problem->count + 1) * sizeof *indices);
  int rc = keys && indices ? 0 : GAP_ENOMETA;
  solver->solution->method = "greedy";
  for (int order = 0; !rc && order < GAP__PLAN_ORDER_COUNT; order++) {
    if (order > 0 && (is_done(solver) || gap__plan_is_late(solver->clock, solver->clock->limit_ms / 3))) break;
    rc = try_order(solver, (enum gap__plan_order)order, keys, indices);
  }
  free(keys);
  free(indices);
  return rc;
}

/* ---- improvement --------------------------------------------------------------------------------------------------- */

static int reorder(struct solver *solver, unsigned round, uint64_t until_ms) {
  static const double shares[] = {0.9, 0.97, 0.75, 0.5};
  struct gap__wheel wheel;
  enum gap__plan_order order = round % 2 ? solver->solution->greedy_order : GAP__PLAN_BY_SIZE;
  uint64_t before = solver->solution->height;
  int rc = gap__wheel_open(&wheel, &solver->board, order, solver->target, shares[round % 4], round + 1);
  if (!rc) rc = gap__wheel_turn(&wheel, solver->clock, until_ms, solver->solution->offsets, &solver->solution->height);
  gap__wheel_close(&wheel);
  note(solver, "reordering", before);
  return rc;
}

/* Ejection towards the target, else halfway, else a little: what works once is tried again. */
static int eject(struct solver *solver, unsigned round, uint64_t until_ms) {
  struct gap__plan_solution *solution = solver->solution;
  uint64_t before = solution->height, part = 1;
  int rc = 0;
  while (!rc && solution->height > solver->target && !gap__plan_is_late(solver->clock, until_ms)) {
    uint64_t excess = solution->height - solver->target, less = excess / part ? excess / part : 1;
    bool found = false;
    uint64_t now = gap__plan_elapsed_ms(solver->clock), slice = until_ms > now ? (until_ms - now) / 3 : 0;
    rc = gap__plan_eject(&solver->board, solution->height - less, round, solver->clock, now + slice + 1,
                         solution->offsets, &found);
    if (found) solution->height = gap__plan_height(solver->problem, solution->offsets);
    else part = part < 64 ? part * 4 : 1;
  }
  note(solver, "ejection", before);
  return rc;
}

/* ---- exact --------------------------------------------------------------------------------------------------------- */

static int search_exactly(struct solver *solver, uint64_t aim, uint64_t until_ms, enum gap__plan_answer *answer) {
  struct gap__plan_solution *solution = solver->solution;
  int rc = gap__plan_exact(solver->problem, aim, solver->tries++, solver->clock, until_ms, solution->offsets, answer);
  if (*answer == GAP__PLAN_FOUND) {
    solution->height = gap__plan_height(solver->problem, solution->offsets);
    solution->method = "exact";
  } else if (*answer == GAP__PLAN_NONE) {
    solver->proved = aim + 1;
    if (solver->target < solver->proved) solver->target = solver->proved;
  }
  return rc;
}

/* Short turns halfway between what is found and what was missed: what can be found is mostly found soon. */
static int close_in(struct solver *solver, uint64_t missed, uint64_t turn_ms, uint64_t until_ms) {
  const struct gap__plan_solution *solution = solver->solution;
  int rc = 0;
  while (!rc && solution->height > solver->target && !gap__plan_is_late(solver->clock, until_ms)) {
    enum gap__plan_answer answer;
    uint64_t end = gap__plan_elapsed_ms(solver->clock) + turn_ms;
    if (missed + 1 >= solution->height) {
      missed = solver->target - 1;
      turn_ms *= 2;
    }
    uint64_t aim = missed + (solution->height - missed) / 2;
    rc = search_exactly(solver, aim, end < until_ms ? end : until_ms, &answer);
    if (answer != GAP__PLAN_FOUND) missed = aim;
  }
  return rc;
}

/* The target has half of the time. */
static int descend(struct solver *solver, uint64_t until_ms) {
  uint64_t now = gap__plan_elapsed_ms(solver->clock), half = until_ms > now ? (until_ms - now) / 2 : 0;
  uint64_t aim = solver->target;
  enum gap__plan_answer answer;
  int rc = search_exactly(solver, aim, now + half, &answer);
  return rc ? rc : close_in(solver, aim, half / TURNS + 1, until_ms);
}

/* ---- turns --------------------------------------------------------------------------------------------------------- */

static int improve(struct solver *solver) {
  bool small = solver->problem->count <= GAP__PLAN_EXACT_BLOCKS_MAX;
  int rc = 0;
  for (unsigned round = 0; !rc && !is_done(solver); round++) {
    if (small) rc = descend(solver, until(solver, 0.6));
    if (!rc && !is_done(solver)) rc = reorder(solver, round, until(solver, 0.3));
    if (!rc && !is_done(solver)) rc = eject(solver, round, until(solver, 0.5));
  }
  return rc;
}

int gap__plan_solve(const struct gap__plan_problem *problem, uint64_t target, const struct gap__plan_clock *clock,
                    struct gap__plan_solution *solution) {
  struct solver solver = {.problem = problem, .clock = clock, .solution = solution};
  *solution = (struct gap__plan_solution){.height = UINT64_MAX};
  solution->offsets = malloc((problem->count + 1) * sizeof *solution->offsets);
  int rc = solution->offsets ? gap__plan_bound(problem, &solution->bound) : GAP_ENOMETA;
  if (!rc) rc = gap__board_open(&solver.board, problem);
  if (!rc) {
    solver.proved = solution->bound;
    solver.target = target > solution->bound ? target : solution->bound;
    rc = greedy(&solver);
    if (!rc) rc = improve(&solver);
    gap__board_close(&solver.board);
  }
  solution->proved = solution->height <= solver.proved;
  return rc;
}

void gap__plan_solution_free(struct gap__plan_solution *solution) {
  free(solution->offsets);
  solution->offsets = NULL;
}
