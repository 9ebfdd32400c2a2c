/* What a heap is made of; for heap*.c only. */
#ifndef GAP_HEAP_STATE_H
#define GAP_HEAP_STATE_H

#include "base/lock.h"
#include "core/policy.h"

/* What was asked of a device by hand; it holds until the configuration asks for another value. */
struct heap_wish {
  bool given;
  uint64_t bytes;
  double fraction; /* above 0: a share of the card instead of bytes */
};

struct heap_device {
  struct gap__device base;
  /* The cap and the share of the card are two limits: the smaller one holds.  Guarded by the heap's lock. */
  struct heap_wish cap, share, reserve;
  struct gap__conf_amount conf_cap, conf_share, conf_reserve; /* what the configuration last asked for */
  struct gap__driver_figure driver_base[GAP__CALL_COUNT];     /* at the last reset of accumulated figures */
};

/* A private pool of one device.  Records are made once and stay until the heap ends, so that they are found without a lock. */
struct heap_pool {
  struct heap_pool *next; /* of the same bucket */
  int device;
  gap_pool_id id;
  _Atomic uint32_t uses;  /* 0: not in use */
  _Atomic unsigned flags; /* GAP_POOL_...; fixed while in use */
  unsigned behaviour;     /* GAP__POOL_...; guarded by the heap's lock */
  char tag[32];           /* its first 31 bytes; guarded by the heap's lock, as is */
  uint64_t tag_sum;       /* of all of it: two that begin alike are two */
};
uint64_t gap__heap_tag_sum(const char *tag);
enum { HEAP_POOL_BUCKETS = 256 };

struct heap_tap { /* somebody who hears events; fn NULL: nobody */
  gap_event_fn fn;
  void *arg;
};

struct heap_conf { /* a configuration that is or was in force */
  struct heap_conf *next;
  struct gap__conf value;
};

struct gap_heap {
  struct heap_device *devices;
  int device_count;
  struct gap__lock lock; /* rank HEAP: configuration, strategies, making and counting pools, opening devices */
  gap__open_fn *open;
  void (*opened)(void *client, int ordinal);
  gap__ask_fn *ask;
  gap__host_fn *host;
  void *client;
  void (*client_free)(void *);
  struct heap_conf *confs; /* newest first; guarded by the lock */
  _Atomic(struct heap_pool *) pools[HEAP_POOL_BUCKETS];
  struct gap__lock relief_lock; /* before every other lock; held while one of them gives */
  struct gap__relief *reliefs;
  gap__oom_callback *oom; /* guarded by the lock, with its argument */
  void *oom_arg;
  struct heap_tap recorder;    /* hears without a lock; fixed while the heap is used */
  _Atomic bool tapped;         /* one of the taps is in use */
  struct gap__lock event_lock; /* the last rank of all: guards what follows, and is held while a tap runs */
  struct heap_tap taps[GAP__TAP_COUNT];
  struct heap_import *imports; /* of other processes' memory; guarded by the lock */
  bool forked;                 /* we are the child: nothing here may touch the driver */
  gap_heap *prev, *next;       /* all heaps of the process; guarded by heap_fork.c */
};

static inline struct heap_device *heap_device_at(gap_heap *heap, int device) {
  return (unsigned)device < (unsigned)heap->device_count ? &heap->devices[device] : NULL;
}
static inline struct gap__policy_state *heap_state_of(struct gap__device *dev, const struct gap__policy *policy) {
  return atomic_load_explicit(&dev->state[policy->strategy], memory_order_relaxed);
}
static inline const struct gap__policy *heap_current(struct gap__device *dev) {
  return atomic_load_explicit(&dev->current, memory_order_acquire);
}
/* Is the device open, so that base.dev may be used? */
static inline bool heap_is_open(struct gap__device *dev) { return heap_current(dev) != &gap__policy_unopened; }
/* The strategies that exist on a device, for loops: NULL where there is none yet. */
const struct gap__policy *gap__heap_policy(enum gap__strategy);
/* Whose state serves a strategy: pooled is gapless with other blocks, and shares its pages with it. */
enum gap__strategy gap__heap_server(enum gap__strategy);

/* heap_fork.c: fork safety.  In the child every device gets a strategy that refuses to allocate and ignores frees. */
void gap__heap_enlist(gap_heap *);
void gap__heap_delist(gap_heap *);

/* heap_conf.c, the heap's lock held: the values of a device, and what follows from them. */
void gap__heap_apply_amounts(struct heap_device *, bool conf_changed);
void gap__heap_confs_free(gap_heap *);

/* heap_open.c, the heap's lock held. */
void gap__heap_prepare_device(gap_heap *, int device, const struct gap__heap_params *);
int gap__heap_open_device(gap_heap *, int device);
void gap__heap_tell_opened(gap_heap *, int device); /* without the lock, after the first */
/* The state of a strategy, made when it is first wanted. */
int gap__heap_strategy(gap_heap *, int device, enum gap__strategy, struct gap__policy_state **out);
/* Makes the strategy that these values choose, if need be; after it, choosing it cannot fail. */
int gap__heap_ready_strategy(gap_heap *, int device, const struct gap__conf *);
int gap__heap_choose_strategy(gap_heap *, int device);

/* heap_pools.c */
struct heap_pool *gap__heap_pool_find(gap_heap *, int device, gap_pool_id); /* NULL: never made; needs no lock */
int gap__heap_pools_announce(gap_heap *, int device, const struct gap__policy *, struct gap__policy_state *);
void gap__heap_pools_free(gap_heap *);
/* Serves a contiguous pool. */
int gap__heap_alloc_contiguous(gap_heap *, int device, gap_stream, gap_pool_id, uint64_t bytes, gap_addr *out);

/* heap_share.c */
void gap__heap_imports_free(gap_heap *);             /* no other call is under way */
int gap__heap_imports_renew(gap_heap *, int device); /* the heap's lock held */

/* One call to every strategy of a device, until one fails. */
typedef int gap__heap_each_fn(const struct gap__policy *, struct gap__policy_state *, void *arg);
int gap__heap_each(gap_heap *, int device, gap__heap_each_fn *, void *arg);

#endif
