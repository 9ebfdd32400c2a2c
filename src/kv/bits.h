/* A set of numbers below 2^24, ordered: the lowest and the highest member in a few steps.
 *
 * Four levels of words; a bit of level k + 1 says whether a word of level k has any.  `low` is a word of level 0 below which there
 * is nothing: taking the lowest again and again looks at one word. */
#ifndef GAP_KV_BITS_H
#define GAP_KV_BITS_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_BITS_LEVELS = 4 };
#define KV_BITS_MOST (1u << 24)
#define KV_NONE UINT32_MAX

struct kv_bits {
  uint64_t *level[KV_BITS_LEVELS];
  uint32_t limit; /* numbers are below */
  uint32_t low;
  uint32_t count; /* members */
};

int gap__kv_bits_init(struct kv_bits *, uint32_t limit); /* empty; 0 or GAP_ENOMETA */
void gap__kv_bits_free(struct kv_bits *);
/* Adds or removes [from, from + count), none or all of which are there. */
void gap__kv_bits_add_range(struct kv_bits *, uint32_t from, uint32_t count);
void gap__kv_bits_remove_range(struct kv_bits *, uint32_t from, uint32_t count);
uint32_t gap__kv_bits_last(const struct kv_bits *); /* KV_NONE when empty */
uint32_t gap__kv_bits_first_slow(struct kv_bits *);

static inline bool kv_bits_has(const struct kv_bits *set, uint32_t i) { return set->level[0][i >> 6] >> (i & 63) & 1; }

/* It was not there. */
static inline void kv_bits_add(struct kv_bits *set, uint32_t i) {
  uint32_t word = i >> 6;
  if (word < set->low) set->low = word;
  set->count++;
  for (int k = 0; k < KV_BITS_LEVELS; k++, i >>= 6) {
    uint64_t *at = &set->level[k][i >> 6], was = *at;
    *at = was | 1ull << (i & 63);
    if (was) return;
  }
}

/* It was there. */
static inline void kv_bits_remove(struct kv_bits *set, uint32_t i) {
  set->count--;
  for (int k = 0; k < KV_BITS_LEVELS; k++, i >>= 6)
    if (set->level[k][i >> 6] &= ~(1ull << (i & 63))) return;
}

/* The same for some of one word, the `word`-th: at least one, none of which, or all of which, are there. */
static inline void kv_bits_add_word(struct kv_bits *set, uint32_t word, uint64_t members) {
  uint64_t was = set->level[0][word];
  set->level[0][word] = was | members;
  set->count += (uint32_t)__builtin_popcountll(members);
  if (word < set->low) set->low = word;
  for (int k = 1; !was && k < KV_BITS_LEVELS; k++, word >>= 6) {
    was = set->level[k][word >> 6];
    set->level[k][word >> 6] |= 1ull << (word & 63);
  }
}
static inline void kv_bits_remove_word(struct kv_bits *set, uint32_t word, uint64_t members) {
  uint64_t left = set->level[0][word] &= ~members;
  set->count -= (uint32_t)__builtin_popcountll(members);
  for (int k = 1; !left && k < KV_BITS_LEVELS; k++, word >>= 6)
    left = set->level[k][word >> 6] &= ~(1ull << (word & 63));
}

/* KV_NONE when empty. */
static inline uint32_t kv_bits_first(struct kv_bits *set) {
  uint64_t word = set->level[0][set->low];
  if (__builtin_expect(!word, 0)) return gap__kv_bits_first_slow(set);
  return set->low * 64 + (uint32_t)__builtin_ctzll(word);
}

#endif
