/* From which event on a block of a given size can no longer be had. */
#ifndef GAP_EXPLAIN_SERVABLE_H
#define GAP_EXPLAIN_SERVABLE_H

#include "explain/figures.h"

struct gap__servable {
  bool at_start, at_end; /* it could be had before the first and after the last event */
  uint32_t first_lost;   /* the first event after which it cannot be had; GAP__LIFE_NEVER: none */
  uint32_t last_lost;    /* the last such event from which on it never can again; GAP__LIFE_NEVER: none */
  uint64_t held_then, live_then, returnable_then; /* after first_lost */
};

/* `limit_bytes`: what may be held.  A block can be had where an idle piece is as large, or where what can be returned and what may
 * still be taken make a segment for it.  0 or GAP_ENOMETA. */
int gap__servable_find(const struct gap__history *, uint32_t device, const struct gap__lives *,
                       const struct gap__asker *, uint64_t request, uint64_t limit_bytes, struct gap__servable *);

#endif
