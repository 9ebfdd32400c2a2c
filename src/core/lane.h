/* Lanes: one for each (stream, pool) of a device, and their epochs.
 *
 * A lane is found without a lock: a table of hashes leads to a lane whose own lock is then taken, and under that lock it says
 * whom it serves.  What the table says is a guess: lanes change hands under the device lock, and who finds nothing looks again
 * under it.  A thread that lets the lane's lock go and means to come back visits the lane meanwhile (`visitors`). */
#ifndef GAP_LANE_H
#define GAP_LANE_H

#include "core/state.h"
#include "core/thread.h"

#define GAP__STREAM_PER_THREAD 2u /* the driver's per-thread default stream */

static inline gap_stream gap__stream_normal(gap_stream stream) { return stream == 1 ? 0 : stream; }

/* The thread that tells two streams of one handle apart, 0 where the handle says it all. */
static inline uint64_t gap__stream_thread(gap_stream stream) {
  return stream == GAP__STREAM_PER_THREAD ? gap__thread_number() : 0;
}

static inline uint64_t gap__lane_hash(gap_stream stream, uint64_t thread, gap_pool_id pool) {
  uint64_t h = stream ^ thread << 40 ^ pool.first << 13 ^ pool.second << 27;
  return h * 0x9E3779B97F4A7C15ull >> 32; /* Fibonacci hashing, Knuth 6.4 */
}

#define GAP__PLAIN_NONE ((gap_stream)1) /* no normalised stream */
#define GAP__THREAD_NONE UINT64_MAX     /* the thread of an ended lane: it serves nobody */

static inline bool gap__lane_serves(const struct gap__lane *lane, gap_stream stream, uint64_t thread,
                                    gap_pool_id pool) {
  return lane->stream == stream && lane->thread == thread && lane->pool.first == pool.first &&
         lane->pool.second == pool.second;
}

/* The lane of a normalised stream, locked; NULL: none was found.  Takes no other lock, makes no driver call. */
struct gap__lane *gap__lane_lock(struct gap__policy_state *, gap_stream, uint64_t thread, gap_pool_id);

/* The same in the default pool, for a stream that its handle says all of; it may miss one that is there. */
static inline struct gap__lane *gap__lane_lock_plain(struct gap__policy_state *s, gap_stream stream) {
  uint64_t hash = gap__lane_hash(stream, 0, (gap_pool_id){0, 0});
  uint64_t slot = atomic_load_explicit(&s->lane_of[hash & (GAP__LANE_SLOTS - 1)], memory_order_acquire);
  if (__builtin_expect(!slot, 0)) return NULL;
  struct gap__lane *lane = (struct gap__lane *)(void *)((unsigned char *)s + (uint32_t)slot);
  gap__lock(&lane->lock);
  if (__builtin_expect(lane->plain == stream, 1)) return lane;
  gap__unlock(&lane->lock);
  return NULL;
}

/* Finds or makes the lane; locked.  Expects no lock held.  GAP_ENOMETA; GAP_ELIMIT: GAP__LANES_MAX are in use. */
int gap__lane_get(struct gap__policy_state *, gap_stream, uint64_t thread, gap_pool_id, struct gap__lane **out);

/* Says again whether the lane is plain: after it, the plan or the strategy has changed.  Both locks are held. */
void gap__lane_make_plain(struct gap__lane *);

/* The lane serves nobody any more.  Both locks are held. */
void gap__lane_retire(struct gap__lane *);

void gap__lanes_create(struct gap__policy_state *);
void gap__lanes_destroy(struct gap__policy_state *);

/* Can the two only ever be used one after the other? */
static inline bool gap__lane_same_stream(const struct gap__lane *a, const struct gap__lane *b) {
  return a == b || (a->stream == b->stream && a->thread == b->thread && !a->ended);
}

/* ---- the end of a stream; under the device lock ---- */

/* Ends every lane of a stream, and what else must be recorded on it: see heap.h.  `stream` is normalised. */
void gap__lane_end_stream(struct gap__policy_state *, gap_stream, uint64_t thread);

/* ---- epochs: all under the device lock, none under the lane's own lock unless said ---- */

/* Closes the open epoch if anything was freed in it: records an event after all frees so far.  A lane whose stream is
 * being captured, or whose events are all in flight, keeps its epoch open. */
void gap__lane_close_epoch(struct gap__lane *);
/* The same with the lane lock held by the caller. */
void gap__lane_close_epoch_locked(struct gap__lane *);
/* What is freed from here on carries a later epoch than what was freed before, unless the open one cannot be closed.  The lane
 * lock is held. */
void gap__lane_begin_epoch_locked(struct gap__lane *);
/* Asks the driver which closed epochs have completed. */
void gap__lane_poll(struct gap__lane *);
/* Blocks until `epoch` has completed; closes it first if it is open.  Counted as a stall if it had to wait. */
int gap__lane_wait(struct gap__lane *, uint32_t epoch);
/* Orders the stream of `lane` behind all that `owner` has closed: on the device, nobody waits here. */
bool gap__lane_order_behind(const struct gap__lane *, const struct gap__lane *owner);
/* The last way to end an epoch: everything that no event can end (doubtful lanes, lost uses, streams that the driver refuses
 * to record on) ends when the whole device has drained.  Counted as a stall and as a synchronisation of the device.
 * False: nothing was in doubt, or the driver refused. */
bool gap__lane_drain(struct gap__policy_state *);
/* Waits for all work on the device, that of destroyed streams too: frees a segment.  A segment that the driver will not take
 * back is kept for the next time. */
int gap__lane_drain_device(struct gap__policy_state *);
/* The oldest epoch whose end is not yet known, or 0. */
static inline uint32_t gap__lane_oldest_mark(const struct gap__lane *lane) {
  return lane->mark_count ? lane->marks[lane->mark_first].epoch : 0;
}

/* The newest epoch that is closed: an event after all its frees has been recorded. */
static inline uint32_t gap__lane_closed(const struct gap__lane *lane) {
  if (!lane->mark_count) return lane->completed;
  return lane->marks[(lane->mark_first + lane->mark_count - 1) % GAP__MARKS].epoch;
}

/* Epochs are numbers of 32 bits: at a million frees a second they last for a fortnight.  Near their end every lane begins anew.
 * Called wherever time is no matter; under the device lock, no lane lock held. */
#define GAP__EPOCH_MARGIN (1u << 20)
#define GAP__EPOCH_LAST (UINT32_MAX - GAP__EPOCH_MARGIN)
void gap__epochs_begin_anew(struct gap__policy_state *); /* out of line */
static inline void gap__epochs_renumber(struct gap__policy_state *s) {
  if (__builtin_expect(s->clock >= GAP__EPOCH_LAST, 0)) gap__epochs_begin_anew(s);
}

/* Counts a wait of the host that began at `began_ns`. */
void gap__count_stall(struct gap__policy_state *, uint64_t began_ns);

#endif
