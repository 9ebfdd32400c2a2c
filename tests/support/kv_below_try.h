/* Caches with tiers for tests: prompts are served, come down, and come up in another cache with the same bytes. */
#ifndef GAP_TESTS_KV_BELOW_TRY_H
#define GAP_TESTS_KV_BELOW_TRY_H

#include "gapless/kv_tiers.h"
#include "gapless/tier.h"
#include "support/kv_try.h"

enum { BELOW_PATIENCE_MS = 20000 };

struct below_try {
  gap_heap *heap;
  gap_kv *kv;
};

static inline gap_kv_tiers_options below_options(const char *model) {
  gap_kv_tiers_options o = GAP_KV_TIERS_OPTIONS_INIT;
  o.model = model, o.fetch_ms = 5000;
  return o;
}

/* `pages` KV pages of 16 tokens and 512 KiB each. */
static inline gap_kv_options below_shape(uint32_t pages) {
  gap_kv_options o = kv_try_options(16, pages * MIB / 2);
  o.heads = 32, o.head_size = 64, o.layout = GAP_KV_BLOCK_MAJOR, o.sharing = GAP_KV_SHARING_SHA256;
  return o;
}

static inline struct below_try below_open(const char *tiers, const gap_kv_options *shape,
                                          const gap_kv_tiers_options *options) {
  struct below_try t = {.heap = api_open(GAP_BACKEND_HOST, 256 * MIB, tiers)};
  char message[400] = "";
  t.kv = kv_try_open(t.heap, shape);
  if (gap_kv_tiers_open(t.kv, options, message, sizeof message)) fail_msg("%s", message);
  return t;
}

static inline void below_close(struct below_try *t) {
  kv_try_check(t->kv);
  gap_kv_destroy(t->kv);
  api_close(t->heap);
}

static inline gap_kv_tier_stats below_stats(const struct below_try *t) {
  gap_kv_tier_stats stats = {.size = sizeof stats};
  assert_int_equal(gap_kv_get_tier_stats(t->kv, &stats), 0);
  return stats;
}

static inline const int32_t *below_text(int32_t kind) {
  static int32_t tokens[KV_TRY_TOKENS];
  for (int32_t i = 0; i < KV_TRY_TOKENS; i++) tokens[i] = kind * 5000 + i;
  return tokens;
}

/* Computes what is not cached, and leaves; how many tokens were cached. */
static inline uint32_t below_serve_as(struct below_try *b, uint64_t tenant, int32_t kind, uint32_t count) {
  static struct kv_try t;
  kv_try_begin(b->kv, &t, tenant, below_text(kind), count, count);
  uint32_t hit = t.count;
  kv_try_learn(&t, below_text(kind) + hit, count - hit);
  int rc;
  while ((rc = kv_try_append(b->kv, &t)) == GAP_EAGAIN) continue; /* copies of others end soon */
  assert_int_equal(rc, 0);
  kv_try_verify(b->kv, &t);
  assert_int_equal(gap_kv_close(b->kv, t.seq, 0), 0);
  kv_try_check(b->kv);
  return hit;
}
static inline uint32_t below_serve(struct below_try *b, int32_t kind, uint32_t count) {
  return below_serve_as(b, 1, kind, count);
}

static inline void below_drain(struct below_try *b) {
  assert_int_equal(gap_kv_tiers_drain(b->kv, BELOW_PATIENCE_MS), 0);
  kv_try_check(b->kv);
  (void)kv_try_stats(b->kv);
}

/* Everything goes down, and leaves the device. */
static inline void below_leave(struct below_try *b) {
  assert_int_equal(gap_kv_tiers_store(b->kv, BELOW_PATIENCE_MS), 0);
  assert_int_equal(gap_kv_forget(b->kv), 0);
  kv_try_check(b->kv);
}

static inline uint32_t below_fetch_as(struct below_try *b, uint64_t tenant, int32_t kind, uint32_t count) {
  gap_kv_prompt p = {.size = sizeof p, .tenant = tenant, .tokens = below_text(kind), .count = count};
  gap_kv_ticket ticket;
  uint32_t tokens = 0;
  assert_int_equal(gap_kv_fetch(b->kv, &p, &ticket), 0);
  assert_int_equal(gap_kv_fetch_wait(b->kv, ticket, BELOW_PATIENCE_MS, &tokens), 0);
  assert_int_equal(gap_kv_fetch_poll(b->kv, ticket, &tokens), GAP_EINVAL);
  kv_try_check(b->kv);
  return tokens;
}
static inline uint32_t below_fetch(struct below_try *b, int32_t kind, uint32_t count) {
  return below_fetch_as(b, 1, kind, count);
}

#endif
