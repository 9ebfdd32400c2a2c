/* Where a request goes when no idle block fits: addresses first, pages after.
 *
 * A *run* is a stretch of neighbouring idle blocks and holes.  The places tried in a run are its ends and the ends of each
 * block in it.  Under the device lock and the lane lock. */
#ifndef GAP_PLACE_H
#define GAP_PLACE_H

#include "core/arena.h"

enum gap__place_goal {
  GAP__PLACE_FEW_MISSING, /* the fewest pages to supply; among equals the shortest run */
  GAP__PLACE_FEW_CONSUMED /* the fewest pages taken out of circulation: the last try at the cap */
};

struct gap__spot {
  struct gap__range *range; /* NULL: no run is long enough */
  uint32_t off;             /* in units */
  uint32_t missing; /* pages that must be supplied; those whose lent mapping can be taken back are not counted */
};

#define GAP__PLACE_BLOCKED \
  4096u /* counts a page whose lent mapping is still in use: any other place is better, new addresses too */

void gap__place_search(struct gap__arena *, uint32_t units, bool aligned, enum gap__place_goal, struct gap__spot *out);

/* A place that was chosen elsewhere. */
enum gap__place_state {
  GAP__PLACE_MAPPED,  /* one idle block, with memory behind all of it */
  GAP__PLACE_FREE,    /* nobody has it, but pages are missing */
  GAP__PLACE_PENDING, /* what is there was freed, but other streams may still use it */
  GAP__PLACE_TAKEN
};
/* *block: the one that covers `off`.  Cached blocks of the arena count as taken: flush it before.  Lane lock only. */
enum gap__place_state gap__place_look(const struct gap__range *, uint32_t off, uint32_t units, uint32_t *block);
/* Pages that [off, off + units) lacks.  UINT32_MAX: a chunk that has moved away may still be used there.  Both locks. */
uint32_t gap__place_missing(const struct gap__range *, uint32_t off, uint32_t units);
/* The MAPPED place out of the block that covers it, RESERVED.  Lane lock only.  0: GAP_ENOMETA. */
uint32_t gap__place_carve(struct gap__arena *, uint32_t block, uint32_t off, uint32_t units);

/* Makes [off, off + units) one RESERVED block, extended to page borders where it reaches into holes. 0: GAP_ENOMETA. */
uint32_t gap__place_reserve(struct gap__arena *, const struct gap__spot *, uint32_t units);
/* After its pages were supplied: hands back what lies outside [off, off + units). 0: GAP_ENOMETA, nothing has changed. */
uint32_t gap__place_settle(struct gap__arena *, uint32_t block, uint32_t off, uint32_t units);
/* After supplying failed: what has pages becomes idle, the rest holes again. */
void gap__place_dissolve(struct gap__arena *, uint32_t block);

/* ---- taking back chunks that are lent ---- */

enum gap__place_claim {
  GAP__CLAIM_NOT,   /* in use, or not to be had */
  GAP__CLAIM_LATER, /* idle in a lane of another stream, whose use of it may not have ended */
  GAP__CLAIM_NOW    /* idle at its home: it may serve here without a driver call */
};
/* The chunk behind this lent mapping.  Under the device lock and the lane's; takes the lock of the lane that has the chunk. */
enum gap__place_claim gap__place_claimable(const struct gap__lane *, uint32_t mapping);
/* In two steps: the lane that has the chunk, NULL: it is not to be had; and under its lock what it does with it. */
struct gap__lane *gap__place_lender(const struct gap__lane *, uint32_t mapping);
enum gap__place_claim gap__place_home(const struct gap__lane *, uint32_t mapping);

/* When the best fit is hollow: where the request would lie in it, and whether all that it lacks there can be taken back. */
enum gap__place_claim gap__place_hollow(const struct gap__arena *, uint32_t units, bool aligned, struct gap__spot *out);

#endif
