/* The strategy `heuristic`: chooses for new blocks between the others, and says why.
 *
 * Measured on the histories of tests/data (bench/strategies.py): while memory is plenty, segments cost a fraction of the driver
 * time of pages, since they are large and are kept; where memory is scarce, pages need the least of it.  So segments serve as long
 * as at most half of the card is held, and there is no cap; pages serve from then on.  What the segments hold idle is given
 * back at that time.  Blocks stay with the strategy that made them, so nothing is moved.
 *
 * Its state is the choice; the strategies chosen from have states of their own, which the heap calls beside this one.  The choice
 * changes under the heap's lock. */
#include "core/heuristic.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/text.h"
#include "core/heap_state.h"

#define RESERVE_SHARE 16

struct heuristic {
  struct gap__device *device;
  _Atomic(const struct gap__policy *) chosen;
  _Atomic uint64_t card_bytes; /* while segments serve, and may be too much for it; else 0 */
  /* guarded by the heap's lock */
  _Atomic int reason; /* enum gap__heuristic_reason */
  _Atomic int64_t switches;
  uint64_t held_bytes, asked_bytes; /* at the last change */
};

static struct heuristic *of(struct gap__policy_state *state) { return (struct heuristic *)(void *)state; }

static struct gap__policy_state *state_of(const struct heuristic *h, const struct gap__policy *policy) {
  return atomic_load_explicit(&h->device->state[policy->strategy], memory_order_acquire);
}

/* ---- the choice ---- */

static uint64_t card_bytes(const struct gap__device *dev) {
  uint64_t total = dev->dev->caps.total_bytes, reserve = atomic_load(&dev->reserve_bytes);
  if (reserve == GAP__RESERVE_DEFAULT) reserve = total / RESERVE_SHARE;
  return total > reserve ? total - reserve : 0;
}

/* Do segments hold much, or would this request fill the card? */
static bool passes(uint64_t card, uint64_t held, uint64_t bytes) { return held > card / 2 || bytes > card - held; }

static enum gap__heuristic_reason judge(const struct heuristic *h, uint64_t bytes) {
  if (!state_of(h, &gap__policy_gapless)) return GAP__HEURISTIC_NO_PAGES;
  if (atomic_load(&h->device->cap_bytes)) return GAP__HEURISTIC_CAPPED;
  uint64_t held = atomic_load(&h->device->held_bytes), card = card_bytes(h->device);
  if (bytes > card && held <= card / 2) return GAP__HEURISTIC_PLENTY; /* nothing can serve it */
  return passes(card, held, bytes) ? GAP__HEURISTIC_SCARCE : GAP__HEURISTIC_PLENTY;
}

static const struct gap__policy *policy_for(enum gap__heuristic_reason reason) {
  return reason == GAP__HEURISTIC_PLENTY || reason == GAP__HEURISTIC_NO_PAGES ? &gap__policy_caching
                                                                              : &gap__policy_gapless;
}

static void say(const struct heuristic *h, struct gap__text *out) {
  static const char *const words[] = {"memory is plenty", "a cap limits what may be held", "memory gets scarce",
                                      "the device maps no pages", "segments found no memory"};
  char held[GAP__TEXT_BYTES], asked[GAP__TEXT_BYTES];
  gap__text_add(out, "%s serves: %s (%s held, %s asked, when it was chosen); %lld changes",
                atomic_load(&h->chosen)->name, words[atomic_load(&h->reason)], gap__text_size(h->held_bytes, held),
                gap__text_size(h->asked_bytes, asked), (long long)atomic_load(&h->switches));
}

static void log_choice(const struct heuristic *h) {
  struct gap__text text = {0};
  say(h, &text);
  gap__log(GAP__LOG_INFO, "device %d: heuristic: %s", h->device->ordinal, gap__text_str(&text));
  gap__text_free(&text);
}

/* What the former strategy holds idle would serve nobody. */
static void leave(const struct heuristic *h, const struct gap__policy *policy) {
  uint64_t bytes;
  policy->trim(state_of(h, policy), (gap_pool_id){0, 0}, &bytes);
}

/* The heap's lock is held. */
static void choose(struct heuristic *h, enum gap__heuristic_reason reason, uint64_t bytes) {
  const struct gap__policy *before = atomic_load(&h->chosen), *now = policy_for(reason);
  atomic_store(&h->card_bytes, reason == GAP__HEURISTIC_PLENTY ? card_bytes(h->device) : 0);
  if (before == now) {
    atomic_store(&h->reason, reason);
    return;
  }
  atomic_store(&h->chosen, now);
  atomic_store(&h->reason, reason);
  h->held_bytes = atomic_load(&h->device->held_bytes);
  h->asked_bytes = bytes;
  if (!before) return;
  atomic_fetch_add(&h->switches, 1);
  leave(h, before);
  log_choice(h);
}

static const struct gap__policy *look_again(struct heuristic *h, uint64_t bytes, bool failed) {
  gap__lock(&h->device->heap->lock);
  enum gap__heuristic_reason reason = judge(h, bytes);
  if (failed && reason == GAP__HEURISTIC_PLENTY && bytes <= card_bytes(h->device)) reason = GAP__HEURISTIC_FAILED;
  choose(h, reason, bytes);
  gap__unlock(&h->device->heap->lock);
  return atomic_load(&h->chosen);
}

static bool must_look(const struct heuristic *h, uint64_t bytes) {
  uint64_t card = atomic_load_explicit(&h->card_bytes, memory_order_relaxed);
  return card && passes(card, atomic_load_explicit(&h->device->held_bytes, memory_order_relaxed), bytes);
}

static int alloc(struct gap__policy_state *state, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct heuristic *h = of(state);
  const struct gap__policy *policy = atomic_load_explicit(&h->chosen, memory_order_acquire);
  if (must_look(h, bytes)) policy = look_again(h, bytes, false);
  int rc = policy->alloc(state_of(h, policy), stream, pool, bytes, out);
  if (rc != GAP_ENOMEM || policy != &gap__policy_caching) return rc;
  const struct gap__policy *other = look_again(h, bytes, true);
  return other == policy ? rc : other->alloc(state_of(h, other), stream, pool, bytes, out);
}

/* ---- the rest of the table: most of it is done by the strategies themselves ---- */

static int free_block(struct gap__policy_state *state, gap_addr addr) {
  const struct gap__policy *policy = atomic_load_explicit(&of(state)->chosen, memory_order_acquire);
  return policy->free(state_of(of(state), policy), addr);
}

static int record_stream(struct gap__policy_state *state, gap_addr addr, gap_stream stream) {
  const struct gap__policy *policy = atomic_load_explicit(&of(state)->chosen, memory_order_acquire);
  return policy->record_stream(state_of(of(state), policy), addr, stream);
}

static int retire_stream(struct gap__policy_state *state, gap_stream stream) {
  (void)state, (void)stream;
  return 0;
}
static int pool_retain(struct gap__policy_state *state, gap_pool_id pool, unsigned flags) {
  (void)state, (void)pool, (void)flags;
  return 0;
}
static int pool_release(struct gap__policy_state *state, gap_pool_id pool) {
  (void)state, (void)pool;
  return 0;
}
static int trim(struct gap__policy_state *state, gap_pool_id pool, uint64_t *bytes_returned) {
  (void)state, (void)pool;
  *bytes_returned = 0;
  return 0;
}
static int walk(struct gap__policy_state *state, gap__walk_fn *visit, void *arg) {
  (void)state, (void)visit, (void)arg;
  return 0;
}
static int find(struct gap__policy_state *state, gap_addr addr, struct gap__block_info *out) {
  (void)state, (void)addr, (void)out;
  return GAP_ENOTMINE;
}
static int check(struct gap__policy_state *state, char *text, size_t bytes) {
  (void)state, (void)text, (void)bytes;
  return 0;
}

static int configure(struct gap__policy_state *state) {
  struct heuristic *h = of(state);
  if (gap__device_conf(h->device)->strategy == GAP__STRATEGY_HEURISTIC) choose(h, judge(h, 0), 0);
  return 0;
}

static void stats(struct gap__policy_state *state, struct gap__stats *out) {
  const struct heuristic *h = of(state);
  out->strategy_changes += atomic_load(&h->switches);
  out->strategy_reason += 1 + atomic_load(&h->reason);
}

static void reset(struct gap__policy_state *state, bool peaks, bool accumulated) {
  (void)peaks;
  if (accumulated) atomic_store(&of(state)->switches, 0);
}

static void destroy(struct gap__policy_state *state) { gap__meta_unmap(state, sizeof(struct heuristic)); }

static int create(struct gap__device *device, struct gap__policy_state **out) {
  struct gap__policy_state *other;
  int rc = gap__heap_strategy(device->heap, device->ordinal, GAP__STRATEGY_CACHING, &other);
  if (!rc) rc = gap__heap_strategy(device->heap, device->ordinal, GAP__STRATEGY_GAPLESS, &other);
  if (rc && (rc != GAP_ENOTSUP || device->dev->caps.vmm)) return rc;
  struct heuristic *h = gap__meta_map(sizeof *h);
  if (!h) return GAP_ENOMETA;
  h->device = device;
  choose(h, judge(h, 0), 0);
  *out = (struct gap__policy_state *)(void *)h;
  return 0;
}

void gap__heuristic_say(struct gap__device *device, struct gap__text *out) {
  const struct heuristic *h = (const void *)atomic_load(&device->state[GAP__STRATEGY_HEURISTIC]);
  if (!h || atomic_load(&device->current) != &gap__policy_heuristic) return;
  gap__text_add(out, "  heuristic: ");
  gap__lock(&device->heap->lock);
  say(h, out);
  gap__unlock(&device->heap->lock);
  gap__text_add(out, "\n");
}

const struct gap__policy gap__policy_heuristic = {
    .name = "heuristic",
    .strategy = GAP__STRATEGY_HEURISTIC,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = free_block,
    .record_stream = record_stream,
    .retire_stream = retire_stream,
    .pool_retain = pool_retain,
    .pool_release = pool_release,
    .trim = trim,
    .configure = configure,
    .stats = stats,
    .reset = reset,
    .walk = walk,
    .find = find,
    .check = check,
};
