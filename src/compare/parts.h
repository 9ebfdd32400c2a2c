/* What was live at the peak, cut into parts in five ways, for one file; and the parts of two files side by side. */
#ifndef GAP_COMPARE_PARTS_H
#define GAP_COMPARE_PARTS_H

#include "compare/measure.h"

enum gap__cut { GAP__CUT_SITES, GAP__CUT_CATEGORIES, GAP__CUT_STREAMS, GAP__CUT_SIZES, GAP__CUT_CALLS, GAP__CUT_COUNT };

enum { GAP__PART_NAME_BYTES = 160 };

struct gap__part {
  char name[GAP__PART_NAME_BYTES];
  uint64_t bytes, blocks; /* of driver calls: bytes they were about, calls */
  uint8_t category;       /* of most of its bytes; GAP__CAT_UNKNOWN where that says nothing */
};

struct gap__parts {
  struct gap__part *at; /* by name, each once */
  uint32_t count;
};

/* 0 or GAP_ENOMETA; to be freed whatever is returned.  A file without call sites has none. */
int gap__parts_find(const struct gap__measure *, enum gap__cut, struct gap__parts *);
void gap__parts_free(struct gap__parts *);

/* One part in both files; empty where it is absent. */
struct gap__pair {
  const struct gap__part *side[2]; /* NULL: not there */
  bool differs;
};

struct gap__pairs {
  struct gap__pair *at; /* the largest change first */
  uint32_t count;
};

/* By name.  Call sites that only one file has are then matched without their line numbers, in the order of their lines: a change of the
 * program moves lines.  Sizes that only one file has are matched with the nearest within a tenth of which there are as many.  0 or
 * GAP_ENOMETA. */
int gap__pairs_match(enum gap__cut, const struct gap__parts sides[2], struct gap__pairs *);
void gap__pairs_free(struct gap__pairs *);
int64_t gap__pair_change(const struct gap__pair *); /* bytes of the second less those of the first */

#endif
