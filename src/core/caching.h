/* The strategy `caching_allocator`: the policy of torch 2.11's native allocator, block for block.
 *
 * Memory comes from the driver in segments (2 MiB for small requests, 20 MiB or the rounded size for large ones).  A
 * segment is cut into blocks; neighbours that are idle are merged.  Idle blocks lie in bins, one a (pool, kind, stream),
 * ordered by (size, address): the least block that fits serves, of equals the lowest.  A block freed while other streams
 * use it waits for an event a stream, looked at when the next request comes.  When the driver or the cap refuses, every
 * idle whole segment is given back, and the driver is asked once more.
 *
 * One lock a device (rank DEVICE) guards everything here.  Records are slab indices, 0 is none.
 *
 * Invariants, checked by gap__caching_check():
 *   sum of block sizes of a segment = its size; sum of segments = reserved = this strategy's share of held_bytes
 *   no two idle blocks are neighbours; a block is in its bin's tree exactly while it is idle
 *   the map knows the first address of every block, live or not */
#ifndef GAP_CACHING_H
#define GAP_CACHING_H

#include "base/addrmap.h"
#include "base/lock.h"
#include "base/meta.h"
#include "base/tree.h"
#include "core/policy.h"

enum {
  CACHING_MIN_BLOCK = 512,
  CACHING_SMALL_MAX = 1 << 20, /* the largest small request */
  CACHING_SMALL_SEGMENT = 2 << 20,
  CACHING_OWN_SEGMENT_MIN = 10 << 20, /* from here on a request gets a segment of its own size */
  CACHING_SEGMENT_ROUND = 2 << 20
};

struct caching_block {
  struct gap__tree_node node;  /* its place in the tree that it lies in: bytes, address; tag = bin */
  gap_addr addr;
  uint64_t bytes;
  uint64_t requested;          /* of the last request */
  int64_t age_base;            /* the pool's search count when the block became idle */
  uint32_t prev, next;         /* neighbours in the segment, by address */
  uint32_t uses;               /* list of streams that record_stream named */
  uint32_t events;             /* queued events that have not completed */
  uint32_t link;               /* list of deferred blocks */
  enum gap__block_state state; /* IDLE, LIVE or PENDING */
};

struct caching_bin {
  uint32_t next; /* bins of one (pool, kind) in rising order of their streams */
  uint32_t pool;
  uint64_t stream;
  struct gap__tree idle;
  enum gap__stat_kind kind;
};

struct caching_pool {
  uint32_t next; /* pools in the order of their making; the first is the default pool */
  int32_t use_count;
  unsigned flags; /* GAP_POOL_...: a shared pool's idle segments may be given back while it is in use */
  gap_pool_id id;
  uint64_t segments;                 /* held from the driver */
  int64_t searches[GAP__KIND_COUNT]; /* counted while garbage collection is on */
  uint32_t bins[GAP__KIND_COUNT];    /* heads; [GAP__KIND_ALL] unused */
};

struct caching_use {
  uint32_t next;
  uint64_t stream;
};

struct caching_pending { /* an event of a stream that a freed block waits for */
  uint32_t next, block;
  gap__event event;
};

struct caching_queue { /* a stream that blocks have waited for */
  uint32_t head, tail; /* pending, oldest first */
  uint32_t spare;      /* events to use again */
  uint64_t stream;
};

enum { CACHING_QUEUE_MAX = 1024, CACHING_DEFAULT_POOL = 1 };

struct caching {
  struct gap__lock lock;
  struct gap__device *dev;
  struct gap__conf conf; /* the values in force here */
  struct gap__slab blocks, bins, pools, uses, pending;
  struct gap__slab segments; /* tree nodes: major = address, minor = bytes */
  struct gap__tree segment_tree;
  struct gap__addrmap map;
  struct caching_queue queues[CACHING_QUEUE_MAX];
  uint32_t queue_count;
  uint32_t pending_count; /* queued events */
  uint32_t deferred;      /* blocks freed under capture, newest first */
  uint32_t last_bin[GAP__KIND_COUNT];
  uint64_t live_bytes; /* 512-rounded requests not yet free for all streams */
  struct gap__stats stats;
};

struct caching_request {
  gap_stream stream;
  uint32_t pool, bin;
  enum gap__stat_kind kind;
  bool captures; /* torch's word for requests to a private pool: nothing is polled meanwhile, nothing given back */
  uint64_t requested, bytes; /* bytes: rounded */
  uint64_t segment_bytes;    /* to ask of the driver */
};

static inline struct caching_block *caching_block_at(const struct caching *c, uint32_t index) {
  return gap__slab_at(&c->blocks, index);
}
static inline struct caching_bin *caching_bin_at(const struct caching *c, uint32_t index) {
  return gap__slab_at(&c->bins, index);
}
static inline struct caching_pool *caching_pool_at(const struct caching *c, uint32_t index) {
  return gap__slab_at(&c->pools, index);
}
/* What the driver is asked for when no idle block serves a request of `bytes` (rounded). */
static inline uint64_t caching_segment_bytes(const struct gap__conf *conf, uint64_t bytes) {
  if (conf->no_caching) return bytes;
  if (bytes <= CACHING_SMALL_MAX) return CACHING_SMALL_SEGMENT;
  if (bytes < CACHING_OWN_SEGMENT_MIN) return conf->large_segment_size;
  return (bytes + CACHING_SEGMENT_ROUND - 1) / CACHING_SEGMENT_ROUND * CACHING_SEGMENT_ROUND;
}
/* Oversize blocks (max_split_size and more) are kept for oversize requests, and for those not much smaller. */
static inline bool caching_refuses(const struct gap__conf *conf, uint64_t asked, uint64_t has) {
  if (asked < conf->max_split_size) return has >= conf->max_split_size;
  return has - asked >= conf->max_non_split_rounding;
}
static inline bool caching_is_split(const struct caching_block *block) { return block->prev || block->next; }
static inline bool caching_collects(const struct caching *c) {
  return c->conf.garbage_collection_threshold > 0 && c->dev->cap_bytes;
}

/* caching_bins.c: pools, and the idle blocks of each */
int gap__caching_pool_find(struct caching *, gap_pool_id, uint32_t *out); /* GAP_EINVAL: unknown */
int gap__caching_pool_make(struct caching *, gap_pool_id, uint32_t *out);
void gap__caching_pool_drop(struct caching *, uint32_t pool);          /* holds no segment and is not used */
int gap__caching_bin_find(struct caching *, struct caching_request *); /* sets request->bin */
uint32_t gap__caching_fit(struct caching *,
                          const struct caching_request *); /* takes the block out of its bin; 0: none */
void gap__caching_shelve(struct caching *, uint32_t block);
void gap__caching_unshelve(struct caching *, uint32_t block);

/* caching_blocks.c: splitting, merging */
/* Cuts a block after `bytes`; the rest becomes an idle block. */
int gap__caching_cut(struct caching *, uint32_t block, uint64_t bytes);
int gap__caching_serve(struct caching *, const struct caching_request *, uint32_t block, gap_addr *out);
void gap__caching_complete(struct caching *, uint32_t block); /* free for every stream */

/* caching_segments.c: what comes from and goes back to the driver */
int gap__caching_segment_take(struct caching *, const struct caching_request *, uint32_t *block);
int gap__caching_segment_give(struct caching *, uint32_t block); /* idle, in its bin, and a whole segment */
int gap__caching_release_oversize(struct caching *, const struct caching_request *);
int gap__caching_release_all(struct caching *, gap_pool_id only, bool capturing);
void gap__caching_collect_garbage(struct caching *);

/* caching_ladder.c: what is tried when no idle block fits */
int gap__caching_climb(struct caching *, const struct caching_request *, uint32_t *block);

/* caching_events.c: blocks that other streams still use */
int gap__caching_use(struct caching *, uint32_t block, gap_stream);
void gap__caching_defer(struct caching *, uint32_t block);
void gap__caching_poll(struct caching *);
void gap__caching_synchronize(struct caching *);
void gap__caching_events_destroy(struct caching *);

/* caching_walk.c: the record of a block as others see it, and as a listener hears of it (a segment: its only block) */
void gap__caching_describe(const struct caching *, uint32_t block, const struct gap__tree_node *segment,
                           struct gap__block_info *out);
/* The block that covers an address and its segment; 0: not ours. */
uint32_t gap__caching_covering(const struct caching *, gap_addr, const struct gap__tree_node **segment);
void gap__caching_report(const struct caching *, uint32_t block, gap_event_kind);
static inline void gap__caching_tell(const struct caching *c, uint32_t block, gap_event_kind kind) {
  if (gap__watched(c->dev)) gap__caching_report(c, block, kind);
}

/* caching_stats.c */
void gap__caching_stats(struct gap__policy_state *, struct gap__stats *);
void gap__caching_reset(struct gap__policy_state *, bool peaks, bool accumulated);

/* caching_at.c: a block at a given address */
int gap__caching_alloc_at(struct gap__policy_state *, gap_addr, uint64_t bytes);

/* caching_check.c */
int gap__caching_walk(struct gap__policy_state *, gap__walk_fn *, void *arg);
int gap__caching_find(struct gap__policy_state *, gap_addr, struct gap__block_info *out);
int gap__caching_check(struct gap__policy_state *, char *text, size_t bytes);

static inline void caching_raise(struct gap__stat *stat, int64_t amount) {
  stat->current += amount;
  stat->allocated += amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}
static inline void caching_lower(struct gap__stat *stat, int64_t amount) {
  stat->current -= amount;
  stat->freed += amount;
}
/* Adds to the figure of all and of the kind; a negative amount counts as freed. */
static inline void caching_count(struct gap__stat stat[GAP__KIND_COUNT], enum gap__stat_kind kind, int64_t amount) {
  if (amount >= 0) {
    caching_raise(&stat[GAP__KIND_ALL], amount);
    caching_raise(&stat[kind], amount);
  } else {
    caching_lower(&stat[GAP__KIND_ALL], -amount);
    caching_lower(&stat[kind], -amount);
  }
}

#endif
