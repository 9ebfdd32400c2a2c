/* From requests in bytes to a problem in grains, and back with addresses. */
#include <stdio.h>
#include <stdlib.h>

#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/solve.h"
#include "trace/message.h"

#define PAGE ((uint64_t)2 << 20)

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

/* Which entries a placement is about. */
struct part {
  uint32_t stream; /* ALL: every one */
  uint64_t base;   /* where it begins */
};
#define ALL UINT32_MAX

static bool belongs(const struct part *part, const struct gap__plan_entry *entry) {
  return part->stream == ALL || entry->stream == part->stream;
}

static void fill(const struct gap_plan *plan, const struct part *part, uint64_t grain,
                 struct gap__plan_problem *problem) {
  problem->moments = plan->moments;
  problem->times = plan->times;
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct gap__plan_entry *entry = &plan->at[i];
    uint64_t align = entry->align / grain ? entry->align / grain : 1;
    if (!belongs(part, entry)) continue;
    problem->at[problem->count++] = (struct gap__plan_block){entry->bytes / grain, align, entry->from, entry->to};
  }
}

static void take_offsets(struct gap_plan *plan, const struct part *part, const uint64_t *offsets, uint64_t grain) {
  for (uint32_t i = 0; i < plan->count; i++)
    if (belongs(part, &plan->at[i])) plan->at[i].offset = part->base + *offsets++ * grain;
}

/* The figures of a part come on top of those of earlier parts, which it lies above. */
static void take_figures(gap_plan_info *info, const struct part *part, const struct gap__plan_solution *solution,
                         uint64_t grain) {
  info->plan_bytes = part->base + solution->height * grain;
  info->greedy_bytes = part->base + solution->greedy_height * grain;
  info->bound_bytes += solution->bound * grain;
  info->proved = solution->proved && part->base == 0;
  snprintf(info->method, sizeof info->method, "%s", solution->method);
  snprintf(info->order, sizeof info->order, "%s", gap__plan_order_name(solution->greedy_order));
}

static int place_part(struct gap_plan *plan, const struct part *part, uint64_t grain, uint64_t capacity_bytes,
                      const struct gap__plan_clock *clock) {
  struct gap__plan_solution solution = {0};
  struct gap__plan_problem problem = {.at = malloc(plan->count * sizeof *problem.at)};
  if (!problem.at) return GAP_ENOMETA;
  fill(plan, part, grain, &problem);
  int rc = problem.count ? gap__plan_solve(&problem, capacity_bytes / grain, clock, &solution) : 0;
  if (!rc && problem.count) {
    take_offsets(plan, part, solution.offsets, grain);
    take_figures(&plan->info, part, &solution, grain);
  }
  gap__plan_solution_free(&solution);
  free(problem.at);
  return rc;
}

static int begin(struct gap_plan *plan, uint64_t *grain, char **message) {
  gap_plan_info *info = &plan->info;
  if (plan->count == 0) return gap__message_set(message, GAP_EINVAL, "there is nothing to place");
  info->size = sizeof *info;
  info->requests = plan->count;
  info->streams = plan->stream_count;
  info->plan_bytes = info->bound_bytes = info->total_bytes = 0;
  for (uint32_t i = 0; i < plan->count; i++) info->total_bytes += plan->at[i].bytes;
  return find_grain(plan, grain, message);
}

int gap__plan_place(struct gap_plan *plan, uint64_t capacity_bytes, const struct gap__plan_clock *clock,
                    char **message) {
  const struct part all = {.stream = ALL};
  uint64_t grain = 1;
  int rc = begin(plan, &grain, message);
  if (!rc) rc = place_part(plan, &all, grain, capacity_bytes, clock);
  plan->info.search_ms = gap__plan_elapsed_ms(clock);
  return rc;
}

/* Pages of different streams do not meet: each part begins at a page border. */
int gap__plan_place_apart(struct gap_plan *plan, const struct gap__plan_clock *clock, char **message) {
  uint64_t grain = 1;
  int rc = begin(plan, &grain, message);
  for (uint32_t i = 0; !rc && i < plan->stream_count; i++) {
    struct part part = {i, (plan->info.plan_bytes + PAGE - 1) / PAGE * PAGE};
    struct gap__plan_clock share = *clock;
    uint64_t elapsed = gap__plan_elapsed_ms(clock), left = clock->limit_ms > elapsed ? clock->limit_ms - elapsed : 0;
    share.limit_ms = elapsed + left / (plan->stream_count - i);
    rc = place_part(plan, &part, grain, 0, &share);
  }
  plan->info.search_ms = gap__plan_elapsed_ms(clock);
  return rc;
}

void gap__plan_release(struct gap_plan *plan) {
  free(plan->at);
  free(plan->streams);
  free(plan->times);
  *plan = (struct gap_plan){0};
}
