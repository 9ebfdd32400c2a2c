/* gapless tools: memory histories and what an allocator would have done with them.
 *
 * A history is what PyTorch recorded (torch.cuda.memory._record_memory_history); a replay sends its requests, one at a
 * time, through a strategy on a simulated card.  Every function returns 0 or a negative GAP_E... code and never prints.
 * Not for libgapless.so: these live in the command and in the static library behind it.  A history may be replayed by
 * several threads at once. */
#ifndef GAPLESS_TOOLS_H
#define GAPLESS_TOOLS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GAP_RUNGS_MAX 16
#define GAP_CALLS_MAX 40

/* `done` of `total` units of work; called now and then from the calling thread. */
typedef void (*gap_progress_fn)(void *arg, uint64_t done, uint64_t total);

enum gap_policy {
  GAP_POLICY_GAPLESS,    /* the strategy gapless */
  GAP_POLICY_NATIVE,     /* caching_allocator: PyTorch's native policy, block for block */
  GAP_POLICY_EXPANDABLE, /* the same with expandable_segments:True */
  GAP_POLICY_POOLED,     /* the strategy pooled: fixed size classes */
  GAP_POLICY_HEURISTIC,  /* the strategy heuristic: which of the others fits */
  GAP_POLICY_IDEAL,      /* no allocator at all: the peak of live bytes, the floor under every policy */
  GAP_POLICY_COUNT
};

/* ---- Histories ---- */

typedef struct gap__history gap_history;

/* Reads a snapshot pickle, gapless's own trace or the short JSON form, plain or packed (.gz .xz .zst); "-" is standard
 * input.  The history is checked against itself.  Returns 0; GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA with the
 * reason in `message`. */
int gap_history_open(const char *path, gap_progress_fn progress, void *arg, gap_history **out, char *message,
                     size_t bytes);
/* The two halves of it.  A history that contradicts itself (GAP_EFORMAT) is of use to gap_replay_verify alone, which
 * names the event that is odd. */
int gap_history_read(const char *path, gap_progress_fn progress, void *arg, gap_history **out, char *message,
                     size_t bytes);
int gap_history_check(const gap_history *, char *message, size_t bytes);
void gap_history_close(gap_history *);
/* Devices are 0 .. count - 1; one without events has 0 events. */
uint32_t gap_history_device_count(const gap_history *);
uint64_t gap_history_event_count(const gap_history *, uint32_t device);
/* Is there an alloc or a refused request? A snapshot without a history has none, and nothing can be replayed. */
int gap_history_has_requests(const gap_history *, uint32_t device);
/* The policy that was recorded: native, expandable, or gapless (in its own trace). */
enum gap_policy gap_history_policy(const gap_history *, uint32_t device);

/* ---- Replay ---- */

/* "gapless", "native", "expandable", "pooled", "heuristic", "ideal" */
const char *gap_policy_name(enum gap_policy);
int gap_policy_parse(const char *name, size_t bytes, enum gap_policy *out); /* GAP_EVALUE */

enum { GAP_CHECK_AUTO = -1, GAP_CHECK_OFF = 0, GAP_CHECK_EVERY = 1 };

typedef struct gap_replay_options {
  size_t size; /* sizeof(gap_replay_options) */
  uint32_t device;
  enum gap_policy policy;
  uint64_t cap_bytes;  /* limit on held bytes; 0 none */
  uint64_t card_bytes; /* memory of the simulated card; 0: more than any history needs */
  uint64_t lag_us;     /* how far the program runs ahead of the device; see gap_replay_defaults */
  double speed;        /* 1: at the recorded pace; 0: as fast as the calls return; 2: twice the pace */
  gap_backend backend; /* the card to replay on: simulated, or a real one through its driver */
  int ordinal;         /* which of the real ones */
  int64_t check;       /* the independent checker runs after every check-th event, on a simulated card; GAP_CHECK_... */
  const char *conf;    /* for the strategy; NULL: defaults; native and expandable: what the file records */
  gap_progress_fn progress; /* may be NULL */
  void *progress_arg;
} gap_replay_options;

/* "cuda", "host", "sim"; with an ordinal behind a colon ("cuda:1") where several are possible.  GAP_EVALUE. */
const char *gap_backend_name(gap_backend);
int gap_backend_parse(const char *text, gap_backend *out, int *ordinal);

/* No cap, gapless, simulated, at the recorded pace, 20,000 us, GAP_CHECK_AUTO: every event below 20,000 events, every
 * 1,000th from there on. */
void gap_replay_defaults(gap_replay_options *);

/* What a comparison with the recorded events said. */
enum gap_verdict { GAP_VERDICT_NONE, GAP_VERDICT_AGREES, GAP_VERDICT_DIFFERS, GAP_VERDICT_CANNOT };

typedef struct gap_replay_failure {
  uint64_t event;     /* index in the device's events */
  const char *action; /* "alloc" or "oom" */
  uint64_t size;      /* bytes asked */
  uint64_t stream;
  int64_t time_us;                 /* as recorded */
  uint64_t live_bytes, held_bytes; /* at the refusal */
  char reason[1024];               /* the allocator's diagnosis */
} gap_replay_failure;

/* driver calls of one kind, by the program and by the page maker; those of setting up included */
typedef struct gap_replay_call {
  const char *name;
  uint64_t calls, us, background_calls, background_us;
} gap_replay_call;

/* How requests fared under a plan (the option `plan`); those in private pools are not among them. */
typedef struct gap_replay_plan {
  uint64_t requests, bytes;              /* of the plan; 0: none was followed */
  uint64_t placed, placed_bytes;         /* got the place of the plan */
  uint64_t unexpected, unexpected_bytes; /* the plan did not have them there */
  uint64_t taken, taken_bytes;           /* their place was in use */
  uint64_t unbacked, unbacked_bytes;     /* no pages could be had for it at once */
  uint64_t found, periods;               /* times a stream found its place, and came to the end of its part */
} gap_replay_plan;

typedef struct gap_replay_conversion { /* partly idle chunks that were exchanged */
  uint64_t chunks, copied_bytes, freed_bytes;
  uint64_t us; /* in all, with the wait for streams to stand still */
} gap_replay_conversion;

typedef struct gap_replay_overflow { /* what lay in host memory at device addresses */
  uint64_t peak_bytes;               /* of host memory */
  uint64_t requests, bytes;          /* served there, in all: each byte crosses the link whenever it is used */
} gap_replay_overflow;

typedef struct gap_replay_result {
  size_t size;
  enum gap_policy policy;
  uint32_t device;
  char conf[256]; /* the configuration string used, "" for defaults */
  uint64_t cap_bytes, card_bytes, lag_us;
  gap_backend backend;
  double speed;
  int fitted;                /* every request was served */
  gap_replay_failure failed; /* meaningful when !fitted: the first request refused, where the replay ended */
  /* P and its like are of the whole history, whether it fitted or not.  A recorded out-of-memory event is a request
   * like any other; nothing says when the program would have freed it, so it counts as live to the end. */
  uint64_t peak_live_bytes;              /* P: 512-byte-rounded sizes from alloc to free_completed */
  uint64_t peak_requested_live_bytes;    /* requested sizes from alloc to free_requested */
  uint64_t peak_reserved_bytes;          /* held from the driver */
  uint64_t least_cap_bytes;              /* 0: not searched, or not found */
  uint64_t driver_calls, driver_time_us; /* calls of both; time inside calls made by the program */
  uint64_t background_time_us;           /* time inside calls made by the page maker */
  uint64_t stalls, stall_us, longest_call_us;
  uint64_t pages_grown, pages_made_ahead, pages_stolen;
  uint64_t growth_caller_us, growth_background_us; /* time spent growing: by the program, by the page maker */
  /* After live bytes first passed 0.9 P: the recorded time from there to the end, and driver time in it. */
  uint64_t late_recorded_us, late_driver_us, late_background_us;
  uint64_t num_alloc_retries;
  uint32_t rung_count;
  const char *rung_name[GAP_RUNGS_MAX];
  uint64_t rung_served[GAP_RUNGS_MAX], rung_us[GAP_RUNGS_MAX];
  uint32_t call_count;
  gap_replay_call call[GAP_CALLS_MAX];
  gap_replay_plan plan;
  gap_replay_conversion conversion;
  gap_replay_overflow overflow;
  uint64_t trims;         /* empty_cache calls found in the history */
  uint64_t unknown_frees; /* frees of blocks from before the history's start */
  uint64_t events;        /* replayed */
  uint64_t checks;        /* by the independent checker */
  uint64_t recorded_us;   /* length of the history */
  int wrapped;            /* the recorder's ring overwrote its oldest entries: P is of what is left */
  enum gap_verdict verdict;
  uint64_t verified_events; /* compared and found equal */
  char difference[640];     /* the first one, or why there can be no comparison */
  double seconds;           /* of this computer */
} gap_replay_result;

/* Replays one device of a history.  0 also when it did not fit (result->fitted).  GAP_EFORMAT: the history contradicts
 * itself; GAP_ENOTSUP, GAP_EDEVICE: the real card cannot be used, or lacks wait values; GAP_EVALUE: bad `conf`;
 * GAP_EMISMATCH: the checker or the strategy's own books found a violation.  `message` says which. */
int gap_replay(const gap_history *, const gap_replay_options *, gap_replay_result *, char *message, size_t bytes);

/* As gap_replay, then finds the least cap: the smallest cap tried from which every larger cap tried fits too, to a step
 * of max(2 MiB, 0.0005 P). `progress` counts the replays. */
int gap_replay_min_cap(const gap_history *, const gap_replay_options *, gap_replay_result *, char *message,
                       size_t bytes);

/* Replays with the policy that was recorded, feeding it the recorded segment addresses, and compares every recorded
 * event.  Fills result->verdict, verified_events and difference, nothing else.  0 whatever the verdict; GAP_ENOMETA,
 * GAP_EINVAL. */
int gap_replay_verify(const gap_history *, uint32_t device, gap_replay_result *result, char *message, size_t bytes);

/* A result as one line of JSON, malloc'ed; NULL when the host has no memory. */
char *gap_replay_json(const char *file, const gap_replay_result *);

/* "24G", "80G", "141G", "192G": what a program can have of such a card, total less the driver's context. GAP_EVALUE. */
int gap_card_parse(const char *name, uint64_t *card_bytes, uint64_t *usable_bytes);
/* The presets in order, NULL at the end; and a card of each size. */
const char *gap_card_name(uint32_t index);
const char *gap_card_example(uint32_t index);
/* "26GiB", "1.005xP", "1.005P", "none"; a factor is of `peak_live_bytes` and floored to 2 MiB.  *out 0 = none.
 * GAP_EVALUE. */
int gap_cap_parse(const char *text, uint64_t peak_live_bytes, uint64_t *out);

/* ---- A heap on a simulated card, for demonstrations ---- */

typedef struct gap_card gap_card;

/* A strategy on a card that gives at most `bytes`. */
int gap_card_open(enum gap_policy, uint64_t bytes, gap_card **out);
void gap_card_close(gap_card *);
int gap_card_alloc(gap_card *, uint64_t bytes, gap_addr *out);
int gap_card_free(gap_card *, gap_addr);
/* Lets time pass, so that the device catches up with what was queued. */
void gap_card_pass(gap_card *, uint64_t us);
uint64_t gap_card_held(gap_card *);
const char *gap_card_diagnosis(gap_card *);
/* Every piece of address space in address order: live, idle memory, or addresses without memory. */
enum gap_piece { GAP_PIECE_LIVE, GAP_PIECE_IDLE, GAP_PIECE_PENDING, GAP_PIECE_HOLE };
typedef int (*gap_piece_fn)(void *arg, enum gap_piece, gap_addr, uint64_t bytes);
int gap_card_walk(gap_card *, gap_piece_fn, void *arg);
/* Runs the independent checker over the card. 0, or GAP_EMISMATCH with the violation in `text`. */
int gap_card_check(gap_card *, char *text, size_t bytes);

/* ---- `gapless conf` ---- */

int gap_conf_main(int argc, char **argv, FILE *out, FILE *err); /* returns the exit code */
/* Prints what is doubtful about a configuration string (an unknown key, a contradiction), a line each; errors are left
 * to the call that uses the string.  `name` stands for its source in the text. */
void gap_conf_warn(const char *name, const char *string, FILE *err);

#ifdef __cplusplus
}
#endif
#endif
