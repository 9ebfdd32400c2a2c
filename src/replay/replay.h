/* Replays a recorded history through a heap on a simulated card, one event at a time.
 *
 * Time: before each event the card's clock stands at the recorded time plus the delay, which is all the time that this
 * replay has spent in driver calls and waits so far: the program is late by that much.
 * Frees: free_requested is held for one event.  If free_completed of the same block follows, the block is freed in
 * stream order.  If not, some other stream still uses it: a stream made up for this block is recorded on it and held
 * back on the card, the block is freed, and the later free_completed lets the made-up stream go on.
 * empty_cache() leaves no event of its own: a burst of segment_free is one unless a segment_alloc or oom follows, which
 * makes it the recorded policy's retry; the native policy repeats that one too when it lies apart from the malloc.
 * Other segment events are the recorded allocator's business and ignored. */
#ifndef GAP_REPLAY_H
#define GAP_REPLAY_H

#include "conf/conf.h"
#include "gapless/tools.h"
#include "replay/live.h"
#include "trace/history.h"

/* Which strategy a policy is; of the ideal one, which runs none, nothing is asked. */
static inline enum gap__strategy gap__replay_strategy(enum gap_policy policy) {
  if (policy == GAP_POLICY_POOLED) return GAP__STRATEGY_POOLED;
  if (policy == GAP_POLICY_HEURISTIC) return GAP__STRATEGY_HEURISTIC;
  return policy == GAP_POLICY_GAPLESS ? GAP__STRATEGY_GAPLESS : GAP__STRATEGY_CACHING;
}

/* Replays events through the strategy in `conf` and fills everything of `result` that a run yields; `peaks` are the history's.
 * 0, also when it did not fit; or GAP_EFORMAT, GAP_EMISMATCH, GAP_ENOMETA with the reason in `message`. */
int gap__replay_run(const struct gap__history *, const gap_replay_options *, const struct gap__conf *conf,
                    const struct gap__live *peaks, gap_replay_result *result, char *message, size_t bytes);

/* How `gap__mincap_search` tries a cap. */
typedef int gap__mincap_try(void *arg, uint64_t cap_bytes, bool *fitted);
/* The least cap: the smallest tried from which every larger one tried fits, to a step of max(2 MiB, 0.0005 P); 0 when even 64 P does
 * not.  Success need not be monotone in the cap, so caps are tried from above. */
int gap__mincap_search(uint64_t peak_live_bytes, gap__mincap_try *, void *arg, uint64_t *out);

#endif
