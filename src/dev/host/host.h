/* Real bytes without a GPU: chunks are pieces of a memfd, mapped at reserved addresses with mmap; streams are ordered
 * queues of operations that run when the test lets them.  Same semantics as the driver (whole chunks, aliasing, in-use
 * checks), so contents can be verified.  An access to an address whose mapping was removed while queued work still
 * used it is reported as a fault. */
#ifndef GAP_HOST_H
#define GAP_HOST_H

#include "dev/dev.h"

struct gap__host_params {
  uint64_t total_bytes;          /* the memfd's size */
  uint64_t address_budget_bytes; /* 0: no limit */
  uint64_t window_max_bytes;     /* 0: no limit on one window; 1: none can be had */
  bool manual;                   /* true: queued work runs only in gap__host_run(); false: it runs at once */
};

int gap__host_create(int ordinal, const struct gap__host_params *, struct gap__dev **out);
/* Queues a fill of [addr, addr+bytes) with `pattern` (8 bytes repeated), in stream order: a kernel that writes. */
int gap__host_fill(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* Queues a comparison; a difference is counted in faults(): a kernel that reads. */
int gap__host_expect(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* Runs up to `count` queued operations of a stream (UINT64_MAX: all of them). */
void gap__host_run(struct gap__dev *, gap_stream, uint64_t count);
void gap__host_run_all(struct gap__dev *);
void gap__host_stream_capture(struct gap__dev *, gap_stream, bool capturing);
/* Uses of unmapped memory, wrong contents, unmapping under queued work, releases of unknown handles: must stay 0. */
uint64_t gap__host_faults(struct gap__dev *);
uint64_t gap__host_chunk_bytes(struct gap__dev *);

#endif
