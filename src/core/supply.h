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

/* Idle whole pages that could serve `lane` once their epochs have completed, and the lane to wait for first. */
struct gap__lane *gap__supply_wait_for(struct gap__policy_state *, const struct gap__lane *, uint32_t *epoch);

/* Learns what other lanes' streams have ended, so that more can be taken back: closes their epochs and looks. */
void gap__supply_refresh(struct gap__policy_state *, const struct gap__lane *asking);

/* Gives idle chunks back to the driver until at most `keep_pages` are held; under the device lock, no lane lock held.
 * `pool` NULL: all lanes that are not pinned; else only that pool's, unless it is pinned.  Waits for epochs where `wait`. Returns pages. */
uint64_t gap__trim_idle(struct gap__policy_state *, const gap_pool_id *pool, uint64_t keep_pages, bool wait);
/* The same with what was last used in `epoch` or earlier, of all lanes, as far as it can go without waiting. */
uint64_t gap__trim_old(struct gap__policy_state *, uint64_t keep_pages, uint32_t epoch);

/* The same of host memory behind device addresses: until at most `keep_pages` are there, of what was last used in `epoch` or earlier. */
uint64_t gap__trim_host(struct gap__policy_state *, const gap_pool_id *pool, uint64_t keep_pages, uint32_t epoch,
                        bool wait);

#define GAP__PICKS_MAX 65536u
struct gap__pick;
struct gap__pick *gap__scratch_picks(struct gap__policy_state *); /* room for GAP__PICKS_MAX: convert_plan.h */
int gap__scratch_create(struct gap__policy_state *);
void gap__scratch_destroy(struct gap__policy_state *);

#endif
