#include "base/sha256_block.h"

#include <stddef.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* The instructions want the eight words as ABEF and CDGH. */
struct words {
  __m128i abef, cdgh;
};

#define SHA __attribute__((target("sha,sse4.1")))

static inline SHA struct words words_of(const uint32_t state[8]) {
  __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
  __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
  return (struct words){_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0)};
}

static inline SHA void words_to(struct words w, uint32_t state[8]) {
  __m128i feba = _mm_shuffle_epi32(w.abef, 0x1b), dchg = _mm_shuffle_epi32(w.cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static inline SHA void four_rounds(struct words *w, __m128i message, int round) {
  __m128i k = _mm_add_epi32(message, _mm_loadu_si128((const __m128i *)(const void *)(gap__sha256_constants + round)));
  w->cdgh = _mm_sha256rnds2_epu32(w->cdgh, w->abef, k);
  w->abef = _mm_sha256rnds2_epu32(w->abef, w->cdgh, _mm_shuffle_epi32(k, 0x0e));
}

/* Four words of the schedule from the sixteen before. */
static inline SHA __m128i schedule(__m128i a, __m128i b, __m128i c, __m128i d) {
  return _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4)), d);
}

static SHA void compress(uint32_t state[8], const uint8_t block[64]) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  struct words start = words_of(state), w = start;
  __m128i m[4];
  for (int i = 0; i < 4; i++)
    m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)), big_endian);
  for (int round = 0; round < 48; round += 16) {
    four_rounds(&w, m[0], round);
    m[0] = schedule(m[0], m[1], m[2], m[3]);
    four_rounds(&w, m[1], round + 4);
    m[1] = schedule(m[1], m[2], m[3], m[0]);
    four_rounds(&w, m[2], round + 8);
    m[2] = schedule(m[2], m[3], m[0], m[1]);
    four_rounds(&w, m[3], round + 12);
    m[3] = schedule(m[3], m[0], m[1], m[2]);
  }
  for (int i = 0; i < 4; i++) four_rounds(&w, m[i], 48 + 4 * i);
  w.abef = _mm_add_epi32(w.abef, start.abef);
  w.cdgh = _mm_add_epi32(w.cdgh, start.cdgh);
  words_to(w, state);
}

gap__sha256_compress *gap__sha256_hardware(void) {
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1 ? compress : NULL;
}

#else

gap__sha256_compress *gap__sha256_hardware(void) { return NULL; }

#endif
