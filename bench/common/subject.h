/* The allocators that are measured, all behind the same two indirect calls.
 *
 * A heap lies on the simulated card without a page maker: its driver calls are counted, so that a measurement can
 * show that it contains none for memory.  mimalloc is loaded beside malloc, which it would replace if it were
 * linked. */
#ifndef GAP_BENCH_SUBJECT_H
#define GAP_BENCH_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/heap.h"

enum bench_kind {
  BENCH_EMPTY, /* the calls alone: what the harness itself costs */
  BENCH_GAPLESS,
  BENCH_CACHING,      /* torch's native policy */
  BENCH_MIMALLOC_512, /* sizes / 512: mimalloc's own best case */
  BENCH_MIMALLOC,     /* equal sizes */
  BENCH_GLIBC,
  BENCH_KIND_COUNT
};

struct bench_subject {
  uint64_t (*alloc)(struct bench_subject *, gap_stream, uint64_t bytes);
  void (*free)(struct bench_subject *, uint64_t addr);
  gap_heap *heap;
  enum bench_kind kind;
  unsigned shift; /* sizes are asked >> shift */
};

const char *bench_subject_name(enum bench_kind);
/* False: not there (mimalloc is not installed).  A heap that cannot be made ends the program. */
bool bench_subject_open(struct bench_subject *, enum bench_kind);
void bench_subject_close(struct bench_subject *);

/* Driver calls so far: those for memory and addresses, and those for events.  0 where there is no driver. */
struct bench_calls {
  uint64_t memory, events;
};
struct bench_calls bench_subject_calls(const struct bench_subject *);
/* The heap's own records, and live requests; 0 where nobody counts them. */
uint64_t bench_subject_metadata(const struct bench_subject *, uint64_t *live);

#endif
