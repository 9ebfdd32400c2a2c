/* gapless tune: PyTorch's settings and ours tried on memory histories, each with its least cap.
 *
 * A trial is one replay of a history under one setting and one cap, and depends on nothing else: trials are kept in a
 * cache, written to files and joined with those of other machines, and answers do not depend on where they came from.
 * Every function returns 0 or a negative GAP_E... code and never prints.  Not for libgapless.so: these live in the
 * command and in the static library behind it, like those of gapless/tools.h. */
#ifndef GAPLESS_TUNE_H
#define GAPLESS_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GAP_TUNE_NONE UINT32_MAX /* no setting */

typedef struct gap_tune gap_tune; /* not for several threads at once; it starts its own */

typedef struct gap_tune_options {
  size_t size;      /* sizeof(gap_tune_options) */
  uint32_t threads; /* 0: as many as there are processors */
  uint64_t lag_us;  /* as for a replay */
  const char
      *cache; /* a folder that only its owner may write to; it is made where it is missing; NULL: no cache; copied */
} gap_tune_options;

/* All processors, the usual lag, no cache. */
void gap_tune_defaults(gap_tune_options *);
/* $XDG_CACHE_HOME/gapless/tune or ~/.cache/gapless/tune, malloc'ed; NULL when the environment names neither. */
char *gap_tune_cache_default(void);

/* 0, GAP_ENOMETA; GAP_EIO, the cache cannot be used safely, with the reason in `message`. */
int gap_tune_open(const gap_tune_options *, gap_tune **out, char *message, size_t bytes);
void gap_tune_close(gap_tune *);

/* Tries every setting on every device of a history ("-": standard input) and adds the results.  `progress` counts
 * settings.  Returns 0; GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA, or an error of a replay, with the reason in
 * `message`, which on success holds a warning about the cache, or nothing. */
int gap_tune_file(gap_tune *, const char *path, gap_progress_fn progress, void *arg, char *message, size_t bytes);
/* Adds the results that a file of gap_tune_write holds; the order of files does not matter.  Returns 0; GAP_EIO,
 * GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA; GAP_EMISMATCH: it was made by another version, or contradicts what is known. */
int gap_tune_merge(gap_tune *, const char *path, char *message, size_t bytes);
/* Writes all results; an old file is replaced whole.  Returns 0, GAP_EIO, GAP_ENOMETA. */
int gap_tune_write(const gap_tune *, const char *path, char *message, size_t bytes);

/* ---- Answers ---- */

/* When all is added and before anything is asked. */
void gap_tune_conclude(gap_tune *);

/* One device of one history. */
typedef struct gap_tune_history {
  const char *file, *hash; /* SHA-256 of its contents */
  uint32_t device, device_count;
  uint64_t lag_us, events, peak_live_bytes, recorded_us;
  int wrapped;           /* the recorder's ring overwrote its oldest entries */
  uint64_t ideal_bytes;  /* the peak of live bytes in whole pages: no allocator can do with less */
  uint64_t replays;      /* made in this run; the others were known */
  double seconds;        /* of this computer */
  uint32_t count, known; /* settings; those whose least cap was searched to the end */
  /* Settings, or GAP_TUNE_NONE: as recorded; PyTorch's defaults; the one of PyTorch's that needs least; of those within
   * 1 % of it the one that costs least time in driver calls and stalls; gapless's defaults; the one of ours that needs
   * least; of those within 1 % of it the cheapest. */
  uint32_t recorded, stock, best, advised, gapless, best_gapless, advised_gapless;
} gap_tune_history;

typedef struct gap_tune_setting {
  enum gap_policy policy;
  const char *conf; /* PYTORCH_CUDA_ALLOC_CONF, or GAPLESS_CONF; "" the defaults */
  int known;
  uint64_t least_cap_bytes; /* it fits under this cap; 0: under none */
  uint64_t fails_bytes;     /* and not under this: at most 1 % or 2 MiB less, for the best 0.05 % or 2 MiB */
  /* With memory to spare: what it holds at most, what that costs. */
  uint64_t peak_reserved_bytes, driver_calls, driver_time_us, stalls;
  /* Under the least cap. */
  uint64_t least_driver_calls, least_driver_time_us, least_stalls, least_retries;
} gap_tune_setting;

uint32_t gap_tune_count(const gap_tune *);
/* By file name; valid until the next is added. */
void gap_tune_at(const gap_tune *, uint32_t history, gap_tune_history *out);
void gap_tune_setting_at(const gap_tune *, uint32_t history, uint32_t setting, gap_tune_setting *out);

/* One setting for all histories: the most that any of them needs under it is the least; of those within 1 % the one
 * that wastes least over all. The index is the same in every history; `most_bytes` may be NULL.  GAP_TUNE_NONE: none
 * fits them all. */
uint32_t gap_tune_best_of_all(const gap_tune *, int torch, uint64_t *most_bytes);
/* The most that any history needs under a setting; 0: one does not fit, or is unknown. */
uint64_t gap_tune_most(const gap_tune *, uint32_t setting);

/* The ranks of one job, or days: which history needs most under a setting, and which comes next. */
typedef struct gap_tune_limit {
  uint32_t history, next;
  uint64_t most_bytes, next_bytes; /* their least caps */
  uint64_t live_bytes,
      next_live_bytes; /* their peaks of live bytes in whole pages: with no allocator they can do with less */
} gap_tune_limit;
/* GAP_EINVAL: there is only one history, or one does not fit or is unknown under that setting. */
int gap_tune_limits(const gap_tune *, uint32_t setting, gap_tune_limit *out);
/* The same in a sentence or two, under the best of PyTorch's settings for all, else under gapless; malloc'ed, "" where
 * nothing can be said, NULL when the host has no memory.  `out` may be NULL. */
char *gap_tune_limits_words(const gap_tune *, gap_tune_limit *out);

/* Less than this much better is no gain. */
#define GAP_TUNE_GAIN 0.01
/* Does `better` need less than `worse` by a gain that counts?  A setting under which nothing fits needs more than
 * any. */
int gap_tune_gains(uint64_t better_bytes, uint64_t worse_bytes);

/* One line of JSON for each history, and one more for all of them where there are several; malloc'ed, NULL when the
 * host has no memory. */
char *gap_tune_json(const gap_tune *);

#ifdef __cplusplus
}
#endif
#endif
