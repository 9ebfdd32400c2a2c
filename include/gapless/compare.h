/* gapless diff and gapless check: two histories side by side, and a history against limits.
 *
 * Both stand on the same figures of one device of one file, all derived without a GPU.  Every function returns 0 or a negative GAP_E...
 * code and never prints.  Not for libgapless.so: these live in the command and in the static library behind it, like those of
 * gapless/tools.h. */
#ifndef GAPLESS_COMPARE_H
#define GAPLESS_COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Two histories side by side ---- */

typedef struct gap_diff gap_diff;

typedef struct gap_diff_options {
  size_t size;              /* sizeof(gap_diff_options) */
  int64_t device[2];        /* of each file; -1: the one with the last refusal, else the one that holds most */
  int64_t step[2];          /* of each file, counted from 0; -1: the whole file */
  double tolerance;         /* a part of 1: what differs by less is the same */
  gap_progress_fn progress; /* may be NULL: bytes read */
  void *progress_arg;
} gap_diff_options;

/* Any device, whole files, 0.01. */
void gap_diff_defaults(gap_diff_options *);

/* Reads both ("-" is standard input) and compares.  GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA, GAP_EINVAL (no such device or step),
 * with the file and the reason in `message`. */
int gap_diff_open(const char *const files[2], const gap_diff_options *, gap_diff **out, char *message, size_t bytes);
void gap_diff_close(gap_diff *);
/* 1: every figure and every part is the same within the tolerance. */
int gap_diff_is_same(const gap_diff *);

/* For people, malloc'ed; NULL when the host has no memory.  Paragraphs have lines of at most `columns` (0: unlimited); of each list at
 * most `rows` are shown (0: all). */
char *gap_diff_words(const gap_diff *, unsigned columns, unsigned rows);
/* Everything as one JSON object on one line, malloc'ed; NULL when the host has no memory. */
char *gap_diff_json(const gap_diff *);

#ifdef __cplusplus
}
#endif
#endif
