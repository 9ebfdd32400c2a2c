/* How many different KV pages prompts have asked for: what an endless cache would have missed.
 *
 * HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007) with 2^14 registers: an error of 0.8 %, and linear counting while few are set. */
#ifndef GAP_KV_CEILING_H
#define GAP_KV_CEILING_H

#include "kv/state.h"

static inline void kv_ceiling_note(unsigned char *registers, uint64_t key) {
  uint64_t mixed = key * 0x9e3779b97f4a7c15u; /* the table of nodes uses the low bits, this the high ones */
  uint32_t at = (uint32_t)(mixed >> 50);
  unsigned char rank = (unsigned char)(1 + __builtin_clzll(mixed << 14 | 1u << 13));
  if (registers[at] < rank) registers[at] = rank;
}
double gap__kv_ceiling_count(const unsigned char *registers);

#endif
