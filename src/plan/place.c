/* From requests in bytes to a problem in grains, and back with addresses. */
#include <stdio.h>
#include <stdlib.h>

#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/solve.h"
#include "trace/message.h"

static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static int find_grain(const struct gap_plan *plan, uint64_t *grain, char **message) {
  uint64_t common = 0, total = 0;
  for (uint32_t i = 0; i < plan->count; i++) {
    common = common_divisor(plan->at[i].bytes, common);
    if (plan->at[i].align > 1) common = common_divisor(plan->at[i].align, common);
  }
  for (uint32_t i = 0; i < plan->count; i++) {
    total += plan->at[i].bytes / common + plan->at[i].align / common;
    if (total > GAP__PLAN_GRAINS_MAX || plan->at[i].bytes > UINT64_MAX / 4)
      return gap__message_set(message, GAP_ELIMIT, "the sizes add up to more than a plan can hold");
  }
  *grain = common;
  return plan->count <= GAP__PLAN_BLOCKS_MAX
             ? 0
             : gap__message_set(message, GAP_ELIMIT, "more requests than a plan can hold");
}

static void fill(const struct gap_plan *plan, uint64_t grain, struct gap__plan_problem *problem) {
  problem->count = plan->count;
  problem->moments = plan->moments;
  problem->times = plan->times;
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct gap__plan_entry *entry = &plan->at[i];
    uint64_t align = entry->align / grain ? entry->align / grain : 1;
    problem->at[i] = (struct gap__plan_block){entry->bytes / grain, align, entry->from, entry->to};
  }
}

static void take_over(struct gap_plan *plan, const struct gap__plan_solution *solution, uint64_t grain, uint64_t ms) {
  gap_plan_info *info = &plan->info;
  info->size = sizeof *info;
  info->requests = plan->count;
  info->streams = plan->stream_count;
  info->plan_bytes = solution->height * grain;
  info->bound_bytes = solution->bound * grain;
  info->greedy_bytes = solution->greedy_height * grain;
  info->proved = solution->proved;
  info->search_ms = ms;
  info->total_bytes = 0;
  for (uint32_t i = 0; i < plan->count; i++) {
    plan->at[i].offset = solution->offsets[i] * grain;
    info->total_bytes += plan->at[i].bytes;
  }
  snprintf(info->method, sizeof info->method, "%s", solution->method);
  snprintf(info->order, sizeof info->order, "%s", gap__plan_order_name(solution->greedy_order));
}

int gap__plan_place(struct gap_plan *plan, uint64_t capacity_bytes, const struct gap__plan_clock *clock,
                    char **message) {
  struct gap__plan_solution solution = {0};
  struct gap__plan_problem problem = {0};
  uint64_t grain = 1;
  if (plan->count == 0) return gap__message_set(message, GAP_EINVAL, "there is nothing to place");
  int rc = find_grain(plan, &grain, message);
  if (rc) return rc;
  problem.at = malloc(plan->count * sizeof *problem.at);
  if (problem.at) fill(plan, grain, &problem);
  rc = problem.at ? gap__plan_solve(&problem, capacity_bytes / grain, clock, &solution) : GAP_ENOMETA;
  if (!rc) take_over(plan, &solution, grain, gap__plan_elapsed_ms(clock));
  gap__plan_solution_free(&solution);
  free(problem.at);
  return rc;
}

void gap__plan_release(struct gap_plan *plan) {
  free(plan->at);
  free(plan->streams);
  free(plan->times);
  *plan = (struct gap_plan){0};
}
