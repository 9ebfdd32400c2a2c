/* Idle chunks on their way from the blocks they lie behind: chosen, least recently used first, taken, and put back where they find no
 * place.  Under the device lock; unless said, no lane's lock is held.
 *
 * What is taken becomes a hole, or is bare where blocks may be hollow; the chunks stay mapped at their homes until they move. */
#ifndef GAP_LOOT_H
#define GAP_LOOT_H

#include "core/arena.h"

#define GAP__PICKS_MAX 65536u
struct gap__pick;
int gap__scratch_create(struct gap__policy_state *); /* GAP_ENOMETA */
void gap__scratch_destroy(struct gap__policy_state *);
struct gap__pick *gap__scratch_picks(struct gap__policy_state *); /* room for GAP__PICKS_MAX: convert_plan.h */
uint32_t *gap__loot(struct gap__policy_state *);                  /* the chunks taken, in order */

struct gap__raid {
  const struct gap__lane *lane; /* who asks */
  uint32_t want, taken;         /* pages */
  uint32_t count;               /* chunks in the loot */
  bool behind;                  /* other streams' closed epochs will do: the asking one is ordered behind them */
  bool planned;                 /* for a place of the plan: other such places give last */
  enum gap__place place;        /* where the chunks are to be */
};

/* Takes idle chunks worth `want` pages; returns how many pages they have. */
uint32_t gap__loot_steal(struct gap__policy_state *, struct gap__raid *);
/* Takes up to `excess` pages that `lane` last used in `epoch` or earlier; returns how many chunks are in the loot. */
uint32_t gap__loot_excess(struct gap__policy_state *, struct gap__lane *, uint64_t excess, enum gap__place,
                          uint32_t epoch);
/* Puts [first, count) of the loot back where it was: it is still mapped there. */
void gap__loot_put_back(struct gap__policy_state *, uint32_t first, uint32_t count);

/* Learns what other lanes' streams have ended, so that more can be taken: closes their epochs and looks. */
void gap__loot_refresh(struct gap__policy_state *, const struct gap__lane *asking);
/* The lane, and its epoch, to wait for first so that there is more to take; NULL: none. */
struct gap__lane *gap__loot_wait_for(struct gap__policy_state *, const struct gap__lane *asking, uint32_t *epoch);

#endif
