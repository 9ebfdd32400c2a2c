/* gapless explain: why a request was refused, what fills the memory, and what would have helped, in plain words.
 *
 * Everything is derived from one memory history or snapshot, without a GPU.  Advice is checked by replay where the file
 * has a history.  Every function returns 0 or a negative GAP_E... code and never prints.  Not for libgapless.so: these
 * live in the command and in the static library behind it, like those of gapless/tools.h. */
#ifndef GAPLESS_EXPLAIN_H
#define GAPLESS_EXPLAIN_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What stood in the way of the last recorded refusal; without one, of a request at the end of the file. */
typedef enum gap_explain_verdict {
  GAP_EXPLAIN_FITS,          /* nothing: memory for a large request is idle or can be returned at once */
  GAP_EXPLAIN_FULL,          /* live blocks need it all */
  GAP_EXPLAIN_FRAGMENTED,    /* enough is idle, but in pieces between live blocks */
  GAP_EXPLAIN_POOL,          /* enough is idle, but in private pools (CUDA graphs, MemPool) */
  GAP_EXPLAIN_STREAM,        /* enough is idle, but belongs to other streams */
  GAP_EXPLAIN_PENDING,       /* enough was freed, but another stream still uses it */
  GAP_EXPLAIN_NEIGHBOUR,     /* other programs hold what is missing */
  GAP_EXPLAIN_CONTEXT,       /* the driver's context and libraries hold what is missing */
  GAP_EXPLAIN_LIMIT,         /* a limit set by the program, not the card */
  GAP_EXPLAIN_ABSURD,        /* no card has that much */
  GAP_EXPLAIN_CONTRADICTORY, /* the file contradicts itself */
  GAP_EXPLAIN_UNKNOWN, /* a log of requests: it does not say what was taken from the driver; or a file that holds nothing */
  GAP_EXPLAIN_VERDICT_COUNT
} gap_explain_verdict;

typedef struct gap_explain_options {
  size_t size;            /* sizeof(gap_explain_options) */
  int64_t device;         /* -1: the one of the last refusal, else the one that holds most */
  uint64_t request_bytes; /* also tell when a block of this size can no longer be had; 0 none */
  uint64_t cap_bytes;     /* what may be held: advice is checked under it; 0: what the file says or implies */
  uint64_t card_bytes;    /* memory of the card; 0 unknown */
  uint32_t budget_ms; /* time for replays; those that no longer begin within it are left out and said to be unchecked */
  gap_progress_fn progress; /* may be NULL: bytes read, then replays done */
  void *progress_arg;
} gap_explain_options;

/* Any device, no size, no cap, no card, 12,000 ms. */
void gap_explain_defaults(gap_explain_options *);

typedef struct gap_explanation gap_explanation;

/* Reads a file ("-" is standard input) and finds everything but advice.  A file that contradicts itself is explained as
 * such; one that cannot be read is an error: GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA, GAP_EINVAL (no such
 * device), with the reason in `message`.  The options are copied. */
int gap_explain_open(const char *path, const gap_explain_options *, gap_explanation **out, char *message, size_t bytes);
/* Asks a running process, which must be of the same user (root may ask any) and have a gapless heap that answers
 * (configuration key `serve`): what its heaps hold at this moment, without a history.  GAP_EINVAL: there is nobody to
 * ask; GAP_EIO: no answer within 5 s; GAP_EFORMAT, GAP_ENOMETA. */
int gap_explain_open_process(long process, const gap_explain_options *, gap_explanation **out, char *message,
                             size_t bytes);
/* Finds what would have let the request through, or what would take less memory, smallest change first, each checked by
 * replay.  Without a history there is nothing to replay and the advice says so. */
int gap_explain_advise(gap_explanation *, gap_progress_fn, void *progress_arg);
void gap_explain_close(gap_explanation *);

/* Explains another device of the same file, without reading it again; of no use once the first is closed, but for
 * closing it.  GAP_EINVAL: there is no such device, or nothing is known of it. */
int gap_explain_other_device(const gap_explanation *, uint32_t device, gap_explanation **out);
uint32_t gap_explain_device(const gap_explanation *);       /* the device that is explained */
uint32_t gap_explain_device_count(const gap_explanation *); /* of the file, with and without memory */

/* Is options.request_bytes to be had at the end of the file?  1 where none was given. */
int gap_explain_can_be_had(const gap_explanation *);
gap_explain_verdict gap_explain_verdict_of(const gap_explanation *);
const char *gap_explain_verdict_name(gap_explain_verdict); /* "full", "fragmented", ... */

/* Paragraphs for people, malloc'ed; NULL when the host has no memory.  Lines of at most `columns` (0: unlimited). */
char *gap_explain_words(const gap_explanation *, unsigned columns);
/* The advice alone, found before by gap_explain_advise. */
char *gap_explain_advice_words(const gap_explanation *, unsigned columns);
/* Everything as one JSON object on one line, malloc'ed; NULL when the host has no memory.  `file` is put in as its
 * name. */
char *gap_explain_json(const gap_explanation *, const char *file);

/* ---- The ranks of one job ---- */

typedef struct gap_explain_job gap_explain_job;

typedef struct gap_explain_rank {
  gap_explanation *explanation;
  const char *file;         /* its name */
  uint64_t need_bytes;      /* out: what has to live at a time; at the peak, or with the refused request */
  uint64_t peak_live_bytes; /* out */
  uint32_t refusals;        /* out */
} gap_explain_rank;

/* Sets two or more explanations, of as many ranks, side by side and fills in their figures; the array and what it
 * points to must stay until gap_explain_job_close.  0, GAP_EINVAL, GAP_ENOMETA. */
int gap_explain_job_open(gap_explain_rank *ranks, uint32_t count, gap_explain_job **out);
void gap_explain_job_close(gap_explain_job *);
/* The rank that limits the job: one that was refused a request before those that were not, then the one that needs
 * most. */
uint32_t gap_explain_job_limits(const gap_explain_job *);
/* Which rank limits and why, as a paragraph; or as one JSON object on one line.  Malloc'ed; NULL when the host has no
 * memory. */
char *gap_explain_job_words(const gap_explain_job *, unsigned columns);
char *gap_explain_job_json(const gap_explain_job *);

#ifdef __cplusplus
}
#endif
#endif
