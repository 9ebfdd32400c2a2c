/* Hollow blocks: idle addresses that keep their place among the idle ones though their memory serves elsewhere.
 *
 * A page whose chunk moves away from inside an idle block of a large arena becomes *bare*: the block stays what it is, in its bin,
 * and is called *hollow*.  So the choice of addresses does not depend on who had to lend pages to whom: a program that does the
 * same things round after round gets the same addresses each time, and finds there, as lent mappings, the chunks of the last
 * round.  Taking those back costs no driver call.
 *
 *     stamp[page] = GAP__BARE  <=>  the page has no memory and lies in a hollow block, or in a reserved one that was,
 *                                   or its chunk is on its way to somewhere else (device lock held)
 *
 * Without a cap, or where chunks are large, there is none of this: memory grows instead, and what is lent rarely has the borders of
 * what is asked for.
 * Hollow blocks are for the paths of requests.  What gives memory back, exchanges it or puts it to sleep folds them first: bare pages
 * become holes.  A pinned pool's pages are known to graphs: there it is holes from the start. */
#ifndef GAP_HOLLOW_H
#define GAP_HOLLOW_H

#include "core/state.h"

static inline bool gap__page_is_bare(const struct gap__range *range, uint32_t page) {
  return range->stamp[page] == GAP__BARE;
}

/* Is a page of [off, off + units) bare?  Lane lock. */
static inline bool gap__hollow_any(const struct gap__range *range, uint32_t off, uint32_t units) {
  for (uint32_t page = gap__page_of(off); page < gap__page_up(off + units); page++)
    if (gap__page_is_bare(range, page)) return true;
  return false;
}

/* All below under both locks. */

/* Do pages that leave an idle block of this arena stay idle addresses? */
bool gap__hollow_allowed(const struct gap__arena *);
/* The chunk at home at `page` of an idle block is about to serve elsewhere.  GAP_ENOMETA: it stays. */
int gap__hollow_take(struct gap__range *, uint32_t block, uint32_t page);
/* It does not, after all. */
void gap__hollow_return(struct gap__range *, uint32_t page);
/* Bare pages of [from, to) that have a home by now are bare no more. */
void gap__hollow_fill(struct gap__range *, uint32_t from, uint32_t to);
/* Bare pages become holes, hollow blocks idle ones; where host memory lacks for that, some stay. */
void gap__hollow_fold(struct gap__arena *);

#endif
