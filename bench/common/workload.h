/* Two patterns over a set of live blocks: *churn* frees a random one and allocates a fresh size, a *hit pair*
 * allocates and frees one size while the others stay live.
 *
 * The random choices are drawn once and played in a circle, the same for every subject: after a whole round the same
 * sizes are live again, so that a heap which has seen a round has grown as far as it must. */
#ifndef GAP_BENCH_WORKLOAD_H
#define GAP_BENCH_WORKLOAD_H

#include "subject.h"

struct bench_step {
  uint32_t slot, bytes;
};

struct bench_script {
  uint32_t live_count, step_count;
  uint32_t *first;          /* sizes that are live at the start */
  struct bench_step *steps; /* a round */
};

/* Sizes are log-uniform from `least` to `most` bytes. */
struct bench_script bench_script_make(uint32_t live_count, uint32_t least, uint32_t most, uint32_t step_count);
void bench_script_free(struct bench_script *);

/* One user of a subject: a stream and the blocks that live on it. */
struct bench_user {
  struct bench_subject *subject;
  const struct bench_script *script;
  gap_stream stream;
  uint64_t *live;
  uint32_t at; /* in the round */
};

void bench_user_start(struct bench_user *, struct bench_subject *, const struct bench_script *, gap_stream);
void bench_user_end(struct bench_user *); /* frees what lives */
/* Makes memory plenty, then plays rounds until one passes without a driver call for memory.  Random sizes scatter
 * idle pages, and a heap that holds hardly more than is live fetches them by driver calls again and again, which is
 * another measurement. */
void bench_user_warm(struct bench_user *);

void bench_churn(struct bench_user *, uint32_t count);
void bench_pairs(struct bench_user *, uint32_t count, uint64_t bytes);
/* `pair_bytes` 0: churn. */
void bench_play(struct bench_user *, uint32_t count, uint64_t pair_bytes);

/* How many operations take about `target_ns` of CPU time; at most `most`. */
uint32_t bench_calibrate(struct bench_user *, uint64_t pair_bytes, uint64_t target_ns, uint32_t most);

#endif
