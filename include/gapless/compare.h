/* gapless diff and gapless check: two histories side by side, and a history against limits.
 *
 * Both stand on the same figures of one device of one file, all derived without a GPU.  Every function returns 0 or a
 * negative GAP_E...  code and never prints.  Not for libgapless.so: these live in the command and in the static library
 * behind it, like those of gapless/tools.h. */
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

/* Reads both ("-" is standard input) and compares.  GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA, GAP_EINVAL (no such
 * device or step), with the file and the reason in `message`. */
int gap_diff_open(const char *const files[2], const gap_diff_options *, gap_diff **out, char *message, size_t bytes);
void gap_diff_close(gap_diff *);
/* 1: every figure and every part is the same within the tolerance. */
int gap_diff_is_same(const gap_diff *);

/* For people, malloc'ed; NULL when the host has no memory.  Paragraphs have lines of at most `columns` (0: unlimited);
 * of each list at most `rows` are shown (0: all). */
char *gap_diff_words(const gap_diff *, unsigned columns, unsigned rows);
/* Everything as one JSON object on one line, malloc'ed; NULL when the host has no memory. */
char *gap_diff_json(const gap_diff *);

/* ---- Histories against limits ---- */

typedef struct gap_limits gap_limits;

typedef struct gap_limits_options {
  size_t size;              /* sizeof(gap_limits_options) */
  int64_t device;           /* -1: the one with the last refusal, else the one that holds most */
  double tolerance;         /* a part of 1: how far a baseline may be exceeded where no limit says so */
  int allow_missing;        /* 1: a figure that a file does not tell passes */
  gap_progress_fn progress; /* may be NULL: bytes read */
  void *progress_arg;
} gap_limits_options;

/* Any device, 0.05, a missing figure does not pass. */
void gap_limits_defaults(gap_limits_options *);
int gap_limits_new(const gap_limits_options *, gap_limits **out); /* 0 or GAP_ENOMETA */
void gap_limits_free(gap_limits *);

/* The limits that there are: "max-peak", "max-waste", ...; NULL at the end.  And what each limits. */
const char *gap_limits_name(uint32_t index);
const char *gap_limits_words_of(uint32_t index);
/* "26GiB", "12%", "300": at most that.  "+5%", "+512MiB", "+3": at most so much more than the baseline.  The last one
 * for a figure counts.  GAP_EVALUE with the reason in `message`. */
int gap_limits_set(gap_limits *, uint32_t index, const char *text, char *message, size_t bytes);
/* A history, or figures that gap_limits_save wrote.  Where no limit refers to it, the peaks of live and held bytes may
 * exceed it by the tolerance.  Errors as gap_limits_file. */
int gap_limits_baseline(gap_limits *, const char *path, char *message, size_t bytes);
/* Measures a file and holds it against the limits; once they are all given.  GAP_EIO, GAP_EFORMAT, GAP_ELIMIT,
 * GAP_ENOMETA, GAP_EINVAL (no such device; nothing to check against), with the reason in `message`. */
int gap_limits_file(gap_limits *, const char *path, char *message, size_t bytes);
/* Writes the figures of the last file for a later gap_limits_baseline. */
int gap_limits_save(const gap_limits *, const char *path, char *message, size_t bytes);

typedef enum gap_limits_answer { GAP_LIMITS_PASSED, GAP_LIMITS_FAILED, GAP_LIMITS_MISSING } gap_limits_answer;

/* Of all files so far: failed before missing before passed. */
gap_limits_answer gap_limits_answer_of(const gap_limits *);
/* Malloc'ed; NULL when the host has no memory.  JSON: one object for the index-th file; XML: all files, in the form of
 * JUnit. */
char *gap_limits_words(const gap_limits *);
uint32_t gap_limits_file_count(const gap_limits *);
char *gap_limits_json(const gap_limits *, uint32_t index);
char *gap_limits_junit(const gap_limits *);

#ifdef __cplusplus
}
#endif
#endif
