/* A permutation of the 64-bit numbers in which each bit depends on all: the finaliser of MurmurHash3 (A. Appleby, public domain). */
#ifndef GAP_BASE_MIX_H
#define GAP_BASE_MIX_H

#include <stdint.h>

static inline uint64_t gap__mix64(uint64_t x) {
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
  return x ^ x >> 33;
}

#endif
