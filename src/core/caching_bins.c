/* Pools, and the bins in which their idle blocks lie. */
#include "core/caching.h"

static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

int gap__caching_pool_find(struct caching *c, gap_pool_id id, uint32_t *out) {
  uint32_t at = CACHING_DEFAULT_POOL;
  while (at && !same_pool(caching_pool_at(c, at)->id, id)) at = caching_pool_at(c, at)->next;
  *out = at;
  return at ? 0 : GAP_EINVAL;
}

int gap__caching_pool_make(struct caching *c, gap_pool_id id, uint32_t *out) {
  uint32_t index = gap__slab_take(&c->pools);
  if (!index) return GAP_ENOMETA;
  *caching_pool_at(c, index) = (struct caching_pool){.id = id};
  if (index != CACHING_DEFAULT_POOL) {
    uint32_t last = CACHING_DEFAULT_POOL;
    while (caching_pool_at(c, last)->next) last = caching_pool_at(c, last)->next;
    caching_pool_at(c, last)->next = index;
  }
  *out = index;
  return 0;
}

void gap__caching_pool_drop(struct caching *c, uint32_t index) {
  struct caching_pool *pool = caching_pool_at(c, index);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
    for (uint32_t bin = pool->bins[kind], next; bin; bin = next) {
      next = caching_bin_at(c, bin)->next;
      if (c->last_bin[kind] == bin) c->last_bin[kind] = 0;
      gap__slab_give(&c->bins, bin);
    }
  }
  uint32_t before = CACHING_DEFAULT_POOL;
  while (caching_pool_at(c, before)->next != index) before = caching_pool_at(c, before)->next;
  caching_pool_at(c, before)->next = pool->next;
  gap__slab_give(&c->pools, index);
}

/* The link at which the bin of `stream` hangs or would hang. */
static uint32_t *bin_link(struct caching *c, uint32_t pool, enum gap__stat_kind kind, gap_stream stream) {
  uint32_t *link = &caching_pool_at(c, pool)->bins[kind];
  while (*link && caching_bin_at(c, *link)->stream < stream) link = &caching_bin_at(c, *link)->next;
  return link;
}

static int make_bin(struct caching *c, const struct caching_request *request, uint32_t *link, uint32_t *out) {
  uint32_t index = gap__slab_take(&c->bins);
  if (!index) return GAP_ENOMETA;
  *caching_bin_at(c, index) =
      (struct caching_bin){.next = *link, .pool = request->pool, .stream = request->stream, .kind = request->kind};
  *out = *link = index;
  return 0;
}

int gap__caching_bin_find(struct caching *c, struct caching_request *request) {
  uint32_t index = c->last_bin[request->kind];
  const struct caching_bin *bin = caching_bin_at(c, index);
  if (index && bin->stream == request->stream && bin->pool == request->pool) {
    request->bin = index;
    return 0;
  }
  uint32_t *link = bin_link(c, request->pool, request->kind, request->stream);
  request->bin = *link;
  if (!*link || caching_bin_at(c, *link)->stream != request->stream) {
    int rc = make_bin(c, request, link, &request->bin);
    if (rc) return rc;
  }
  c->last_bin[request->kind] = request->bin;
  return 0;
}

/* An expandable block counts with what it can grow to, so larger ones with less room behind them are better fits. */
static uint64_t reach(const struct caching *c, uint32_t index) {
  const struct caching_block *block = caching_block_at(c, index);
  const struct caching_block *next = block->next ? caching_block_at(c, block->next) : NULL;
  return block->bytes + (next && next->state == GAP__BLOCK_HOLE ? next->bytes : 0);
}

static bool is_expandable(const struct caching *c, uint32_t index) { return caching_block_at(c, index)->segment != 0; }

/* From the smallest block that fits, where that one is expandable: on as long as the next can reach less; or, when
 * expandable segments have been switched off, the first one that is not expandable. */
static uint32_t go_on(const struct caching *c, uint32_t pool, const struct gap__tree *idle, uint32_t index) {
  uint32_t next;
  if (!caching_expands(c, pool)) {
    while (index && is_expandable(c, index)) index = gap__tree_next(idle, &c->blocks, index);
    return index;
  }
  while (is_expandable(c, index) && (next = gap__tree_next(idle, &c->blocks, index)) &&
         reach(c, next) < reach(c, index))
    index = next;
  return index;
}

uint32_t gap__caching_search(const struct caching *c, const struct caching_request *request) {
  const struct gap__tree *idle = &caching_bin_at(c, request->bin)->idle;
  uint32_t index = gap__tree_at_least(idle, &c->blocks, request->bytes, 0);
  if (index && is_expandable(c, index)) index = go_on(c, request->pool, idle, index);
  return index && caching_refuses(&c->conf, request->bytes, caching_block_at(c, index)->bytes) ? 0 : index;
}

uint32_t gap__caching_fit(struct caching *c, const struct caching_request *request) {
  if (caching_collects(c)) caching_pool_at(c, request->pool)->searches[request->kind]++;
  uint32_t index = gap__caching_search(c, request);
  if (index) gap__caching_unshelve(c, index);
  return index;
}

void gap__caching_shelve(struct caching *c, uint32_t index) {
  struct caching_block *block = caching_block_at(c, index);
  struct caching_bin *bin = caching_bin_at(c, block->node.tag);
  block->state = GAP__BLOCK_IDLE;
  block->age_base = caching_pool_at(c, bin->pool)->searches[bin->kind];
  block->node.major = block->bytes;
  if (!c->ties_by_age) block->node.minor = block->addr;
  gap__tree_insert(&bin->idle, &c->blocks, index);
}

void gap__caching_unshelve(struct caching *c, uint32_t index) {
  gap__tree_erase(&caching_bin_at(c, caching_block_at(c, index)->node.tag)->idle, &c->blocks, index);
}

void gap__caching_dig(struct caching *c, uint32_t index) {
  struct caching_block *block = caching_block_at(c, index);
  block->state = GAP__BLOCK_HOLE;
  block->node.major = block->addr;
  gap__tree_insert(&caching_bin_at(c, block->node.tag)->holes, &c->blocks, index);
}

void gap__caching_fill(struct caching *c, uint32_t index) {
  gap__tree_erase(&caching_bin_at(c, caching_block_at(c, index)->node.tag)->holes, &c->blocks, index);
}
