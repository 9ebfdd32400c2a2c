/* The flame graph of the blocks that are live at the peak: their stacks as one tree, outermost frames first.
 *
 * Where the file has no stacks the tree has categories and, below them, sizes of blocks.  Siblings too narrow to be seen become one
 * node, "other", so that a node's children and what ended in it always sum to the node. */
#ifndef GAP_REPORT_FLAME_H
#define GAP_REPORT_FLAME_H

#include "explain/subject.h"
#include "report/names.h"

enum { GAP__FLAME_DEPTH = 96 };

struct gap__flame_node {
  uint64_t bytes; /* with all below it */
  uint64_t by_category[GAP__CAT_COUNT];
  uint64_t value;       /* frame, category or size, by kind */
  uint32_t parent;      /* of the root itself */
  uint32_t first, next; /* child, sibling; 0 none */
  uint32_t blocks;
  uint8_t kind; /* enum gap__flame_kind */
};

enum gap__flame_kind {
  GAP__FLAME_ROOT,
  GAP__FLAME_FRAME,
  GAP__FLAME_UNKNOWN, /* blocks without a stack, beside others that have one */
  GAP__FLAME_CATEGORY,
  GAP__FLAME_SIZE
};

struct gap__flame {
  struct gap__flame_node *nodes; /* [0] the root */
  uint32_t count, room;
  struct gap__names frames; /* of the tree, also of what will not be shown */
  bool by_site;
  uint64_t least; /* bytes of a node that is shown by itself */
};

/* At most `shown` nodes will be emitted.  0 or GAP_ENOMETA. */
int gap__flame_find(const struct gap__subject *, uint32_t shown, struct gap__flame *);
void gap__flame_free(struct gap__flame *);
/* 0 or GAP_ENOMETA. */
int gap__flame_emit(const struct gap__flame *, bool has_events, struct gap__names *, struct gap__emit *);

#endif
