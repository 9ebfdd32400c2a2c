/* The keyed 64-bit hash of chains of KV pages: multiply, then fold the 128-bit product (the step of wyhash, public domain, W. Yi).
 *
 * The tokens of a KV page are hashed apart from the chain before them, so that the processor works on several KV pages at once;
 * one step a KV page joins them.  The key is secret, but equality never rests on the hash: tokens are compared. */
#ifndef GAP_KV_HASH_H
#define GAP_KV_HASH_H

#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 kv_wide;

static inline uint64_t kv_fold(uint64_t a, uint64_t b) {
  kv_wide product = (kv_wide)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t kv_load(const int32_t *tokens) {
  uint64_t two;
  memcpy(&two, tokens, sizeof two);
  return two;
}

static inline uint64_t kv_hash_tokens(const uint64_t keys[4], const int32_t *tokens, uint32_t count) {
  uint64_t a = keys[0] ^ count, b = keys[1];
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) { /* two lanes */
    a = kv_fold(kv_load(tokens + i) ^ keys[2], kv_load(tokens + i + 2) ^ a);
    b = kv_fold(kv_load(tokens + i + 4) ^ keys[3], kv_load(tokens + i + 6) ^ b);
  }
  for (; i < count; i++) a = kv_fold((uint32_t)tokens[i] ^ keys[2], a ^ keys[3]);
  return kv_fold(a ^ keys[3], b ^ keys[2]);
}

static inline uint64_t kv_hash_chain(const uint64_t keys[4], uint64_t before, uint64_t tokens) {
  return kv_fold(before ^ keys[1], tokens ^ keys[0]);
}

#endif
