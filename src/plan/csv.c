/* The blocks of a MiniMalloc CSV file as requests of a plan. */
#include <stdlib.h>

#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/problem.h"
#include "trace/message.h"
#include "trace/minimalloc.h"

static int by_number(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static uint32_t rank_of(const uint64_t *times, uint32_t count, uint64_t time) {
  const uint64_t *found = bsearch(&time, times, count, sizeof *times, by_number);
  return found ? (uint32_t)(found - times) : 0;
}

static int by_birth(const void *a, const void *b) {
  const struct gap__plan_entry *left = a, *right = b;
  if (left->from != right->from) return left->from < right->from ? -1 : 1;
  return left->to < right->to ? -1 : left->to > right->to;
}

/* Times become ranks. */
static int make_entries(const struct gap__minimalloc *table, struct gap_plan *plan) {
  uint64_t *times = malloc(((size_t)2 * table->blocks.count + 1) * sizeof *times);
  plan->at = calloc((size_t)table->blocks.count + 1, sizeof *plan->at);
  plan->streams = calloc(plan->stream_count = 1, sizeof *plan->streams);
  if (!times || !plan->at || !plan->streams) {
    free(times);
    return GAP_ENOMETA;
  }
  uint32_t distinct = 0;
  for (uint32_t i = 0; i < table->blocks.count; i++) {
    times[2 * i] = table->blocks.at[i].lower;
    times[2 * i + 1] = table->blocks.at[i].upper;
  }
  qsort(times, (size_t)2 * table->blocks.count, sizeof *times, by_number);
  for (uint32_t i = 0; i < 2 * table->blocks.count; i++)
    if (i == 0 || times[i] != times[distinct - 1]) times[distinct++] = times[i];
  for (uint32_t i = 0; i < table->blocks.count; i++) {
    const struct gap__minimalloc_block *block = &table->blocks.at[i];
    plan->at[i] = (struct gap__plan_entry){.bytes = block->size,
                                           .align = block->alignment,
                                           .from = rank_of(times, distinct, block->lower),
                                           .to = rank_of(times, distinct, block->upper)};
  }
  plan->times = times;
  plan->count = table->blocks.count;
  plan->moments = distinct ? distinct - 1 : 0;
  qsort(plan->at, plan->count, sizeof *plan->at, by_birth);
  return 0;
}

int gap__plan_from_csv(struct gap__input *input, struct gap_plan *plan, char **message) {
  struct gap__minimalloc table;
  int rc = gap__minimalloc_table(input, &table, message);
  if (!rc && table.blocks.count > GAP__PLAN_BLOCKS_MAX)
    rc = gap__message_set(message, GAP_ELIMIT, "%u blocks, more than a plan can hold", table.blocks.count);
  if (!rc) rc = make_entries(&table, plan);
  gap__minimalloc_free(&table);
  return rc;
}
