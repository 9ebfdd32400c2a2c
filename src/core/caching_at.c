/* A block at a given address: an idle block is cut below it, and serves from there as it would serve any request. */
#include "core/caching.h"

/* An idle block, in its bin, is cut at `addr`; the upper part, in its bin too, or 0. */
static uint32_t cut_below(struct caching *c, uint32_t index, gap_addr addr) {
  struct caching_block *block = caching_block_at(c, index);
  enum gap__stat_kind kind = caching_bin_at(c, block->node.tag)->kind;
  int64_t had = (int64_t)block->bytes;
  bool was_split = caching_is_split(block);
  gap__caching_unshelve(c, index);
  int rc = gap__caching_cut(c, index, addr - block->addr, GAP__BLOCK_IDLE);
  gap__caching_shelve(c, index);
  if (rc) return 0;
  if (!block->segment) {
    caching_count(c->stats.inactive_split, kind, was_split ? 1 : 2);
    caching_count(c->stats.inactive_split_bytes, kind, was_split ? 0 : had);
  }
  return caching_block_at(c, index)->next;
}

static int serve_at(struct caching *c, uint32_t index, gap_addr addr, uint64_t requested) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  struct caching_request request = {
      .pool = bin->pool, .requested = requested, .bytes = gap__conf_round(&c->conf, requested), .kind = bin->kind};
  gap_addr out;
  if (block->state != GAP__BLOCK_IDLE || request.bytes > block->addr + block->bytes - addr) return GAP_EAGAIN;
  if (addr > block->addr && !(index = cut_below(c, index, addr))) return GAP_ENOMETA;
  gap__caching_unshelve(c, index);
  return gap__caching_serve(c, &request, index, &out);
}

int gap__caching_alloc_at(struct gap__policy_state *state, gap_addr addr, uint64_t bytes) {
  struct caching *c = (struct caching *)state;
  gap__lock(&c->lock);
  uint32_t index = gap__caching_covering(c, addr);
  int rc = index ? serve_at(c, index, addr, bytes) : GAP_ENOTMINE;
  gap__unlock(&c->lock);
  return rc;
}
