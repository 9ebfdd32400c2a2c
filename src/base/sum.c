/* Where the processor has an instruction for CRC-32C it is used; else eight bytes a step by tables ("slicing by 8"). */
#include "base/sum.h"

#include <pthread.h>
#include <string.h>

#include "base/crc_table.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HAS_INSTRUCTION() __builtin_cpu_supports("sse4.2")
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_STEP(crc, word) (uint32_t) _mm_crc32_u64(crc, word)
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HAS_INSTRUCTION() 1
#define WITH_INSTRUCTION
#define CRC_STEP(crc, word) __crc32cd(crc, word)
#endif

#define POLYNOMIAL 0x82F63B78u /* 0x1EDC6F41, bits reversed */

static uint32_t table[8][256];

static void fill(void) { gap__crc_table_fill(table, POLYNOMIAL); }

static uint32_t table_step(uint32_t crc, uint64_t word) {
  uint32_t rest = 0;
  word ^= crc;
  for (int byte = 0; byte < 8; byte++) rest ^= table[7 - byte][word >> (8 * byte) & 0xFF];
  return rest;
}

struct registers {
  uint32_t crc[4];
};

/* Each half is a CRC over two registers in their order: a difference in one of them is never lost, and equal differences in both,
 * as when a pattern turns into zeros, do not cancel out. */
static uint64_t fold(const struct registers *r) {
  uint32_t high = table_step(r->crc[0], (uint64_t)r->crc[1] << 32),
           low = table_step(r->crc[2], (uint64_t)r->crc[3] << 32);
  return (uint64_t)high << 32 | low;
}

static void take_by_table(struct registers *r, const unsigned char *data, size_t bytes) {
  for (; bytes >= 32; bytes -= 32, data += 32)
    for (int k = 0; k < 4; k++) {
      uint64_t word;
      memcpy(&word, data + 8 * k, sizeof word);
      r->crc[k] = table_step(r->crc[k], word);
    }
}

#ifdef HAS_INSTRUCTION
WITH_INSTRUCTION static void take_by_instruction(struct registers *r, const unsigned char *data, size_t bytes) {
  uint32_t a = r->crc[0], b = r->crc[1], c = r->crc[2], d = r->crc[3];
  for (; bytes >= 32; bytes -= 32, data += 32) {
    uint64_t words[4];
    memcpy(words, data, sizeof words);
    a = CRC_STEP(a, words[0]);
    b = CRC_STEP(b, words[1]);
    c = CRC_STEP(c, words[2]);
    d = CRC_STEP(d, words[3]);
  }
  *r = (struct registers){{a, b, c, d}};
}
#else
#define HAS_INSTRUCTION() 0
#define take_by_instruction take_by_table
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
#define BEGUN \
  { \
    { 0xFFFFFFFFu, 0xFFFFFFFEu, 0xFFFFFFFDu, 0xFFFFFFFCu } \
  } /* words that change places are noticed too */

uint64_t gap__sum(const void *data, size_t bytes) {
  struct registers r = BEGUN;
  pthread_once(&once, fill);
  if (HAS_INSTRUCTION()) take_by_instruction(&r, data, bytes);
  else take_by_table(&r, data, bytes);
  return fold(&r);
}

uint64_t gap__sum_by_table(const void *data, size_t bytes) {
  struct registers r = BEGUN;
  pthread_once(&once, fill);
  take_by_table(&r, data, bytes);
  return fold(&r);
}
