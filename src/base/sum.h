/* The checksum of what sleeps: four CRC-32C side by side.
 *
 * Word 4i + k of the data goes into the k-th of four registers, and the registers are folded into 64 bits: one CRC has to wait
 * for itself three cycles a word, four take a word each cycle with the processor's own instruction.  Not
 * the CRC-32C of the whole, therefore, but as strong: any burst of up to 32 bits in a register's words is noticed for certain. */
#ifndef GAP_BASE_SUM_H
#define GAP_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

/* `bytes` is a multiple of 32. */
uint64_t gap__sum(const void *data, size_t bytes);
/* The same without the processor's instruction, for tests. */
uint64_t gap__sum_by_table(const void *data, size_t bytes);

#endif
