/* Two measured files side by side. */
#ifndef GAP_COMPARE_DIFF_H
#define GAP_COMPARE_DIFF_H

#include "compare/parts.h"
#include "gapless/compare.h"

struct gap_diff {
  gap_diff_options options;
  struct gap__measure sides[2];
  struct gap__parts parts[GAP__CUT_COUNT][2];
  struct gap__pairs pairs[GAP__CUT_COUNT];
  bool figure_differs[GAP__FIGURE_COUNT];
  bool is_same;
  uint64_t scale; /* bytes: the higher peak of live bytes, of which the tolerance is a part */
};

/* After both sides were measured: parts, pairs, what differs.  0 or GAP_ENOMETA. */
int gap__diff_find(struct gap_diff *);
void gap__diff_free(struct gap_diff *);       /* what it points to */
void gap__diff_free_parts(struct gap_diff *); /* all but the sides */

/* "call_sites", "categories", ...: also the names in JSON. */
const char *gap__cut_name(enum gap__cut);
/* In one to three sentences: how the peaks differ, and what explains most of it. */
void gap__diff_say(const struct gap_diff *, struct gap__text *);
char *gap__diff_words(const struct gap_diff *, unsigned columns, unsigned rows);
/* Of each list at most `rows`, the rest counted in `left_out`; 0: all. */
char *gap__diff_json(const struct gap_diff *, uint32_t rows);

#endif
