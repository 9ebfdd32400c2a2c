/* What is live, counted as the project's P counts it: a pure function of the history, whatever allocator serves it. */
#ifndef GAP_LIVE_H
#define GAP_LIVE_H

#include <stdint.h>

#include "trace/history.h"

struct gap__live {
  uint64_t bytes, bytes_peak;         /* 512-byte-rounded, from alloc to free_completed */
  uint64_t requested, requested_peak; /* as asked, from alloc to free_requested */
};

static inline uint64_t gap__live_rounded(uint64_t size) { return size == 0 ? 0 : (size + 511) & ~UINT64_C(511); }

static inline void gap__live_alloc(struct gap__live *live, uint64_t size) {
  live->bytes += gap__live_rounded(size);
  live->requested += size;
  if (live->bytes > live->bytes_peak) live->bytes_peak = live->bytes;
  if (live->requested > live->requested_peak) live->requested_peak = live->requested;
}
static inline void gap__live_let_go(struct gap__live *live, uint64_t size) { live->requested -= size; }
static inline void gap__live_end(struct gap__live *live, uint64_t size) { live->bytes -= gap__live_rounded(size); }

/* The peaks of one device's history; recorded out-of-memory events count as requests that live to the end.
 * *over is the first event that lifts the live bytes above `limit_bytes`, or the number of events.
 * 0, GAP_ENOMETA, or GAP_EFORMAT when an address is handed out twice. */
int gap__live_peaks(const struct gap__history *, uint32_t device, uint64_t limit_bytes, struct gap__live *out,
                    uint64_t *over);

#endif
