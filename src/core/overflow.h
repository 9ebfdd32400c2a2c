/* Overflow: host memory behind device addresses, for requests that no other rung of the ladder finds device memory for (the key
 * `overflow`).
 *
 * What is placed there lies in an arena of its own in each lane.  So a new block lies wholly in host memory or not at all, and memory
 * there serves no request that device memory would do for: only the last rung looks.
 *
 *     a chunk is in host memory or on the device, whole; new ones in an overflow arena are in host memory, all others on the device;
 *     live blocks move (overflow_move.h): then device memory may be behind pages of an overflow arena, whatever lies there, and host
 *     memory behind others' only where something lives
 *     held pages (the cap's) = those of chunks on the device;  overflow.pages = those of chunks in host memory
 *     what the client's budget has given = overflow.pages + overflow.promised_pages
 *
 * Its chunks are single pages: what a chunk of host memory costs is locking it, by the byte (0.3 ms a MiB), so no part of one is to be
 * trapped; and it is kept while it is idle, and taken from other streams rather than made.  All under the device lock. */
#ifndef GAP_OVERFLOW_H
#define GAP_OVERFLOW_H

#include "core/state.h"

/* The configuration was set. */
void gap__overflow_configure(struct gap__policy_state *);
/* How many pages may be there. */
uint64_t gap__overflow_limit(const struct gap__policy_state *);

static inline enum gap__place gap__arena_place(const struct gap__arena *arena) {
  return arena->kind == GAP__ARENA_OVERFLOW ? GAP__PLACE_HOST : GAP__PLACE_DEVICE;
}

/* Asks the client for memory of chunks that are about to be made; false: it may not be, and overflow.refusal says why.  When they are
 * made, what is left of the promise goes back. */
bool gap__overflow_ask(struct gap__policy_state *, uint64_t pages);
void gap__overflow_settle(struct gap__policy_state *);
/* A chunk of so many pages was made there, or (below 0) is gone. */
void gap__overflow_count(struct gap__policy_state *, int64_t pages);
/* The driver did not give one. */
void gap__overflow_refused(struct gap__policy_state *, int rc);

/* Others want to lock so many bytes: idle memory there goes, as far as it can without waiting. */
void gap__overflow_ease(struct gap__policy_state *, uint64_t bytes);

/* Has the arena, which is none of the overflow, host memory behind blocks?  One of them was freed: that goes, and the rest is idle.  Both
 * locks are held. */
static inline bool gap__overflow_holds(const struct gap__arena *arena) {
  return arena->host_pages && arena->kind != GAP__ARENA_OVERFLOW;
}
void gap__overflow_leave(struct gap__policy_state *, struct gap__range *, uint32_t block);
/* A request was served there: how much is there in use? */
void gap__overflow_served(struct gap__policy_state *, uint64_t bytes);

/* Bytes of live and pending blocks that lie in host memory. */
uint64_t gap__overflow_live_bytes(struct gap__policy_state *);
void gap__overflow_stats(struct gap__policy_state *, struct gap__stats *);
/* A sentence on why it did not serve the last request, with a blank before it; "". */
void gap__overflow_words(const struct gap__policy_state *, char *text, size_t bytes);

#endif
