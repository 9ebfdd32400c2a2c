/* The reclaim ladder: what happens when no idle block fits.  Each rung goes only as far as the request needs. */
#ifndef GAP_RECLAIM_H
#define GAP_RECLAIM_H

#include "core/arena.h"

struct gap__request {
  uint32_t units; /* above GAP__UNITS_MAX: no block can have so many, and the request fails */
  uint64_t bytes;
  bool aligned; /* whole pages: starts at a page border */
  bool tray;    /* `units` are those of a tray: a cached block of the class serves as well, */
  uint32_t class;
  uint32_t least; /* and where so many cannot be had, a shorter tray; 0: no less than `units` */
};

/* Runs the ladder for one request; takes the device lock, expects no lock held.  On success `*block` is RESERVED,
 * wholly mapped, of exactly the size asked; or, for a tray, of the least one; or part of one.  GAP_ENOMEM after the
 * last rung, with a diagnosis.  GAP_ENOTSUP: the driver refuses the addresses, and nothing is said yet; pages cannot
 * serve the request, a whole driver allocation may. */
int gap__reclaim(struct gap__lane *, const struct gap__request *, uint32_t *block);

/* A planned request: the same for a place that is given, in a range of the lane's planned arena, where nobody lives.  GAP_EAGAIN: somebody
 * does, or what was there may still be used by other streams; GAP_ENOMEM and others: no pages could be had.  *contested: it took
 * pages from other places of the plan. */
int gap__reclaim_at(struct gap__lane *, const struct gap__request *, struct gap__range *, uint32_t off, uint32_t *block,
                    bool *contested);

#endif
