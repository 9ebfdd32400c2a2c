/* The ranks of one job, side by side: which of them limits it, and what it has more of than the others. */
#ifndef GAP_EXPLAIN_JOB_H
#define GAP_EXPLAIN_JOB_H

#include "explain/subject.h"

enum { GAP__JOB_SITE_BYTES = 160 };

struct gap__rank {
  const struct gap__subject *subject;
  const char *file;
};

/* What the limiting rank has more than the others do in the middle; negative: less. */
struct gap__job {
  const struct gap__rank *ranks;
  uint32_t count;
  uint32_t limits;                /* index of a rank: one that was refused, else the one that needs most */
  bool is_even;                   /* nobody was refused, and no rank needs 1 % more than the others */
  uint64_t need, usual;           /* bytes that have to live at a time: of that rank, and the median of the others */
  int64_t excess[GAP__CAT_COUNT]; /* by category, at the peaks */
  char site[GAP__JOB_SITE_BYTES]; /* the call site that has most more; "" none is known */
  int64_t site_excess;
};

/* Bytes that have to live at a time: at the peak, or with the refused request. */
uint64_t gap__rank_need(const struct gap__subject *);
/* `ranks`, two or more, are borrowed.  0 or GAP_ENOMETA. */
int gap__job_find(const struct gap__rank *ranks, uint32_t count, struct gap__job *);
/* Which rank limits, and why, in some sentences. */
void gap__job_say(const struct gap__job *, struct gap__text *);
/* All of it as one JSON object on one line, malloc'ed; NULL when the host has no memory. */
char *gap__job_json(const struct gap__job *);

#endif
