/* What is live, counted on the hot path behind one tripwire.
 *
 * torch promises exact device-wide peaks, of small blocks, of large ones, and of all.  A shared counter would serialise the lanes, so
 * each lane has limits for each figure, of each kind and of both together: those of all lanes sum to at most the device's peak.
 * Within its limits a lane cannot raise a peak.  Passing it goes out of line (gap__tally_trip), where peaks rise
 * and the slack is shared out again. */
#ifndef GAP_TALLY_H
#define GAP_TALLY_H

#include "core/state.h"

static inline struct gap__tally *gap__tally_of(struct gap__lane *lane, uint32_t units) {
  return &lane->tally[GAP__KIND_SMALL + (units > GAP__TORCH_SMALL_UNITS)];
}

/* Adds to what is live now. Negative: a limit is passed (the sign bit of any difference, so that one branch does). */
static inline int64_t gap__tally_add(struct gap__tally *t, int64_t bytes, int64_t requested) {
  t->count++;
  t->bytes += bytes;
  t->requested += requested;
  return (t->count_limit - t->count) | (t->bytes_limit - t->bytes) | (t->requested_limit - t->requested);
}

/* What both kinds together may still grow by, in the same way. */
static inline int64_t gap__tally_left(const struct gap__lane *lane) {
  const struct gap__tally *small = &lane->tally[GAP__KIND_SMALL], *large = &lane->tally[GAP__KIND_LARGE];
  return (lane->both.count - small->count - large->count) | (lane->both.bytes - small->bytes - large->bytes) |
         (lane->both.requested - small->requested - large->requested);
}

/* Under the lane lock. True: call gap__tally_trip() once the lane lock is free. */
static inline bool gap__tally_alloc(struct gap__lane *lane, uint32_t units, uint32_t slack) {
  struct gap__tally *t = gap__tally_of(lane, units);
  int64_t bytes = (int64_t)units << GAP__UNIT_SHIFT, requested = bytes - slack;
  t->count_total++;
  t->bytes_total += bytes;
  t->requested_total += requested;
  return (gap__tally_add(t, bytes, requested) | gap__tally_left(lane)) < 0;
}

static inline void gap__tally_take(struct gap__tally *t, int64_t bytes, int64_t requested) {
  t->count--;
  t->bytes -= bytes;
  t->requested -= requested;
}

static inline void gap__tally_free(struct gap__lane *lane, const struct gap__block *b) {
  int64_t bytes = (int64_t)b->len << GAP__UNIT_SHIFT;
  gap__tally_take(gap__tally_of(lane, b->len), bytes, bytes - b->slack);
}

static inline bool gap__tally_has_pending(const struct gap__lane *lane) {
  return (lane->tally[GAP__KIND_SMALL].pending_count | lane->tally[GAP__KIND_LARGE].pending_count) != 0;
}

/* Nothing is live or pending. */
static inline bool gap__tally_is_empty(const struct gap__lane *lane) {
  return !(lane->tally[GAP__KIND_SMALL].count | lane->tally[GAP__KIND_LARGE].count | gap__tally_has_pending(lane));
}

/* Freed by the caller, still used by another stream; and the end of that. Under the lane lock. */
void gap__tally_pending(struct gap__lane *, const struct gap__block *);
void gap__tally_complete(struct gap__lane *, const struct gap__block *);

/* Raises the device's peaks and shares the slack out again; under the device lock, no lane lock held.  `favoured` (or
 * NULL) gets the larger share. */
void gap__tally_trip(struct gap__policy_state *, struct gap__lane *favoured);
/* Bytes live or pending on the device now; exact only while nothing runs.  Device lock held, no lane lock. */
int64_t gap__tally_live_bytes(const struct gap__policy_state *);
/* Adds; under the device lock, no lane lock held. */
void gap__tally_stats(struct gap__policy_state *, struct gap__stats *);
void gap__tally_reset(struct gap__policy_state *, bool peaks, bool accumulated);

#endif
