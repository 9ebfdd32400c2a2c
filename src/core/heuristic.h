/* The strategy `heuristic`, and why it has chosen what serves. */
#ifndef GAP_HEURISTIC_H
#define GAP_HEURISTIC_H

#include "core/policy.h"

enum gap__heuristic_reason {
  GAP__HEURISTIC_PLENTY,   /* at most half of the card is held: caching_allocator */
  GAP__HEURISTIC_CAPPED,   /* there is a cap: gapless */
  GAP__HEURISTIC_SCARCE,   /* more is held, or a request would fill the card: gapless */
  GAP__HEURISTIC_NO_PAGES, /* the device maps none: caching_allocator */
  GAP__HEURISTIC_FAILED,   /* other programs have filled the card, and a request found no segment: gapless */
  GAP__HEURISTIC_STEADY    /* more is held, but the arena asks for few sizes again and again: caching_allocator */
};

/* What serves which arena and why, in lines, where heuristic is in force. */
struct gap__text;
void gap__heuristic_say(struct gap__device *, struct gap__text *out);

#endif
