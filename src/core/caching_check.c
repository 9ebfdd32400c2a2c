/* The checker: every invariant of caching.h, from the records alone. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/caching.h"

struct audit {
  struct caching *c;
  char *text;
  size_t bytes;
  uint64_t held, live_blocks, live_bytes, active_blocks, active_bytes, split_blocks, split_bytes;
  uint32_t blocks, idle, holes, segments;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct audit *audit, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (audit->bytes) vsnprintf(audit->text, audit->bytes, format, args);
  va_end(args);
  return GAP_ESTATE;
}

static bool in_tree(const struct caching *c, uint32_t index, enum gap__block_state state) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  bool hole = state == GAP__BLOCK_HOLE;
  return gap__tree_at_least(hole ? &bin->holes : &bin->idle, &c->blocks, hole ? block->addr : block->bytes,
                            block->node.minor) == index;
}

static void tally_block(struct audit *audit, const struct caching_block *block) {
  audit->blocks++;
  audit->holes += block->state == GAP__BLOCK_HOLE;
  if (block->state == GAP__BLOCK_HOLE) return;
  audit->held += block->bytes;
  if (block->state == GAP__BLOCK_IDLE) {
    audit->idle++;
    if (!caching_is_split(block) || block->segment) return;
    audit->split_blocks++;
    audit->split_bytes += block->bytes;
    return;
  }
  audit->active_blocks++;
  audit->active_bytes += block->bytes;
  if (block->state != GAP__BLOCK_LIVE) return;
  audit->live_blocks++;
  audit->live_bytes += block->bytes;
}

static int audit_block(struct audit *audit, uint32_t index, uint32_t prev, uint64_t addr) {
  const struct caching *c = audit->c;
  const struct caching_block *block = caching_block_at(c, index);
  bool idle = block->state == GAP__BLOCK_IDLE, hole = block->state == GAP__BLOCK_HOLE;
  if (block->addr != addr || block->prev != prev)
    return wrong(audit, "the block at %#" PRIx64 " does not follow its neighbour", block->addr);
  if (gap__addrmap_get(&c->map, addr) != index) return wrong(audit, "the map does not know %#" PRIx64, addr);
  if (block->bytes == 0 || block->bytes % CACHING_MIN_BLOCK)
    return wrong(audit, "the block at %#" PRIx64 " has a size that is no multiple of 512", addr);
  if (in_tree(c, index, GAP__BLOCK_IDLE) != idle || in_tree(c, index, GAP__BLOCK_HOLE) != hole)
    return wrong(audit, "the block at %#" PRIx64 " lies in the wrong bin", addr);
  if ((idle || hole) && prev && caching_block_at(c, prev)->state == block->state)
    return wrong(audit, "two idle neighbours at %#" PRIx64 " were not merged", addr);
  if ((block->state == GAP__BLOCK_PENDING) !=
      (!idle && !hole && (block->events || (block->uses && block->state != GAP__BLOCK_LIVE))))
    return wrong(audit, "the block at %#" PRIx64 " waits for nothing, or is used while it waits", addr);
  tally_block(audit, block);
  return 0;
}

/* Memory stands behind the block exactly when it is no hole, but for pages that the driver would not take back. */
static int audit_pages(struct audit *audit, const struct caching_segment *segment, const struct caching_block *block) {
  uint64_t page = segment->page_bytes, from = block->addr - segment->node.major, end = from + block->bytes;
  bool hole = block->state == GAP__BLOCK_HOLE;
  if (hole && (from % page || end % page))
    return wrong(audit, "the hole at %#" PRIx64 " is not of whole pages", block->addr);
  for (uint64_t at = from / page; !hole && at * page < end; at++) {
    if (at >= segment->page_end || !segment->pages[at].mapped)
      return wrong(audit, "the block at %#" PRIx64 " lies on a page without memory", block->addr);
  }
  return 0;
}

static int audit_segment(struct audit *audit, uint32_t at) {
  const struct gap__tree_node *segment = gap__tree_node_at(&audit->c->segments, at);
  uint64_t addr = segment->major;
  uint32_t prev = 0, index = gap__addrmap_get(&audit->c->map, addr);
  for (; index; prev = index, index = caching_block_at(audit->c, index)->next) {
    const struct caching_block *block = caching_block_at(audit->c, index);
    if (block->segment != (caching_segment_at(audit->c, at)->pages ? at : 0))
      return wrong(audit, "the block at %#" PRIx64 " names another segment", addr);
    int rc = audit_block(audit, index, prev, addr);
    if (!rc && block->segment) rc = audit_pages(audit, caching_segment_at(audit->c, at), block);
    if (rc) return rc;
    addr += caching_block_at(audit->c, index)->bytes;
  }
  audit->segments += !caching_segment_at(audit->c, at)->pages;
  if (addr != segment->major + segment->minor)
    return wrong(audit, "the blocks of the segment at %#" PRIx64 " do not add up to its size", segment->major);
  return 0;
}

static int compare(struct audit *audit, const char *what, const struct gap__stat stat[GAP__KIND_COUNT],
                   uint64_t found) {
  int64_t sum = stat[GAP__KIND_SMALL].current + stat[GAP__KIND_LARGE].current;
  if (stat[GAP__KIND_ALL].current == (int64_t)found && sum == (int64_t)found) return 0;
  return wrong(audit, "%s is %" PRId64 " in the statistics (small and large %" PRId64 ") and %" PRIu64 " in the blocks",
               what, stat[GAP__KIND_ALL].current, sum, found);
}

static int audit_statistics(struct audit *audit) {
  const struct gap__stats *stats = &audit->c->stats;
  int rc = compare(audit, "segment", stats->segment, audit->segments);
  if (!rc) rc = compare(audit, "reserved_bytes", stats->reserved_bytes, audit->held);
  if (!rc) rc = compare(audit, "allocation", stats->allocation, audit->live_blocks);
  if (!rc) rc = compare(audit, "allocated_bytes", stats->allocated_bytes, audit->live_bytes);
  if (!rc) rc = compare(audit, "active", stats->active, audit->active_blocks);
  if (!rc) rc = compare(audit, "active_bytes", stats->active_bytes, audit->active_bytes);
  if (!rc) rc = compare(audit, "inactive_split", stats->inactive_split, audit->split_blocks);
  if (!rc) rc = compare(audit, "inactive_split_bytes", stats->inactive_split_bytes, audit->split_bytes);
  return rc;
}

/* Every tree in order, and no block in a bin that no segment knows. */
static int audit_bins(struct audit *audit) {
  const struct caching *c = audit->c;
  uint32_t shelved = 0, holes = 0;
  for (uint32_t p = CACHING_DEFAULT_POOL; p; p = caching_pool_at(c, p)->next) {
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
      for (uint32_t b = caching_pool_at(c, p)->bins[kind]; b; b = caching_bin_at(c, b)->next) {
        const struct caching_bin *bin = caching_bin_at(c, b);
        if (!gap__tree_check(&bin->idle, &c->blocks) || !gap__tree_check(&bin->holes, &c->blocks))
          return wrong(audit, "bin %u is out of order", b);
        shelved += bin->idle.count;
        holes += bin->holes.count;
      }
    }
  }
  if (shelved != audit->idle) return wrong(audit, "%u blocks lie in bins, %u are idle", shelved, audit->idle);
  if (holes != audit->holes) return wrong(audit, "%u holes lie in bins, there are %u", holes, audit->holes);
  if (c->blocks.in_use != audit->blocks || c->map.count != audit->blocks)
    return wrong(audit, "%u block records and %u map entries for %u blocks", c->blocks.in_use, c->map.count,
                 audit->blocks);
  return 0;
}

int gap__caching_check(struct gap__policy_state *state, char *text, size_t bytes) {
  struct audit audit = {.c = (struct caching *)state, .text = text, .bytes = bytes};
  struct caching *c = audit.c;
  gap__lock(&c->lock);
  int rc = gap__tree_check(&c->segment_tree, &c->segments) ? 0 : wrong(&audit, "the segments are out of order");
  for (uint32_t at = gap__tree_first(&c->segment_tree, &c->segments); at && !rc;
       at = gap__tree_next(&c->segment_tree, &c->segments, at))
    rc = audit_segment(&audit, at);
  if (!rc) rc = audit_bins(&audit);
  if (!rc) rc = audit_statistics(&audit);
  gap__unlock(&c->lock);
  return rc;
}
