/* A device that plays back what the recorded driver did.
 *
 * Inside one call of the program (malloc, free or empty_cache) the model sees the *script*: the recorded driver calls and late
 * completions of that call.  segment_alloc and segment_free must come with the recorded size or address and in the recorded
 * order; so must the calls that map and unmap pages, of which one recorded segment_map or segment_unmap stands for many; an
 * event completes when the record says so.  The first call that deviates is kept as a fault, and everything after it fails. */
#ifndef GAP_RECORDED_DEV_H
#define GAP_RECORDED_DEV_H

#include "base/addrmap.h"
#include "dev/dev.h"
#include "trace/history.h"

enum { RECORDED_WAITS_MAX = 1000 };

/* A freed block that other streams use: a made-up stream stands for them. */
struct recorded_wait {
  uint64_t addr, size;
  uint32_t next_free;
  bool scripted;  /* the present call completes it */
  bool completed; /* the model has seen it */
};

struct recorded_dev {
  struct gap__dev base;
  const struct gap__hist_event *events;
  uint64_t first, next, end; /* the script: events [first, end), driver calls from `next` on still to come */
  bool polls;                /* scripted events are ready when asked; else only when waited for */
  bool refuses;              /* beyond the script the driver has no memory */
  uint64_t held_bytes;
  uint64_t created_bytes, mapped_bytes;               /* of the segment_map that is under way */
  uint64_t unmapped_bytes;                            /* of the segment_unmap */
  uint64_t unmap_end;                                 /* where the last segment_unmap of this call ended; 0: none */
  uint64_t chunks;                                    /* handed out */
  struct recorded_wait waits[RECORDED_WAITS_MAX + 1]; /* [0] unused */
  uint32_t wait_free, wait_count, waits_used;
  struct gap__addrmap wait_map; /* address -> wait */
  struct gap__addrmap segments; /* address -> size in units of 512 bytes */
  bool failed;
  uint64_t fault_event;
  uint64_t early_release; /* the fault was that the model gave this segment back; 0 none */
  char fault[400];
};

int gap__recorded_init(struct recorded_dev *, const struct gap__hist_event *events, uint64_t total_bytes);
void gap__recorded_destroy(struct recorded_dev *);
/* Keeps the first fault. */
__attribute__((format(printf, 3, 4))) void gap__recorded_fault(struct recorded_dev *, uint64_t event,
                                                               const char *format, ...);
/* The block at `addr` begins to wait; the stream that stands for its users. 0 or GAP_ELIMIT. */
int gap__recorded_wait(struct recorded_dev *, uint64_t addr, uint64_t size, gap_stream *out);
/* The script of the next call: events [first, end), of which free_completed name waiting blocks. */
void gap__recorded_begin(struct recorded_dev *, uint64_t first, uint64_t end);
/* The call is over: false when the model left a part of the script undone. */
bool gap__recorded_finish(struct recorded_dev *);

#endif
