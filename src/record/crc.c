#include "record/crc.h"

#include <pthread.h>

#include "base/crc_table.h"

#define POLYNOMIAL 0xEDB88320u /* 0x04C11DB7, bits reversed */

static uint32_t table[8][256];

static void fill(void) { gap__crc_table_fill(table, POLYNOMIAL); }

static uint32_t step(uint32_t crc, unsigned char byte) { return crc >> 8 ^ table[0][(crc ^ byte) & 0xFF]; }

static uint32_t step8(uint32_t crc, const unsigned char *at) {
  crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
  return table[7][crc & 0xFF] ^ table[6][crc >> 8 & 0xFF] ^ table[5][crc >> 16 & 0xFF] ^ table[4][crc >> 24] ^
         table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
}

uint32_t gap__crc32(const void *bytes, size_t count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const unsigned char *at = bytes;
  uint32_t crc = UINT32_MAX;
  pthread_once(&once, fill);
  for (; count >= 8; count -= 8, at += 8) crc = step8(crc, at);
  for (; count; count--) crc = step(crc, *at++);
  return ~crc;
}
