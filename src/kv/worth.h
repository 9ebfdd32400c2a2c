/* The planner: how much of what lies below is worth bringing up.  Pure arithmetic.
 *
 * Bringing up the first n KV pages takes the latency of each place among them and their bytes at its rate; computing
 * them takes their tokens.  The n that saves the most time is brought up; the others would come later than they could
 * be computed. */
#ifndef GAP_KV_WORTH_H
#define GAP_KV_WORTH_H

#include "gapless/kv_tiers.h"
#include "kv/shelf.h"

/* `places[i]`: where the i-th of `count` KV pages in a row lies, KV_PLACE_HERE for those that are on the device behind
 * a gap; `bytes`, `tokens`: of each. */
uint32_t gap__kv_worth(const gap_kv_rates *, const uint8_t *places, uint32_t count, uint64_t bytes, uint32_t tokens);
/* Bringing up `bytes` at once has taken so much time, latency included. */
void gap__kv_worth_learn(gap_kv_rate *, uint64_t bytes, uint64_t ns);
gap_kv_rate *gap__kv_worth_rate(gap_kv_rates *, enum kv_place);

#endif
