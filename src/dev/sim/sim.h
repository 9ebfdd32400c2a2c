/* The simulated card: accounting only, imaginary addresses, any size, a settable clock.
 *
 * Driver calls cost what `prices` says and advance the clock (or the background worker's timeline).  An event recorded
 * at time t on a stream completes at t + lag: the host runs ahead of a real device by that much.  A held stream
 * (gap__sim_stream_hold) completes nothing recorded after the hold until it is released.  Waiting for an event of a
 * held stream releases the hold for that event: a real program's stream would get there; the wait costs one lag.
 *
 * A gate is reached when all that was queued before it has completed, one lag from now at the earliest; a held stream gets there.
 * Events recorded behind it do not complete before its word says so.  Once a gate was waited for the device has caught up: what
 * is queued before the clock is set again has no lag.
 *
 * segment_free waits one lag when work may have been queued since the device was last drained: when an event was recorded,
 * a copy queued, or the clock set or advanced from outside.  A second segment_free right after it does not wait.
 *
 * The background worker has a timeline of its own.  A piece of work done between background(true) and background(false)
 * costs that timeline only, and begins where it stood; background_ask() moves it up to the clock (work that appears now
 * cannot have begun earlier), and background_idle() is true while it lies behind the clock.  So a page asked for at time T
 * is made between T and now; only the last piece begun may end after now, by its own length.  Without background_ask the
 * worker may use all the time since its last piece of work. */
#ifndef GAP_SIM_H
#define GAP_SIM_H

#include "dev/dev.h"
#include "dev/mapping.h"

/* Median cost of a call by chunk size in microseconds; linear in between, and per byte beyond the last column. */
struct gap__sim_price {
  double us_2m, us_20m, us_64m, us_256m, us_1g;
};

struct gap__sim_prices {
  struct gap__sim_price create, map, access, unmap, release, segment_alloc, segment_free;
  double event_record_us, event_query_us, event_create_us;
};
extern const struct gap__sim_prices gap__sim_prices_idle; /* design section 2: a process doing nothing else */
extern const struct gap__sim_prices gap__sim_prices_live; /* inside a training process: the default */

struct gap__sim_params {
  uint64_t total_bytes;                 /* the card, e.g. 80 GiB */
  uint64_t context_bytes;               /* taken before the heap exists (CUDA context); 0 is fine */
  uint64_t lag_us;                      /* host ahead of device */
  uint64_t address_budget_bytes;        /* 0: no limit on reserved addresses */
  uint64_t window_max_bytes;            /* 0: no limit on one window; 1: none can be had */
  const struct gap__sim_prices *prices; /* NULL: live */
  bool no_vmm;                          /* an old driver: segments only */
};

int gap__sim_create(int ordinal, const struct gap__sim_params *, struct gap__dev **out);
/* The clock only moves forward; setting an earlier time is ignored. */
void gap__sim_clock_set(struct gap__dev *, uint64_t now_ns);
void gap__sim_clock_advance(struct gap__dev *, uint64_t ns);
void gap__sim_lag_set(struct gap__dev *, uint64_t lag_us);
void gap__sim_stream_hold(struct gap__dev *, gap_stream);
void gap__sim_stream_release(struct gap__dev *, gap_stream);
/* Is nothing of what was recorded on the stream kept back: was it released, or waited for? */
bool gap__sim_stream_passed(struct gap__dev *, gap_stream);
/* A stream handle is destroyed and may be reused: the next stream_id of it is a fresh one. */
void gap__sim_stream_recycle(struct gap__dev *, gap_stream);
void gap__sim_stream_capture(struct gap__dev *, gap_stream, bool capturing);
/* The address the next segment_alloc returns (verification feeds recorded ones); GAP_EINVAL if it overlaps a segment. */
int gap__sim_next_segment(struct gap__dev *, gap_addr);
/* Memory taken by a neighbour on the same card. */
void gap__sim_neighbour_set(struct gap__dev *, uint64_t bytes);

/* Every mapping and segment, in address order.  `host` has the same call. */
int gap__sim_walk(struct gap__dev *, gap__dev_visit *, void *arg);
uint64_t gap__sim_chunk_bytes(struct gap__dev *); /* sum over live chunks and segments: what the card has given */
uint64_t gap__sim_host_bytes(struct gap__dev *);  /* sum over live chunks in host memory */

#endif
