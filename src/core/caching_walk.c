/* The walk over all blocks of caching_allocator, the block of an address, and what a listener hears of a block. */
#include "core/caching.h"

static bool is_hole(const struct caching *c, uint32_t index) {
  return caching_block_at(c, index)->state == GAP__BLOCK_HOLE;
}

/* The contiguous mapped range that begins with this block: what torch calls a segment of expandable memory. */
static struct caching_span mapped_range(const struct caching *c, uint32_t index) {
  struct caching_span range = {caching_block_at(c, index)->addr, 0};
  for (; index && !is_hole(c, index); index = caching_block_at(c, index)->next)
    range.bytes += caching_block_at(c, index)->bytes;
  return range;
}

static void describe(const struct caching *c, uint32_t index, struct caching_span range, struct gap__block_info *out) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  *out = (struct gap__block_info){.addr = block->addr,
                                  .bytes = block->bytes,
                                  .requested = block->state == GAP__BLOCK_IDLE ? 0 : block->requested,
                                  .stream = bin->stream,
                                  .pool = caching_pool_at(c, bin->pool)->id,
                                  .state = block->state,
                                  .is_large = bin->kind == GAP__KIND_LARGE,
                                  .is_mapped = block->segment != 0,
                                  .strategy = GAP__STRATEGY_CACHING,
                                  .segment = range.addr,
                                  .segment_bytes = range.bytes};
}

/* Holes are left out, as in torch's snapshots: nearly all of what a segment reserves is one. */
static int walk_segment(const struct caching *c, uint32_t at, gap__walk_fn *visit, void *arg) {
  struct caching_span range = {0};
  uint32_t index = gap__addrmap_get(&c->map, gap__tree_node_at(&c->segments, at)->major);
  for (int rc = 0; index; index = caching_block_at(c, index)->next) {
    struct gap__block_info info;
    if (is_hole(c, index)) continue;
    if (caching_block_at(c, index)->addr >= range.addr + range.bytes) range = mapped_range(c, index);
    describe(c, index, range, &info);
    if ((rc = visit(arg, &info))) return rc;
  }
  return 0;
}

int gap__caching_walk(struct gap__policy_state *state, gap__walk_fn *visit, void *arg) {
  struct caching *c = (struct caching *)state;
  int rc = 0;
  gap__lock(&c->lock);
  for (uint32_t at = gap__tree_first(&c->segment_tree, &c->segments); at && !rc;
       at = gap__tree_next(&c->segment_tree, &c->segments, at))
    rc = walk_segment(c, at, visit, arg);
  gap__unlock(&c->lock);
  return rc;
}

/* A segment's blocks are linked in order of address; the map knows only where each begins. */
uint32_t gap__caching_covering(const struct caching *c, gap_addr addr) {
  uint32_t at = gap__tree_below(&c->segment_tree, &c->segments, addr, UINT64_MAX);
  const struct gap__tree_node *segment = gap__tree_node_at(&c->segments, at);
  if (!at || addr - segment->major >= segment->minor) return 0;
  uint32_t index = gap__addrmap_get(&c->map, segment->major);
  for (uint32_t next; (next = caching_block_at(c, index)->next) && caching_block_at(c, next)->addr <= addr;)
    index = next;
  return index;
}

int gap__caching_find(struct gap__policy_state *state, gap_addr addr, struct gap__block_info *out) {
  struct caching *c = (struct caching *)state;
  gap__lock(&c->lock);
  uint32_t index = gap__caching_covering(c, addr), first = index;
  bool in_use = index && caching_block_at(c, index)->state != GAP__BLOCK_IDLE && !is_hole(c, index);
  if (in_use) {
    for (uint32_t prev; (prev = caching_block_at(c, first)->prev) && !is_hole(c, prev);) first = prev;
    describe(c, index, mapped_range(c, first), out);
  }
  gap__unlock(&c->lock);
  return !index ? GAP_ENOTMINE : in_use ? 0 : GAP_EFREED;
}

void gap__caching_report(const struct caching *c, uint32_t index, gap_event_kind kind) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  bool segment = kind >= GAP_EVENT_SEGMENT_ALLOC && kind <= GAP_EVENT_SEGMENT_UNMAP;
  gap__report(c->dev, &(struct gap_event){.kind = kind,
                                          .addr = block->addr,
                                          .bytes = block->bytes,
                                          .requested = segment ? block->bytes : block->requested,
                                          .stream = bin->stream,
                                          .pool = caching_pool_at(c, bin->pool)->id});
}
