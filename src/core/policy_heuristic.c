/* The strategy `heuristic`: chooses for the new blocks of each arena between the others, and says why.
 *
 * Measured on the histories of tests/data (bench/strategies.py): while memory is plenty, segments cost a fraction of the driver
 * time of pages, since they are large and are kept; where memory is scarce, pages need the least of it.  So segments serve as long
 * as at most half of the card is held, and there is no cap.  Beyond that pages serve an arena from its next request on, but
 * for one that asks for few sizes again and again: its segments fit, and it keeps them as long as they do.  When an arena goes over
 * to pages, what the segments hold idle is given back.  Blocks stay with the strategy that made them, so nothing is moved.
 *
 * Its state is the choices; the strategies chosen from have states of their own, which the heap calls beside this one.  Choices
 * change under the heap's lock. */
#include "core/heuristic.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/text.h"
#include "core/heap_state.h"
#include "core/heuristic_arena.h"

#define RESERVE_SHARE 16

enum { SAID_MOST = 8 }; /* arenas in the summary */

struct heuristic {
  struct gap__device *device;
  _Atomic uint64_t card_bytes;                     /* 0: it does not matter how much is held */
  _Atomic(const struct gap__policy *) last_chosen; /* where a free looks first */
  _Atomic int reason;                              /* of the last choice */
  _Atomic int64_t switches;
  struct gap__heuristic_arenas arenas;
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

/* What holds for every arena, however its requests look; PLENTY: that much is held decides. */
static enum gap__heuristic_reason judge_device(const struct heuristic *h) {
  if (!state_of(h, &gap__policy_gapless)) return GAP__HEURISTIC_NO_PAGES;
  return atomic_load(&h->device->cap_bytes) ? GAP__HEURISTIC_CAPPED : GAP__HEURISTIC_PLENTY;
}

static enum gap__heuristic_reason judge(const struct heuristic *h, const struct gap__heuristic_arena *arena,
                                        uint64_t bytes) {
  enum gap__heuristic_reason reason = judge_device(h);
  uint64_t held = atomic_load(&h->device->held_bytes), card = card_bytes(h->device);
  if (reason != GAP__HEURISTIC_PLENTY) return reason;
  if (bytes > card && held <= card / 2) return GAP__HEURISTIC_PLENTY; /* nothing can serve it */
  if (!passes(card, held, bytes)) return GAP__HEURISTIC_PLENTY;
  bool fits = held < card && bytes <= card - held;
  return fits && atomic_load(&arena->steady) ? GAP__HEURISTIC_STEADY : GAP__HEURISTIC_SCARCE;
}

static const struct gap__policy *policy_for(int reason) {
  return reason == GAP__HEURISTIC_PLENTY || reason == GAP__HEURISTIC_NO_PAGES || reason == GAP__HEURISTIC_STEADY
             ? &gap__policy_caching
             : &gap__policy_gapless;
}

static int reason_of(const struct gap__heuristic_arena *arena) {
  return atomic_load_explicit(&arena->reason, memory_order_relaxed);
}

static void say_arena(const struct heuristic *h, const struct gap__heuristic_arena *arena, struct gap__text *out) {
  static const char *const words[] = {"memory is plenty",         "a cap limits what may be held",
                                      "memory gets scarce",       "the device maps no pages",
                                      "segments found no memory", "memory gets scarce, but its sizes come again"};
  char held[GAP__TEXT_BYTES], asked[GAP__TEXT_BYTES];
  int reason = reason_of(arena);
  if (arena == &h->arenas.others) gap__text_add(out, "all other streams: ");
  else
    gap__text_add(out, "stream %llx, %s 1 MiB: ", (unsigned long long)atomic_load(&arena->stream),
                  arena->is_large ? "above" : "up to");
  gap__text_add(out, "%s serves: %s (%s held, %s asked, when it was chosen); %lld changes", policy_for(reason)->name,
                words[reason], gap__text_size(arena->held_bytes, held), gap__text_size(arena->asked_bytes, asked),
                (long long)arena->changes);
}

static void log_choice(const struct heuristic *h, const struct gap__heuristic_arena *arena) {
  struct gap__text text = {0};
  say_arena(h, arena, &text);
  gap__log(GAP__LOG_INFO, "device %d: heuristic: %s", h->device->ordinal, gap__text_str(&text));
  gap__text_free(&text);
}

/* What the former strategy holds idle would serve nobody. */
static void leave(const struct heuristic *h, const struct gap__policy *policy) {
  uint64_t bytes;
  policy->trim(state_of(h, policy), (gap_pool_id){0, 0}, &bytes);
}

static void note(struct heuristic *h, struct gap__heuristic_arena *arena, enum gap__heuristic_reason reason,
                 uint64_t bytes) {
  atomic_store(&arena->reason, (uint8_t)reason);
  atomic_store(&h->reason, reason);
  atomic_store(&h->last_chosen, policy_for(reason));
  arena->held_bytes = atomic_load(&h->device->held_bytes);
  arena->asked_bytes = bytes;
}

/* The heap's lock is held. */
static void choose(struct heuristic *h, struct gap__heuristic_arena *arena, enum gap__heuristic_reason reason,
                   uint64_t bytes) {
  const struct gap__policy *before = policy_for(reason_of(arena)), *now = policy_for(reason);
  if (before == now) {
    if ((int)reason != reason_of(arena)) atomic_store(&h->reason, reason);
    atomic_store(&arena->reason, (uint8_t)reason);
    return;
  }
  note(h, arena, reason, bytes);
  arena->changes++;
  atomic_fetch_add(&h->switches, 1);
  leave(h, before);
  log_choice(h, arena);
}

static struct gap__heuristic_arena *add_arena(struct heuristic *h, gap_stream stream, uint64_t bytes) {
  bool is_new;
  gap__lock(&h->device->heap->lock);
  struct gap__heuristic_arena *arena = gap__heuristic_add(&h->arenas, stream, bytes, &is_new);
  if (is_new) note(h, arena, judge(h, arena, 0), 0);
  atomic_store_explicit(&arena->used, true, memory_order_release);
  gap__unlock(&h->device->heap->lock);
  return arena;
}

static void look_again(struct heuristic *h, struct gap__heuristic_arena *arena, uint64_t bytes, bool failed) {
  gap__lock(&h->device->heap->lock);
  enum gap__heuristic_reason reason = judge(h, arena, bytes);
  bool has_segments = policy_for(reason) == &gap__policy_caching && reason != GAP__HEURISTIC_NO_PAGES;
  if (failed && has_segments && bytes <= card_bytes(h->device)) reason = GAP__HEURISTIC_FAILED;
  choose(h, arena, reason, bytes);
  gap__unlock(&h->device->heap->lock);
}

static bool must_look(const struct heuristic *h, const struct gap__heuristic_arena *arena, uint64_t bytes) {
  uint64_t card = atomic_load_explicit(&h->card_bytes, memory_order_relaxed);
  uint64_t held = atomic_load_explicit(&h->device->held_bytes, memory_order_relaxed);
  int reason = reason_of(arena);
  if (!card || policy_for(reason) != &gap__policy_caching) return false;
  if (reason == GAP__HEURISTIC_PLENTY) return passes(card, held, bytes);
  return held >= card || bytes > card - held || !atomic_load_explicit(&arena->steady, memory_order_relaxed);
}

static int alloc_by(const struct heuristic *h, const struct gap__policy *policy, gap_stream stream, gap_pool_id pool,
                    uint64_t bytes, gap_addr *out) {
  return policy->alloc(state_of(h, policy), stream, pool, bytes, out);
}

static int alloc(struct gap__policy_state *state, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out) {
  struct heuristic *h = of(state);
  struct gap__heuristic_arena *arena = gap__heuristic_find(&h->arenas, stream, bytes);
  if (__builtin_expect(!arena, 0)) arena = add_arena(h, stream, bytes);
  gap__heuristic_watch(arena, bytes);
  if (must_look(h, arena, bytes)) look_again(h, arena, bytes, false);
  const struct gap__policy *policy = policy_for(reason_of(arena));
  int rc = alloc_by(h, policy, stream, pool, bytes, out);
  if (rc != GAP_ENOMEM || policy != &gap__policy_caching) return rc;
  look_again(h, arena, bytes, true);
  const struct gap__policy *other = policy_for(reason_of(arena));
  return other == policy ? rc : alloc_by(h, other, stream, pool, bytes, out);
}

/* ---- the rest of the table: most of it is done by the strategies themselves ---- */

static int free_block(struct gap__policy_state *state, gap_addr addr) {
  const struct gap__policy *policy = atomic_load_explicit(&of(state)->last_chosen, memory_order_acquire);
  return policy->free(state_of(of(state), policy), addr);
}

static int record_stream(struct gap__policy_state *state, gap_addr addr, gap_stream stream) {
  const struct gap__policy *policy = atomic_load_explicit(&of(state)->last_chosen, memory_order_acquire);
  return policy->record_stream(state_of(of(state), policy), addr, stream);
}

static int retire_stream(struct gap__policy_state *state, gap_stream stream) {
  gap__heuristic_forget(&of(state)->arenas, stream);
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

static struct gap__heuristic_arena *next_arena(struct heuristic *h, int *at) {
  while (*at <= GAP__ARENA_PLACES) {
    int i = (*at)++;
    struct gap__heuristic_arena *arena = i < GAP__ARENA_PLACES ? &h->arenas.at[i] : &h->arenas.others;
    if (atomic_load_explicit(&arena->used, memory_order_acquire)) return arena;
  }
  return NULL;
}

static void judge_all(struct heuristic *h) {
  enum gap__heuristic_reason reason = judge_device(h);
  struct gap__heuristic_arena *arena;
  atomic_store(&h->card_bytes, reason == GAP__HEURISTIC_PLENTY ? card_bytes(h->device) : 0);
  atomic_store(&h->reason, reason);
  atomic_store(&h->last_chosen, policy_for(reason));
  for (int at = 0; (arena = next_arena(h, &at)) != NULL;) choose(h, arena, judge(h, arena, 0), 0);
}

static int configure(struct gap__policy_state *state) {
  struct heuristic *h = of(state);
  if (gap__device_conf(h->device)->strategy == GAP__STRATEGY_HEURISTIC) judge_all(h);
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
  judge_all(h);
  *out = (struct gap__policy_state *)(void *)h;
  return 0;
}

/* Under the heap's lock. */
static void say_all(struct heuristic *h, struct gap__text *out) {
  struct gap__heuristic_arena *arena;
  int said = 0, more = 0;
  for (int at = 0; (arena = next_arena(h, &at)) != NULL;) {
    if (said == SAID_MOST && ++more) continue;
    gap__text_add(out, "  heuristic: ");
    say_arena(h, arena, out);
    gap__text_add(out, "\n");
    said++;
  }
  if (more) gap__text_add(out, "  heuristic: and %d more\n", more);
  if (!said) gap__text_add(out, "  heuristic: nothing was asked yet\n");
}

void gap__heuristic_say(struct gap__device *device, struct gap__text *out) {
  struct heuristic *h = (void *)atomic_load(&device->state[GAP__STRATEGY_HEURISTIC]);
  if (!h || atomic_load(&device->current) != &gap__policy_heuristic) return;
  gap__lock(&device->heap->lock);
  say_all(h, out);
  gap__unlock(&device->heap->lock);
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
