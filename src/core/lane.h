/* Lanes: one for each (stream, pool) of a device; their epochs; frees that wait for other streams. */
#ifndef GAP_LANE_H
#define GAP_LANE_H

#include "core/state.h"

#define GAP__STREAM_PER_THREAD 2u /* the driver's per-thread default stream */

/* A number that differs between threads alive or dead; 0 is never given. */
uint64_t gap__thread_number(void);

static inline gap_stream gap__stream_normal(gap_stream stream) { return stream == 1 ? 0 : stream; }

static inline uint64_t gap__lane_hash(gap_stream stream, uint64_t thread, gap_pool_id pool) {
  uint64_t h = stream ^ thread << 40 ^ pool.first << 13 ^ pool.second << 27;
  return h * 0x9E3779B97F4A7C15ull >> 32; /* Fibonacci hashing, Knuth 6.4 */
}

/* The lane made earlier, or NULL.  No lock, no driver call. */
static inline struct gap__lane *gap__lane_find(const struct gap__policy_state *s, gap_stream stream, gap_pool_id pool) {
  stream = gap__stream_normal(stream);
  uint64_t thread = stream == GAP__STREAM_PER_THREAD ? gap__thread_number() : 0;
  for (uint64_t i = gap__lane_hash(stream, thread, pool);; i++) {
    struct gap__lane *lane = atomic_load_explicit(&s->lane_of[i & (GAP__LANE_SLOTS - 1)], memory_order_acquire);
    if (!lane || (lane->stream == stream && lane->pool.first == pool.first && lane->pool.second == pool.second &&
                  lane->thread == thread))
      return lane;
  }
}

/* Finds or makes the lane. GAP_ENOMETA. Takes the device lock when it must make one. */
int gap__lane_get(struct gap__policy_state *, gap_stream, gap_pool_id, struct gap__lane **out);
void gap__lane_destroy(struct gap__lane *);

/* ---- epochs: all under the device lock, none under the lane's own lock ---- */

/* Closes the open epoch if anything was freed in it: records an event after all frees so far.  A lane whose stream is
 * being captured, or whose events are all in flight, keeps its epoch open. */
void gap__lane_close_epoch(struct gap__lane *);
/* The same with the lane lock held by the caller. */
void gap__lane_close_epoch_locked(struct gap__lane *);
/* Asks the driver which closed epochs have completed. */
void gap__lane_poll(struct gap__lane *);
/* Blocks until `epoch` has completed; closes it first if it is open.  Counted as a stall. */
int gap__lane_wait(struct gap__lane *, uint32_t epoch);
/* The oldest epoch whose end is not yet known, or 0. */
static inline uint32_t gap__lane_oldest_mark(const struct gap__lane *lane) {
  return lane->mark_count ? lane->marks[lane->mark_first].epoch : 0;
}

/* The newest epoch that is closed: an event after all its frees has been recorded. */
static inline uint32_t gap__lane_closed(const struct gap__lane *lane) {
  if (!lane->mark_count) return lane->completed;
  return lane->marks[(lane->mark_first + lane->mark_count - 1) % GAP__MARKS].epoch;
}

/* ---- events and pending frees: under the device lock ---- */

int gap__event_take(struct gap__policy_state *, gap_stream, gap__event *out);
void gap__event_give(struct gap__policy_state *, gap__event);
/* Files a block that was freed while other streams use it (`uses`, not empty): records an event on each. */
int gap__pending_add(struct gap__lane *, uint32_t block, uint32_t uses);
/* Frees the blocks whose events have completed; expects no lane lock. Returns how many. */
uint32_t gap__pending_poll(struct gap__policy_state *);
/* Waits for the pending block that was freed first, of those whose events are recorded.  False: there is none. */
bool gap__pending_wait(struct gap__policy_state *);

#endif
