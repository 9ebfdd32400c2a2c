/* Is a file complete, and does it agree with itself? */
#ifndef GAP_EXPLAIN_HONEST_H
#define GAP_EXPLAIN_HONEST_H

#include "base/text.h"
#include "explain/lives.h"

struct gap__honest {
  bool has_events; /* allocations and frees, not only a mark of the snapshot */
  bool has_segments, has_times, has_stacks, has_settings;
  bool tells_driver; /* what was taken from the driver: a log of requests does not say */
  bool is_empty;     /* neither segments nor events, not even a mark: nothing can be said */
  bool wrapped;
  uint64_t lives_before; /* blocks that were there before the first event */
  uint32_t contradictions;
  struct gap__text first; /* the first contradictions in words, a sentence each */
};

/* 0 or GAP_ENOMETA. */
int gap__honest_find(const struct gap__history *, uint32_t device, const struct gap__lives *, struct gap__honest *);
void gap__honest_free(struct gap__honest *);

#endif
