/* The strategy `caching_allocator`: its entry points.  caching.h says how it works. */
#include "core/caching.h"

enum { BLOCKS_MAX = 1 << 24, BINS_MAX = 1 << 16, POOLS_MAX = 1 << 16, SEGMENTS_MAX = 1 << 20 };

static struct caching *of(struct gap__policy_state *state) { return (struct caching *)state; }

static int make_slabs(struct caching *c) {
  int rc = gap__addrmap_init(&c->map);
  if (!rc) rc = gap__slab_init_fitting(&c->blocks, sizeof(struct caching_block), BLOCKS_MAX);
  if (!rc) rc = gap__slab_init(&c->bins, sizeof(struct caching_bin), BINS_MAX);
  if (!rc) rc = gap__slab_init(&c->pools, sizeof(struct caching_pool), POOLS_MAX);
  if (!rc) rc = gap__slab_init_fitting(&c->uses, sizeof(struct caching_use), BLOCKS_MAX);
  if (!rc) rc = gap__slab_init_fitting(&c->pending, sizeof(struct caching_pending), BLOCKS_MAX);
  if (!rc) rc = gap__slab_init_fitting(&c->segments, sizeof(struct caching_segment), SEGMENTS_MAX);
  return rc;
}

static void release_records(struct caching *c) {
  gap__slab_destroy(&c->segments);
  gap__slab_destroy(&c->pending);
  gap__slab_destroy(&c->uses);
  gap__slab_destroy(&c->pools);
  gap__slab_destroy(&c->bins);
  gap__slab_destroy(&c->blocks);
  gap__addrmap_destroy(&c->map);
  gap__meta_unmap(c, sizeof *c);
}

static void take_conf(struct caching *c) {
  c->conf = *gap__device_conf(c->dev);
  c->stats.max_split_size = c->conf.max_split_size == GAP__CONF_UNLIMITED ? -1 : (int64_t)c->conf.max_split_size;
}

static int create(struct gap__device *dev, struct gap__policy_state **out) {
  struct caching *c = gap__meta_map(sizeof *c);
  if (!c) return GAP_ENOMETA;
  c->dev = dev;
  take_conf(c);
  c->ties_by_age = c->conf.torch == GAP__TORCH_2_12;
  uint32_t pool = 0;
  int rc = make_slabs(c);
  if (!rc) rc = gap__caching_pool_make(c, (gap_pool_id){0, 0}, &pool);
  if (rc) {
    release_records(c);
    return rc;
  }
  caching_pool_at(c, pool)->use_count = 1;
  *out = (struct gap__policy_state *)c;
  return 0;
}

static void destroy(struct gap__policy_state *state) {
  struct caching *c = of(state);
  gap__caching_events_destroy(c);
  for (uint32_t at = gap__tree_first(&c->segment_tree, &c->segments), next; at; at = next) {
    const struct caching_segment *segment = caching_segment_at(c, at);
    next = gap__tree_next(&c->segment_tree, &c->segments, at);
    if (segment->pages) {
      gap__caching_segment_close(c, at);
    } else {
      gap__dev_segment_free(c->dev->dev, segment->node.major);
      atomic_fetch_sub(&c->dev->held_bytes, segment->node.minor);
    }
  }
  release_records(c);
}

int gap__caching_prepare(struct caching *c, gap_pool_id id, struct caching_request *request) {
  int rc = gap__caching_pool_find(c, id, &request->pool);
  if (rc) return rc;
  const struct caching_pool *pool = caching_pool_at(c, request->pool);
  request->captures = request->pool != CACHING_DEFAULT_POOL && pool->flags == GAP_POOL_PRIVATE;
  request->bytes = gap__conf_round(&c->conf, request->requested);
  request->kind = request->bytes <= CACHING_SMALL_MAX ? GAP__KIND_SMALL : GAP__KIND_LARGE;
  request->segment_bytes = caching_segment_bytes(&c->conf, request->bytes);
  return gap__caching_bin_find(c, request);
}

static int find_block(struct caching *c, struct caching_request *request, uint32_t *block) {
  if ((c->pending_count || c->deferred) && !request->captures) gap__caching_poll(c);
  *block = gap__caching_fit(c, request);
  if (!*block) return gap__caching_climb(c, request, block);
  c->stats.rung_count[GAP__RUNG_fit]++;
  return 0;
}

static int alloc(struct gap__policy_state *state, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct caching *c = of(state);
  struct caching_request request = {.stream = stream, .requested = bytes};
  uint32_t block = 0;
  gap__lock(&c->lock);
  int rc = gap__caching_prepare(c, pool, &request);
  if (!rc) rc = find_block(c, &request, &block);
  if (!rc) rc = gap__caching_serve(c, &request, block, out);
  gap__unlock(&c->lock);
  return rc;
}

/* Why an address names no block: inside one of our segments, or not ours at all. */
static int blame(const struct caching *c, gap_addr addr) {
  uint32_t at = gap__tree_below(&c->segment_tree, &c->segments, addr, UINT64_MAX);
  if (!at) return GAP_ENOTMINE;
  const struct gap__tree_node *segment = gap__tree_node_at(&c->segments, at);
  return addr - segment->major < segment->minor ? GAP_EFREED : GAP_ENOTMINE;
}

static int find_live(const struct caching *c, gap_addr addr, uint32_t *out) {
  uint32_t index = gap__addrmap_get(&c->map, addr);
  if (!index) return blame(c, addr);
  *out = index;
  return caching_block_at(c, index)->state == GAP__BLOCK_LIVE ? 0 : GAP_EFREED;
}

static void let_go(struct caching *c, uint32_t index) {
  const struct caching_block *block = caching_block_at(c, index);
  enum gap__stat_kind kind = caching_bin_at(c, block->node.tag)->kind;
  gap__caching_tell(c, index, GAP_EVENT_FREE_REQUESTED);
  caching_count(c->stats.allocation, kind, -1);
  caching_count(c->stats.allocated_bytes, kind, -(int64_t)block->bytes);
  if (block->bytes >= c->conf.max_split_size) {
    c->stats.oversize_allocations_current--;
    c->stats.oversize_allocations_freed++;
  }
  if (block->uses) gap__caching_defer(c, index);
  else gap__caching_complete(c, index);
}

static int free_(struct gap__policy_state *state, gap_addr addr) {
  struct caching *c = of(state);
  uint32_t index = 0;
  gap__lock(&c->lock);
  int rc = find_live(c, addr, &index);
  if (!rc) let_go(c, index);
  gap__unlock(&c->lock);
  return rc;
}

static int record_stream(struct gap__policy_state *state, gap_addr addr, gap_stream stream) {
  struct caching *c = of(state);
  uint32_t index = 0;
  gap__lock(&c->lock);
  int rc = find_live(c, addr, &index);
  if (!rc) rc = gap__caching_use(c, index, stream);
  gap__unlock(&c->lock);
  return rc;
}

/* torch never learns that a stream ends: its idle blocks wait for a release-all. */
static int retire_stream(struct gap__policy_state *state, gap_stream stream) {
  (void)state;
  (void)stream;
  return 0;
}

static int pool_retain(struct gap__policy_state *state, gap_pool_id id, unsigned flags) {
  struct caching *c = of(state);
  uint32_t pool = 0;
  gap__lock(&c->lock);
  int rc = gap__caching_pool_find(c, id, &pool);
  if (rc) rc = gap__caching_pool_make(c, id, &pool);
  if (!rc && caching_pool_at(c, pool)->use_count++ == 0) {
    caching_pool_at(c, pool)->flags = flags;
    caching_pool_at(c, pool)->behaviour = 0;
  }
  gap__unlock(&c->lock);
  return rc;
}

static int pool_behave(struct gap__policy_state *state, gap_pool_id id, unsigned behaviour) {
  struct caching *c = of(state);
  uint32_t pool = 0;
  gap__lock(&c->lock);
  int rc = gap__caching_pool_find(c, id, &pool);
  if (!rc) caching_pool_at(c, pool)->behaviour = behaviour;
  gap__unlock(&c->lock);
  return rc;
}

/* At 0 the pool's idle segments may be given back; the pool itself goes with the last of them. */
static int pool_release(struct gap__policy_state *state, gap_pool_id id) {
  struct caching *c = of(state);
  uint32_t index = 0;
  gap__lock(&c->lock);
  int rc = gap__caching_pool_find(c, id, &index);
  if (!rc && caching_pool_at(c, index)->use_count == 0) rc = GAP_ESTATE;
  if (!rc && --caching_pool_at(c, index)->use_count == 0 && caching_pool_at(c, index)->segments == 0)
    gap__caching_pool_drop(c, index);
  gap__unlock(&c->lock);
  return rc;
}

static int trim(struct gap__policy_state *state, gap_pool_id pool, uint64_t *bytes_returned) {
  struct caching *c = of(state);
  gap__lock(&c->lock);
  int64_t before = c->stats.reserved_bytes[GAP__KIND_ALL].current;
  int rc = gap__caching_release_all(c, pool, false);
  *bytes_returned = (uint64_t)(before - c->stats.reserved_bytes[GAP__KIND_ALL].current);
  gap__unlock(&c->lock);
  return rc;
}

static int configure(struct gap__policy_state *state) {
  struct caching *c = of(state);
  gap__lock(&c->lock);
  take_conf(c);
  gap__unlock(&c->lock);
  return 0;
}

static void after_fork(struct gap__policy_state *state) { of(state)->lock = (struct gap__lock){0}; }

const struct gap__policy gap__policy_caching = {
    .name = "caching_allocator",
    .strategy = GAP__STRATEGY_CACHING,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = free_,
    .record_stream = record_stream,
    .retire_stream = retire_stream,
    .pool_retain = pool_retain,
    .pool_release = pool_release,
    .pool_behave = pool_behave,
    .trim = trim,
    .configure = configure,
    .stats = gap__caching_stats,
    .glance = gap__caching_glance,
    .reset = gap__caching_reset,
    .walk = gap__caching_walk,
    .find = gap__caching_find,
    .alloc_at = gap__caching_alloc_at,
    .check = gap__caching_check,
    .after_fork = after_fork,
};
