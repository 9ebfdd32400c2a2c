/* Which chunks are worth exchanging: the planning part of conversion.  Under the device lock; takes lane locks. */
#ifndef GAP_CONVERT_PLAN_H
#define GAP_CONVERT_PLAN_H

#include "core/state.h"

struct gap__pick {
  uint32_t chunk;
  uint32_t idle, kept; /* pages that nothing lies on, and the others; both above 0 */
};

struct gap__convert_plan {
  struct gap__pick *picks; /* the best first; of the scratch */
  uint32_t count;
  uint64_t idle;  /* pages of all of them */
  uint64_t whole; /* pages of wholly idle chunks that may serve anybody: nothing need be exchanged for these */
  int64_t refused[GAP__REFUSAL_COUNT]; /* partly idle chunks that may not be exchanged, by cause */
};

/* Looks at every chunk.  `settled`: only pages that are out of use count as idle; else those too that will be once all streams
 * stand still. */
void gap__convert_plan(struct gap__policy_state *, bool settled, struct gap__convert_plan *out);
/* Why a chunk may not be exchanged; GAP__REFUSAL_COUNT: it may.  `driver`: it is not at home. */
enum gap__refusal gap__convert_refusal(const struct gap__policy_state *, uint32_t chunk);
/* Which pages of a chunk that is at home lie under idle blocks, and were last used in `epoch` or earlier: bit i of word i / 64.
 * Returns how many; its lane's lock is held, and its arena flushed.  What is freed while streams stand before a gate may still be used
 * by work behind it, and has a later epoch. */
uint32_t gap__convert_idle(const struct gap__policy_state *, const struct gap__chunk_rec *, uint32_t epoch,
                           uint64_t idle[GAP__CONVERT_WORDS]);
/* The next run of pages whose bit is `wanted` in [*from, pages). */
bool gap__convert_run(const uint64_t *bits, uint32_t pages, bool wanted, uint32_t *from, uint32_t *to);

#endif
