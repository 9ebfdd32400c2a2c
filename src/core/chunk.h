/* Chunks and their mappings: the records beside the driver calls.  All under the device lock; errors are the driver's,
 * and after an error nothing has changed unless said. */
#ifndef GAP_CHUNK_H
#define GAP_CHUNK_H

#include "core/state.h"

/* Creates a chunk without a mapping. GAP_ENOMEM: the card is full.  In host memory: so many pages were promised (overflow.h). */
int gap__chunk_create(struct gap__policy_state *, uint32_t pages, enum gap__place, uint32_t *out);
/* Unmaps every mapping, the home last, and gives the chunk back.  Every address it is mapped at must be out of use.  After an
 * error it is still at home, perhaps with fewer lent mappings, or it is loose: it has no mapping any more. */
int gap__chunk_release(struct gap__policy_state *, uint32_t chunk);
/* The same for a chunk that cannot stay where it is: after an error it is loose. */
int gap__chunk_abandon(struct gap__policy_state *, uint32_t chunk);
/* It has no home any more, and goes back when its addresses are out of use: it is loose. */
void gap__chunk_leave(struct gap__policy_state *, uint32_t chunk);
static inline bool gap__chunk_is_loose(const struct gap__policy_state *s, uint32_t chunk) {
  return !gap__chunk_at(s, chunk)->home;
}
/* For chunks that fall asleep and wake: their pages are held no more, or (above 0) again.  And of such a chunk, for good: nobody is at
 * home on `pages` pages of the range. */
void gap__chunk_count_asleep(struct gap__policy_state *, const struct gap__chunk_rec *, int64_t pages);
void gap__chunk_forget_home(const struct gap__range *, uint32_t pages);
/* Counts a page that the driver has given and will not take back, or (-1) has taken back after all. */
void gap__chunk_count_extra(struct gap__policy_state *, int64_t pages);
/* Maps a chunk at `page` of `range`, whose slots are empty; not accessible yet. The first mapping is the home. */
int gap__chunk_map(struct gap__policy_state *, uint32_t chunk, struct gap__range *range, uint32_t page,
                   uint32_t *mapping);
/* Makes the mappings that lie side by side on these pages usable. */
int gap__chunk_access(struct gap__policy_state *, struct gap__range *range, uint32_t page, uint32_t pages);
/* Makes a mapping the chunk's home; the old home becomes lent. */
void gap__chunk_rehome(struct gap__policy_state *, uint32_t mapping);
/* Removes a lent mapping. */
int gap__mapping_unmap(struct gap__policy_state *, uint32_t mapping);
/* The epoch of the last use at a mapping's address. */
uint32_t gap__mapping_last_use(const struct gap__policy_state *, uint32_t mapping);
/* May a lent mapping be removed now: is its address out of use? */
bool gap__mapping_settled(const struct gap__policy_state *, uint32_t mapping);
/* Are all addresses of a chunk out of use?  `wait`: waits until they are; false then where a pinned pool may use it, or the wait failed. */
bool gap__chunk_settled(const struct gap__policy_state *, uint32_t chunk, bool wait);

#endif
