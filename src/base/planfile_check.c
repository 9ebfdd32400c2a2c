/* The independent checker of placements.
 *
 * Entries are taken from the lowest offset up.  A tree over time knows the highest end so far of every moment: an entry must
 * lie above it during all of its life.  Nothing here is shared with the code that places. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/planfile.h"
#include "gapless/gapless.h"

static int __attribute__((format(printf, 2, 3))) fault(struct gap__text *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  gap__text_addv(why, format, args);
  va_end(args);
  return GAP_EMISMATCH;
}

struct tops { /* a node's `whole` counts for all moments under it; `most` is the maximum of everything under it */
  uint64_t *whole, *most;
};

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The highest end in [from, to). */
static uint64_t top_in(const struct tops *tops, size_t node, uint32_t first, uint32_t width, uint32_t from,
                       uint32_t to) {
  if (to <= first || first + width <= from) return 0;
  if (from <= first && first + width <= to) return tops->most[node];
  uint64_t left = top_in(tops, 2 * node, first, width / 2, from, to);
  uint64_t right = top_in(tops, 2 * node + 1, first + width / 2, width / 2, from, to);
  return larger(tops->whole[node], larger(left, right));
}

static void raise_top(struct tops *tops, size_t node, uint32_t first, uint32_t width,
                      const struct gap__plan_entry *entry) {
  uint64_t end = entry->offset + entry->bytes;
  if (entry->to <= first || first + width <= entry->from) return;
  tops->most[node] = larger(tops->most[node], end);
  if (entry->from <= first && first + width <= entry->to) {
    tops->whole[node] = larger(tops->whole[node], end);
    return;
  }
  raise_top(tops, 2 * node, first, width / 2, entry);
  raise_top(tops, 2 * node + 1, first + width / 2, width / 2, entry);
}

static int by_offset(const void *a, const void *b) {
  const struct gap__plan_entry *left = *(const struct gap__plan_entry *const *)a;
  const struct gap__plan_entry *right = *(const struct gap__plan_entry *const *)b;
  return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static int check_entry(const struct gap__planfile *plan, const struct gap__plan_entry *entry, struct gap__text *why) {
  uint32_t index = (uint32_t)(entry - plan->at);
  if (entry->from >= entry->to || entry->to > plan->moments || entry->bytes == 0 || entry->stream >= plan->stream_count)
    return fault(why, "request %" PRIu32 " has no size, no life or no stream", index);
  if (entry->offset > plan->plan_bytes || entry->bytes > plan->plan_bytes - entry->offset)
    return fault(why, "request %" PRIu32 " ends above the plan", index);
  if (entry->offset % entry->align) return fault(why, "request %" PRIu32 " is not aligned", index);
  return 0;
}

static int check_all(const struct gap__planfile *plan, const struct gap__plan_entry **sorted, struct tops *tops,
                     uint32_t width, struct gap__text *why) {
  for (uint32_t i = 0; i < plan->count; i++) {
    int rc = check_entry(plan, sorted[i] = &plan->at[i], why);
    if (rc) return rc;
  }
  qsort(sorted, plan->count, sizeof *sorted, by_offset);
  for (uint32_t i = 0; i < plan->count; i++) {
    if (top_in(tops, 1, 0, width, sorted[i]->from, sorted[i]->to) > sorted[i]->offset)
      return fault(why, "request %td overlaps another one", sorted[i] - plan->at);
    raise_top(tops, 1, 0, width, sorted[i]);
  }
  return 0;
}

int gap__planfile_check(const struct gap__planfile *plan, struct gap__text *why) {
  uint32_t width = 1;
  while (width < plan->moments) width *= 2;
  const struct gap__plan_entry **sorted = malloc((plan->count + 1) * sizeof *sorted);
  struct tops tops = {calloc((size_t)2 * width, sizeof(uint64_t)), calloc((size_t)2 * width, sizeof(uint64_t))};
  int rc = sorted && tops.whole && tops.most ? check_all(plan, sorted, &tops, width, why) : GAP_ENOMETA;
  free(sorted);
  free(tops.whole);
  free(tops.most);
  return rc;
}
