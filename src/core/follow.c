/* Matching requests with the plan, and placing them: see follow.h. */
#include "core/follow.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/arena.h"
#include "core/lane.h"
#include "core/place.h"
#include "core/reclaim.h"
#include "core/tally.h"

enum {
  NEAR = 8,    /* requests missed until which one equal length is enough */
  AGREE = 4,   /* lengths in a row that are enough later */
  BEGIN = 8,   /* lengths in a row with which the plan begins */
  AHEAD = 256, /* steps that a track looks ahead */
  TRUST_FIRST = 32,
  TRUST_MOST = 256,
  TRUST_LOST = 2 /* by a request that was not expected, or costs another place its pages; one that was wins 1 */
};
#define NOWHERE UINT32_MAX
_Static_assert(BEGIN <= GAP__TRACK_RECENT, "a track remembers what it compares");

/* ---- where in the plan are we? ---- */

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

struct view { /* of a stream of the plan */
  const struct gap__plan_step *steps;
  uint32_t count;
};

static struct view view_of(const struct gap__plan *plan, uint32_t stream) {
  return (struct view){plan->steps + plan->streams[stream].first, plan->streams[stream].count};
}

static uint32_t wrapped(const struct view *v, uint32_t at) { return at % v->count; }

/* Were the last `count` requests the steps up to `last`? */
static bool agrees(const struct view *v, const struct gap__track *t, uint32_t last, uint32_t count) {
  count = smaller(count, v->count);
  if (t->asked < count) return false;
  for (uint32_t back = 0; back < count; back++) {
    uint32_t step = last >= back ? last - back : last + v->count - back;
    if (t->recent[(t->asked - 1 - back) % GAP__TRACK_RECENT] != v->steps[step].units) return false;
  }
  return true;
}

/* The last of the steps with which the plan has just begun, or NOWHERE.  To who has made few requests all of them will do: a plan
 * may be one of the whole program. */
static uint32_t find_begin(const struct view *v, const struct gap__track *t) {
  uint32_t count = smaller(smaller(BEGIN, t->asked), v->count);
  return count && agrees(v, t, count - 1, count) ? count - 1 : NOWHERE;
}

static uint32_t find_near(const struct view *v, const struct gap__track *t, uint32_t units) {
  if (t->missed > NEAR) return NOWHERE;
  uint32_t beyond = wrapped(v, t->next + t->missed);
  if (v->steps[t->next].units == units) return t->next;
  return v->steps[beyond].units == units ? beyond : NOWHERE;
}

static uint32_t find_ahead(const struct view *v, const struct gap__track *t) {
  uint32_t far = smaller(AHEAD, v->count);
  for (uint32_t ahead = 0; ahead < far; ahead++) {
    uint32_t step = wrapped(v, t->next + ahead);
    if (agrees(v, t, step, AGREE)) return step;
  }
  return NOWHERE;
}

/* The step that the last request is. */
static uint32_t find_step(const struct view *v, const struct gap__track *t, uint32_t units) {
  uint32_t step = find_near(v, t, units);
  if (step == NOWHERE && t->missed) step = find_ahead(v, t);
  if (step == NOWHERE && t->missed) step = find_begin(v, t);
  return step;
}

/* ---- which stream of the plan is it? ---- */

static void leave(struct gap__plan *plan, struct gap__track *t) {
  if (t->stream) atomic_fetch_sub_explicit(&plan->streams[t->stream - 1].followers, 1, memory_order_relaxed);
  t->stream = 0;
}

void gap__follow_leave(struct gap__lane *lane) {
  struct gap__plan *plan = atomic_load_explicit(&lane->owner->plan, memory_order_relaxed);
  if (plan) leave(plan, &lane->track);
  lane->track.asked = 0; /* somebody else's requests are no evidence */
}

/* The stream of the plan that has just begun, followed by the fewest, the first of these. */
static uint32_t choose_stream(const struct gap__plan *plan, const struct gap__track *t) {
  uint32_t best = NOWHERE, least = UINT32_MAX;
  for (uint32_t i = 0; i < plan->stream_count; i++) {
    struct view v = view_of(plan, i);
    uint32_t followers = atomic_load_explicit(&plan->streams[i].followers, memory_order_relaxed);
    if (followers < least && find_begin(&v, t) != NOWHERE) best = i, least = followers;
  }
  return best;
}

static uint32_t join(struct gap__plan *plan, struct gap__track *t) {
  uint32_t stream = choose_stream(plan, t);
  if (stream == NOWHERE) return NOWHERE;
  struct view v = view_of(plan, stream);
  atomic_fetch_add_explicit(&plan->streams[stream].followers, 1, memory_order_relaxed);
  t->stream = stream + 1;
  t->trust = TRUST_FIRST;
  return find_begin(&v, t);
}

/* ---- one request ---- */

static void count_one(_Atomic int64_t *figure, int64_t by) {
  atomic_fetch_add_explicit(figure, by, memory_order_relaxed);
}

static void remember(struct gap__track *t, uint32_t units) { t->recent[t->asked++ % GAP__TRACK_RECENT] = units; }

/* `step` has come: the next one is expected. */
static void advance(struct gap__policy_state *s, const struct view *v, struct gap__track *t, uint32_t step,
                    bool strayed) {
  t->next = wrapped(v, step + 1);
  t->missed = 0;
  t->trust += t->trust < TRUST_MOST;
  if (strayed) count_one(&s->followed.found, 1);
  if (t->next == 0) count_one(&s->followed.periods, 1);
}

static void distrust(struct gap__plan *plan, struct gap__track *t) {
  if (!t->stream) return;
  t->trust -= smaller(t->trust, TRUST_LOST);
  if (!t->trust) leave(plan, t);
}

/* The step of this request, or NULL: it has none. */
static const struct gap__plan_step *expect(struct gap__policy_state *s, struct gap__plan *plan, struct gap__track *t,
                                           uint32_t units) {
  remember(t, units);
  bool strayed = !t->stream || t->missed;
  uint32_t step;
  if (t->stream) {
    struct view v = view_of(plan, t->stream - 1);
    step = find_step(&v, t, units);
  } else {
    step = join(plan, t);
  }
  if (step == NOWHERE) {
    t->missed++;
    distrust(plan, t);
    return NULL;
  }
  struct view v = view_of(plan, t->stream - 1);
  advance(s, &v, t, step, strayed);
  return &v.steps[step];
}

/* ---- its place ---- */

/* The lane gets the addresses of the plan.  Expects the lane lock, and returns with it. */
static bool open_range(struct gap__lane *lane) {
  struct gap__policy_state *s = lane->owner;
  struct gap__arena *arena = &lane->arena[GAP__ARENA_PLANNED];
  lane->visitors++;
  gap__unlock(&lane->lock);
  gap__lock(&s->lock);
  gap__lock(&lane->lock);
  lane->visitors--;
  const struct gap__plan *plan = atomic_load_explicit(&s->plan, memory_order_relaxed);
  if (plan && !lane->track.range) {
    lane->track.barred = gap__arena_add_range(arena, plan->units) != 0;
    lane->track.range = lane->track.barred ? 0 : arena->range_newest;
  }
  gap__unlock(&s->lock);
  return lane->track.range != 0;
}

static uint32_t take_hot(struct gap__arena *arena, uint32_t off, uint32_t units) {
  uint32_t index = arena->hot;
  const struct gap__block *b = gap__block(arena->lane, index);
  if (!index || b->off != off || b->len != units || b->range != arena->lane->track.range) return 0;
  arena->hot = 0;
  return index;
}

/* Pages are missing, or other streams must be asked.  Expects the lane lock, and returns with it. */
static enum gap__follow_end place_slowly(struct gap__lane *lane, uint32_t off, uint32_t units, uint64_t bytes,
                                         uint32_t *index) {
  const struct gap__request req = {.units = units, .bytes = bytes};
  struct gap__range *range = gap__range_at(lane->owner, lane->track.range);
  bool contested = false;
  lane->visitors++;
  gap__unlock(&lane->lock);
  int rc = gap__reclaim_at(lane, &req, range, off, index, &contested);
  gap__lock(&lane->lock);
  lane->visitors--;
  struct gap__plan *plan =
      atomic_load_explicit(&lane->owner->plan, memory_order_relaxed); /* it may be another one by now */
  if (contested && plan) distrust(plan, &lane->track);
  return !rc ? GAP__FOLLOW_PLACED : rc == GAP_EAGAIN ? GAP__FOLLOW_TAKEN : GAP__FOLLOW_UNBACKED;
}

/* The steps may be gone once the lane lock was given up: `off` is a copy. */
static enum gap__follow_end place(struct gap__lane *lane, uint32_t off, uint32_t units, uint64_t bytes,
                                  uint32_t *index) {
  struct gap__arena *arena = &lane->arena[GAP__ARENA_PLANNED];
  uint32_t block;
  if (lane->track.barred || (!lane->track.range && !open_range(lane))) return GAP__FOLLOW_UNBACKED;
  if ((*index = take_hot(arena, off, units)) != 0) return GAP__FOLLOW_PLACED;
  gap__arena_flush(arena);
  switch (gap__place_look(gap__range_at(lane->owner, lane->track.range), off, units, &block)) {
    case GAP__PLACE_TAKEN: return GAP__FOLLOW_TAKEN;
    case GAP__PLACE_MAPPED:
      *index = gap__place_carve(arena, block, off, units);
      return *index ? GAP__FOLLOW_PLACED : GAP__FOLLOW_UNBACKED;
    default: return place_slowly(lane, off, units, bytes, index);
  }
}

uint32_t gap__follow(struct gap__lane *lane, uint32_t units, uint64_t bytes) {
  struct gap__policy_state *s = lane->owner;
  struct gap__plan *plan = atomic_load_explicit(&s->plan, memory_order_relaxed);
  enum gap__follow_end end = GAP__FOLLOW_UNEXPECTED;
  uint32_t index = 0;
  if (!plan) return 0; /* it went away while the lane was looked for */
  const struct gap__plan_step *step = expect(s, plan, &lane->track, units);
  if (step) end = place(lane, step->off, units, bytes, &index);
  count_one(&s->followed.requests[end], 1);
  count_one(&s->followed.bytes[end], (int64_t)units << GAP__UNIT_SHIFT);
  return index;
}

/* ---- how much may be held ---- */

/* Bytes of blocks in places of the plan, pending ones included; *pages: what stands behind places. */
static int64_t live_in_places(const struct gap__policy_state *s, int64_t *pages) {
  int64_t bytes = 0;
  *pages = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    struct gap__arena *arena = &lane->arena[GAP__ARENA_PLANNED];
    gap__lock(&lane->lock);
    gap__arena_flush(arena);
    *pages += arena->home_pages;
    bytes += arena->home_pages * (int64_t)GAP__PAGE - (int64_t)(arena->idle_units << GAP__UNIT_SHIFT);
    gap__unlock(&lane->lock);
  }
  return bytes;
}

uint64_t gap__follow_limit(struct gap__policy_state *s, uint64_t soft, uint64_t hard) {
  const struct gap__plan *plan = atomic_load_explicit(&s->plan, memory_order_relaxed);
  if (!plan || soft >= hard) return soft;
  int64_t backed, others = gap__tally_live_bytes(s) - live_in_places(s, &backed);
  if (backed >= gap__page_up(plan->units)) return soft;
  double bytes = (double)others + (double)((uint64_t)plan->units << GAP__UNIT_SHIFT);
  double pages = gap__device_conf(s->device)->grow_limit * bytes / (double)GAP__PAGE;
  uint64_t most = pages < (double)hard ? (uint64_t)pages : hard;
  return most > soft ? most : soft;
}

/* ---- the plan in force ---- */

static void forget_track(struct gap__lane *lane, const struct gap__plan *plan) {
  uint16_t range = lane->track.range;
  uint64_t pages = plan ? gap__page_up(plan->units) : 0;
  bool fits = range && gap__range_at(lane->owner, range)->pages >= pages;
  lane->track = (struct gap__track){.range = fits ? range : 0};
}

/* What is live stays where it is. */
static void put_in_force(struct gap__policy_state *s, struct gap__plan *plan) {
  gap__lock(&s->lock);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lock(&lane->lock);
  struct gap__plan *old = atomic_exchange(&s->plan, plan);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lane_make_plain(lane);
  for (uint32_t i = 1; i < s->lane_slab.count; i++) forget_track(gap__slab_at(&s->lane_slab, i), plan);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  gap__plan_unload(old);
}

static void say_loaded(const char *path, const struct gap__plan *plan) {
  char size[GAP__TEXT_BYTES];
  gap__log(GAP__LOG_INFO, "the plan %s is followed: %u requests on %u streams, %s", path, plan->step_count,
           plan->stream_count, gap__text_size((uint64_t)plan->units << GAP__UNIT_SHIFT, size));
}

void gap__follow_configure(struct gap__policy_state *s) {
  const char *path = gap__device_conf(s->device)->plan;
  struct gap__plan *plan = NULL;
  struct gap__text why = {0};
  if (strcmp(path, s->plan_path) == 0) return;
  memcpy(s->plan_path, path, sizeof s->plan_path);
  int rc = *path ? gap__plan_load(path, &plan, &why) : 0;
  if (rc)
    gap__log(GAP__LOG_WARNING, "the plan %s is not followed: %s", path,
             why.length ? gap__text_str(&why) : gap_strerror(rc));
  if (plan) say_loaded(path, plan);
  gap__text_free(&why);
  put_in_force(s, plan);
}

/* ---- figures ---- */

void gap__follow_stats(const struct gap__policy_state *s, struct gap__stats *out) {
  const struct gap__plan *plan = atomic_load(&s->plan);
  const struct gap__follow_figures *f = &s->followed;
  out->plan_requests += plan ? plan->step_count : 0;
  out->plan_bytes += plan ? (int64_t)plan->units << GAP__UNIT_SHIFT : 0;
  out->plan_placed += f->requests[GAP__FOLLOW_PLACED];
  out->plan_placed_bytes += f->bytes[GAP__FOLLOW_PLACED];
  out->plan_unexpected += f->requests[GAP__FOLLOW_UNEXPECTED];
  out->plan_unexpected_bytes += f->bytes[GAP__FOLLOW_UNEXPECTED];
  out->plan_taken += f->requests[GAP__FOLLOW_TAKEN];
  out->plan_taken_bytes += f->bytes[GAP__FOLLOW_TAKEN];
  out->plan_unbacked += f->requests[GAP__FOLLOW_UNBACKED];
  out->plan_unbacked_bytes += f->bytes[GAP__FOLLOW_UNBACKED];
  out->plan_found += f->found;
  out->plan_periods += f->periods;
}

void gap__follow_reset(struct gap__policy_state *s) {
  for (int end = 0; end < GAP__FOLLOW_END_COUNT; end++) s->followed.requests[end] = s->followed.bytes[end] = 0;
  s->followed.found = s->followed.periods = 0;
}
