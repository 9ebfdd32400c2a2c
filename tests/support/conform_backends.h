/* The backends that the conformance suite runs on, and how a test makes their queued work wait and run. */
#ifndef GAP_TESTS_CONFORM_BACKENDS_H
#define GAP_TESTS_CONFORM_BACKENDS_H

#include "dev/dev.h"

#define CONFORM_TOTAL (64 * GAP__PAGE)

struct backend {
  const char *name;
  int ordinal;
  bool is_bounded;             /* device memory is exactly CONFORM_TOTAL */
  bool is_strict;              /* finds every wrong use; the real driver may crash, or let it pass */
  const char *(*absent)(void); /* why it cannot be tried here; NULL: it can (as when this is NULL) */
  int (*create)(struct gap__dev **out);
  void (*close)(struct gap__dev *); /* before destroy; may be NULL */
  int (*delay)(struct gap__dev *,
               gap_stream);          /* later work of the stream stays pending for a while; NULL: it does anyway */
  void (*settle)(struct gap__dev *); /* all queued work completes, except what waits for a value */
  /* NULL where there are no bytes */
  int (*fill)(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
  int (*expect)(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
  uint64_t (*faults)(struct gap__dev *);
  void (*capture)(struct gap__dev *, gap_stream, bool);
};

extern const struct backend backends[];
extern const size_t backend_count;

#endif
