/* The strategy `caching_allocator`: the policy of torch 2.11's native allocator, block for block.
 *
 * Memory comes from the driver in segments (2 MiB for small requests, 20 MiB or the rounded size for large ones).  A
 * segment is cut into blocks; neighbours that are idle are merged.  Idle blocks lie in bins, one a (pool, kind, stream),
 * ordered by (size, address): the least block that fits serves, of equals the lowest.  A block freed while other streams
 * use it waits for an event a stream, looked at when the next request comes.  When the driver or the cap refuses, every
 * idle whole segment is given back, and the driver is asked once more.
 *
 * With expandable_segments a segment is a reservation of addresses that grows by mapping pages where they are missing
 * (caching_expand.c).  Its unmapped pieces are blocks too, in the state HOLE, one tree a bin, by address.
 *
 * One lock a device (rank DEVICE) guards everything here.  Records are slab indices, 0 is none.
 *
 * Invariants, checked by gap__caching_check():
 *   sum of block sizes of a segment = its size; sum of segments less their holes = reserved; with the pages that the driver
 *   would not take back this is the strategy's share of held_bytes
 *   no two idle blocks are neighbours, and no two holes; a block is in its bin's tree of idle blocks exactly while it is idle,
 *   in that of holes exactly while it is one; every page under blocks that are not holes is mapped (under holes only those
 *   that the driver would not take back)
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
  struct gap__tree_node node; /* idle: bytes, tie; hole: address, tie; tag = bin */
  gap_addr addr;
  uint64_t bytes;
  uint64_t requested;  /* of the last request */
  int64_t age_base;    /* the pool's search count when the block became idle */
  uint32_t prev, next; /* neighbours in the segment, by address */
  uint32_t uses;       /* list of streams that record_stream named */
  uint32_t events;     /* queued events that have not completed */
  uint32_t link;       /* list of deferred blocks; while everything is given back, of blocks to unmap */
  uint32_t segment;    /* the expandable segment it is a part of; 0: a driver allocation */
  enum gap__block_state state;
};

struct caching_page {
  gap__chunk chunk; /* 0: none */
  bool mapped;
  bool kept; /* the driver would not take it back: held, under a hole */
};

struct caching_segment {
  struct gap__tree_node node; /* major = address, minor = bytes */
  /* Expandable ones only: */
  struct caching_page *pages; /* one physical handle each; NULL: one driver allocation */
  uint64_t page_bytes;
  uint64_t page_count, page_end; /* pages from page_end on were never used */
  uint64_t kept_count;
};

struct caching_bin {
  uint32_t next; /* bins of one (pool, kind) in rising order of their streams */
  uint32_t pool;
  uint64_t stream;
  struct gap__tree idle, holes;
  enum gap__stat_kind kind;
};

struct caching_pool {
  uint32_t next; /* pools in the order of their making; the first is the default pool */
  int32_t use_count;
  unsigned flags;     /* GAP_POOL_...: a shared pool's idle segments may be given back while it is in use */
  unsigned behaviour; /* GAP__POOL_... */
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
  struct gap__slab segments; /* struct caching_segment */
  struct gap__tree segment_tree;
  struct gap__addrmap map;
  struct caching_queue queues[CACHING_QUEUE_MAX];
  uint32_t queue_count;
  uint32_t pending_count; /* queued events */
  uint32_t deferred;      /* blocks freed under capture, newest first */
  uint32_t last_bin[GAP__KIND_COUNT];
  bool ties_by_age;    /* torch 2.12: of equal blocks the one whose record was made first serves, not the lowest */
  uint64_t age;        /* records made */
  uint64_t live_bytes; /* 512-rounded requests not yet free for all streams */
  struct gap__stats stats;
  struct caching_idle { /* where the idle bytes are */
    uint64_t returnable, stuck, largest, count;
  } glanced;        /* as gap__caching_glance last found it */
  uint32_t glances; /* counted while there are very many blocks */
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
static inline struct caching_segment *caching_segment_at(const struct caching *c, uint32_t index) {
  return gap__slab_at(&c->segments, index);
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
/* The whole pages inside a block of an expandable segment. */
struct caching_span {
  gap_addr addr;
  uint64_t bytes;
};
static inline struct caching_span caching_whole_pages(const struct caching_segment *segment,
                                                      const struct caching_block *block) {
  uint64_t page = segment->page_bytes, from = block->addr - segment->node.major;
  uint64_t first = (from + page - 1) / page * page, end = (from + block->bytes) / page * page;
  return (struct caching_span){segment->node.major + first, end > first ? end - first : 0};
}
static inline bool caching_is_split(const struct caching_block *block) { return block->prev || block->next; }
/* New memory comes in pages.  Segments of both sorts live side by side when the setting has changed. */
static inline bool caching_expands(const struct caching *c, uint32_t pool) {
  return c->conf.expandable_segments && !c->conf.no_caching && c->dev->dev->caps.vmm &&
         !(caching_pool_at(c, pool)->flags & GAP_POOL_CONTIGUOUS);
}
static inline bool caching_collects(const struct caching *c) {
  return c->conf.garbage_collection_threshold > 0 && c->dev->cap_bytes;
}

/* caching_bins.c: pools, and the idle blocks of each */
int gap__caching_pool_find(struct caching *, gap_pool_id, uint32_t *out); /* GAP_EINVAL: unknown */
int gap__caching_pool_make(struct caching *, gap_pool_id, uint32_t *out);
void gap__caching_pool_drop(struct caching *, uint32_t pool);          /* holds no segment and is not used */
int gap__caching_bin_find(struct caching *, struct caching_request *); /* sets request->bin */
uint32_t gap__caching_search(const struct caching *, const struct caching_request *); /* the block that fits; 0: none */
uint32_t gap__caching_fit(struct caching *, const struct caching_request *); /* counts, and takes it out of its bin */
void gap__caching_shelve(struct caching *, uint32_t block);
void gap__caching_unshelve(struct caching *, uint32_t block);
void gap__caching_dig(struct caching *, uint32_t block); /* becomes a hole */
void gap__caching_fill(struct caching *, uint32_t hole); /* is one no longer */

/* caching_blocks.c: splitting, merging */
int gap__caching_serve(struct caching *, const struct caching_request *, uint32_t block, gap_addr *out);
void gap__caching_complete(struct caching *, uint32_t block); /* free for every stream */
/* The records of a cut: `block` keeps the lower `bytes`, the rest becomes a block of the state `state`, in its tree. */
int gap__caching_cut(struct caching *, uint32_t block, uint64_t bytes, enum gap__block_state state);
/* Joins the block, which lies in no tree, with its neighbours of the state `state`; the block that remains. */
uint32_t gap__caching_merge(struct caching *, uint32_t block, enum gap__block_state state);

/* caching_segments.c: what comes from and goes back to the driver */
int gap__caching_segment_take(struct caching *, const struct caching_request *, uint32_t *block);
int gap__caching_segment_give(struct caching *, uint32_t block); /* idle, in its bin, and a whole segment */
int gap__caching_release_oversize(struct caching *, const struct caching_request *);
int gap__caching_release_all(struct caching *, gap_pool_id only, bool capturing);
void gap__caching_collect_garbage(struct caching *);
/* Charges the cap before the driver is asked, so that two strategies cannot both take the last bytes. */
bool gap__caching_charge(struct gap__device *, uint64_t bytes);

/* caching_expand.c: expandable segments */
int gap__caching_expand(struct caching *, const struct caching_request *, uint32_t *block);
int gap__caching_unmap(struct caching *, uint32_t block); /* what whole pages an idle block has go back to the driver */
void gap__caching_drop_empty(struct caching *, uint32_t pool); /* segments without a page */
int gap__caching_return_kept(struct caching *);                /* pages that the driver did not take back at first */

/* caching_pages.c: the pages of one */
int gap__caching_segment_open(struct caching *, const struct caching_request *, uint32_t *out);
void gap__caching_segment_close(struct caching *, uint32_t segment);
struct caching_credit { /* held_bytes that were charged before anything was asked of the driver */
  uint64_t bytes;
};
int gap__caching_pages_map(struct caching *, uint32_t segment, gap_addr, uint64_t bytes, struct caching_credit *);
/* A page that the driver refuses to unmap or to take back is kept, held, until its addresses are mapped again or everything
 * idle is given back; the first refusal is returned. */
int gap__caching_pages_unmap(struct caching *, uint32_t segment, gap_addr, uint64_t bytes);
int gap__caching_pages_return(struct caching *, uint32_t segment); /* the kept ones */

/* caching_ladder.c: what is tried when no idle block fits */
int gap__caching_climb(struct caching *, struct caching_request *, uint32_t *block); /* its pool may become another */

/* caching_events.c: blocks that other streams still use */
int gap__caching_use(struct caching *, uint32_t block, gap_stream);
void gap__caching_defer(struct caching *, uint32_t block);
void gap__caching_poll(struct caching *);
void gap__caching_synchronize(struct caching *);
void gap__caching_events_destroy(struct caching *);

/* caching_walk.c: the block that covers an address; and what a listener hears of a block (a segment: of its only block, pages: of
 * the block that they are) */
uint32_t gap__caching_covering(const struct caching *, gap_addr); /* 0: not ours */
void gap__caching_report(const struct caching *, uint32_t block, gap_event_kind);
static inline void gap__caching_tell(const struct caching *c, uint32_t block, gap_event_kind kind) {
  if (gap__watched(c->dev)) gap__caching_report(c, block, kind);
}

/* policy_caching.c: the request's pool, bin and sizes from what was asked */
int gap__caching_prepare(struct caching *, gap_pool_id, struct caching_request *);

/* caching_look.c; the device must have a state of this strategy */
bool gap__caching_serves(gap_heap *, int device, gap_stream, gap_pool_id, uint64_t bytes); /* an idle block would */
typedef bool gap__caching_visit(void *arg, gap_addr, uint64_t bytes);
/* Driver allocations of the default pool that giving everything back would return, in that order, as long as `visit` says
 * true; the last answer. */
bool gap__caching_returnable(gap_heap *, int device, gap__caching_visit *, void *arg);

/* caching_stats.c */
void gap__caching_stats(struct gap__policy_state *, struct gap__stats *);
int gap__caching_glance(struct gap__policy_state *, struct gap__glance *);
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
