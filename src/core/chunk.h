/* Chunks and their mappings: the records beside the driver calls.  All under the device lock; errors are the driver's,
 * and after an error nothing has changed unless said. */
#ifndef GAP_CHUNK_H
#define GAP_CHUNK_H

#include "core/state.h"

/* Creates a chunk without a mapping. GAP_ENOMEM: the card is full. */
int gap__chunk_create(struct gap__policy_state *, uint32_t pages, uint32_t *out);
/* Unmaps every mapping and gives the chunk back.  Every address it is mapped at must be out of use. */
int gap__chunk_release(struct gap__policy_state *, uint32_t chunk);
/* Maps a chunk at `page` of `range`, whose slots are empty; not accessible yet. The first mapping is the home. */
int gap__chunk_map(struct gap__policy_state *, uint32_t chunk, struct gap__range *range, uint32_t page, uint32_t *mapping);
/* Makes a mapping the chunk's home; the old home becomes lent. */
void gap__chunk_rehome(struct gap__policy_state *, uint32_t mapping);
/* Removes a lent mapping, or the last one of a chunk about to be released. */
int gap__mapping_unmap(struct gap__policy_state *, uint32_t mapping);
/* May a lent mapping be removed now: is its address out of use? */
bool gap__mapping_settled(const struct gap__policy_state *, uint32_t mapping);

#endif
