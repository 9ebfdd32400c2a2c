/* gap_kv_step: who goes on, who makes room, who waits.
 *
 * Age is the only order.  The oldest are served first and the youngest make room, so the oldest gets on in every step; who was preempted comes back
 * only with all that its next step takes, in the same call: between two preemptions of one sequence lies a grant. */
#include <stdlib.h>

#include "kv/pages.h"
#include "kv/seq.h"
#include "kv/swap.h"

struct turn {
  uint64_t age;
  uint32_t at, seq; /* in the requests; the record */
};

struct step {
  struct gap_kv *kv;
  gap_kv_request *requests;
  struct turn *turns; /* by age */
  uint32_t count;
  uint32_t granted;
  bool held_up; /* somebody older waits for KV pages: nobody else takes any */
  bool shut;    /* somebody older waits to begin or to come back: nobody else does */
};

static int by_age(const void *a, const void *b) {
  uint64_t x = ((const struct turn *)a)->age, y = ((const struct turn *)b)->age;
  return (x > y) - (x < y);
}

/* ---- before anything is done ---- */

/* More than the cache could ever give it? */
static bool is_hopeless(const struct gap_kv *kv, const struct kv_seq *s, uint32_t tokens) {
  uint64_t wanted = 0;
  uint32_t columns = kv_columns(kv, s->length + tokens);
  for (uint32_t g = 0; g < kv->options.group_count; g++) wanted += columns - s->first[g];
  return wanted > kv_capacity(kv) - 1 - kv->bare_pages;
}

static int look_at(struct step *step, uint32_t i, uint32_t batch) {
  struct gap_kv *kv = step->kv;
  uint32_t seq;
  int rc = kv_find(kv, step->requests[i].seq, &seq);
  if (rc) return rc;
  struct kv_seq *s = kv_seq_at(kv, seq);
  if (s->batch == batch) return GAP_EINVAL;
  s->batch = batch;
  if (step->requests[i].tokens > kv->options.tokens - s->length) return GAP_ELIMIT;
  step->turns[i] = (struct turn){s->age, i, seq};
  return is_hopeless(kv, s, step->requests[i].tokens) ? GAP_ENOMEM : 0;
}

/* ---- one turn ---- */

static gap_kv_request *request_of(struct step *step, const struct turn *turn) { return &step->requests[turn->at]; }

static void preempt(struct step *step, struct turn *turn) {
  struct gap_kv *kv = step->kv;
  struct kv_seq *s = kv_seq_at(kv, turn->seq);
  uint32_t columns = s->columns;
  if (gap__kv_swap_out(kv, turn->seq) && gap__kv_truncate(kv, turn->seq, 0) == 0) s->dropped = columns;
  request_of(step, turn)->outcome = GAP_KV_PREEMPTED;
  kv->stats.preempted++;
}

/* The youngest after `turn` that has something to give. */
static struct turn *find_victim(struct step *step, const struct turn *turn) {
  for (struct turn *t = step->turns + step->count - 1; t > turn; t--) {
    const struct kv_seq *s = kv_seq_at(step->kv, t->seq);
    if (!s->swapped && s->length && request_of(step, t)->outcome == GAP_KV_WAITING) return t;
  }
  return NULL;
}

static int append_one(struct step *step, const struct turn *turn) {
  int rc = gap__kv_append(step->kv, request_of(step, turn), 1);
  if (!rc) request_of(step, turn)->outcome = GAP_KV_GRANTED;
  step->granted += !rc;
  return rc;
}

/* It has KV pages already. */
static int go_on(struct step *step, struct turn *turn) {
  uint32_t need;
  int rc = gap__kv_append_need(step->kv, turn->seq, request_of(step, turn)->tokens, &need);
  if (rc) return rc;
  if (need && step->held_up) return 0;
  rc = append_one(step, turn);
  for (struct turn *victim; rc == GAP_ENOMEM && (victim = find_victim(step, turn)) != NULL;) {
    preempt(step, victim);
    rc = append_one(step, turn);
  }
  if (rc) step->held_up = true;
  return rc == GAP_ENOMEM || rc == GAP_EAGAIN ? 0 : rc;
}

/* It went to the disk and cannot be read there. */
static int forget(struct step *step, struct turn *turn) {
  request_of(step, turn)->outcome = GAP_KV_PREEMPTED;
  step->kv->stats.preempted++;
  return gap__kv_swap_forget(step->kv, turn->seq);
}

/* It begins, or comes back: only with room for those that run already. */
static int enter(struct step *step, struct turn *turn) {
  struct gap_kv *kv = step->kv;
  const struct kv_seq *s = kv_seq_at(kv, turn->seq);
  uint32_t groups = kv->options.group_count, columns = kv_columns(kv, s->length + request_of(step, turn)->tokens);
  uint64_t need =
      (uint64_t)(columns - s->columns) * groups + (s->swapped ? gap__kv_swap_need(kv, turn->seq) + groups : 0);
  uint64_t most = kv_capacity(kv) - 1 - kv->bare_pages;
  if (need > most) need = most;                                     /* it shares, or has the cache for itself */
  uint64_t whole = s->dropped > columns ? s->dropped - columns : 0; /* it will want them again */
  uint64_t spare = (step->granted + whole) * (uint64_t)groups;
  if (step->held_up || step->shut) return 0;
  step->shut = true;
  if (need + spare > most) spare = most - need;
  if (need + spare > (uint64_t)kv_free_pages(kv) + kv->cached_listed) return 0;
  int rc = kv_pages_ensure(kv, (uint32_t)need);
  if (!rc && s->swapped) rc = gap__kv_swap_in(kv, turn->seq);
  if (rc == GAP_EIO) return forget(step, turn);
  if (!rc) rc = append_one(step, turn);
  step->shut = rc != 0;
  return rc == GAP_ENOMEM || rc == GAP_EAGAIN ? 0 : rc;
}

static int take_turn(struct step *step, struct turn *turn) {
  const struct kv_seq *s = kv_seq_at(step->kv, turn->seq);
  if (request_of(step, turn)->outcome != GAP_KV_WAITING) return 0;
  return s->swapped || !s->length ? enter(step, turn) : go_on(step, turn);
}

static int run(struct step *step) {
  int rc = 0;
  uint32_t batch = ++step->kv->batch;
  for (uint32_t i = 0; !rc && i < step->count; i++) rc = look_at(step, i, batch);
  if (rc) return rc;
  qsort(step->turns, step->count, sizeof *step->turns, by_age);
  for (uint32_t i = 0; i < step->count; i++) step->requests[i].outcome = GAP_KV_WAITING;
  for (uint32_t i = 0; !rc && i < step->count; i++) rc = take_turn(step, &step->turns[i]);
  return rc;
}

int gap_kv_step(gap_kv *kv, gap_kv_request *requests, uint32_t count) {
  if (!kv || (!requests && count)) return GAP_EINVAL;
  struct step step = {
      .kv = kv, .requests = requests, .count = count, .turns = malloc((count + 1) * sizeof *step.turns)};
  if (!step.turns) return GAP_ENOMETA;
  gap__lock(&kv->lock);
  int rc = run(&step);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  free(step.turns);
  return rc;
}
