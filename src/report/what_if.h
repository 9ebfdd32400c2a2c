/* What else would have served the same program: every policy under several caps, by replay. */
#ifndef GAP_REPORT_WHAT_IF_H
#define GAP_REPORT_WHAT_IF_H

#include "explain/altered.h"
#include "report/emit.h"

enum { GAP__WHAT_IF_POLICIES = 4, GAP__WHAT_IF_CAPS = 12 };

struct gap__what_if_cap {
  uint64_t bytes; /* 0: no limit */
  bool is_given;
};

struct gap__what_if_result {
  bool tried, fits;
  uint64_t held, driver_calls, driver_us, background_us, stalls, stall_us;
  struct {
    uint64_t event, request, live, held;
    char *reason; /* malloc'ed */
  } failed;       /* where it does not fit */
};

struct gap__what_if {
  const char *reason; /* why nothing is tried; "": something is */
  const struct gap__subject *subject;
  struct gap__altered history; /* what is replayed */
  uint64_t before;             /* bytes older than the history: taken in every replay */
  uint64_t peak;               /* most live bytes, the refused request and those included */
  struct gap__what_if_cap caps[GAP__WHAT_IF_CAPS];
  uint32_t cap_count;
  struct gap__what_if_result results[GAP__WHAT_IF_POLICIES][GAP__WHAT_IF_CAPS];
};

/* One replay. */
struct gap__what_if_job {
  struct gap__what_if *what_if;
  uint8_t policy, cap;
};

/* Chooses the caps; `off`: only says that it was not wanted.  0, GAP_ENOMETA; to be freed whatever is returned. */
int gap__what_if_prepare(const struct gap__subject *, bool off, struct gap__what_if *);
/* The jobs of one, what tells most first; `room` for GAP__WHAT_IF_POLICIES x GAP__WHAT_IF_CAPS.  Returns how many. */
uint32_t gap__what_if_jobs(struct gap__what_if *, struct gap__what_if_job *out);
/* Different jobs may run at the same time, on different threads. */
void gap__what_if_run(const struct gap__what_if_job *, gap__replay_fn *replay);
void gap__what_if_free(struct gap__what_if *);
void gap__what_if_emit(const struct gap__what_if *, struct gap__emit *);

#endif
