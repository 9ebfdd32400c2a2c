/* Tables for a reflected CRC of 32 bits that takes eight bytes a step ("slicing by 8"): each is the effect of a byte that lies one
 * place further ahead. */
#ifndef GAP_BASE_CRC_TABLE_H
#define GAP_BASE_CRC_TABLE_H

#include <stdint.h>

/* `polynomial`: its bits reversed. */
void gap__crc_table_fill(uint32_t table[8][256], uint32_t polynomial);

#endif
