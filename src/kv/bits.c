#include "kv/bits.h"

#include "base/meta.h"
#include "gapless/gapless.h"

static uint32_t words(uint32_t limit, int level) {
  for (int k = 0; k <= level; k++) limit = (limit + 63) / 64;
  return limit ? limit : 1;
}

int gap__kv_bits_init(struct kv_bits *set, uint32_t limit) {
  *set = (struct kv_bits){.limit = limit};
  for (int k = 0; k < KV_BITS_LEVELS; k++) {
    set->level[k] = gap__meta_map(words(limit, k) * sizeof(uint64_t));
    if (!set->level[k]) {
      gap__kv_bits_free(set);
      return GAP_ENOMETA;
    }
  }
  return 0;
}

void gap__kv_bits_free(struct kv_bits *set) {
  for (int k = 0; k < KV_BITS_LEVELS; k++) gap__meta_unmap(set->level[k], words(set->limit, k) * sizeof(uint64_t));
  *set = (struct kv_bits){0};
}

void gap__kv_bits_add_range(struct kv_bits *set, uint32_t from, uint32_t count) {
  for (uint32_t i = from; i < from + count; i++) kv_bits_add(set, i);
}

void gap__kv_bits_remove_range(struct kv_bits *set, uint32_t from, uint32_t count) {
  for (uint32_t i = from; i < from + count; i++) kv_bits_remove(set, i);
}

uint32_t gap__kv_bits_first_slow(struct kv_bits *set) {
  uint32_t i = 0;
  if (!set->count) return KV_NONE;
  for (int k = KV_BITS_LEVELS - 1; k >= 0; k--) i = i * 64 + (uint32_t)__builtin_ctzll(set->level[k][i]);
  set->low = i >> 6;
  return i;
}

uint32_t gap__kv_bits_last(const struct kv_bits *set) {
  uint32_t i = 0;
  if (!set->count) return KV_NONE;
  for (int k = KV_BITS_LEVELS - 1; k >= 0; k--) i = i * 64 + 63 - (uint32_t)__builtin_clzll(set->level[k][i]);
  return i;
}
