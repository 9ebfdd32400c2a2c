/* Segments that are one driver allocation, which comes and goes whole; and what gives segments of both sorts back. */
#include "core/caching.h"

bool gap__caching_charge(struct gap__device *dev, uint64_t bytes) {
  uint64_t cap = atomic_load(&dev->cap_bytes);
  uint64_t held = atomic_fetch_add(&dev->held_bytes, bytes) + bytes;
  if (!cap || held <= cap) return true;
  atomic_fetch_sub(&dev->held_bytes, bytes);
  return false;
}

/* One record for the segment, one for its only block, room in the map. */
static int take_records(struct caching *c, uint32_t *segment, uint32_t *block) {
  if (gap__addrmap_reserve(&c->map)) return GAP_ENOMETA;
  *segment = gap__slab_take(&c->segments);
  *block = *segment ? gap__slab_take(&c->blocks) : 0;
  if (*segment && !*block) gap__slab_give(&c->segments, *segment);
  return *block ? 0 : GAP_ENOMETA;
}

static void count_taken(struct caching *c, const struct caching_request *request) {
  struct gap__stats *stats = &c->stats;
  stats->num_device_alloc++;
  caching_count(stats->segment, request->kind, 1);
  caching_count(stats->reserved_bytes, request->kind, (int64_t)request->segment_bytes);
  if (request->segment_bytes < c->conf.max_split_size) return;
  stats->oversize_segments_allocated++;
  if (++stats->oversize_segments_current > stats->oversize_segments_peak)
    stats->oversize_segments_peak = stats->oversize_segments_current;
}

int gap__caching_segment_take(struct caching *c, const struct caching_request *request, uint32_t *out) {
  if (caching_expands(c, request->pool)) return gap__caching_expand(c, request, out);
  if (!gap__caching_charge(c->dev, request->segment_bytes)) return GAP_ENOMEM;
  uint32_t segment = 0, index = 0;
  gap_addr addr = 0;
  int rc = take_records(c, &segment, &index);
  if (!rc) {
    rc = gap__dev_segment_alloc(c->dev->dev, request->segment_bytes, &addr);
    if (rc) {
      gap__slab_give(&c->segments, segment);
      gap__slab_give(&c->blocks, index);
    }
  }
  if (rc) {
    atomic_fetch_sub(&c->dev->held_bytes, request->segment_bytes);
    return rc;
  }
  *caching_segment_at(c, segment) = (struct caching_segment){.node = {.major = addr, .minor = request->segment_bytes}};
  gap__tree_insert(&c->segment_tree, &c->segments, segment);
  *caching_block_at(c, index) = (struct caching_block){
      .node = {.tag = request->bin, .minor = ++c->age}, .addr = addr, .bytes = request->segment_bytes};
  gap__addrmap_put(&c->map, addr, index);
  caching_pool_at(c, request->pool)->segments++;
  count_taken(c, request);
  gap__caching_tell(c, index, GAP_EVENT_SEGMENT_ALLOC);
  *out = index;
  return 0;
}

static void count_given(struct caching *c, uint64_t bytes, enum gap__stat_kind kind) {
  struct gap__stats *stats = &c->stats;
  stats->num_device_free++;
  caching_count(stats->segment, kind, -1);
  caching_count(stats->reserved_bytes, kind, -(int64_t)bytes);
  if (bytes < c->conf.max_split_size) return;
  stats->oversize_segments_current--;
  stats->oversize_segments_freed++;
}

int gap__caching_segment_give(struct caching *c, uint32_t index) {
  struct caching_block *block = caching_block_at(c, index);
  struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  uint64_t addr = block->addr, bytes = block->bytes;
  int rc = gap__dev_segment_free(c->dev->dev, addr);
  if (rc) return rc; /* it stays ours, idle */
  gap__caching_tell(c, index, GAP_EVENT_SEGMENT_FREE);
  gap__caching_unshelve(c, index);
  gap__addrmap_remove(&c->map, addr);
  gap__slab_give(&c->blocks, index);
  uint32_t segment = gap__tree_at_least(&c->segment_tree, &c->segments, addr, 0);
  gap__tree_erase(&c->segment_tree, &c->segments, segment);
  gap__slab_give(&c->segments, segment);
  caching_pool_at(c, bin->pool)->segments--;
  atomic_fetch_sub(&c->dev->held_bytes, bytes);
  count_given(c, bytes, bin->kind);
  return 0;
}

/* Several oversize blocks from the largest down, until they sum to `wanted`. */
static int release_from_largest(struct caching *c, const struct caching_bin *bin, uint64_t wanted) {
  uint64_t released = 0;
  uint32_t at = gap__tree_last(&bin->idle, &c->blocks), below;
  for (; at && released < wanted; at = below) {
    const struct caching_block *block = caching_block_at(c, at);
    uint64_t bytes = block->bytes;
    if (bytes < c->conf.max_split_size) break;
    below = gap__tree_below(&bin->idle, &c->blocks, bytes, block->node.minor);
    if (caching_is_split(block) || block->segment) continue;
    int rc = gap__caching_segment_give(c, at);
    if (rc) return rc;
    released += bytes;
  }
  return released >= wanted ? 0 : GAP_ENOMEM;
}

/* 0 when enough was released for another try. */
int gap__caching_release_oversize(struct caching *c, const struct caching_request *request) {
  if (c->conf.max_split_size == GAP__CONF_UNLIMITED) return GAP_ENOMEM;
  const struct caching_bin *bin = caching_bin_at(c, request->bin);
  uint64_t wanted = request->bytes < c->conf.max_split_size ? c->conf.max_split_size : request->bytes;
  uint32_t one = gap__tree_at_least(&bin->idle, &c->blocks, wanted, 0);
  if (one && caching_block_at(c, one)->segment) return GAP_ENOMEM;
  if (one && !caching_is_split(caching_block_at(c, one))) return gap__caching_segment_give(c, one);
  return release_from_largest(c, bin, wanted);
}

/* Unmapping makes and drops idle blocks, so expandable ones are listed first; *last is where the next goes. */
static int release_bin(struct caching *c, uint32_t index, uint32_t **last) {
  struct caching_bin *bin = caching_bin_at(c, index);
  int rc = 0;
  for (uint32_t at = gap__tree_first(&bin->idle, &c->blocks), next; at; at = next) {
    struct caching_block *block = caching_block_at(c, at);
    next = gap__tree_next(&bin->idle, &c->blocks, at);
    if (block->segment) {
      **last = at;
      *last = &block->link;
    } else if (!caching_is_split(block)) {
      int one = gap__caching_segment_give(c, at);
      if (one) rc = one;
    }
  }
  return rc;
}

static int release_kind(struct caching *c, uint32_t pool, enum gap__stat_kind kind) {
  int rc = 0;
  uint32_t expandable = 0, *last = &expandable;
  for (uint32_t bin = caching_pool_at(c, pool)->bins[kind]; bin; bin = caching_bin_at(c, bin)->next) {
    int one = release_bin(c, bin, &last);
    if (one) rc = one;
  }
  *last = 0;
  for (uint32_t at = expandable, next; at; at = next) {
    next = caching_block_at(c, at)->link;
    int one = gap__caching_unmap(c, at);
    if (one) rc = one;
  }
  return rc;
}

static int release_private(struct caching *c, uint32_t index) {
  int small = release_kind(c, index, GAP__KIND_SMALL), large = release_kind(c, index, GAP__KIND_LARGE);
  gap__caching_drop_empty(c, index);
  const struct caching_pool *pool = caching_pool_at(c, index);
  if (pool->segments == 0 && pool->use_count == 0) gap__caching_pool_drop(c, index);
  return small ? small : large;
}

/* Gives back every idle whole segment: of the default pool when `only` names it and nothing captures, and of the private
 * pools that nobody uses any more or that are shared (`only` {0,0}: all of them).  The first error of the driver is returned at the end. */
int gap__caching_release_all(struct caching *c, gap_pool_id only, bool capturing) {
  bool all = only.first == 0 && only.second == 0;
  int rc = 0;
  if (!capturing) gap__caching_synchronize(c);
  if (all && !capturing) {
    int kept = gap__caching_return_kept(c);
    int large = release_kind(c, CACHING_DEFAULT_POOL, GAP__KIND_LARGE);
    int small = release_kind(c, CACHING_DEFAULT_POOL, GAP__KIND_SMALL);
    rc = kept ? kept : large ? large : small;
  }
  for (uint32_t at = caching_pool_at(c, CACHING_DEFAULT_POOL)->next, next; at; at = next) {
    const struct caching_pool *pool = caching_pool_at(c, at);
    next = pool->next;
    if (pool->use_count > 0 && pool->flags != GAP_POOL_SHARED) continue;
    if (!all && (pool->id.first != only.first || pool->id.second != only.second)) continue;
    int one = release_private(c, at);
    if (!rc) rc = one;
  }
  return rc;
}

/* The mean age of the default pool's idle whole large segments; their number in *count. */
static double mean_age(const struct caching *c, uint64_t *count) {
  const struct caching_pool *pool = caching_pool_at(c, CACHING_DEFAULT_POOL);
  double total = 0;
  *count = 0;
  for (uint32_t b = pool->bins[GAP__KIND_LARGE]; b; b = caching_bin_at(c, b)->next) {
    const struct gap__tree *idle = &caching_bin_at(c, b)->idle;
    for (uint32_t at = gap__tree_first(idle, &c->blocks); at; at = gap__tree_next(idle, &c->blocks, at)) {
      const struct caching_block *block = caching_block_at(c, at);
      if (caching_is_split(block) || block->segment) continue;
      total += (double)(pool->searches[GAP__KIND_LARGE] - block->age_base);
      ++*count;
    }
  }
  return *count ? total / (double)*count : 0;
}

/* Releases every idle whole large segment of at least this age; the bytes. */
static uint64_t release_old(struct caching *c, double age) {
  const struct caching_pool *pool = caching_pool_at(c, CACHING_DEFAULT_POOL);
  uint64_t released = 0;
  for (uint32_t b = pool->bins[GAP__KIND_LARGE]; b; b = caching_bin_at(c, b)->next) {
    const struct gap__tree *idle = &caching_bin_at(c, b)->idle;
    for (uint32_t at = gap__tree_first(idle, &c->blocks), next; at; at = next) {
      next = gap__tree_next(idle, &c->blocks, at);
      const struct caching_block *block = caching_block_at(c, at);
      uint64_t bytes = block->bytes;
      double has = (double)(pool->searches[GAP__KIND_LARGE] - block->age_base);
      if (!caching_is_split(block) && !block->segment && has >= age && !gap__caching_segment_give(c, at))
        released += bytes;
    }
  }
  return released;
}

/* Above threshold x cap: segments older than the mean go, again and again, until the excess is gone or nothing is. */
void gap__caching_collect_garbage(struct caching *c) {
  double limit = c->conf.garbage_collection_threshold * (double)c->dev->cap_bytes;
  uint64_t held = (uint64_t)c->stats.reserved_bytes[GAP__KIND_ALL].current, mark = (uint64_t)limit;
  if (held <= mark) return;
  uint64_t target = held - mark, released = 0, count, now;
  do {
    double age = mean_age(c, &count);
    now = count ? release_old(c, age) : 0;
    released += now;
  } while (now && released < target);
}
