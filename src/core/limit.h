/* How much may be held: the cap, the reserve left to neighbours, and the limit up to which growing beats stealing. Under
 * the device lock. In pages. */
#ifndef GAP_LIMIT_H
#define GAP_LIMIT_H

#include "core/state.h"

/* Held by all strategies of the device. */
uint64_t gap__held_pages(const struct gap__policy_state *);
/* The same, or the pages of the overflow in host memory. */
uint64_t gap__held_pages_at(const struct gap__policy_state *, enum gap__place);
/* The cap; without one what the driver has left, less the reserve. */
uint64_t gap__hard_limit(struct gap__policy_state *);
/* What may stay held after a change of the limits: at most the cap, and less where the reserve is pierced. */
uint64_t gap__limit_keep(struct gap__policy_state *);
/* What can be held at all: the hard limit, at most the card. */
uint64_t gap__limit_most(struct gap__policy_state *);
/* Up to here growing is preferred to stealing: the cap, else grow_limit x the peak of live bytes. */
uint64_t gap__soft_limit(struct gap__policy_state *, uint64_t request_bytes);
/* Up to here growing is preferred to ordering one stream behind another: a little beyond the soft limit. */
static inline uint64_t gap__firm_limit(uint64_t soft, uint64_t hard) {
  uint64_t firm = soft + soft / 20;
  return firm < hard ? firm : hard;
}
/* The largest chunk to create now, in pages: `chunk_max`; unless that is set, up to 32 MiB while less than half of an
 * uncapped card is held, since few large chunks cost a tenth of many small ones, but at most a 512th of what is held:
 * each idle block may trap one.  Where conversion frees what is trapped, always 32 MiB; else at a cap, and where
 * streams of a plan take turns, one page. */
uint32_t gap__limit_chunk_pages(const struct gap__policy_state *);
/* Is there a cap, and are all new chunks single pages?  Then the same pages go to and fro: they are left where they can be taken back. */
bool gap__limit_is_tight(const struct gap__policy_state *);
/* After held has changed: is memory scarce now? */
void gap__limit_judge(struct gap__policy_state *);
/* What is left free for other programs. */
uint64_t gap__limit_reserve(const struct gap__policy_state *);
/* In bytes, where nobody asked for an amount and there is no cap. */
uint64_t gap__limit_reserve_of(uint64_t card_bytes);
/* How much less the driver has left, beyond the reserve, than a request of `pages` may take of it; 0 also where the cap, or the card, is too
 * small for it. */
uint64_t gap__limit_short(const struct gap__policy_state *, uint64_t pages);
/* The driver is asked again what it has left. */
void gap__limit_ask_again(struct gap__policy_state *);
/* The driver refused: forget what it said earlier, and ask it from now on although a cap is set. */
void gap__limit_refused(struct gap__policy_state *);

#endif
