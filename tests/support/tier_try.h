/* What the tests of src/tier share: a heap with tiers on `host`, whose addresses can be read and written, and pools with tags. */
#ifndef GAP_TESTS_TIER_TRY_H
#define GAP_TESTS_TIER_TRY_H

#include "support/gapless_try.h"
#include "tier/state.h"

struct tier_try {
  struct try t;
  struct gap__tier *tier;
};

static inline struct tier_try tier_try_on(struct try t, const char *tiers) {
  struct tier_try s = {.t = t};
  assert_int_equal(gap__tier_create(t.heap, tiers, &s.tier), 0);
  return s;
}
static inline struct tier_try tier_try_open(uint64_t card, const char *conf, const char *tiers) {
  return tier_try_on(try_host(&(struct gap__host_params){.total_bytes = card}, conf, GAP__MAKER_OFF), tiers);
}
static inline void tier_try_close(struct tier_try *s) {
  gap__tier_destroy(s->tier);
  try_end(&s->t);
}

/* Did a call fail, as it may where driver calls and host memory fail? */
static inline bool tier_try_failed(int rc) {
  if (rc && rc != GAP_ENOMEM && rc != GAP_ENOMETA && rc != GAP_EDEVICE && rc != GAP_ELIMIT && rc != GAP_EIO &&
      rc != GAP_ESTATE)
    fail_msg("a call failed with %d", rc);
  return rc != 0;
}

static inline gap_pool_id tier_try_pool(struct tier_try *s, unsigned flags, const char *tag) {
  struct gap__pool_about about = {.flags = flags, .tag = tag};
  assert_int_equal(gap__heap_pool_create(s->t.heap, 0, &about), 0);
  return about.id;
}

/* A pattern of its own for each block and seed. */
static inline void tier_try_fill(gap_addr addr, uint64_t bytes, uint64_t seed) {
  uint64_t *at = (uint64_t *)(uintptr_t)addr;
  for (uint64_t i = 0; i < bytes / 8; i++) at[i] = (seed + i) * 0x9E3779B97F4A7C15ull;
}
static inline bool tier_try_filled(gap_addr addr, uint64_t bytes, uint64_t seed) {
  const uint64_t *at = (const uint64_t *)(uintptr_t)addr;
  for (uint64_t i = 0; i < bytes / 8; i++)
    if (at[i] != (seed + i) * 0x9E3779B97F4A7C15ull) return false;
  return true;
}

static inline gap_tiers tier_try_figures(struct tier_try *s) {
  gap_tiers out = {.size = sizeof out};
  assert_int_equal(gap__tier_figures(s->tier, 0, &out), 0);
  return out;
}
static inline int tier_try_sleep(struct tier_try *s, const char *tag, unsigned flags) {
  uint64_t freed = 0;
  int rc = gap__tier_sleep(s->tier, 0, tag, flags, &freed);
  try_check(&s->t);
  return rc;
}
static inline int tier_try_wake(struct tier_try *s, const char *tag, unsigned flags) {
  int rc = gap__tier_wake(s->tier, 0, tag, flags);
  try_check(&s->t);
  return rc;
}
static inline bool tier_try_said(struct tier_try *s, const char *words) {
  char text[1024];
  assert_int_equal(gap__heap_diagnosis(s->t.heap, 0, text, sizeof text), 0);
  return strstr(text, words) != NULL;
}

#endif
