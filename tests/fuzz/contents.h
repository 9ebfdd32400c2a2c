/* Contents of blocks on `host`: a word in each half page and the last one, so that every page is looked at and hardly a byte is touched. */
#ifndef GAP_TESTS_FUZZ_CONTENTS_H
#define GAP_TESTS_FUZZ_CONTENTS_H

#include "dev/host/host.h"

/* `queue` is gap__host_fill or gap__host_expect.  0 or its first error. */
static inline int each_word(int (*queue)(struct gap__dev *, gap_addr, uint64_t, uint64_t, gap_stream),
                            struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  int rc = 0;
  if (bytes < 8) return 0;
  for (uint64_t at = 0; !rc && at + 8 <= bytes; at += GAP__PAGE / 2) rc = queue(dev, addr + at, 8, pattern, stream);
  return rc ? rc : queue(dev, addr + (bytes - 8) / 8 * 8, 8, pattern, stream);
}

#endif
