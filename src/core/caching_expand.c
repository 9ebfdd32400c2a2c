/* Expandable segments, as in torch: growth fills the lowest addresses at which a request fits with what is idle there
 * already, page by page; giving back unmaps the whole pages inside idle blocks.
 *
 * The cap is asked about the request's segment size, as without them; the last page may end beyond it, by less than a page,
 * since only the last of the holes that a request fills is rounded up. */
#include "core/caching.h"

static bool is_free(const struct caching *c, uint32_t index) {
  if (!index) return false;
  enum gap__block_state state = caching_block_at(c, index)->state;
  return state == GAP__BLOCK_IDLE || state == GAP__BLOCK_HOLE;
}

static bool has_room(const struct caching *c, uint32_t index, uint64_t bytes) {
  uint64_t room = 0;
  for (; room < bytes && is_free(c, index); index = caching_block_at(c, index)->next)
    room += caching_block_at(c, index)->bytes;
  return room >= bytes;
}

/* The lowest hole, or idle block before one, from which on idle blocks and holes have room for the request; 0: none. */
static uint32_t find_place(const struct caching *c, const struct caching_request *request) {
  const struct gap__tree *holes = &caching_bin_at(c, request->bin)->holes;
  for (uint32_t hole = gap__tree_first(holes, &c->blocks); hole; hole = gap__tree_next(holes, &c->blocks, hole)) {
    uint32_t prev = caching_block_at(c, hole)->prev;
    uint32_t from = is_free(c, prev) ? prev : hole;
    if (has_room(c, from, request->bytes)) return from;
  }
  return 0;
}

/* Maps the pages under the first `bytes` of a hole; *out is the idle block that they are then a part of. */
static int map_hole(struct caching *c, uint32_t hole, uint64_t bytes, struct caching_credit *credit, uint32_t *out) {
  struct caching_block *block = caching_block_at(c, hole);
  uint64_t page = caching_segment_at(c, block->segment)->page_bytes, mapped = (bytes + page - 1) / page * page;
  gap__caching_fill(c, hole);
  int rc = mapped < block->bytes ? gap__caching_cut(c, hole, mapped, GAP__BLOCK_HOLE) : 0;
  if (!rc) rc = gap__caching_pages_map(c, block->segment, block->addr, mapped, credit);
  if (rc) {
    gap__caching_dig(c, gap__caching_merge(c, hole, GAP__BLOCK_HOLE));
    return rc;
  }
  gap__caching_tell(c, hole, GAP_EVENT_SEGMENT_MAP);
  c->stats.num_device_alloc++;
  caching_count(c->stats.reserved_bytes, caching_bin_at(c, block->node.tag)->kind, (int64_t)mapped);
  *out = gap__caching_merge(c, hole, GAP__BLOCK_IDLE);
  gap__caching_shelve(c, *out);
  return 0;
}

/* From `at` on there is room.  What a failure leaves mapped stays, idle. */
static int fill_up(struct caching *c, const struct caching_request *request, uint32_t at, struct caching_credit *credit,
                   uint32_t *out) {
  for (;;) {
    const struct caching_block *block = caching_block_at(c, at);
    bool is_hole = block->state == GAP__BLOCK_HOLE;
    uint64_t has = is_hole ? 0 : block->bytes;
    if (has >= request->bytes) break;
    uint32_t hole = is_hole ? at : block->next;
    uint64_t missing = request->bytes - has, most = caching_block_at(c, hole)->bytes;
    int rc = map_hole(c, hole, missing < most ? missing : most, credit, &at);
    if (rc) return rc;
  }
  gap__caching_unshelve(c, at);
  *out = at;
  return 0;
}

int gap__caching_expand(struct caching *c, const struct caching_request *request, uint32_t *out) {
  struct caching_credit credit = {request->segment_bytes};
  if (!gap__caching_charge(c->dev, credit.bytes)) return GAP_ENOMEM;
  uint32_t at = find_place(c, request);
  int rc = at ? 0 : gap__caching_segment_open(c, request, &at);
  if (!rc) rc = fill_up(c, request, at, &credit, out);
  atomic_fetch_sub(&c->dev->held_bytes, credit.bytes);
  return rc;
}

/* ---- giving back ---- */

/* Idle memory is idle in stream order only: its last kernels may still run.  GAP_EAGAIN: nobody may wait for the stream
 * while it is captured. */
static int await(struct caching *c, gap_stream stream) {
  struct gap__dev *dev = c->dev->dev;
  gap__event event;
  bool capturing = false;
  int rc = gap__dev_stream_capturing(dev, stream, &capturing);
  if (capturing) return GAP_EAGAIN;
  if (!rc || rc == GAP_ENOTSUP) rc = gap__dev_event_create(dev, stream, &event);
  if (rc) return rc;
  rc = gap__dev_event_record(dev, event, stream);
  if (!rc) rc = gap__dev_event_wait(dev, event);
  gap__dev_event_destroy(dev, event);
  return rc;
}

/* Cuts an idle block, which has been taken out of its bin, into an idle start, whole pages, and an idle end; *pages are the
 * whole pages, in no tree.  On an error all is idle again. */
static int cut_out(struct caching *c, uint32_t index, uint64_t before, uint64_t bytes, uint32_t *pages) {
  uint32_t middle = index;
  int rc = 0;
  if (before) {
    rc = gap__caching_cut(c, index, before, GAP__BLOCK_IDLE);
    if (!rc) {
      middle = caching_block_at(c, index)->next;
      gap__caching_unshelve(c, middle);
      uint64_t tie = caching_block_at(c, index)->node.minor; /* the block that goes is the old one, its ends are new */
      caching_block_at(c, index)->node.minor = caching_block_at(c, middle)->node.minor;
      caching_block_at(c, middle)->node.minor = tie;
    }
    gap__caching_shelve(c, index);
    if (rc) return rc;
  }
  if (bytes < caching_block_at(c, middle)->bytes) rc = gap__caching_cut(c, middle, bytes, GAP__BLOCK_IDLE);
  if (rc) gap__caching_shelve(c, gap__caching_merge(c, middle, GAP__BLOCK_IDLE));
  *pages = middle;
  return rc;
}

static void close_segment_of(struct caching *c, uint32_t hole) {
  struct caching_block *block = caching_block_at(c, hole);
  uint32_t segment = block->segment;
  caching_pool_at(c, caching_bin_at(c, block->node.tag)->pool)->segments--;
  gap__caching_fill(c, hole);
  gap__addrmap_remove(&c->map, block->addr);
  gap__slab_give(&c->blocks, hole);
  gap__caching_segment_close(c, segment);
}

/* A hole that is a whole segment, with no page left. */
static bool is_empty(const struct caching *c, uint32_t hole) {
  const struct caching_block *block = caching_block_at(c, hole);
  return !block->prev && !block->next && !caching_segment_at(c, block->segment)->kept_count;
}

int gap__caching_unmap(struct caching *c, uint32_t index) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_segment *segment = caching_segment_at(c, block->segment);
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  struct caching_span span = caching_whole_pages(segment, block);
  if (!span.bytes) return 0;
  int rc = await(c, bin->stream);
  if (rc) return rc == GAP_EAGAIN ? 0 : rc; /* captured: the pages stay */
  uint32_t pages = 0;
  gap__caching_unshelve(c, index);
  rc = cut_out(c, index, span.addr - block->addr, span.bytes, &pages);
  if (rc) return rc;
  gap__caching_tell(c, pages, GAP_EVENT_SEGMENT_UNMAP);
  rc = gap__caching_pages_unmap(c, block->segment, span.addr, span.bytes);
  c->stats.num_device_free++;
  caching_count(c->stats.reserved_bytes, bin->kind, -(int64_t)span.bytes);
  pages = gap__caching_merge(c, pages, GAP__BLOCK_HOLE);
  gap__caching_dig(c, pages);
  if (is_empty(c, pages)) close_segment_of(c, pages);
  return rc;
}

/* A hole of the bin that is a whole segment; 0: none. */
static uint32_t find_empty(const struct caching *c, uint32_t bin) {
  const struct gap__tree *holes = &caching_bin_at(c, bin)->holes;
  uint32_t hole = gap__tree_first(holes, &c->blocks);
  while (hole && !is_empty(c, hole)) hole = gap__tree_next(holes, &c->blocks, hole);
  return hole;
}

void gap__caching_drop_empty(struct caching *c, uint32_t pool) {
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
    for (uint32_t bin = caching_pool_at(c, pool)->bins[kind]; bin; bin = caching_bin_at(c, bin)->next) {
      for (uint32_t hole; (hole = find_empty(c, bin));) close_segment_of(c, hole);
    }
  }
}

int gap__caching_return_kept(struct caching *c) {
  int rc = 0;
  for (uint32_t at = gap__tree_first(&c->segment_tree, &c->segments), next; at; at = next) {
    const struct caching_segment *segment = caching_segment_at(c, at);
    next = gap__tree_next(&c->segment_tree, &c->segments, at);
    if (!segment->kept_count) continue;
    int one = gap__caching_pages_return(c, at);
    if (!rc) rc = one;
    uint32_t first = gap__addrmap_get(&c->map, segment->node.major);
    if (caching_block_at(c, first)->state == GAP__BLOCK_HOLE && is_empty(c, first)) close_segment_of(c, first);
  }
  return rc;
}
