/* A memory history in memory: what every reader produces and every replay consumes.
 * Plain data, owned by one `gap__history`; freed with gap__history_free(). */
#ifndef GAP_HISTORY_H
#define GAP_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/format.h"

enum gap__action {
  GAP__ACT_ALLOC,          /* size = bytes requested */
  GAP__ACT_FREE_REQUESTED, /* the program let go */
  GAP__ACT_FREE_COMPLETED, /* every stream has finished with it */
  GAP__ACT_SEGMENT_ALLOC,
  GAP__ACT_SEGMENT_FREE,
  GAP__ACT_SEGMENT_MAP,
  GAP__ACT_SEGMENT_UNMAP,
  GAP__ACT_SNAPSHOT,
  GAP__ACT_OOM, /* size = rounded request; addr = device-free bytes */
  GAP__ACT_COUNT
};

struct gap__hist_event {
  uint64_t addr;
  uint64_t size;
  uint64_t stream;
  int64_t time_us; /* since the first event of the file; 0 where the file has no times */
  uint32_t stack;  /* index into stacks, 0 = none */
  uint16_t pool;   /* index into pools, 0 = the default pool (0,0) */
  uint8_t action;  /* enum gap__action */
  uint8_t spare;
};

struct gap__hist_block {
  uint64_t addr, size, requested;
  uint32_t stack;
  uint8_t state; /* 0 inactive, 1 active_allocated, 2 active_pending_free (or active_awaiting_free) */
};

struct gap__hist_segment {
  uint64_t addr, total_size, allocated_size, active_size, requested_size, stream;
  uint32_t block_first, block_count; /* into blocks */
  int device;
  uint16_t pool;
  bool is_large, is_expandable;
  bool is_paged; /* of the strategy gapless: expandable, in pages of 2 MiB, and idle ones serve any stream */
};

struct gap__hist_pool {
  uint64_t id[2];
};

struct gap__hist_frame {
  uint32_t name, filename; /* offsets into text */
  int32_t line;
};

struct gap__hist_stack {
  uint32_t first, count; /* into stack_frames, innermost first */
};

/* What the allocator said of itself with the segments; known only where `present`, and then 0 is not known (no cap). */
struct gap__hist_facts {
  bool present;
#define X(name) uint64_t name;
  GAP__RECORD_FACTS(X)
#undef X
  uint32_t refusal; /* why the last request failed: offset into text, "" none did */
};

struct gap__hist_device {
  struct gap__hist_event *events; /* in order */
  uint64_t event_count;
  bool wrapped; /* its beginning is lost: a ring overwrote its oldest entries, or recording began late */
  struct gap__hist_facts facts;
};

/* The program's own marks (record_function): a region begins or ends.  In the order of the file. */
struct gap__hist_annotation {
  uint32_t name; /* offset into text */
  int32_t device;
  int64_t time_us; /* on the clock of the events; may lie before the first of them */
  bool is_start;
};

struct gap__hist_settings { /* known only where `present` */
  bool present;
  bool expandable_segments;
  int64_t max_split_size; /* bytes; -1 unlimited */
  double garbage_collection_threshold;
  uint64_t roundup_power2_divisions[16];
};

struct gap__history {
  char *path;
  uint32_t format;                  /* row of the table of formats */
  struct gap__hist_device *devices; /* index = device ordinal; devices without events have event_count 0 */
  uint32_t device_count;
  struct gap__hist_segment *segments;
  uint64_t segment_count;
  struct gap__hist_block *blocks;
  uint64_t block_count;
  struct gap__hist_pool *pools; /* [0] = (0,0) */
  uint32_t pool_count;
  struct gap__hist_stack *stacks; /* [0] unused */
  uint32_t stack_count;
  uint32_t *stack_frames; /* indices into frames */
  uint32_t stack_frame_count;
  struct gap__hist_frame *frames;
  uint32_t frame_count;
  struct gap__hist_annotation *annotations;
  uint32_t annotation_count;
  char *text; /* NUL-terminated strings, interned */
  uint64_t text_bytes;
  int64_t time_base_us; /* of the first event, since 1970 (of logs: since midnight); 0 unknown */
  char *settings_text;  /* the PYTORCH_CUDA_ALLOC_CONF string, "" if none */
  struct gap__hist_settings settings;
  /* Only the policy JSON form has these: */
  double memory_fraction; /* `frac`; 0 = unknown */
  uint64_t total_bytes;   /* the card; 0 = unknown */
  uint64_t stat_reserved_peak, stat_reserved_current, stat_alloc_retries, stat_ooms;
  bool has_stats;
  /* Only gapless's own trace has these: */
  bool by_gapless;          /* no policy of PyTorch's made the events */
  bool is_torn;             /* it ends without its end: what follows byte torn_at is missing or altered */
  uint32_t program;         /* its name: offset into text */
  uint64_t process;         /* its number; 0 = unknown */
  uint64_t torn_at;         /* where is_torn */
  uint64_t lost_events;     /* that the recorder had to leave out */
  uint64_t earlier_events;  /* that it had overwritten, from before the first one here */
  uint64_t unknown_actions; /* entries of an action that this version does not know: left out of the events */
  struct gap__hist_event *event_storage; /* what devices[].events point into */
};

/* Reads a snapshot pickle (protocols 2 to 5), gapless's own trace, the policy JSON form, an RMM log or MiniMalloc's CSV form (formats.h),
 * plain or .gz .xz .zst (by content, not by name).
 * `path` "-" is standard input.  On an error *message (malloc'ed, never NULL then) says what is wrong and at which byte.
 * Returns 0 or GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA.  `progress` may be NULL; called with bytes read so far. */
typedef void gap__progress(void *arg, uint64_t done, uint64_t total);
int gap__history_read(const char *path, gap__progress *progress, void *arg, struct gap__history **out, char **message);
/* The same from memory; `path` of the history is then "". */
int gap__history_read_memory(const void *bytes, size_t count, struct gap__history **out, char **message);
void gap__history_free(struct gap__history *); /* NULL does nothing */
/* For readers: from here on times, and their base, count from the earliest first event of any device. */
/* Is there an alloc or an oom? Where not, there is nothing to replay. */
bool gap__history_has_requests(const struct gap__history *, uint32_t device);
void gap__history_shift_times(struct gap__history *);
const char *gap__action_name(enum gap__action);

/* Does the history say anything about what the allocator took from the driver?  Snapshots do, logs of requests do not. */
bool gap__history_tells_driver(const struct gap__history *, uint32_t device);

/* Checks a history against itself, device by device: allocs over live blocks, frees of what is not live (tolerated at the
 * start of a wrapped ring), sizes that differ between alloc and free, negative time.  0, or GAP_EFORMAT with the first
 * contradiction in *message and its event index in *event. */
int gap__history_check(const struct gap__history *, uint32_t device, uint64_t *event, char **message);

/* P: the peak over time of 512-byte-rounded sizes from alloc to free_completed; and of requested sizes to free_requested.
 * 0 or GAP_ENOMETA. */
int gap__history_peaks(const struct gap__history *, uint32_t device, uint64_t *peak_live_bytes,
                       uint64_t *peak_requested_live_bytes, uint64_t *peak_event);

#endif
