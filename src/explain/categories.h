/* What blocks are for, told from their lives and, with stacks, from their call sites.
 *
 *   weights           there before the first backward pass, outlive steps; with stacks: allocated by a constructor or a conversion of a
 *                     module; without: of a size that a gradient or an optimiser state has as well
 *   gradients         allocated by a backward pass, still there when the optimiser runs
 *   optimiser states  allocated by an optimiser, outlive its run
 *   activations       allocated by a forward pass, freed by the backward pass that follows or later
 *   temporary         freed in the phase that allocated them
 *   unknown           everything else
 * A block that the history's end cut short is judged as the others of its call site were. */
#ifndef GAP_EXPLAIN_CATEGORIES_H
#define GAP_EXPLAIN_CATEGORIES_H

#include "explain/steps.h"

struct gap__categories {
  uint64_t at_peak[GAP__CAT_COUNT]; /* bytes when live bytes were at their peak */
  uint64_t most[GAP__CAT_COUNT];    /* most bytes at a time */
  uint64_t in_graph_pools;          /* of the unknown at the peak: blocks of private pools */
};

/* Sets the category of every life and sums them up.  0 or GAP_ENOMETA. */
int gap__categories_find(const struct gap__history *, uint32_t device, struct gap__lives *, const struct gap__sites *,
                         const struct gap__steps *, struct gap__categories *);
/* "weights", "gradients", "activations", "optimiser_states", "temporary_buffers", "unknown": also the names in JSON. */
const char *gap__category_name(enum gap__category);
/* The one with most bytes. */
enum gap__category gap__category_most(const uint64_t bytes[GAP__CAT_COUNT]);

#endif
