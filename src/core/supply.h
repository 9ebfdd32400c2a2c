/* Pages for the holes of a reserved block: taken back, stolen, or new.  Under the device lock. */
#ifndef GAP_SUPPLY_H
#define GAP_SUPPLY_H

#include "core/arena.h"

struct gap__supply {
  struct gap__lane *lane; /* who asks */
  struct gap__range *range;
  uint32_t block; /* RESERVED */
  uint64_t soft, firm,
      hard; /* limits on held pages (in an overflow arena on those in host memory): grow, grow if nothing idle is ready, grow at all */
  uint32_t stolen, grown; /* what was done, for the rung's counter; what was taken back counts as neither */
  const struct gap__lane
      *ordered;       /* the asking stream is ordered behind what this lane's has closed; NULL: behind none */
  uint32_t unplanned; /* of the stolen pages, those that lay where a plan has another place */
};

/* Expects the asking lane's lock NOT held.  GAP_ENOMEM: not enough ready pages (those supplied so far are mapped and
 * usable); `dissolve` the block and try elsewhere or wait. */
int gap__supply_pages(struct gap__supply *);

/* Creates and maps chunks of at most `most` pages at `pages` pages of a range that have none; no lane lock needed. What was made before an error
 * stays. */
int gap__supply_new(struct gap__policy_state *, struct gap__range *, uint32_t page, uint32_t pages, uint32_t most);

#endif
