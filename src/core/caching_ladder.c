/* What is tried, in torch's order, when no idle block fits: collect garbage, ask the driver, look into private pools that
 * allow it, give oversize segments back and ask again, give everything idle back and ask again, ask the program (oom
 * callback). */
#include "base/text.h"
#include "core/caching.h"

struct climb {
  struct caching *c;
  struct caching_request *request;
  uint64_t since_ns;
};

static void count_rung(struct climb *climb, enum gap__rung rung, bool served) {
  uint64_t now = gap__dev_now_ns(climb->c->dev->dev);
  climb->c->stats.rung_us[rung] += (int64_t)((now - climb->since_ns) / 1000);
  climb->c->stats.rung_count[rung] += served;
  climb->since_ns = now;
}

static void count_stall(struct climb *climb) {
  climb->c->stats.stalls++;
  climb->c->stats.stall_us += (int64_t)((gap__dev_now_ns(climb->c->dev->dev) - climb->since_ns) / 1000);
}

/* An idle block of a private pool for a request of the default pool, which then is one of that pool; 0: none. */
static uint32_t borrow(struct caching *c, struct caching_request *request) {
  if (request->pool != CACHING_DEFAULT_POOL) return 0;
  for (uint32_t at = caching_pool_at(c, CACHING_DEFAULT_POOL)->next; at; at = caching_pool_at(c, at)->next) {
    const struct caching_pool *pool = caching_pool_at(c, at);
    struct caching_request lent = *request;
    lent.pool = at;
    if (!pool->use_count || !(pool->behaviour & GAP_POOL_USE_ON_OOM) || gap__caching_bin_find(c, &lent)) continue;
    uint32_t block = gap__caching_fit(c, &lent);
    if (!block) continue;
    *request = lent;
    return block;
  }
  return 0;
}

static int grow(struct climb *climb, uint32_t *block) {
  struct caching *c = climb->c;
  if (caching_collects(c)) gap__caching_collect_garbage(c);
  int rc = gap__caching_segment_take(c, climb->request, block);
  if (rc == GAP_ENOMEM && (*block = borrow(c, climb->request))) rc = 0;
  if (rc == GAP_ENOMEM && gap__caching_release_oversize(c, climb->request) == 0) {
    count_stall(climb);
    rc = gap__caching_segment_take(c, climb->request, block);
  }
  count_rung(climb, GAP__RUNG_grow, rc == 0);
  return rc;
}

/* The free set is not searched again after this: neither does torch. */
static int release_and_grow(struct climb *climb, uint32_t *block) {
  struct caching *c = climb->c;
  gap__caching_release_all(c, (gap_pool_id){0, 0}, false);
  count_stall(climb);
  c->stats.num_alloc_retries++;
  int rc = gap__caching_segment_take(c, climb->request, block);
  count_rung(climb, GAP__RUNG_wait, rc == 0);
  return rc;
}

static uint64_t largest_idle(const struct caching *c, const struct caching_request *request) {
  const struct gap__tree *idle = &caching_bin_at(c, request->bin)->idle;
  uint32_t last = gap__tree_last(idle, &c->blocks);
  return last ? caching_block_at(c, last)->bytes : 0;
}

static void explain(struct caching *c, const struct caching_request *request) {
  struct gap__device *dev = c->dev;
  uint64_t held = dev->held_bytes, cap = dev->cap_bytes, live = (uint64_t)c->stats.active_bytes[GAP__KIND_ALL].current;
  uint64_t own = (uint64_t)c->stats.reserved_bytes[GAP__KIND_ALL].current;
  char text[7][GAP__TEXT_BYTES];
  bool capped = cap && held + request->segment_bytes > cap;
  gap__device_explain(dev,
                      "%s asked, which takes a segment of %s; held %s, of which %s live and %s idle in pieces of at "
                      "most %s (same stream, "
                      "kind and pool); %s%s",
                      gap__text_size(request->bytes, text[0]), gap__text_size(request->segment_bytes, text[1]),
                      gap__text_size(held, text[2]), gap__text_size(live, text[3]), gap__text_size(own - live, text[4]),
                      gap__text_size(largest_idle(c, request), text[5]),
                      capped ? "the cap is " : "the driver has no memory left",
                      capped ? gap__text_size(cap, text[6]) : "");
}

/* The callback frees through the heap, so it runs without our lock. */
static bool program_freed(struct climb *climb) {
  struct caching *c = climb->c;
  gap__unlock(&c->lock);
  bool freed = gap__heap_last_resort(c->dev, climb->request->stream, climb->request->requested);
  gap__lock(&c->lock);
  return freed;
}

/* The whole ladder once more. */
static int try_again(struct climb *climb, uint32_t *block) {
  struct caching *c = climb->c;
  if (!climb->request->captures) gap__caching_poll(c);
  *block = gap__caching_fit(c, climb->request);
  int rc = *block ? 0 : gap__caching_segment_take(c, climb->request, block);
  if (rc == GAP_ENOMEM && !climb->request->captures) rc = release_and_grow(climb, block);
  return rc;
}

static int ask_program(struct climb *climb, uint32_t *block) {
  if (!program_freed(climb)) return GAP_ENOMEM;
  int rc = try_again(climb, block);
  count_rung(climb, GAP__RUNG_callbacks, rc == 0);
  return rc;
}

int gap__caching_climb(struct caching *c, struct caching_request *request, uint32_t *block) {
  struct climb climb = {c, request, gap__dev_now_ns(c->dev->dev)};
  int rc = grow(&climb, block);
  if (rc == GAP_ENOMEM && !request->captures) rc = release_and_grow(&climb, block);
  for (uint32_t tried = 1; rc == GAP_ENOMEM && tried < c->conf.nmalloc; tried++) rc = try_again(&climb, block);
  if (rc == GAP_ENOMEM) rc = ask_program(&climb, block);
  if (rc != GAP_ENOMEM) return rc;
  c->stats.num_ooms++;
  count_rung(&climb, GAP__RUNG_fail, true);
  explain(c, request);
  gap__report_oom(c->dev, request->stream, caching_pool_at(c, request->pool)->id, request->requested);
  return rc;
}
