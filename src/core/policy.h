/* What a strategy is: one table a strategy, one state a device.  heap.c dispatches; a block is freed by the strategy that
 * made it, so the strategy of a heap may change while blocks live. */
#ifndef GAP_POLICY_H
#define GAP_POLICY_H

#include <stdatomic.h>

#include "base/lock.h"
#include "core/heap.h"

struct gap__policy_state; /* the strategy's own */
struct gap__glance;       /* glance.h */

/* Other gapless processes on the card: neighbour.h. */
struct gap__hood {
  _Atomic bool lends;                                             /* there may be some */
  _Atomic int64_t known, unheard, held_bytes, kept_bytes;         /* what the request at hand has heard of them */
  _Atomic int64_t asks, got_bytes, silent, requests, given_bytes; /* totals */
};
void gap__hood_stats(struct gap__hood *, struct gap__stats *);
void gap__hood_reset(struct gap__hood *);

/* What all strategies of one device share. Guarded by nobody: read-mostly, or atomic. */
struct gap__device {
  gap_heap *heap;
  int ordinal;
  struct gap__dev *dev;                   /* NULL until the device is opened */
  _Atomic(const struct gap__conf *) conf; /* the values in force; a value never changes and lives as long as the heap */
  _Atomic uint64_t cap_bytes;             /* 0: none */
  _Atomic uint64_t reserve_bytes;         /* GAP__RESERVE_DEFAULT: nobody has asked for one */
  _Atomic uint64_t held_bytes;            /* chunks and segments of all strategies */
  _Atomic bool peered;                    /* another device may reach this one's memory */
  _Atomic bool whole_said; /* that whole driver allocations serve for want of addresses: one line tells */
  _Atomic bool watched;    /* somebody listens to events: strategies report them with gap__report() */
  enum gap__maker maker;
  struct gap__hood hood;
  struct gap__lock diagnosis_lock;                                    /* a last rank, like the event lock; guards: */
  char diagnosis[1280];                                               /* why the last failed request failed */
  _Atomic(const struct gap__policy *) current;                        /* serves new blocks */
  _Atomic(struct gap__policy_state *) state[GAP__STRATEGY_COUNT + 1]; /* NULL until first used; then fixed.  The last:
                                                                         the device itself, for gap__policy_unopened */
};
#define GAP__RESERVE_DEFAULT UINT64_MAX
enum { GAP__STRATEGY_UNOPENED = GAP__STRATEGY_COUNT };

static inline const struct gap__conf *gap__device_conf(const struct gap__device *device) {
  return atomic_load_explicit(&device->conf, memory_order_acquire);
}

/* What a strategy calls when a request found no memory on any rung, without its locks: other strategies of the device give
 * back what lies idle, and the program is asked.  True: something was freed. */
bool gap__heap_last_resort(struct gap__device *, gap_stream, uint64_t bytes);

/* Host memory that is to stand behind device addresses, and such that does so no more; false: *why says why there is none.  Any lock may be
 * held. */
bool gap__heap_take_host(struct gap__device *, uint64_t bytes, char *why, size_t why_bytes);
void gap__heap_give_host(struct gap__device *, uint64_t bytes);

/* Do several strategies have memory on the device?  And the streams of the others' blocks, without any strategy's lock: false when there are
 * more than *count. */
bool gap__heap_several_strategies(struct gap__device *);
bool gap__heap_other_streams(struct gap__device *, enum gap__strategy own, gap_stream *out, uint32_t *count);

/* What a strategy calls that may not have the addresses for a request, without its locks: a whole driver allocation serves. */
int gap__heap_alloc_whole(struct gap__device *, gap_stream, gap_pool_id, uint64_t bytes, gap_addr *out);

/* Keeps why a request failed, in words; of any length. */
void gap__device_explain(struct gap__device *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells the listener, when there is one.  Events of one block must be reported in order: an allocation after its address
 * was taken, a free before the address can be taken again.  Any lock may be held. */
void gap__report(struct gap__device *, struct gap_event *); /* sets event->device */
static inline bool gap__watched(const struct gap__device *device) {
  return atomic_load_explicit(&device->watched, memory_order_relaxed);
}
/* A request failed: GAP_EVENT_OOM. */
void gap__report_oom(struct gap__device *, gap_stream, gap_pool_id, uint64_t bytes);

/* One chunk behind a block, mapped at `at`; other than 0 ends the visit.  Under the strategy's locks. */
typedef int gap__piece_fn(void *arg, struct gap__dev *, gap_addr at, gap__chunk, uint64_t bytes);

struct gap__policy {
  const char *name; /* "gapless", "caching_allocator" */
  enum gap__strategy strategy;
  int (*create)(struct gap__device *, struct gap__policy_state **out);
  void (*destroy)(struct gap__policy_state *);
  int (*alloc)(struct gap__policy_state *, gap_stream, gap_pool_id, uint64_t bytes, gap_addr *out); /* bytes >= 1 */
  int (*free)(struct gap__policy_state *, gap_addr); /* GAP_ENOTMINE: somebody else's */
  int (*record_stream)(struct gap__policy_state *, gap_addr, gap_stream);
  int (*retire_stream)(struct gap__policy_state *, gap_stream);
  void (*thread_end)(struct gap__policy_state *,
                     uint64_t thread); /* of gap__thread_number(), in that thread; may be NULL */
  int (*pool_retain)(struct gap__policy_state *, gap_pool_id, unsigned flags); /* GAP_POOL_..., of the first use */
  /* GAP__POOL_...; NULL: the strategy has no use for it. */
  int (*pool_behave)(struct gap__policy_state *, gap_pool_id, unsigned behaviour);
  int (*pool_release)(struct gap__policy_state *, gap_pool_id);
  int (*trim)(struct gap__policy_state *, gap_pool_id, uint64_t *bytes_returned);
  void (*trim_host)(struct gap__policy_state *,
                    gap_pool_id); /* idle host memory behind device addresses; may be NULL */
  /* The program says that nothing is launched meanwhile: partly idle chunks are exchanged.  NULL: the strategy has none. */
  int (*defragment)(struct gap__policy_state *, uint64_t *bytes_freed);
  int (*configure)(struct gap__policy_state *);                   /* dev->conf or the cap changed */
  void (*stats)(struct gap__policy_state *, struct gap__stats *); /* adds to *stats */
  /* The same without disturbing anything: adds to *out, or GAP_ESTATE when a lock is not free soon.  NULL: `stats` disturbs nothing. */
  int (*glance)(struct gap__policy_state *, struct gap__glance *);
  void (*reset)(struct gap__policy_state *, bool peaks, bool accumulated);
  void (*rest)(struct gap__policy_state *); /* no memory is taken before the next request; NULL: none is anyhow */
  int (*walk)(struct gap__policy_state *, gap__walk_fn *, void *arg);
  /* The live or pending block that an address lies in.  GAP_ENOTMINE, GAP_EFREED. */
  int (*find)(struct gap__policy_state *, gap_addr, struct gap__block_info *out);
  /* A block at a given address, and the chunks behind a block: both may be NULL, see at.h. */
  int (*alloc_at)(struct gap__policy_state *, gap_addr, uint64_t bytes);
  int (*pieces)(struct gap__policy_state *, gap_addr, gap__piece_fn *, void *arg);
  /* From now on others know the memory behind a block: it is never exchanged.  NULL: it never is. */
  int (*keep)(struct gap__policy_state *, gap_addr);
  /* The block at an address is rarely used, or no more.  NULL: it is all the same to the strategy. */
  int (*hint)(struct gap__policy_state *, gap_addr, bool cold);
  int (*check)(struct gap__policy_state *, char *text, size_t bytes);
  int (*renew_access)(struct gap__policy_state *); /* the device has let a peer in; NULL: nothing to do */
  void (*give)(struct gap__policy_state *, uint64_t bytes,
               struct gap__given *);              /* to a neighbour; adds.  NULL: nothing */
  void (*tick)(struct gap__policy_state *);       /* may be NULL */
  void (*after_fork)(struct gap__policy_state *); /* in the child: locks may be held by threads that are gone */
};

extern const struct gap__policy gap__policy_gapless, gap__policy_caching, gap__policy_heuristic;
extern const struct gap__policy gap__policy_unopened; /* heap_open.c: opens the device at the first request */

#endif
