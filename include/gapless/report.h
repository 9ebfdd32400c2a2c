/* gapless report: a memory history as one HTML page.
 *
 * Files are read and explained, reduced to what a page can show, and put into a page that needs nothing else.  Every
 * function returns 0 or a negative GAP_E... code and never prints.  Not for libgapless.so: these live in the command
 * and in the static library behind it, like those of gapless/tools.h. */
#ifndef GAPLESS_REPORT_H
#define GAPLESS_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GAP_REPORT_PANELS_MAX 64 /* devices of all files together */

typedef struct gap_report gap_report;

typedef struct gap_report_options {
  size_t size;    /* sizeof(gap_report_options) */
  int64_t device; /* of each file; -1: all that have memory */
  uint64_t
      cap_bytes; /* what may be held, beside the factors of the peak that are tried; 0: what the file says or implies */
  uint32_t budget_ms;       /* time for replays: none begins after it */
  uint32_t top;             /* rows of each list of blocks and of changes */
  uint32_t threads;         /* for replays; 0: one for each processor */
  int no_what_if;           /* 1: nothing is replayed */
  gap_progress_fn progress; /* may be NULL: bytes read */
  void *progress_arg;
} gap_report_options;

/* All devices, no cap, 2,000 ms, 50 rows, all processors, with replays. */
void gap_report_defaults(gap_report_options *);
int gap_report_new(const gap_report_options *, gap_report **out); /* the options are copied; 0 or GAP_ENOMETA */
void gap_report_free(gap_report *);

/* Reads a file ("-" is standard input), or asks a running process.  GAP_EINVAL: there is no such device, or they are
 * too many; else as of gap_explain_open and gap_explain_open_process; with the reason in `message`. */
int gap_report_file(gap_report *, const char *path, char *message, size_t bytes);
int gap_report_process(gap_report *, long process, char *message, size_t bytes);
/* Replays and compares, once all files are read; GAP_EINVAL: there is none.  `progress` counts replays. */
int gap_report_make(gap_report *, gap_progress_fn progress, void *progress_arg);

/* After gap_report_make.  The data alone, as one JSON object (web/src/data.ts); malloc'ed, NULL when the host has no
 * memory. */
char *gap_report_json(const gap_report *);
/* The page, to a file or "-", standard output.  A file gets its name only when it is whole.  GAP_ENOTSUP: this build
 * has no page; GAP_EIO, GAP_ENOMETA; with the reason in `message`. */
int gap_report_write(const gap_report *, const char *path, char *message, size_t bytes);
/* The data alone, in the same way. */
int gap_report_write_json(const gap_report *, const char *path, char *message, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
