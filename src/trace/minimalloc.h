/* MiniMalloc's CSV form: a block a line, its life as [lower, upper) in any unit of time. */
#ifndef GAP_TRACE_MINIMALLOC_H
#define GAP_TRACE_MINIMALLOC_H

#include "trace/input.h"
#include "trace/vec.h"

struct gap__minimalloc_block {
  uint64_t lower, upper, size, alignment; /* alignment 1 where the file has none */
};

struct gap__minimalloc {
  GAP__VEC(struct gap__minimalloc_block) blocks; /* in the order of the file */
};

/* The first line names the columns lower, upper and size, maybe alignment; id, offset, hint and gaps are passed over.  GAP_EFORMAT,
 * GAP_ELIMIT, GAP_EIO with a message; to be freed whatever is returned. */
int gap__minimalloc_table(struct gap__input *, struct gap__minimalloc *, char **message);
void gap__minimalloc_free(struct gap__minimalloc *);

#endif
