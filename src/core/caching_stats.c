/* The statistics of caching_allocator: torch's memory_stats as counted, and what is computed when asked. */
#include "core/caching.h"
#include "core/glance.h"

enum { GLANCE_BLOCKS_MOST = 20000, GLANCES_A_COUNT = 20 };

/* What giving everything back takes of an idle block. */
static uint64_t returnable_of(const struct caching *c, const struct caching_block *block) {
  if (block->segment) return caching_whole_pages(caching_segment_at(c, block->segment), block).bytes;
  return caching_is_split(block) ? 0 : block->bytes;
}

static void tally_bin(const struct caching *c, const struct caching_bin *bin, bool pinned, struct caching_idle *tally) {
  for (uint32_t at = gap__tree_first(&bin->idle, &c->blocks); at; at = gap__tree_next(&bin->idle, &c->blocks, at)) {
    const struct caching_block *block = caching_block_at(c, at);
    uint64_t returnable = pinned ? 0 : returnable_of(c, block);
    tally->returnable += returnable;
    tally->stuck += block->bytes - returnable;
    if (block->bytes > tally->largest && !pinned) tally->largest = block->bytes;
    tally->count++;
  }
}

static struct caching_idle tally_idle(const struct caching *c) {
  struct caching_idle tally = {0};
  for (uint32_t p = CACHING_DEFAULT_POOL; p; p = caching_pool_at(c, p)->next) {
    const struct caching_pool *pool = caching_pool_at(c, p);
    bool pinned = p != CACHING_DEFAULT_POOL && pool->use_count > 0;
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
      for (uint32_t b = pool->bins[kind]; b; b = caching_bin_at(c, b)->next)
        tally_bin(c, caching_bin_at(c, b), pinned, &tally);
    }
  }
  return tally;
}

/* What one new segment could hold: room under the cap, and what the driver has. */
static uint64_t room(const struct caching *c) {
  uint64_t cap = c->dev->cap_bytes, held = c->dev->held_bytes, free_bytes = 0, total = 0;
  uint64_t room = cap > held ? cap - held : cap ? 0 : UINT64_MAX;
  if (gap__dev_mem_info(c->dev->dev, &free_bytes, &total) == 0 && free_bytes < room) room = free_bytes;
  return room == UINT64_MAX ? 0 : room / CACHING_SEGMENT_ROUND * CACHING_SEGMENT_ROUND;
}

static uint64_t metadata_bytes(const struct caching *c) {
  return sizeof *c + gap__slab_bytes(&c->blocks) + gap__slab_bytes(&c->bins) + gap__slab_bytes(&c->pools) +
         gap__slab_bytes(&c->uses) + gap__slab_bytes(&c->pending) + gap__slab_bytes(&c->segments) +
         gap__addrmap_bytes(&c->map);
}

static void add_stat(struct gap__stat *to, const struct gap__stat *from) {
  to->current += from->current;
  to->peak += from->peak;
  to->allocated += from->allocated;
  to->freed += from->freed;
}

static void add_counters(struct gap__stats *to, const struct gap__stats *from) {
#define GAP_STAT_ARRAY(name, help) \
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) add_stat(&to->name[kind], &from->name[kind]);
#define GAP_STAT_SCALAR(name, unit, help) to->name += from->name;
#include "core/stats.def"
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) {
    to->rung_count[rung] += from->rung_count[rung];
    to->rung_us[rung] += from->rung_us[rung];
  }
}

/* Under the lock. */
static void add_all(const struct caching *c, const struct caching_idle *tally, struct gap__stats *out) {
  int64_t max_split = out->max_split_size;
  add_counters(out, &c->stats);
  out->max_split_size = max_split ? max_split : c->stats.max_split_size; /* a setting: one value, no sum */
  out->metadata_bytes += (int64_t)metadata_bytes(c);
  out->idle_returnable_bytes += (int64_t)tally->returnable;
  out->idle_stuck_bytes += (int64_t)tally->stuck;
  out->idle_extents += (int64_t)tally->count;
}

static void raise_servable(struct gap__stats *out, uint64_t largest, uint64_t fresh) {
  int64_t servable = (int64_t)(largest > fresh ? largest : fresh);
  if (servable > out->largest_servable_bytes) out->largest_servable_bytes = servable;
}

void gap__caching_stats(struct gap__policy_state *state, struct gap__stats *out) {
  struct caching *c = (struct caching *)state;
  gap__lock(&c->lock);
  struct caching_idle tally = tally_idle(c);
  add_all(c, &tally, out);
  gap__unlock(&c->lock);
  raise_servable(out, tally.largest, room(c));
}

/* ---- without disturbing anything ---- */

static void add_usage(const struct caching *c, const struct caching_block *block, struct gap__glance *out) {
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  struct gap__usage *usage = gap__glance_usage(out, bin->stream, caching_pool_at(c, bin->pool)->id);
  if (!usage) return;
  if (block->state == GAP__BLOCK_LIVE) usage->live_blocks++, usage->live_bytes += block->bytes;
  if (block->state == GAP__BLOCK_PENDING) usage->pending_bytes += block->bytes;
  if (block->state == GAP__BLOCK_IDLE) usage->idle_bytes += block->bytes;
}

static void add_usages(const struct caching *c, struct gap__glance *out) {
  for (uint32_t at = gap__tree_first(&c->segment_tree, &c->segments); at;
       at = gap__tree_next(&c->segment_tree, &c->segments, at)) {
    uint32_t index = gap__addrmap_get(&c->map, gap__tree_node_at(&c->segments, at)->major);
    for (; index; index = caching_block_at(c, index)->next)
      if (caching_block_at(c, index)->state != GAP__BLOCK_HOLE) add_usage(c, caching_block_at(c, index), out);
  }
}

/* Requests wait while blocks are counted one by one.  So where there are very many, which stream has what is not told, and where the idle bytes
 * are is counted every now and then. */
int gap__caching_glance(struct gap__policy_state *state, struct gap__glance *out) {
  struct caching *c = (struct caching *)state;
  if (!gap__lock_within(&c->lock, GAP__GLANCE_WAIT_MS)) return GAP_ESTATE;
  bool many = c->blocks.in_use > GLANCE_BLOCKS_MOST;
  if (!many || c->glances++ % GLANCES_A_COUNT == 0) c->glanced = tally_idle(c);
  add_all(c, &c->glanced, &out->stats);
  uint64_t largest = c->glanced.largest;
  if (many) out->usage_missed++;
  else add_usages(c, out);
  gap__unlock(&c->lock);
  raise_servable(&out->stats, largest, out->room_bytes / CACHING_SEGMENT_ROUND * CACHING_SEGMENT_ROUND);
  return 0;
}

static void reset_peaks(struct caching *c) {
  struct gap__stats *stats = &c->stats;
#define GAP_STAT_ARRAY(name, help) \
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) stats->name[kind].peak = stats->name[kind].current;
#include "core/stats.def"
  stats->oversize_allocations_peak = stats->oversize_allocations_current;
  stats->oversize_segments_peak = stats->oversize_segments_current;
  stats->live_bytes_peak = (int64_t)c->live_bytes;
}

static void reset_accumulated(struct gap__stats *stats) {
#define GAP_STAT_ARRAY(name, help) \
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) stats->name[kind].allocated = stats->name[kind].freed = 0;
#include "core/stats.def"
  stats->oversize_allocations_allocated = stats->oversize_allocations_freed = 0;
  stats->oversize_segments_allocated = stats->oversize_segments_freed = 0;
  stats->num_alloc_retries = stats->num_ooms = stats->num_sync_all_streams = 0;
  stats->num_device_alloc = stats->num_device_free = 0;
  stats->stalls = stats->stall_us = 0;
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) stats->rung_count[rung] = stats->rung_us[rung] = 0;
}

void gap__caching_reset(struct gap__policy_state *state, bool peaks, bool accumulated) {
  struct caching *c = (struct caching *)state;
  gap__lock(&c->lock);
  if (peaks) reset_peaks(c);
  if (accumulated) reset_accumulated(&c->stats);
  gap__unlock(&c->lock);
}
