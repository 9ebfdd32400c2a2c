#include "plan/wheel.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

/* hot[t]: how many moments before t have at least `share` of the most live. */
static int find_hot(const struct gap__plan_problem *problem, double share, uint32_t *hot) {
  int64_t *live = calloc((size_t)problem->moments + 2, sizeof *live), most = 0;
  if (!live) return GAP_ENOMETA;
  for (uint32_t i = 0; i < problem->count; i++) {
    live[problem->at[i].from] += (int64_t)problem->at[i].size;
    live[problem->at[i].to] -= (int64_t)problem->at[i].size;
  }
  for (uint32_t t = 0; t <= problem->moments; t++) {
    live[t + 1] += live[t];
    if (live[t] > most) most = live[t];
  }
  hot[0] = 0;
  for (uint32_t t = 0; t <= problem->moments; t++) hot[t + 1] = hot[t] + ((double)live[t] >= share * (double)most);
  free(live);
  return 0;
}

static int split(struct gap__wheel *wheel, double share) {
  const struct gap__plan_problem *problem = wheel->board->problem;
  uint32_t *hot = malloc(((size_t)problem->moments + 2) * sizeof *hot);
  int rc = hot ? find_hot(problem, share, hot) : GAP_ENOMETA;
  for (uint32_t i = 0; !rc && i < problem->count; i++) {
    wheel->in_core[i] = hot[problem->at[i].to] > hot[problem->at[i].from];
    if (wheel->in_core[i]) wheel->core[wheel->core_count++] = i;
    else wheel->others[wheel->other_count++] = i;
  }
  free(hot);
  return rc ? rc : gap__plan_order_sort(wheel->keys, wheel->others, wheel->other_count);
}

int gap__wheel_open(struct gap__wheel *wheel, struct gap__board *board, enum gap__plan_order order, uint64_t target,
                    double share, uint64_t seed) {
  size_t count = board->problem->count + 1;
  *wheel =
      (struct gap__wheel){.board = board, .target = target, .random = seed * 2 + 1, .core_height_best = UINT64_MAX};
  wheel->keys = malloc(count * sizeof *wheel->keys);
  wheel->others = malloc(count * sizeof *wheel->others);
  wheel->core = malloc(count * sizeof *wheel->core);
  wheel->in_core = calloc(count, sizeof *wheel->in_core);
  if (!wheel->keys || !wheel->others || !wheel->core || !wheel->in_core) return GAP_ENOMETA;
  gap__plan_order_keys(board, order, wheel->keys);
  return split(wheel, share);
}

void gap__wheel_close(struct gap__wheel *wheel) {
  free(wheel->keys);
  free(wheel->others);
  free(wheel->core);
  free(wheel->in_core);
  *wheel = (struct gap__wheel){0};
}

static double next_factor(struct gap__wheel *wheel) {
  wheel->random ^= wheel->random << 13;
  wheel->random ^= wheel->random >> 7;
  wheel->random ^= wheel->random << 17;
  return 1.0 + (double)(wheel->random % 1024) / 1024;
}

static bool is_above(const struct gap__wheel *wheel, uint32_t block) {
  return wheel->board->offsets[block] + wheel->board->problem->at[block].size > wheel->target;
}

static void promote(struct gap__wheel *wheel) {
  for (uint32_t i = 0; i < wheel->core_count; i++)
    if (is_above(wheel, wheel->core[i])) wheel->keys[wheel->core[i]] *= next_factor(wheel);
}

/* Others that end above the target change sides. */
static void grow_core(struct gap__wheel *wheel) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < wheel->other_count; i++) {
    uint32_t block = wheel->others[i];
    if (is_above(wheel, block)) wheel->core[wheel->core_count++] = block;
    else wheel->others[kept++] = block;
    wheel->in_core[block] = is_above(wheel, block);
  }
  wheel->other_count = kept;
}

int gap__wheel_turn(struct gap__wheel *wheel, const struct gap__plan_clock *clock, uint64_t until_ms, uint64_t *offsets,
                    uint64_t *height) {
  struct gap__board *board = wheel->board;
  uint64_t began = gap__plan_elapsed_ms(clock), longest = 0; /* a round that would end late is not begun */
  while (*height > wheel->target && !gap__plan_is_late(clock, until_ms > longest ? until_ms - longest : 0)) {
    int rc = gap__plan_order_sort(wheel->keys, wheel->core, wheel->core_count);
    if (rc) return rc;
    gap__board_clear(board);
    uint64_t core = gap__plan_order_place(board, wheel->core, wheel->core_count);
    if (core <= wheel->target || core < wheel->core_height_best - wheel->core_height_best / 2048) {
      uint64_t rest = gap__plan_order_place(board, wheel->others, wheel->other_count), all = rest > core ? rest : core;
      if (core < wheel->core_height_best) wheel->core_height_best = core;
      if (all < *height) {
        *height = all;
        memcpy(offsets, board->offsets, board->problem->count * sizeof *offsets);
      }
      grow_core(wheel);
    }
    promote(wheel);
    uint64_t now = gap__plan_elapsed_ms(clock);
    if (now - began > longest) longest = now - began;
    began = now;
  }
  return 0;
}
