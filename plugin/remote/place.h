/* Which servers a key belongs to: rendezvous hashing ("highest random weight"; Thaler and Ravishankar, "Using
 * name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998).
 *
 * Each server has a score for each key; the key's servers are those with the highest ones.  No table is kept or agreed
 * upon; a server that goes takes only its own keys with it, to all others alike, and one that comes takes a fair share
 * from each.  Time grows with the number of servers, of which there are few. */
#ifndef GAP_REMOTE_PLACE_H
#define GAP_REMOTE_PLACE_H

#include <stdint.h>

#include "base/mix.h"

/* `server` and `key` are digests. */
static inline uint64_t gap__place_score(uint64_t server, uint64_t key) { return gap__mix64(key ^ gap__mix64(server)); }

/* The `wanted` highest of `count` servers, best first; equal scores go to the smaller digest. */
void gap__place_rank(const uint64_t *servers, uint32_t count, uint64_t key, uint32_t wanted, uint16_t *out);

#endif
