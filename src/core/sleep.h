/* Memory that sleeps: blocks and addresses stay, the driver has the memory back.
 *
 * All lanes of a pool fall asleep together.  While a lane is *asleep* nothing is allocated from it and its pages serve nobody else;
 * frees go on.  Its chunks then go one by one: a chunk is asleep when mappings of it are away.  Records stay as they were,
 *
 *     chunk.asleep  <=>  a mapping of it is away (not the driver's any more)
 *     chunk.handle = 0 in a chunk that is asleep, or the driver would not take it back and its bytes are as they were
 *     lane.asleep_pages = pages of the chunks that are asleep and have their home in the lane
 *     held pages = pages of all chunks with a handle
 *
 * so that waking makes a new chunk, maps it where the old one was and fills it.  What is in it is the caller's matter (src/tier), and
 * so is that nothing on the device uses the addresses: by the same promise as at a safe point (convert.h), for this pool only.
 *
 * All take the device lock themselves; one caller at a time for a pool. */
#ifndef GAP_SLEEP_H
#define GAP_SLEEP_H

#include "core/state.h"

/* A chunk of a pool that sleeps, or is to. */
struct gap__bed {
  gap_addr addr; /* of its home */
  uint32_t pages;
  bool asleep;
  bool empty;                        /* asleep, and its bytes are not in it: they must be brought back */
  bool untouched;                    /* nothing was allocated from its lane since that woke */
  uint64_t live[GAP__CONVERT_WORDS]; /* bit i: something lives on page i */
};
typedef int gap__bed_fn(void *arg, const struct gap__bed *); /* other than 0 ends the visit */

/* From here on the pool's lanes are asleep, idle chunks of a pool that is not pinned are the driver's, and all work that was
 * queued on the device is done.  GAP_EDEVICE: nothing is asleep that was not before. */
int gap__sleep_begin(struct gap__policy_state *, gap_pool_id);
/* Lanes in which nothing is asleep any more are as they were before; of a pool whose lanes all are, true. */
bool gap__sleep_end(struct gap__policy_state *, gap_pool_id);

/* Visits the chunks that have their home in sleeping lanes of the pool, by range and address.  Left out are those that others know
 * (exported, registered): they stay; *kept_pages (may be NULL) says how many pages.  The visitor calls nothing of this. */
int gap__sleep_visit(struct gap__policy_state *, gap_pool_id, gap__bed_fn *, void *arg, uint64_t *kept_pages);
bool gap__sleep_any(struct gap__policy_state *, gap_pool_id);   /* is a chunk of it asleep? */
bool gap__sleep_lives(struct gap__policy_state *, gap_pool_id); /* has it a block that is live or pending? */
uint64_t gap__sleep_pages(struct gap__policy_state *);          /* that are asleep, of all pools */

/* Gives the chunk with its home at `addr` back.  `live`: bits as in a bed; what of a pool that is not pinned nothing lived on becomes
 * chunks of its own, that need not wake; NULL: it stays one.  After an error it is as it was, or asleep with its bytes: rise maps
 * it again. */
int gap__sleep_fall(struct gap__policy_state *, gap_addr addr, const uint64_t *live);

/* Before waking all of a pool: chunks without a live byte of a pool that is not pinned become holes, and neighbours that live throughout
 * become one chunk of up to `most_pages`: few large ones cost the driver less.  Cannot fail. */
void gap__sleep_tidy(struct gap__policy_state *, gap_pool_id, uint32_t most_pages);
/* Are there, within the limits, so many pages for what is to wake?  Idle memory goes for them.  GAP_ENOMEM. */
int gap__sleep_room(struct gap__policy_state *, uint64_t pages);
/* In this order for each chunk: memory, its addresses, and when its bytes are there, awake. */
int gap__sleep_make(struct gap__policy_state *, gap_addr addr);
int gap__sleep_rise(struct gap__policy_state *, gap_addr addr);
void gap__sleep_wake(struct gap__policy_state *, gap_addr addr);
/* Instead of the last: it is asleep again, or still.  What the driver does not let go of is kept for the next time. */
void gap__sleep_undo(struct gap__policy_state *, gap_addr addr);

/* When the heap ends. */
void gap__sleep_discard(struct gap__policy_state *, uint32_t chunk);

/* For a new lane: is its pool asleep?  Under the device lock. */
bool gap__sleep_sleeps(const struct gap__policy_state *, gap_pool_id);
void gap__sleep_mark(struct gap__lane *); /* both locks are held */
/* Says why a request was refused. */
void gap__sleep_explain(const struct gap__lane *);

#endif
