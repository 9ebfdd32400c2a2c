/* Blocks: a request takes the low end of an idle block, a freed block joins its idle neighbours. */
#include "core/caching.h"

static uint64_t live_size(uint64_t requested) {
  return (requested + CACHING_MIN_BLOCK - 1) / CACHING_MIN_BLOCK * CACHING_MIN_BLOCK;
}

static bool worth_splitting(const struct caching *c, const struct caching_request *request, uint64_t has) {
  uint64_t rest = has - request->bytes;
  if (caching_pool_at(c, request->pool)->behaviour & GAP_POOL_NO_SPLIT) return false;
  if (request->kind == GAP__KIND_SMALL || caching_expands(c, request->pool)) return rest >= CACHING_MIN_BLOCK;
  return request->bytes < c->conf.max_split_size && rest > CACHING_SMALL_MAX;
}

int gap__caching_cut(struct caching *c, uint32_t index, uint64_t bytes, enum gap__block_state state) {
  int rc = gap__addrmap_reserve(&c->map);
  uint32_t rest_index = rc ? 0 : gap__slab_take(&c->blocks);
  if (!rest_index) return GAP_ENOMETA;
  struct caching_block *block = caching_block_at(c, index), *rest = caching_block_at(c, rest_index);
  *rest = (struct caching_block){.node = {.tag = block->node.tag, .minor = ++c->age},
                                 .addr = block->addr + bytes,
                                 .bytes = block->bytes - bytes,
                                 .prev = index,
                                 .next = block->next,
                                 .segment = block->segment};
  if (block->next) caching_block_at(c, block->next)->prev = rest_index;
  block->next = rest_index;
  block->bytes = bytes;
  gap__addrmap_put(&c->map, rest->addr, rest_index);
  if (state == GAP__BLOCK_HOLE) gap__caching_dig(c, rest_index);
  else gap__caching_shelve(c, rest_index);
  return 0;
}

static void count_live(struct caching *c, const struct caching_block *block, enum gap__stat_kind kind) {
  struct gap__stats *stats = &c->stats;
  int64_t bytes = (int64_t)block->bytes;
  caching_count(stats->allocation, kind, 1);
  caching_count(stats->allocated_bytes, kind, bytes);
  caching_count(stats->active, kind, 1);
  caching_count(stats->active_bytes, kind, bytes);
  caching_count(stats->requested_bytes, kind, (int64_t)block->requested);
  if (block->bytes >= c->conf.max_split_size) {
    stats->oversize_allocations_allocated++;
    if (++stats->oversize_allocations_current > stats->oversize_allocations_peak)
      stats->oversize_allocations_peak = stats->oversize_allocations_current;
  }
  c->live_bytes += live_size(block->requested);
  if ((int64_t)c->live_bytes > stats->live_bytes_peak) stats->live_bytes_peak = (int64_t)c->live_bytes;
}

/* An idle block of `had` bytes has become a live one of `taken` and, when it was cut, an idle rest. */
static void count_split(struct caching *c, enum gap__stat_kind kind, bool was_split, int64_t had, int64_t taken) {
  bool cuts = taken < had;
  if (cuts) {
    caching_count(c->stats.inactive_split_bytes, kind, was_split ? -taken : had - taken);
    if (!was_split) caching_count(c->stats.inactive_split, kind, 1);
  } else if (was_split) {
    caching_count(c->stats.inactive_split_bytes, kind, -taken);
    caching_count(c->stats.inactive_split, kind, -1);
  }
}

/* The block has just been taken out of its bin. */
int gap__caching_serve(struct caching *c, const struct caching_request *request, uint32_t index, gap_addr *out) {
  struct caching_block *block = caching_block_at(c, index);
  bool was_split = caching_is_split(block);
  int64_t had = (int64_t)block->bytes;
  if (worth_splitting(c, request, block->bytes) && gap__caching_cut(c, index, request->bytes, GAP__BLOCK_IDLE)) {
    gap__caching_shelve(c, index);
    return GAP_ENOMETA;
  }
  if (!block->segment) count_split(c, request->kind, was_split, had, (int64_t)block->bytes);
  block->state = GAP__BLOCK_LIVE;
  block->requested = request->requested;
  count_live(c, block, request->kind);
  *out = block->addr;
  gap__caching_tell(c, index, GAP_EVENT_ALLOC);
  return 0;
}

/* `upper` becomes part of `lower`; neither lies in a bin. */
static void join(struct caching *c, uint32_t lower_index, uint32_t upper_index) {
  struct caching_block *lower = caching_block_at(c, lower_index), *upper = caching_block_at(c, upper_index);
  lower->bytes += upper->bytes;
  lower->next = upper->next;
  if (upper->next) caching_block_at(c, upper->next)->prev = lower_index;
  gap__addrmap_remove(&c->map, upper->addr);
  gap__slab_give(&c->blocks, upper_index);
}

/* Takes a neighbour out of its tree; false when there is none of that state. */
static bool take_neighbour(struct caching *c, uint32_t index, enum gap__block_state state) {
  if (!index || caching_block_at(c, index)->state != state) return false;
  if (state == GAP__BLOCK_HOLE) gap__caching_fill(c, index);
  else gap__caching_unshelve(c, index);
  return true;
}

/* What becomes of three blocks is as old as the one in the middle, as in torch. */
uint32_t gap__caching_merge(struct caching *c, uint32_t index, enum gap__block_state state) {
  const struct caching_block *block = caching_block_at(c, index);
  uint32_t prev = block->prev, next = block->next;
  uint64_t tie = block->node.minor;
  if (take_neighbour(c, next, state)) join(c, index, next);
  if (!take_neighbour(c, prev, state)) return index;
  join(c, prev, index);
  caching_block_at(c, prev)->node.minor = tie;
  return prev;
}

static int64_t idle_bytes(const struct caching *c, uint32_t index) {
  const struct caching_block *block = caching_block_at(c, index);
  return index && block->state == GAP__BLOCK_IDLE ? (int64_t)block->bytes : 0;
}

/* The freed block and its idle neighbours, of `below` and `above` bytes, have become one idle block. */
static void count_merge(struct caching *c, const struct caching_block *block, enum gap__stat_kind kind, int64_t below,
                        int64_t above) {
  bool split = caching_is_split(block);
  int64_t blocks = split - (below > 0) - (above > 0);
  int64_t bytes = (split ? (int64_t)block->bytes : 0) - below - above;
  caching_count(c->stats.inactive_split, kind, blocks);
  caching_count(c->stats.inactive_split_bytes, kind, bytes);
}

/* Caching is off; the pages of a private pool stay all the same, since a graph may use them. */
static bool keeps_nothing(const struct caching *c, const struct caching_block *block) {
  return c->conf.no_caching && !caching_is_split(block) && !block->segment &&
         caching_bin_at(c, block->node.tag)->pool == CACHING_DEFAULT_POOL;
}

void gap__caching_complete(struct caching *c, uint32_t index) {
  struct caching_block *block = caching_block_at(c, index);
  enum gap__stat_kind kind = caching_bin_at(c, block->node.tag)->kind;
  struct gap__stats *stats = &c->stats;
  caching_count(stats->active, kind, -1);
  caching_count(stats->active_bytes, kind, -(int64_t)block->bytes);
  caching_count(stats->requested_bytes, kind, -(int64_t)block->requested);
  c->live_bytes -= live_size(block->requested);
  gap__caching_tell(c, index, GAP_EVENT_FREE_COMPLETED);

  int64_t below = idle_bytes(c, block->prev), above = idle_bytes(c, block->next);
  index = gap__caching_merge(c, index, GAP__BLOCK_IDLE);
  gap__caching_shelve(c, index);
  block = caching_block_at(c, index);
  if (!block->segment) count_merge(c, block, kind, below, above);
  if (keeps_nothing(c, block)) gap__caching_segment_give(c, index); /* refused: it stays, idle */
}
