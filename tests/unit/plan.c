/* Plans: no placement overlaps, tiny ones are optimal, known instances meet their capacities, files survive only unharmed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/exact.h"
#include "plan/plan.h"
#include "plan/solve.h"
#include "plan/steps.h"

enum { TINY = 6, TINY_ROUNDS = 400, MANY = 600 };

static uint64_t seed = 20240229;

static uint32_t random_below(uint32_t bound) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % bound;
}

static int by_from(const void *a, const void *b) {
  const struct gap__plan_block *left = a, *right = b;
  return left->from < right->from ? -1 : left->from > right->from;
}

static void make_random(struct gap__plan_problem *problem, uint32_t count, uint32_t moments, uint32_t size,
                        uint32_t align) {
  problem->count = count;
  problem->moments = moments;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t from = random_below(moments), to = from + 1 + random_below(moments - from);
    problem->at[i] = (struct gap__plan_block){1 + random_below(size), 1 + random_below(align), from, to};
  }
  qsort(problem->at, count, sizeof *problem->at, by_from);
}

static bool overlaps(const struct gap__plan_problem *problem, const uint64_t *offsets) {
  for (uint32_t i = 0; i < problem->count; i++) {
    const struct gap__plan_block *a = &problem->at[i];
    if (offsets[i] % a->align) return true;
    for (uint32_t j = 0; j < i; j++) {
      const struct gap__plan_block *b = &problem->at[j];
      bool in_time = a->from < b->to && b->from < a->to;
      if (in_time && offsets[i] < offsets[j] + b->size && offsets[j] < offsets[i] + a->size) return true;
    }
  }
  return false;
}

/* The lowest place of a block among those placed before it, by trying every offset. */
static uint64_t first_fit(const struct gap__plan_problem *problem, const uint32_t *order, const uint64_t *offsets,
                          uint32_t placed) {
  const struct gap__plan_block *block = &problem->at[order[placed]];
  for (uint64_t offset = 0;; offset += block->align) {
    bool free_here = true;
    for (uint32_t i = 0; i < placed; i++) {
      const struct gap__plan_block *other = &problem->at[order[i]];
      if (other->from < block->to && block->from < other->to && offsets[order[i]] < offset + block->size &&
          offset < offsets[order[i]] + other->size)
        free_here = false;
    }
    if (free_here) return offset;
  }
}

/* Some order of lowest places gives an optimal placement: all are tried. */
static uint64_t least_height(const struct gap__plan_problem *problem, uint32_t *order, uint64_t *offsets,
                             uint32_t placed, uint64_t height) {
  uint64_t least = UINT64_MAX;
  if (placed == problem->count) return height;
  for (uint32_t i = placed; i < problem->count; i++) {
    uint32_t chosen = order[i];
    order[i] = order[placed];
    order[placed] = chosen;
    offsets[chosen] = first_fit(problem, order, offsets, placed);
    uint64_t end = offsets[chosen] + problem->at[chosen].size;
    uint64_t found = least_height(problem, order, offsets, placed + 1, end > height ? end : height);
    if (found < least) least = found;
    order[placed] = order[i];
    order[i] = chosen;
  }
  return least;
}

static struct gap__plan_clock clock_of(uint64_t ms) {
  return (struct gap__plan_clock){.start_ms = gap__plan_now_ms(), .limit_ms = ms};
}

static void tiny_ones_are_optimal(void **state) {
  struct gap__plan_block blocks[TINY];
  struct gap__plan_problem problem = {.at = blocks};
  int above = 0;
  (void)state;
  for (int round = 0; round < TINY_ROUNDS; round++) {
    uint32_t order[TINY];
    uint64_t offsets[TINY];
    struct gap__plan_solution solution;
    make_random(&problem, 2 + random_below(TINY - 1), 5, 9, round % 2 ? 3 : 1);
    for (uint32_t i = 0; i < problem.count; i++) order[i] = i;
    uint64_t least = least_height(&problem, order, offsets, 0, 0);
    struct gap__plan_clock clock = clock_of(2000);
    assert_int_equal(gap__plan_solve(&problem, 0, &clock, &solution), 0);
    assert_false(overlaps(&problem, solution.offsets));
    assert_int_equal(solution.height, least);
    assert_true(solution.proved && solution.bound <= least);
    above += solution.bound < least;
    assert_int_equal(gap__plan_height(&problem, solution.offsets), least);
    gap__plan_solution_free(&solution);
  }
  assert_true(above > 0); /* or the bound alone proved them all */
}

static void random_ones_do_not_overlap(void **state) {
  static struct gap__plan_block blocks[MANY];
  struct gap__plan_problem problem = {.at = blocks};
  (void)state;
  for (int round = 0; round < 20; round++) {
    struct gap__plan_solution solution;
    uint64_t total = 0;
    make_random(&problem, 50 + random_below(MANY - 50), 300, 5000, round % 4 ? 1 : 64);
    struct gap__plan_clock clock = clock_of(round % 2 ? 0 : 60);
    assert_int_equal(gap__plan_solve(&problem, 0, &clock, &solution), 0);
    for (uint32_t i = 0; i < problem.count; i++) total += problem.at[i].size + problem.at[i].align - 1;
    assert_false(overlaps(&problem, solution.offsets));
    assert_true(solution.bound <= solution.height && solution.height <= solution.greedy_height);
    assert_true(solution.greedy_height <= total);
    gap__plan_solution_free(&solution);
  }
}

static void known_capacities_are_met(void **state) {
  static const struct {
    const char *name;
    uint64_t capacity;
  } known[] = {{"B.1048576.csv", 1048576}, {"D.1048576.csv", 1048576}, {"E.1048576.csv", 1048576},
               {"G.1048576.csv", 1048576}, {"J.1048576.csv", 1048576}, {"K.1048576.csv", 1048576},
               {"input.12.csv", 12}};
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    char path[512], message[256] = "";
    gap_plan_options options;
    gap_plan_info info;
    gap_plan *plan;
    snprintf(path, sizeof path, "%s/minimalloc/%s", GAP_TEST_DATA, known[i].name);
    gap_plan_defaults(&options);
    options.capacity_bytes = known[i].capacity;
    options.time_limit_ms = 60000;
    assert_int_equal(gap_plan_make(path, &options, &plan, message, sizeof message), 0);
    gap_plan_info_get(plan, &info);
    assert_true(info.plan_bytes <= known[i].capacity && info.bound_bytes <= info.plan_bytes);
    assert_true(info.plan_bytes <= info.total_bytes);
    gap_plan_close(plan);
  }
}

/* Cuts the last of the blocks in two, in time or across. */
static void cut(struct gap__plan_block *blocks, uint32_t count) {
  struct gap__plan_block *block = &blocks[count - 1], *part = &blocks[count];
  uint32_t length = block->to - block->from;
  *part = *block;
  if (length > 1 && (block->size == 1 || random_below(2))) {
    part->from = block->to = block->from + 1 + random_below(length - 1);
  } else if (block->size > 1) {
    block->size = 1 + random_below((uint32_t)block->size - 1);
    part->size -= block->size;
  }
}

static uint64_t area_of(const struct gap__plan_block *block) { return block->size * (block->to - block->from); }

/* One rectangle in pieces: every section is full, so that only a perfect fit will do. */
static void make_puzzle(struct gap__plan_problem *problem, uint32_t count, uint32_t moments, uint32_t height) {
  problem->at[0] = (struct gap__plan_block){height, 1, 0, moments};
  for (problem->count = 1; problem->count < count; problem->count++) {
    uint32_t largest = 0, last = problem->count - 1;
    for (uint32_t i = 1; i <= last; i++)
      if (area_of(&problem->at[i]) > area_of(&problem->at[largest])) largest = i;
    struct gap__plan_block block = problem->at[largest];
    problem->at[largest] = problem->at[last];
    problem->at[last] = block;
    cut(problem->at, problem->count);
  }
  problem->moments = moments;
  qsort(problem->at, count, sizeof *problem->at, by_from);
}

static void what_was_cut_apart_fits_again(void **state) {
  static struct gap__plan_block blocks[MANY];
  struct gap__plan_problem problem = {.at = blocks};
  (void)state;
  for (int round = 0; round < 20; round++) {
    struct gap__plan_clock clock = clock_of(60000);
    enum gap__plan_answer answer;
    uint64_t offsets[MANY];
    make_puzzle(&problem, 60, 40, 500);
    assert_int_equal(gap__plan_exact(&problem, 500, 0, &clock, 60000, offsets, &answer), 0);
    assert_int_equal(answer, GAP__PLAN_FOUND);
    assert_false(overlaps(&problem, offsets));
    assert_int_equal(gap__plan_height(&problem, offsets), 500);
  }
}

static void an_impossible_target_is_proved(void **state) {
  struct gap__plan_block blocks[] = {{2, 1, 0, 2}, {1, 1, 0, 1}, {1, 1, 1, 3}, {2, 1, 2, 4}};
  struct gap__plan_problem problem = {.at = blocks, .count = 4, .moments = 4};
  struct gap__plan_clock clock = clock_of(2000);
  enum gap__plan_answer answer;
  uint64_t offsets[4], bound;
  (void)state;
  assert_int_equal(gap__plan_bound(&problem, &bound), 0);
  assert_int_equal(gap__plan_exact(&problem, bound - 1, 0, &clock, 2000, offsets, &answer), 0);
  assert_int_equal(answer, GAP__PLAN_NONE);
  assert_int_equal(gap__plan_exact(&problem, bound, 0, &clock, 2000, offsets, &answer), 0);
  assert_int_equal(answer, GAP__PLAN_FOUND);
  assert_false(overlaps(&problem, offsets));
}

/* ---- histories ----------------------------------------------------------------------------------------------------- */

static gap_plan *plan_of(const char *name, int64_t first, int64_t last) {
  char path[512], message[256] = "";
  gap_plan_options options;
  gap_plan *plan;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  gap_plan_defaults(&options);
  options.step_first = first;
  options.step_last = last;
  options.time_limit_ms = 5000;
  if (gap_plan_make(path, &options, &plan, message, sizeof message) != 0) fail_msg("%s: %s", name, message);
  return plan;
}

static void histories_come_close_to_the_bound(void **state) {
  static const char *const names[] = {"gnn.pickle.xz", "graphs.pickle.xz", "streams.pickle.xz",
                                      "llama_sft.stacks.pickle.xz"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    gap_plan_info info;
    gap_plan *plan = plan_of(names[i], -1, -1);
    gap_plan_info_get(plan, &info);
    assert_true((double)info.plan_bytes <= 1.005 * (double)info.bound_bytes);
    gap_plan_close(plan);
  }
}

/* Each stream lies on pages of its own, and the whole is hardly higher than the sum of what they need. */
static void streams_lie_apart(void **state) {
  char path[512], message[256] = "";
  uint64_t from[2] = {UINT64_MAX, UINT64_MAX}, to[2] = {0, 0}, streams[2] = {0, 0};
  gap_plan_options options;
  gap_plan_info info;
  gap_plan *plan;
  (void)state;
  snprintf(path, sizeof path, "%s/streams.pickle.xz", GAP_TEST_DATA);
  gap_plan_defaults(&options);
  options.time_limit_ms = 500;
  options.apart = 1;
  assert_int_equal(gap_plan_make(path, &options, &plan, message, sizeof message), 0);
  gap_plan_info_get(plan, &info);
  assert_int_equal(info.streams, 2);
  for (uint64_t i = 0; i < info.requests; i++) {
    gap_plan_request request;
    assert_int_equal(gap_plan_request_at(plan, i, &request), 0);
    int which = i && request.stream != streams[0];
    streams[which] = request.stream;
    if (request.offset < from[which]) from[which] = request.offset;
    if (request.offset + request.bytes > to[which]) to[which] = request.offset + request.bytes;
  }
  assert_true(to[0] <= from[1] && from[1] >> 21 > (to[0] - 1) >> 21 && from[0] == 0 && to[1] == info.plan_bytes);
  assert_true(info.bound_bytes <= info.plan_bytes && (double)info.plan_bytes <= 1.05 * (double)info.bound_bytes);
  gap_plan_close(plan);
}

static void steps_of_training_are_told(void **state) {
  gap_plan_info info;
  gap_plan *plan = plan_of("llama_sft.stacks.pickle.xz", 2, 3);
  (void)state;
  gap_plan_info_get(plan, &info);
  assert_string_equal(info.steps_from, "optimiser");
  assert_int_equal(info.steps_found, 7); /* six runs of the optimiser, and what follows the last */
  assert_true(info.requests > 1000 && info.requests < 8895 && info.resident_bytes > 0);
  gap_plan_close(plan);
}

/* 40 requests that come again and again after a start of their own. */
static void a_period_is_found_without_marks(void **state) {
  enum { START = 13, PERIOD = 40, REPEATS = 12, EVENTS = 2 * (START + PERIOD * REPEATS) };
  static struct gap__hist_event events[EVENTS];
  struct gap__hist_device device = {.events = events, .event_count = EVENTS};
  struct gap__history history = {.devices = &device, .device_count = 1};
  struct gap__plan_steps steps;
  (void)state;
  for (uint32_t i = 0; i < EVENTS / 2; i++) {
    uint32_t what = i < START ? 1000 + i : (i - START) * 7 % PERIOD;
    events[2 * i] = (struct gap__hist_event){.addr = 4096, .size = 512 * (what + 1), .action = GAP__ACT_ALLOC};
    events[2 * i + 1] = events[2 * i];
    events[2 * i + 1].action = GAP__ACT_FREE_COMPLETED;
  }
  assert_int_equal(gap__plan_steps_find(&history, 0, NULL, &steps), 0);
  assert_string_equal(steps.from, "period");
  assert_int_equal(steps.count, REPEATS + 1);
  for (uint32_t i = 1; i < steps.count; i++) assert_int_equal(steps.starts[i], 2 * (START + (i - 1) * PERIOD));
  assert_int_equal(steps.starts[steps.count], EVENTS);
  gap__plan_steps_free(&steps);
}

/* ---- checker and file ---------------------------------------------------------------------------------------------- */

static void the_checker_sees_each_fault(void **state) {
  struct gap__plan_entry entries[] = {{512, 512, 0, 0, 0, 2}, {1024, 512, 512, 0, 1, 3}, {512, 512, 0, 0, 2, 4}};
  uint64_t streams[1] = {0};
  struct gap_plan plan = {.at = entries, .count = 3, .moments = 4, .streams = streams, .stream_count = 1};
  char *message = NULL;
  (void)state;
  plan.info.plan_bytes = 1536;
  assert_int_equal(gap__plan_verify(&plan, &message), 0);
  entries[2].offset = 1024; /* into the second one */
  assert_int_equal(gap__plan_verify(&plan, &message), GAP_EMISMATCH);
  entries[2].offset = 256;
  assert_int_equal(gap__plan_verify(&plan, &message), GAP_EMISMATCH);
  entries[2].offset = 1536; /* above the plan */
  assert_int_equal(gap__plan_verify(&plan, &message), GAP_EMISMATCH);
  entries[2].offset = 0;
  entries[0].to = 3; /* lives longer than was planned */
  assert_int_equal(gap__plan_verify(&plan, &message), GAP_EMISMATCH);
  entries[0].to = 0;
  assert_int_equal(gap__plan_verify(&plan, &message), GAP_EMISMATCH);
  free(message);
}

static void a_file_gives_the_plan_back(void **state) {
  gap_plan *plan = plan_of("streams.pickle.xz", -1, -1);
  struct gap_plan again;
  unsigned char *data;
  size_t bytes;
  char *message = NULL;
  (void)state;
  assert_int_equal(gap__plan_encode(plan, &data, &bytes), 0);
  assert_int_equal(gap__plan_decode(data, bytes, &again, &message), 0);
  assert_int_equal(again.info.plan_bytes, plan->info.plan_bytes);
  assert_int_equal(again.count, plan->count);
  for (uint64_t i = 0; i < plan->count; i++) {
    gap_plan_request one, other;
    assert_int_equal(gap_plan_request_at(plan, i, &one) | gap_plan_request_at(&again, i, &other), 0);
    assert_true(one.bytes == other.bytes && one.offset == other.offset && one.stream == other.stream);
    assert_true(one.from == other.from && one.to == other.to);
  }
  gap__plan_release(&again);
  for (size_t i = 0; i < bytes; i += 97) { /* any byte that changes is noticed */
    data[i] ^= 0x41;
    assert_int_not_equal(gap__plan_decode(data, bytes, &again, &message), 0);
    data[i] ^= 0x41;
    assert_int_not_equal(gap__plan_decode(data, i, &again, &message), 0);
  }
  free(message);
  free(data);
  gap_plan_close(plan);
}

static void odd_csv_is_refused(void **state) {
  static const char *const odd[] = {"lower,upper\n1,2\n",
                                    "lower,upper,size\n3,3,1\n",
                                    "lower,upper,size\n1,2,0\n",
                                    "lower,upper,size\n1,2\n",
                                    "lower,upper,size\n1,2,3,4\n",
                                    "lower,upper,size\n1,2,x\n",
                                    "lower,upper,size,size\n1,2,3,3\n",
                                    "lower,upper,size,colour\n1,2,3,4\n",
                                    "lower,upper,size\n-1,2,3\n",
                                    "lower,upper,size\n1,2,99999999999999999999\n"};
  (void)state;
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    struct gap_plan plan = {0};
    struct gap__input input;
    char *message = NULL;
    assert_int_equal(gap__input_open_memory(&input, odd[i], strlen(odd[i]), &message), 0);
    assert_int_equal(gap__plan_from_csv(&input, &plan, &message), GAP_EFORMAT);
    assert_non_null(message);
    free(message);
    gap__input_close(&input);
    gap__plan_release(&plan);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiny_ones_are_optimal),
      cmocka_unit_test(random_ones_do_not_overlap),
      cmocka_unit_test(known_capacities_are_met),
      cmocka_unit_test(what_was_cut_apart_fits_again),
      cmocka_unit_test(an_impossible_target_is_proved),
      cmocka_unit_test(histories_come_close_to_the_bound),
      cmocka_unit_test(streams_lie_apart),
      cmocka_unit_test(steps_of_training_are_told),
      cmocka_unit_test(a_period_is_found_without_marks),
      cmocka_unit_test(the_checker_sees_each_fault),
      cmocka_unit_test(a_file_gives_the_plan_back),
      cmocka_unit_test(odd_csv_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
