/* Stores, values and batches for tests of gapless/remote.h. */
#ifndef GAP_TESTS_REMOTE_TRY_H
#define GAP_TESTS_REMOTE_TRY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/remote.h"
#include "support/redis_try.h"

enum { PATIENCE_MS = 20000, KEY_BYTES = 24 };

static inline gap_remote *open_store(const gap_remote_options *o) {
  char message[400];
  gap_remote *remote = NULL;
  if (gap_remote_open(o, &remote, message, sizeof message)) fail_msg("%s", message);
  return remote;
}

static inline gap_remote_stats stats_of(gap_remote *remote) {
  gap_remote_stats stats = {.size = sizeof stats};
  assert_int_equal(gap_remote_get_stats(remote, &stats), 0);
  return stats;
}

/* `count` items of `bytes` each, what a put stores and room for a get. */
struct batch {
  gap_remote_item *items;
  uint32_t count;
  uint64_t bytes;
  char (*keys)[KEY_BYTES];
  uint8_t *put, *got;
};

static inline void fill(uint8_t *at, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0; i < bytes; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    at[i] = (uint8_t)(seed >> 56);
  }
}

static inline struct batch make_batch(uint32_t count, uint64_t bytes, uint64_t seed) {
  struct batch b = {.count = count, .bytes = bytes};
  b.items = calloc(count, sizeof *b.items);
  b.keys = calloc(count, KEY_BYTES);
  b.put = malloc(count * bytes + 1), b.got = calloc(1, count * bytes + 1);
  assert_true(b.items && b.keys && b.put && b.got);
  fill(b.put, count * bytes, seed);
  for (uint32_t i = 0; i < count; i++) {
    snprintf(b.keys[i], KEY_BYTES, "%08lx/%u", (unsigned long)seed, i);
    b.items[i].key = b.keys[i];
    b.items[i].key_bytes = (uint32_t)strlen(b.keys[i]);
  }
  return b;
}

static inline void free_batch(struct batch *b) { free(b->items), free(b->keys), free(b->put), free(b->got); }

static inline void aim(struct batch *b, uint8_t *at) {
  for (uint32_t i = 0; i < b->count; i++) {
    b->items[i].value = at + i * b->bytes;
    b->items[i].bytes = b->bytes;
  }
}

static inline uint32_t outcomes(const struct batch *b, int outcome) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < b->count; i++) count += b->items[i].outcome == outcome;
  return count;
}

typedef int begin_fn(gap_remote *, gap_remote_item *, uint32_t, uint32_t, gap_remote_ticket *);

static inline uint32_t run_batch(gap_remote *remote, struct batch *b, begin_fn *begin, uint32_t timeout_ms) {
  gap_remote_ticket ticket = 0;
  assert_int_equal(begin(remote, b->items, b->count, timeout_ms, &ticket), 0);
  assert_int_equal(gap_remote_wait(remote, ticket, timeout_ms + PATIENCE_MS), 0);
  assert_int_equal(outcomes(b, GAP_REMOTE_PENDING), 0);
  return outcomes(b, GAP_REMOTE_DONE);
}

static inline uint32_t put_all(gap_remote *remote, struct batch *b) {
  aim(b, b->put);
  return run_batch(remote, b, gap_remote_put, PATIENCE_MS);
}

/* How many are hits; each of them is what was put. */
static inline uint32_t get_within(gap_remote *remote, struct batch *b, uint32_t timeout_ms) {
  memset(b->got, 0, b->count * b->bytes);
  aim(b, b->got);
  uint32_t hits = run_batch(remote, b, gap_remote_get, timeout_ms);
  for (uint32_t i = 0; i < b->count; i++) {
    if (b->items[i].outcome != GAP_REMOTE_DONE) continue;
    assert_int_equal(b->items[i].bytes, b->bytes);
    assert_memory_equal(b->got + i * b->bytes, b->put + i * b->bytes, b->bytes);
  }
  return hits;
}
static inline uint32_t get_all(gap_remote *remote, struct batch *b) { return get_within(remote, b, PATIENCE_MS); }

#endif
