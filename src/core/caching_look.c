/* What the strategy would do, for those who compare it with what torch did. */
#include "core/caching.h"
#include "core/heap_state.h"

static struct caching *state_of(gap_heap *heap, int device) {
  return (struct caching *)heap_state_of(&heap->devices[device].base, &gap__policy_caching);
}

bool gap__caching_serves(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  struct caching *c = state_of(heap, device);
  struct caching_request request = {.stream = stream, .requested = bytes};
  gap__lock(&c->lock);
  bool serves = gap__caching_prepare(c, pool, &request) == 0 && gap__caching_search(c, &request);
  gap__unlock(&c->lock);
  return serves;
}

static bool visit_bin(const struct caching *c, const struct caching_bin *bin, gap__caching_visit *visit, void *arg) {
  for (uint32_t at = gap__tree_first(&bin->idle, &c->blocks); at; at = gap__tree_next(&bin->idle, &c->blocks, at)) {
    const struct caching_block *block = caching_block_at(c, at);
    if (!block->segment && !caching_is_split(block) && !visit(arg, block->addr, block->bytes)) return false;
  }
  return true;
}

bool gap__caching_returnable(gap_heap *heap, int device, gap__caching_visit *visit, void *arg) {
  struct caching *c = state_of(heap, device);
  bool go_on = true;
  gap__lock(&c->lock);
  for (int kind = GAP__KIND_LARGE; go_on && kind >= GAP__KIND_SMALL; kind--) {
    uint32_t bin = caching_pool_at(c, CACHING_DEFAULT_POOL)->bins[kind];
    for (; go_on && bin; bin = caching_bin_at(c, bin)->next) go_on = visit_bin(c, caching_bin_at(c, bin), visit, arg);
  }
  gap__unlock(&c->lock);
  return go_on;
}
