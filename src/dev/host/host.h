/* Real bytes without a GPU: chunks are pieces of a memfd, mapped at reserved addresses with mmap; streams are ordered
 * queues of operations that run when the test lets them.  Same semantics as the driver (whole chunks, aliasing, in-use
 * checks), so contents can be verified.  An access to an address whose mapping was removed while queued work still
 * used it is reported as a fault.
 *
 * Every queued operation holds the mappings it touches from the call until it has run; one that is queued behind a closed gate
 * holds nothing, and uses what is mapped when it runs: what the gate is for.  Waiting (event_wait, segment_free)
 * runs queued work also in manual mode, as a device would get there: first the event's own stream, others only when that one
 * is stuck on a wait_value; a value that nobody writes blocks for good.  A fresh chunk reads as zeros.  Chunks in host place
 * come from a second region of the same size and do not count as device memory. */
#ifndef GAP_HOST_H
#define GAP_HOST_H

#include "dev/dev.h"
#include "dev/mapping.h"

struct gap__host_params {
  uint64_t total_bytes;          /* the memfd's size */
  uint64_t address_budget_bytes; /* 0: no limit */
  uint64_t window_max_bytes;     /* 0: no limit on one window; 1: none can be had */
  /* a file by which processes share one card (card.h); NULL: it is this device's alone */
  const char *card;
  bool manual; /* true: queued work runs only in gap__host_run(); false: it runs at once */
};

int gap__host_create(int ordinal, const struct gap__host_params *, struct gap__dev **out);
/* Queues a fill of [addr, addr+bytes) with `pattern` (8 bytes repeated), in stream order: a kernel that writes. */
int gap__host_fill(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* Queues a comparison; a difference is counted in faults(): a kernel that reads. */
int gap__host_expect(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* Queues a call under the device's lock: a kernel that does what it does.  It may not call the device. */
int gap__host_call(struct gap__dev *, void (*call)(void *), void *arg, gap_stream);
/* Runs up to `count` queued operations of a stream (UINT64_MAX: all of them). */
void gap__host_run(struct gap__dev *, gap_stream, uint64_t count);
void gap__host_run_all(struct gap__dev *);
void gap__host_stream_capture(struct gap__dev *, gap_stream, bool capturing);
/* Uses of unmapped memory, wrong contents, unmapping under queued work, unknown handles and every other wrong use of the
 * driver (all that gives GAP_EINVAL): must stay 0. */
uint64_t gap__host_faults(struct gap__dev *);
uint64_t gap__host_chunk_bytes(struct gap__dev *); /* device memory given out, deferred releases included */
uint64_t gap__host_host_bytes(struct gap__dev *);  /* the same of host memory in chunks */
/* Every mapping and segment in address order. */
int gap__host_walk(struct gap__dev *, gap__dev_visit *, void *arg);

#endif
