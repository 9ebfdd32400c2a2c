#include "base/crc_table.h"

void gap__crc_table_fill(uint32_t table[8][256], uint32_t polynomial) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? polynomial : 0);
    table[0][byte] = rest;
  }
  for (int place = 1; place < 8; place++)
    for (uint32_t byte = 0; byte < 256; byte++)
      table[place][byte] = table[place - 1][byte] >> 8 ^ table[0][table[place - 1][byte] & 0xFF];
}
