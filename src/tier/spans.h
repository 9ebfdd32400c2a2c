/* Ranges of addresses that one byte string is packed from, end to end: the device's, or of pinned host memory. */
#ifndef GAP_TIER_SPANS_H
#define GAP_TIER_SPANS_H

#include "dev/dev.h"
#include "gapless/tier.h"

struct gap__spans {
  const gap_span *spans;
  uint32_t count;
  uint64_t from; /* where in the string they begin */
};

uint64_t gap__spans_bytes(struct gap__spans); /* UINT64_MAX: more than that, or a span of nothing */
/* Queues the copies between `memory` and the part [at, at + bytes) of the string, as far as the spans reach. */
int gap__spans_copy(struct gap__dev *, struct gap__spans, uint64_t at, uint64_t bytes, unsigned char *memory, bool out,
                    gap_stream);

#endif
