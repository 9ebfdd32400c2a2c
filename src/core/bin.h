/* Idle blocks by length: best fit in constant time.
 *
 * Source: the segregated fits of TLSF (Masmano et al. 2004) with exact bins for short lengths, which makes them a true best
 * fit, and 64 bins a power of two above; a lookup compares the first few blocks of the bin it lands in.
 * Bound: two find-first-set a lookup, at most GAP__BIN_LOOK blocks compared. All calls under the lane lock. */
#ifndef GAP_BIN_H
#define GAP_BIN_H

#include "core/state.h"

void gap__bin_insert(struct gap__arena *, uint32_t block);
void gap__bin_remove(struct gap__arena *, uint32_t block);
/* The shortest idle block of at least `units` (of those compared); with `aligned` it has a page border from which `units`
 * fit.  0: none. */
uint32_t gap__bin_find(const struct gap__arena *, uint32_t units, bool aligned);
/* The same among all, of those whose `units` have memory behind them. */
uint32_t gap__bin_find_mapped(const struct gap__arena *, uint32_t units, bool aligned);

/* Where a request of `units` would start in an idle block [off, off + len): the low end, or its first page border. */
static inline uint32_t gap__place_low(uint32_t off, bool aligned) {
  return aligned ? (uint32_t)(((uint64_t)off + GAP__PAGE_UNITS - 1) >> GAP__PAGE_UNIT_SHIFT << GAP__PAGE_UNIT_SHIFT)
                 : off;
}

#endif
