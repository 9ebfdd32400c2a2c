/* Faults on purpose: the n-th driver call of a kind fails, on any backend, or the n-th piece of the allocator's own memory is
 * refused.
 *
 * The driver's table is replaced in place, so a backend keeps its identity: its test controls (gap__sim_..., gap__host_...)
 * and calls that this file does not know still reach it.  A call that is chosen to fail does not reach the backend.
 *
 * Host memory: a program linked with --wrap for the functions of fault_meta.c asks here whether a request may pass.  Only
 * what is asked for between fault_watch(f) and fault_watch(NULL) counts, and nothing that a backend asks for itself. */
#ifndef GAP_TESTS_FAULT_H
#define GAP_TESTS_FAULT_H

#include "dev/dev.h"

/* The kinds of calls: the driver's, then three of host memory. */
enum {
  FAULT_PAGES = GAP__CALL_COUNT, /* mmap */
  FAULT_BYTES,                   /* malloc, calloc, realloc, strdup, vasprintf */
  FAULT_RECORD,                  /* a record of a slab that was never in use */
  FAULT_KINDS
};

struct fault_plan {
  int kind;     /* GAP__CALL_... or FAULT_... */
  uint64_t nth; /* from 1 on; 0: nothing fails */
  int code;     /* what a driver call returns */
  bool lasting; /* every call from the n-th on */
};

struct fault {
  struct gap__dev_ops ops; /* in the place of the backend's */
  const struct gap__dev_ops *inner;
  struct fault_plan plan;
  _Atomic bool over; /* nothing fails any more */
  bool destroyed;    /* with its backend */
  /* threads of the library's make calls, too */
  _Atomic uint64_t hits;
  _Atomic uint64_t calls[FAULT_KINDS], done[FAULT_KINDS]; /* made, and made with success */
  int64_t pages_mapped, pieces; /* host memory not given back: mappings, and pieces of malloc */
};

/* From here on the calls of `dev` go through `f`, which must outlive it. */
void fault_attach(struct fault *f, struct gap__dev *dev, const struct fault_plan *plan);
/* Nothing fails any more. */
void fault_clear(struct fault *f);
/* Whose host memory this thread asks for from here on; NULL: nobody's. */
void fault_watch(struct fault *f);
/* What the test itself looks at does not fail, and does not count (`on`); from here on things fail again. */
void fault_quietly(struct fault *f, bool on);

const char *fault_kind_name(int kind);

/* For fault_meta.c: the watched one, or NULL; and whether this call of it is to fail. */
struct fault *fault_watched(void);
bool fault_strikes(struct fault *f, int kind);

#endif
