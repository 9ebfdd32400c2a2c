/* Exact peaks from per-lane limits: see tally.h. */
#include "core/tally.h"

static void to_pending(struct gap__tally *t, int64_t bytes) {
  t->count--;
  t->bytes -= bytes;
  t->pending_count++;
  t->pending_bytes += bytes;
  t->count_limit--; /* "active" includes it still: what may be allocated before its peak rises is less */
  t->bytes_limit -= bytes;
}

void gap__tally_pending(struct gap__lane *lane, const struct gap__block *b) {
  int64_t bytes = (int64_t)b->len << GAP__UNIT_SHIFT;
  to_pending(gap__tally_of(lane, b->len), bytes);
  lane->both.count--;
  lane->both.bytes -= bytes;
}

static void from_pending(struct gap__tally *t, int64_t bytes, int64_t requested) {
  t->pending_count--;
  t->pending_bytes -= bytes;
  t->requested -= requested;
}

void gap__tally_complete(struct gap__lane *lane, const struct gap__block *b) {
  int64_t bytes = (int64_t)b->len << GAP__UNIT_SHIFT;
  from_pending(gap__tally_of(lane, b->len), bytes, bytes - b->slack);
}

/* Sums over lanes, by kind. */
struct sums {
  int64_t count[GAP__KIND_COUNT], bytes[GAP__KIND_COUNT], requested[GAP__KIND_COUNT], active[GAP__KIND_COUNT],
      active_bytes[GAP__KIND_COUNT];
};

static void add_to(struct sums *sum, int kind, const struct gap__tally *t) {
  sum->count[kind] += t->count;
  sum->bytes[kind] += t->bytes;
  sum->requested[kind] += t->requested;
  sum->active[kind] += t->count + t->pending_count;
  sum->active_bytes[kind] += t->bytes + t->pending_bytes;
}

static struct sums sum_lanes(const struct gap__policy_state *s) {
  struct sums sum = {0};
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
      add_to(&sum, kind, &lane->tally[kind]);
      add_to(&sum, GAP__KIND_ALL, &lane->tally[kind]);
    }
  return sum;
}

static void raise_to(int64_t *peak, const int64_t *now) {
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++)
    if (now[kind] > peak[kind]) peak[kind] = now[kind];
}

static void raise_peaks(struct gap__peaks *peak, const struct sums *sum) {
  raise_to(peak->allocation, sum->count);
  raise_to(peak->allocated, sum->bytes);
  raise_to(peak->requested, sum->requested);
  raise_to(peak->active, sum->active);
  raise_to(peak->active_bytes, sum->active_bytes);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The part of `slack` that a lane may use: the favoured one half, the others the rest in equal parts. */
static int64_t part(const struct gap__policy_state *s, bool favoured, bool any, int64_t slack) {
  if (s->lane_count == 1) return slack;
  if (!any) return slack / (int64_t)s->lane_count;
  return favoured ? slack / 2 : slack / 2 / (int64_t)(s->lane_count - 1);
}

/* What may be added before a peak rises. */
static struct gap__tally_limit slack_of(const struct gap__peaks *p, const struct sums *sum, int kind) {
  return (struct gap__tally_limit){
      .count = least(p->allocation[kind] - sum->count[kind], p->active[kind] - sum->active[kind]),
      .bytes = least(p->allocated[kind] - sum->bytes[kind], p->active_bytes[kind] - sum->active_bytes[kind]),
      .requested = p->requested[kind] - sum->requested[kind]};
}

static struct gap__tally_limit part_of(const struct gap__policy_state *s, bool favoured, bool any,
                                       const struct gap__tally_limit *slack) {
  return (struct gap__tally_limit){part(s, favoured, any, slack->count), part(s, favoured, any, slack->bytes),
                                   part(s, favoured, any, slack->requested)};
}

static void set_limits(struct gap__tally *t, struct gap__tally_limit part) {
  t->count_limit = t->count + part.count;
  t->bytes_limit = t->bytes + part.bytes;
  t->requested_limit = t->requested + part.requested;
}

static void set_both(struct gap__lane *lane, struct gap__tally_limit part) {
  const struct gap__tally *small = &lane->tally[GAP__KIND_SMALL], *large = &lane->tally[GAP__KIND_LARGE];
  lane->both =
      (struct gap__tally_limit){small->count + large->count + part.count, small->bytes + large->bytes + part.bytes,
                                small->requested + large->requested + part.requested};
}

static void share_slack(struct gap__policy_state *s, const struct sums *sum, const struct gap__lane *favoured) {
  struct gap__tally_limit slack[GAP__KIND_COUNT];
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) slack[kind] = slack_of(&s->peak, sum, kind);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    bool first = lane == favoured, any = favoured != NULL;
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++)
      set_limits(&lane->tally[kind], part_of(s, first, any, &slack[kind]));
    set_both(lane, part_of(s, first, any, &slack[GAP__KIND_ALL]));
  }
}

static void lock_all(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lock(&lane->lock);
}
static void unlock_all(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__unlock(&lane->lock);
}

void gap__tally_trip(struct gap__policy_state *s, struct gap__lane *favoured) {
  lock_all(s);
  struct sums sum = sum_lanes(s);
  raise_peaks(&s->peak, &sum);
  share_slack(s, &sum, favoured);
  unlock_all(s);
}

int64_t gap__tally_live_bytes(const struct gap__policy_state *s) {
  int64_t bytes = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++)
      bytes += lane->tally[kind].bytes + lane->tally[kind].pending_bytes;
    gap__unlock(&lane->lock);
  }
  return bytes;
}

/* ---- reading and resetting ---- */

static void add_stat(struct gap__stat *to, int kind, int64_t current, int64_t base, int64_t total) {
  to[kind].current += current;
  to[kind].allocated += total;
  to[kind].freed += total - (current - base);
}

/* What a lane counts, or all lanes that are gone have counted. */
static void add_tally(struct gap__stats *out, int kind, const struct gap__tally *t) {
  add_stat(out->allocation, kind, t->count, t->count_base, t->count_total);
  add_stat(out->allocated_bytes, kind, t->bytes, t->bytes_base, t->bytes_total);
  add_stat(out->requested_bytes, kind, t->requested, t->requested_base, t->requested_total);
  add_stat(out->active, kind, t->count + t->pending_count, t->active_count_base, t->count_total);
  add_stat(out->active_bytes, kind, t->bytes + t->pending_bytes, t->active_bytes_base, t->bytes_total);
}

void gap__tally_stats(struct gap__policy_state *s, struct gap__stats *out) {
  lock_all(s);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
      add_tally(out, GAP__KIND_ALL, &lane->tally[kind]);
      add_tally(out, kind, &lane->tally[kind]);
    }
  unlock_all(s);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
    add_tally(out, GAP__KIND_ALL, &s->gone[kind]);
    add_tally(out, kind, &s->gone[kind]);
  }
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) {
    out->allocation[kind].peak += s->peak.allocation[kind];
    out->allocated_bytes[kind].peak += s->peak.allocated[kind];
    out->requested_bytes[kind].peak += s->peak.requested[kind];
    out->active[kind].peak += s->peak.active[kind];
    out->active_bytes[kind].peak += s->peak.active_bytes[kind];
  }
  out->live_bytes_peak += s->peak.active_bytes[0];
}

static void reset_tally(struct gap__tally *t) {
  t->count_total = t->bytes_total = t->requested_total = 0;
  t->count_base = t->count;
  t->bytes_base = t->bytes;
  t->requested_base = t->requested;
  t->active_count_base = t->count + t->pending_count;
  t->active_bytes_base = t->bytes + t->pending_bytes;
}

void gap__tally_reset(struct gap__policy_state *s, bool peaks, bool accumulated) {
  lock_all(s);
  for (struct gap__lane *lane = s->lanes; lane && accumulated; lane = lane->next)
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) reset_tally(&lane->tally[kind]);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT && accumulated; kind++) reset_tally(&s->gone[kind]);
  if (peaks) {
    struct gap__peaks *p = &s->peak;
    for (int kind = 0; kind < GAP__KIND_COUNT; kind++)
      p->allocation[kind] = p->allocated[kind] = p->requested[kind] = p->active[kind] = p->active_bytes[kind] = 0;
    struct sums sum = sum_lanes(s);
    raise_peaks(p, &sum);
    share_slack(s, &sum, NULL);
  }
  unlock_all(s);
}
