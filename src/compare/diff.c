#include "compare/diff.h"

#include <math.h>

#include "gapless/gapless.h"

const char *gap__cut_name(enum gap__cut cut) {
  static const char *const names[GAP__CUT_COUNT] = {"call_sites", "categories", "streams", "sizes", "driver_calls"};
  return names[cut];
}

/* Bytes: by a part of the higher peak.  Percent: by as many points.  Counts and growth: by a part of the larger. */
static bool figure_differs(const struct gap_diff *diff, enum gap__figure figure) {
  const struct gap__figure_value *a = &diff->sides[0].figures[figure], *b = &diff->sides[1].figures[figure];
  double tolerance = diff->options.tolerance, change = fabs(b->value - a->value);
  if (!a->known || !b->known) return false;
  switch (gap__figure_info(figure)->kind) {
    case GAP__FIGURE_BYTES: return change > tolerance * (double)diff->scale;
    case GAP__FIGURE_PERCENT: return change > 100 * tolerance;
    default: return change > tolerance * fmax(fabs(a->value), fabs(b->value));
  }
}

/* Sizes alone are no difference: a batch that varies changes all of them a little. */
static bool pair_differs(const struct gap_diff *diff, enum gap__cut cut, const struct gap__pair *pair) {
  double tolerance = diff->options.tolerance;
  if (cut == GAP__CUT_SIZES) return false;
  if (cut != GAP__CUT_CALLS) return fabs((double)gap__pair_change(pair)) > tolerance * (double)diff->scale;
  double a = pair->side[0] ? (double)pair->side[0]->blocks : 0, b = pair->side[1] ? (double)pair->side[1]->blocks : 0;
  return fabs(b - a) > tolerance * fmax(a, b);
}

static int find_pairs(struct gap_diff *diff, enum gap__cut cut) {
  int rc = gap__parts_find(&diff->sides[0], cut, &diff->parts[cut][0]);
  if (!rc) rc = gap__parts_find(&diff->sides[1], cut, &diff->parts[cut][1]);
  if (!rc) rc = gap__pairs_match(cut, diff->parts[cut], &diff->pairs[cut]);
  for (uint32_t i = 0; !rc && i < diff->pairs[cut].count; i++) {
    struct gap__pair *pair = &diff->pairs[cut].at[i];
    pair->differs = pair_differs(diff, cut, pair);
    if (pair->differs) diff->is_same = false;
  }
  return rc;
}

/* Call sites of one file alone are no difference of the programs. */
static bool is_comparable(const struct gap_diff *diff, enum gap__cut cut) {
  const struct gap__measure *a = &diff->sides[0], *b = &diff->sides[1];
  if (cut == GAP__CUT_SITES) return a->subject.honest.has_stacks && b->subject.honest.has_stacks;
  return cut != GAP__CUT_CALLS || (a->figures[GAP__FIGURE_CALLS].known && b->figures[GAP__FIGURE_CALLS].known);
}

int gap__diff_find(struct gap_diff *diff) {
  uint64_t a = diff->sides[0].peak_bytes, b = diff->sides[1].peak_bytes;
  int rc = 0;
  diff->scale = a > b ? a : b;
  diff->is_same = true;
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    diff->figure_differs[i] = figure_differs(diff, (enum gap__figure)i);
    if (diff->figure_differs[i]) diff->is_same = false;
  }
  for (int cut = 0; !rc && cut < GAP__CUT_COUNT; cut++)
    if (is_comparable(diff, (enum gap__cut)cut)) rc = find_pairs(diff, (enum gap__cut)cut);
  return rc;
}

void gap__diff_free_parts(struct gap_diff *diff) {
  for (int cut = 0; cut < GAP__CUT_COUNT; cut++) {
    gap__pairs_free(&diff->pairs[cut]);
    gap__parts_free(&diff->parts[cut][0]);
    gap__parts_free(&diff->parts[cut][1]);
  }
}

void gap__diff_free(struct gap_diff *diff) {
  gap__diff_free_parts(diff);
  gap__measure_free(&diff->sides[0]);
  gap__measure_free(&diff->sides[1]);
}
