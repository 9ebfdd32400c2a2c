/* What a strategy is: one table a strategy, one state a device.  heap.c dispatches; a block is freed by the strategy that
 * made it, so the strategy of a heap may change while blocks live. */
#ifndef GAP_POLICY_H
#define GAP_POLICY_H

#include <stdatomic.h>

#include "core/heap.h"

struct gap__policy_state; /* the strategy's own */

/* What all strategies of one device share. Guarded by nobody: read-mostly, or atomic. */
struct gap__device {
  gap_heap *heap;
  int ordinal;
  struct gap__dev *dev;
  struct gap__conf conf;            /* the values in force */
  _Atomic uint64_t cap_bytes;       /* 0: none */
  _Atomic uint64_t held_bytes;      /* chunks and segments of all strategies */
  enum gap__maker maker;
  gap__oom_callback *oom_callback;
  void *oom_arg;
  char diagnosis[1024];             /* of the last failure; guarded by the strategy's device lock */
  _Atomic(const struct gap__policy *) current;                   /* serves new blocks */
  _Atomic(struct gap__policy_state *) state[GAP__STRATEGY_COUNT]; /* NULL until first used; then fixed */
};

struct gap__policy {
  const char *name; /* "gapless", "caching_allocator" */
  enum gap__strategy strategy;
  int (*create)(struct gap__device *, struct gap__policy_state **out);
  void (*destroy)(struct gap__policy_state *);
  int (*alloc)(struct gap__policy_state *, gap_stream, gap_pool_id, uint64_t bytes, gap_addr *out); /* bytes >= 1 */
  int (*free)(struct gap__policy_state *, gap_addr); /* GAP_ENOTMINE: somebody else's */
  int (*record_stream)(struct gap__policy_state *, gap_addr, gap_stream);
  int (*retire_stream)(struct gap__policy_state *, gap_stream);
  int (*pool_retain)(struct gap__policy_state *, gap_pool_id);
  int (*pool_release)(struct gap__policy_state *, gap_pool_id);
  int (*trim)(struct gap__policy_state *, gap_pool_id, uint64_t *bytes_returned);
  int (*configure)(struct gap__policy_state *);               /* dev->conf or the cap changed */
  void (*stats)(struct gap__policy_state *, struct gap__stats *); /* adds to *stats */
  void (*reset)(struct gap__policy_state *, bool peaks, bool accumulated);
  int (*walk)(struct gap__policy_state *, gap__walk_fn *, void *arg);
  int (*check)(struct gap__policy_state *, char *text, size_t bytes);
  void (*tick)(struct gap__policy_state *); /* may be NULL */
  void (*after_fork)(struct gap__policy_state *); /* in the child: locks may be held by threads that are gone */
};

extern const struct gap__policy gap__policy_gapless, gap__policy_caching;

#endif
