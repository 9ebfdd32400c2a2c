/* gapless plan: places the requests of a repeating program ahead of time.
 *
 * Every function returns 0 or a negative GAP_E... code and never prints.  Not for libgapless.so: these live in the
 * command and in the static library behind it, like those of gapless/tools.h. */
#ifndef GAPLESS_PLAN_H
#define GAPLESS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_plan gap_plan;

typedef struct gap_plan_options {
  size_t size;                   /* sizeof(gap_plan_options) */
  int64_t device;                /* -1: the first with requests */
  int64_t step_first, step_last; /* these steps, from 0; -1: all there is */
  const char *mark; /* a step begins where a mark of the program so named begins; NULL: found, see docs/plan.md */
  /* no two streams share a page: for a program that is to follow the plan; capacity_bytes is not used */
  int apart;
  uint64_t capacity_bytes;  /* good enough; 0: as low as can be found */
  uint32_t time_limit_ms;   /* for the search; the first greedy placement is always made */
  gap_progress_fn progress; /* may be NULL; calls read bytes first, then milliseconds of the limit */
  void *progress_arg;
} gap_plan_options;

void gap_plan_defaults(gap_plan_options *); /* 10,000 ms */

typedef struct gap_plan_info {
  size_t size;
  uint64_t requests;       /* placed */
  uint64_t left_out;       /* in private pools: their memory belongs to graphs */
  uint64_t streams;        /* streams that made them */
  uint64_t plan_bytes;     /* the highest end */
  uint64_t bound_bytes;    /* most live at one moment: no placement is lower */
  uint64_t greedy_bytes;   /* the best of the greedy orders */
  uint64_t total_bytes;    /* sum of all sizes */
  uint64_t resident_bytes; /* live throughout from before the first step: not placed */
  uint64_t steps_found, step_first, step_last;
  uint64_t search_ms;
  int proved;  /* no lower placement exists */
  int wrapped; /* the history does not show the beginning: blocks from before are not placed */
  char method[16], order[16], steps_from[16];
} gap_plan_info;

/* One request: to be served at `offset` from the plan's base, during positions [from, to) of the plan's allocs and
 * frees. */
typedef struct gap_plan_request {
  uint64_t bytes, offset, stream;
  uint32_t from, to;
} gap_plan_request;

/* Reads a history or a MiniMalloc CSV file and places its requests.  GAP_EINVAL: no such device, no such step, nothing
 * to place.  GAP_EMISMATCH: the independent checker found a fault.  Reading fails as in gap_history_open.  `message`
 * says which. */
int gap_plan_make(const char *path, const gap_plan_options *, gap_plan **out, char *message, size_t bytes);
/* A plan file.  Read ones are checked in full: GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA. */
int gap_plan_write(const gap_plan *, const char *path, char *message, size_t bytes);
int gap_plan_read(const char *path, gap_plan **out, char *message, size_t bytes);
void gap_plan_close(gap_plan *);

void gap_plan_info_get(const gap_plan *,
                       gap_plan_info *out); /* a read plan knows requests, streams, the bytes and no more */
/* Requests are in order of `from`; index below info.requests, else GAP_EINVAL. */
int gap_plan_request_at(const gap_plan *, uint64_t index, gap_plan_request *out);
/* One JSON object on one line, malloc'ed; NULL when the host has no memory. */
char *gap_plan_json(const gap_plan *, const char *file);

#ifdef __cplusplus
}
#endif
#endif
