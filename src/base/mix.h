/* A permutation of the 64-bit numbers in which each bit depends on all: the finaliser of MurmurHash3 (A. Appleby, public domain). */
#ifndef GAP_BASE_MIX_H
#define GAP_BASE_MIX_H

#include <stdint.h>

/* Its numbers by name, for code that is not C (tier/card_sum.c). */
#define GAP__MIX64_SHIFT 33
#define GAP__MIX64_FIRST 0xFF51AFD7ED558CCD
#define GAP__MIX64_SECOND 0xC4CEB9FE1A85EC53

static inline uint64_t gap__mix64(uint64_t x) {
  x = (x ^ x >> GAP__MIX64_SHIFT) * GAP__MIX64_FIRST;
  x = (x ^ x >> GAP__MIX64_SHIFT) * GAP__MIX64_SECOND;
  return x ^ x >> GAP__MIX64_SHIFT;
}

#endif
