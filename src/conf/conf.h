/* The configuration: one table (options.def) knows every key's name, type, range, unit, default, mutability and help.
 *
 * Sources, weakest first: defaults; one of PYTORCH_CUDA_ALLOC_CONF / PYTORCH_HIP_ALLOC_CONF / PYTORCH_ALLOC_CONF (the first
 * that is set, whole string, in that order); GAPLESS_CONF (same grammar, wins key by key); run-time strings.
 * The grammar, every message and every torch option are described in docs/configuration.md, which is made from the table. */
#ifndef GAP_CONF_H
#define GAP_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gap__strategy {
  GAP__STRATEGY_GAPLESS,
  GAP__STRATEGY_CACHING,
  GAP__STRATEGY_POOLED,
  GAP__STRATEGY_HEURISTIC,
  GAP__STRATEGY_COUNT
};
enum gap__torch { GAP__TORCH_2_11, GAP__TORCH_2_12 };
enum gap__convert { GAP__CONVERT_OFF, GAP__CONVERT_SAFE_POINTS, GAP__CONVERT_GATED };

enum gap__serve { GAP__SERVE_AUTO, GAP__SERVE_ON, GAP__SERVE_OFF };

enum gap__conf_source { GAP__CONF_DEFAULT, GAP__CONF_PYTORCH_ENV, GAP__CONF_GAPLESS_ENV, GAP__CONF_RUNTIME };

#define GAP__CONF_UNLIMITED UINT64_MAX
#define GAP__CONF_POOL_SIZES_MAX 64

/* A size that may be given in bytes or as a share of the device: at most one is above 0; both 0 and not given = not set. */
struct gap__conf_amount {
  uint64_t bytes;
  double fraction; /* (0, 1] */
  bool given;      /* tells reserve:0 (keep nothing free) from no reserve at all */
};

/* The values in force.  Field names are the keys. */
struct gap__conf {
  /* torch 2.11 */
  bool backend_async;                    /* backend:cudaMallocAsync was asked for */
  uint64_t max_split_size;               /* bytes; GAP__CONF_UNLIMITED */
  uint64_t max_non_split_rounding;       /* bytes */
  double garbage_collection_threshold;   /* 0 off */
  uint32_t roundup_power2_divisions[16]; /* slot i = 2^(20+i) bytes; 0 = plain rounding */
  uint64_t large_segment_size;           /* bytes, 20 MiB */
  bool expandable_segments;
  bool release_lock_on_cudamalloc;
  double per_process_memory_fraction; /* 1.0 */
  bool graph_capture_record_stream_reuse;
  bool pinned_use_cuda_host_register;
  uint32_t pinned_num_register_threads;
  bool pinned_use_background_threads;
  uint64_t pinned_reserve_segment_size; /* bytes; 0 off */
  /* ours */
  bool backend_gapless; /* backend:gapless, or one of the article's words */
  enum gap__strategy strategy;
  enum gap__torch torch;                         /* whose ways caching_allocator has */
  enum gap__serve serve;                         /* answer `gapless explain PID` */
  enum gap__serve neighbours;                    /* ask other gapless processes on the card, and give to them */
  struct gap__conf_amount max_memory;            /* the cap on held bytes; not set: the card */
  uint64_t granularity;                          /* bytes a request is rounded to: 512 */
  uint64_t chunk_max;                            /* bytes, 2 MiB */
  uint64_t pool_sizes[GAP__CONF_POOL_SIZES_MAX]; /* bytes, ascending */
  uint32_t pool_size_count;
  double grow_limit;               /* held may grow to this x peak live before idle pages are stolen; 1.05 */
  struct gap__conf_amount reserve; /* kept free for neighbours; not set: 512 MiB when there is no cap, else 0 */
  enum gap__convert convert;
  uint64_t trace_max; /* bytes of the file `trace` */
  uint32_t trace_ring_events;
  bool trace_frames;       /* with Python stacks */
  uint64_t trim_after_ms;  /* 0 off */
  uint64_t lend_after_ms;  /* idle for so long: a neighbour may have it */
  uint32_t nmalloc;        /* whole ladders tried before the error; 1 */
  bool overflow;           /* host memory behind device addresses, unless tiers are named without host */
  uint64_t overflow_bytes; /* of a device; 0: by the budget of the tiers */
  bool page_maker;         /* make pages ahead of need, off the hot path; True */
  int log_level;           /* 0 errors .. 3 debug; 1 */
  bool strict;
  bool scrub; /* freed memory is overwritten before it serves another owner */
  char tiers[1024], plan[256], trace[256], trace_ring[256]; /* as written; "" = not set */
  /* Not a key: PYTORCH_NO_CUDA_MEMORY_CACHING, read by gap__conf_apply_env. */
  bool no_caching;
};

/* One message about a string.  `line` is what a person reads: it quotes the string and says what would be right. */
struct gap__conf_message {
  int level; /* 0 error, 1 warning, 2 note */
  char line[400];
};
struct gap__conf_report {
  struct gap__conf_message messages[32];
  uint32_t count; /* kept; further ones are only counted */
  uint32_t dropped;
  uint32_t errors, warnings; /* totals */
  uint32_t unknown;          /* items of either kind whose key nobody knows */
};

struct gap__conf_set; /* values with provenance */

/* A set with the defaults. NULL when host memory is exhausted. */
struct gap__conf_set *gap__conf_new(void);
/* The same set once more. NULL when host memory is exhausted. */
struct gap__conf_set *gap__conf_copy(const struct gap__conf_set *);
void gap__conf_free(struct gap__conf_set *);
/* Applies a string on behalf of `source`; `variable` names it in messages ("GAPLESS_CONF", "command line").
 * A string replaces what the same source said before; the empty string resets that source.  All or nothing: on an error
 * (bad value; with strict also an unknown key) nothing of the string is applied.  `report` is added to, never cleared: begin
 * with a zeroed one; it may be NULL.  0, GAP_EKEY, GAP_EVALUE, or GAP_ENOMETA when host memory is exhausted. */
int gap__conf_apply(struct gap__conf_set *, enum gap__conf_source source, const char *variable, const char *string,
                    struct gap__conf_report *);
/* Applies the environment through `get` (getenv in programs, a fake one in tests); a variable that is not set resets its
 * source. Every variable is tried; returns the first error. */
int gap__conf_apply_env(struct gap__conf_set *, const char *(*get)(const char *name), struct gap__conf_report *);
/* The program has started: from now on the keys that are not mutable keep the value they have, and a string that wants
 * another one gets a warning. Without this call every key can be set at any time. */
void gap__conf_freeze(struct gap__conf_set *);
/* Valid until the set is freed; the values change with the next apply. Not thread-safe: the owner of the set locks. */
const struct gap__conf *gap__conf_values(const struct gap__conf_set *);

/* The table, for `gapless conf`, docs and tests. */
struct gap__conf_option {
  const char *key;   /* "max_split_size_mb" */
  const char *type;  /* "MiB", "size", "bool", "real", "words", ... */
  const char *range; /* "20 or more, or unset" */
  const char *unit;
  const char *default_text;
  const char *help; /* a sentence */
  bool torch;       /* a key of torch 2.11; else ours or the article's */
  bool mutable_;    /* takes effect at run time */
};
uint32_t gap__conf_option_count(void);
const struct gap__conf_option *gap__conf_option_at(uint32_t index);
/* The value in force as text ("unlimited", "20 MiB"), and who set it. Texts that are values can be parsed again. */
void gap__conf_value_text(const struct gap__conf_set *, uint32_t index, char *out, size_t bytes);
enum gap__conf_source gap__conf_value_source(const struct gap__conf_set *, uint32_t index, const char **variable);

/* Is the key without effect in this version?  And a warning for each such key to which `weakest` or a stronger source gives another
 * value than the default. */
bool gap__conf_waits(const char *key);
void gap__conf_warn_waiting(const struct gap__conf_set *, enum gap__conf_source weakest, struct gap__conf_report *);

/* Rounds a request by roundup_power2_divisions (torch 2.11's rule: 512 bytes, or a share of the power of two below), then
 * to the granularity. bytes >= 1; never wraps: what would pass 2^64 becomes UINT64_MAX. */
uint64_t gap__conf_round(const struct gap__conf *, uint64_t bytes);

#endif
