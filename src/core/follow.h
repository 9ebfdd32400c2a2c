/* Following a plan (the option `plan`, docs/plan.md): requests that come as an earlier run foretold get the places that were
 * chosen for them then.
 *
 * A plan lists steps: for each of its streams, in order, the length of a request and its offset.  A lane follows one stream
 * of the plan; its *track* says how far it is.  The order of two streams to each other is not looked at: it varies from run to run.
 *
 *   expected     the request has the length of the next step; or, within the next few, of the step as far behind as requests
 *                have been missed (some had another length)
 *   found again  the last four requests are four steps in a row not far ahead, or the last eight are the first eight of all,
 *                where each period begins.  After the last step the first is expected
 *   lost         when far more requests were not expected than were, or most places take pages from other places of the plan
 *                (those of streams that take turns): the lane follows nothing until the plan begins anew
 *
 * Places are offsets into a range of addresses that each following lane has for itself, so no place is ever in use by another
 * stream: pages move between streams as they always do, under the rules of supply.h.  A place is handed out only when every
 * block there is idle or a hole; else, and where no pages can be had, the request is served as if there were no plan.
 *
 * Cost without a plan: none.  A lane is `plain` only while there is no plan, and only plain lanes are on the hot path. */
#ifndef GAP_FOLLOW_H
#define GAP_FOLLOW_H

#include "core/state.h"

struct gap__plan_step {
  uint32_t units, off; /* length and offset */
};

struct gap__plan_stream {
  uint32_t first, count;      /* its steps; at least one */
  uint32_t low, high;         /* where they lie */
  _Atomic uint32_t followers; /* lanes */
};

struct gap__plan {
  struct gap__plan_stream *streams; /* in order of appearance */
  struct gap__plan_step *steps;     /* by stream, in order of time */
  uint32_t stream_count, step_count;
  uint32_t units;   /* the highest end */
  bool takes_turns; /* two streams share addresses: their pages come and go */
};

/* Reads and checks a plan file.  GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOTSUP (not for a program: its offsets are no multiples of
 * 512 bytes), GAP_ENOMETA; `why` is added to. */
struct gap__text;
int gap__plan_load(const char *path, struct gap__plan **out, struct gap__text *why);
void gap__plan_unload(struct gap__plan *);

/* Follows the plan that the configuration names, or none; one that cannot be read is logged.  The heap's lock is held. */
void gap__follow_configure(struct gap__policy_state *);
/* The place of a request of the default pool, RESERVED; 0: it has none.  There is a plan.  The lane lock is held; it may be given up
 * meanwhile. */
uint32_t gap__follow(struct gap__lane *, uint32_t units, uint64_t bytes);
/* The lane serves somebody else from now on.  Both locks are held. */
void gap__follow_leave(struct gap__lane *);
void gap__follow_stats(const struct gap__policy_state *, struct gap__stats *);
void gap__follow_reset(struct gap__policy_state *);

/* The limit up to which growing beats stealing, for places of the plan until it has all the pages that it needs.  `soft`: for other places.
 * The device lock is held, no lane lock, and nothing is reserved. */
uint64_t gap__follow_limit(struct gap__policy_state *, uint64_t soft, uint64_t hard);

static inline bool gap__follows(const struct gap__policy_state *s) {
  return atomic_load_explicit(&s->plan, memory_order_relaxed) != NULL;
}

/* Is there a plan whose streams take turns at the same addresses? */
static inline bool gap__follow_takes_turns(const struct gap__policy_state *s) {
  const struct gap__plan *plan = atomic_load_explicit(&s->plan, memory_order_relaxed);
  return plan && plan->takes_turns;
}

#endif
