/* Conversion: see convert.h.  For one chunk, in this order:
 *
 *   set aside   its idle pages become holes, so that nobody is given them meanwhile
 *   fill        new chunks for the kept runs are made, mapped in a window of our own, and the runs are copied there
 *   exchange    the old chunk is unmapped, the new ones are mapped at its addresses, then leave the window
 *   release     the old chunk goes back to the driver
 *
 * A failure before the exchange leaves everything as it was.  One inside it maps the old chunk again, whose bytes nothing has
 * touched; a driver that will not map it even then leaves its addresses without memory (`torn`) until it does. */
#include "core/convert.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "core/arena.h"
#include "core/chunk.h"
#include "core/convert_plan.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/pending.h"
#include "core/trim.h"
#include "core/trouble.h"

enum { RUNS_MAX = GAP__CONVERT_PAGES / 2 + 1, RESTORE_TRIES = 20 };
#define RESTORE_PAUSE_NS 1000000 /* 1 ms, in all 0.2 s */

struct run {
  uint32_t from, pages; /* in the old chunk */
  uint32_t chunk;       /* the new one; 0: not made */
  uint32_t at;          /* page of the window */
};

struct job {
  struct gap__policy_state *s;
  uint32_t chunk;
  enum gap__place place; /* of the new ones */
  struct gap__range *range;
  uint32_t page, pages; /* its home */
  uint64_t idle[GAP__CONVERT_WORDS];
  uint32_t idle_count, run_count;
  struct gap__range *window;
  struct run runs[RUNS_MAX];
};

/* ---- the window ---- */

/* A lane that serves nobody: its arena has the addresses of the window, and nothing there is ever in use. */
static struct gap__lane *window_lane(struct gap__policy_state *s) {
  if (s->convert.window) return s->convert.window;
  struct gap__lane *lane = gap__meta_map(sizeof *lane);
  if (!lane || gap__slab_init(&lane->blocks, sizeof(struct gap__block), UINT16_MAX)) {
    gap__meta_unmap(lane, sizeof *lane);
    return NULL;
  }
  lane->owner = s;
  lane->ended = true;
  lane->plain = GAP__PLAIN_NONE;
  lane->thread = GAP__THREAD_NONE;
  lane->epoch = lane->completed = UINT32_MAX;
  for (uint8_t kind = 0; kind < GAP__ARENA_COUNT; kind++) gap__arena_init(&lane->arena[kind], lane, kind);
  return s->convert.window = lane;
}

/* What could not be unmapped the last time goes now. */
static int clear_window(struct gap__policy_state *s, const struct gap__range *range, uint32_t pages) {
  int rc = 0;
  for (uint32_t page = 0; page < pages && range->lent_pages && !rc; page++)
    if (range->slot[page]) rc = gap__mapping_unmap(s, range->slot[page]);
  return rc;
}

/* Addresses for `pages`.  NULL: there are none. */
static struct gap__range *open_window(struct gap__policy_state *s, uint32_t pages) {
  struct gap__lane *lane = window_lane(s);
  if (!lane) return NULL;
  struct gap__arena *arena =
      &lane->arena[GAP__ARENA_PLANNED]; /* the kind whose ranges are as long as what is asked for */
  struct gap__range *range = arena->range_newest ? gap__range_at(s, arena->range_newest) : NULL;
  if (!range || range->pages < pages) {
    gap__lock(&lane->lock);
    int rc = gap__arena_add_range(arena, (uint64_t)pages << GAP__PAGE_UNIT_SHIFT);
    gap__unlock(&lane->lock);
    if (rc) return NULL;
    range = gap__range_at(s, arena->range_newest);
  }
  return clear_window(s, range, pages) ? NULL : range;
}

/* ---- setting aside ---- */

/* Idle pages become holes.  Those that cannot are kept, like all others. */
static void withdraw(struct job *job) {
  struct gap__arena *arena = job->range->arena;
  for (uint32_t from = 0, to; gap__convert_run(job->idle, job->pages, true, &from, &to); from = to) {
    uint32_t block = gap__block_covering(job->range, (job->page + from) << GAP__PAGE_UNIT_SHIFT);
    if (gap__arena_withdraw(arena, block, job->page + from, to - from) == 0) continue;
    for (uint32_t i = from; i < to; i++) job->idle[i / 64] &= ~(1ull << (i % 64));
    job->idle_count -= to - from;
  }
}

static void note_runs(struct job *job) {
  uint32_t at = 0;
  for (uint32_t from = 0, to; gap__convert_run(job->idle, job->pages, false, &from, &to); from = to) {
    job->runs[job->run_count++] = (struct run){.from = from, .pages = to - from, .at = at};
    at += to - from;
  }
}

static struct job job_of(struct gap__policy_state *s, uint32_t chunk, enum gap__place place) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  return (struct job){.s = s,
                      .chunk = chunk,
                      .place = place,
                      .range = gap__range_at(s, home->range),
                      .page = home->page,
                      .pages = c->pages};
}

/* False: nothing of it is idle any more, or nothing is in use. */
static bool set_aside(struct job *job, struct gap__policy_state *s, uint32_t chunk) {
  if (gap__convert_refusal(s, chunk) != GAP__REFUSAL_COUNT) return false; /* it is another one by now */
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  *job = job_of(s, chunk, GAP__PLACE_DEVICE);
  struct gap__lane *lane = job->range->arena->lane;
  gap__lock(&lane->lock);
  gap__arena_flush(job->range->arena);
  job->idle_count = gap__convert_idle(s, c, lane->completed, job->idle);
  bool partly = job->idle_count && job->idle_count < job->pages;
  if (partly) withdraw(job);
  gap__unlock(&lane->lock);
  if (partly) note_runs(job);
  return partly && job->idle_count;
}

static void put_back(const struct job *job) {
  struct gap__lane *lane = job->range->arena->lane;
  gap__lock(&lane->lock);
  for (uint32_t from = 0, to; gap__convert_run(job->idle, job->pages, true, &from, &to); from = to)
    gap__arena_return(job->range, job->page + from, to - from);
  gap__unlock(&lane->lock);
}

/* ---- filling ---- */

static gap_addr address_of(const struct gap__range *range, uint32_t page) {
  return gap__range_addr(range, page << GAP__PAGE_UNIT_SHIFT);
}

static int make_run(struct job *job, struct run *run) {
  struct gap__policy_state *s = job->s;
  uint32_t chunk, mapping;
  int rc = gap__chunk_create(s, run->pages, job->place, &chunk);
  if (rc) return rc;
  if ((rc = gap__chunk_map(s, chunk, job->window, run->at, &mapping))) gap__chunk_abandon(s, chunk);
  else run->chunk = chunk;
  return rc;
}

static int await_event(struct gap__policy_state *s) {
  gap__event event;
  int rc = gap__event_mark(s, s->convert.stream, &event);
  if (rc) return rc;
  rc = gap__dev_event_wait(s->dev, event);
  gap__event_give(s, event);
  return rc;
}

/* Waits for the copies.  After an error nothing writes to the new chunks any more, and the gate is open. */
static int finish_copies(struct gap__policy_state *s) {
  int rc = s->gate.closed ? gap__gate_await(s, s->convert.stream) : await_event(s);
  if (!rc) return 0;
  gap__trouble_driver(s, GAP__CALL_copy, rc);
  gap__gate_open(s);
  if (await_event(s)) gap__lane_drain_device(s);
  return rc;
}

static int copy_runs(struct job *job) {
  struct gap__policy_state *s = job->s;
  int rc = s->convert.stream ? 0 : gap__dev_stream_create(s->dev, &s->convert.stream);
  bool queued = false;
  for (uint32_t i = 0; i < job->run_count && !rc; i++) {
    const struct run *run = &job->runs[i];
    rc = gap__dev_copy(s->dev, address_of(job->window, run->at), address_of(job->range, job->page + run->from),
                       (uint64_t)run->pages << GAP__PAGE_SHIFT, s->convert.stream);
    if (rc) gap__trouble_driver(s, GAP__CALL_copy, rc);
    queued |= !rc;
  }
  int finished = queued ? finish_copies(s) : 0;
  return rc ? rc : finished;
}

/* Its other addresses, all out of use, go first: nothing is left to fail but the release when it is no longer needed. */
static int unmap_lent(struct gap__policy_state *s, uint32_t chunk) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  for (uint32_t next, m = c->mappings; m; m = next) {
    next = gap__mapping_at(s, m)->next;
    int rc = m == c->home ? 0 : gap__mapping_unmap(s, m);
    if (rc) return rc;
  }
  return 0;
}

static int fill(struct job *job) {
  struct gap__policy_state *s = job->s;
  uint32_t kept = job->pages - job->idle_count;
  int rc = unmap_lent(s, job->chunk);
  if (rc) return rc;
  if (!(job->window = open_window(s, kept))) return GAP_ENOMEM;
  for (uint32_t i = 0; i < job->run_count && !rc; i++) rc = make_run(job, &job->runs[i]);
  if (!rc) rc = gap__chunk_access(s, job->window, 0, kept);
  return rc ? rc : copy_runs(job);
}

static void drop_runs(struct job *job) {
  for (uint32_t i = 0; i < job->run_count; i++)
    if (job->runs[i].chunk) gap__chunk_abandon(job->s, job->runs[i].chunk);
}

/* ---- exchanging ---- */

static int map_runs(struct job *job) {
  struct gap__policy_state *s = job->s;
  uint32_t mapping;
  int rc = 0;
  for (uint32_t i = 0; i < job->run_count && !rc; i++) {
    const struct run *run = &job->runs[i];
    rc = gap__chunk_map(s, run->chunk, job->range, job->page + run->from, &mapping);
    if (!rc) rc = gap__chunk_access(s, job->range, job->page + run->from, run->pages);
  }
  return rc;
}

/* Takes the new chunks away from the old one's addresses. */
static int unmap_runs(const struct job *job) {
  int rc = 0;
  for (uint32_t i = 0; i < job->run_count && !rc; i++) {
    uint32_t mapping = job->range->slot[job->page + job->runs[i].from];
    if (mapping && gap__mapping_at(job->s, mapping)->chunk != job->chunk) rc = gap__mapping_unmap(job->s, mapping);
  }
  return rc;
}

static int map_home(struct gap__policy_state *s, uint32_t chunk, struct gap__range *range, uint32_t page) {
  uint32_t mapping;
  int rc = gap__chunk_at(s, chunk)->home ? 0 : gap__chunk_map(s, chunk, range, page, &mapping);
  return rc ? rc : gap__chunk_access(s, range, page, gap__chunk_at(s, chunk)->pages);
}

/* The driver has failed with the old chunk's addresses unmapped: again and again, for threads stand before the gate. */
static bool restore(struct job *job) {
  bool real = !job->s->dev->caps.stepped;
  for (unsigned tries = 0; tries < RESTORE_TRIES; tries++) {
    if (unmap_runs(job) == 0 && map_home(job->s, job->chunk, job->range, job->page) == 0) return true;
    if (real) nanosleep(&(struct timespec){.tv_nsec = RESTORE_PAUSE_NS * (tries + 1)}, NULL);
  }
  return false;
}

/* Nobody is given the idle pages while their addresses are the torn chunk's. */
static void tear(struct job *job) {
  struct gap__torn *torn = &job->s->convert.torn;
  *torn = (struct gap__torn){.chunk = job->chunk, .page = job->page, .range = (uint16_t)(job->range - job->s->ranges)};
  memcpy(torn->idle, job->idle, sizeof torn->idle);
  struct gap__arena *arena = job->range->arena;
  gap__lock(&arena->lane->lock);
  for (uint32_t from = 0, to; gap__convert_run(job->idle, job->pages, true, &from, &to); from = to) {
    uint32_t off = (job->page + from) << GAP__PAGE_UNIT_SHIFT, hole = gap__block_covering(job->range, off);
    gap__slab_assure(&arena->lane->blocks, 2);
    gap__block_detach(arena, hole);
    gap__block_isolate(arena, hole, off, (to - from) << GAP__PAGE_UNIT_SHIFT, GAP__HOLE);
  }
  gap__unlock(&arena->lane->lock);
  gap__log(GAP__LOG_ERROR, "device %d: the driver does not map memory again at %#llx, which is in use",
           job->s->device->ordinal, (unsigned long long)address_of(job->range, job->page));
}

bool gap__convert_heal(struct gap__policy_state *s) {
  struct gap__torn *torn = &s->convert.torn;
  if (!torn->chunk) return true;
  struct gap__range *range = gap__range_at(s, torn->range);
  struct gap__arena *arena = range->arena;
  uint32_t pages = gap__chunk_at(s, torn->chunk)->pages;
  for (uint32_t page = torn->page; page < torn->page + pages && !gap__chunk_at(s, torn->chunk)->home; page++)
    if (range->slot[page] && gap__mapping_unmap(s, range->slot[page])) return false;
  s->convert.quiet = true;
  int rc = map_home(s, torn->chunk, range, torn->page);
  s->convert.quiet = false;
  if (rc) return false;
  gap__lock(&arena->lane->lock);
  for (uint32_t from = 0, to; gap__convert_run(torn->idle, pages, true, &from, &to); from = to)
    gap__block_attach(arena, gap__block_covering(range, (torn->page + from) << GAP__PAGE_UNIT_SHIFT), GAP__IDLE);
  gap__unlock(&arena->lane->lock);
  *torn = (struct gap__torn){0};
  return true;
}

/* The new chunks are at home there, and leave the window. */
static void settle(struct job *job) {
  struct gap__policy_state *s = job->s;
  for (uint32_t i = 0; i < job->run_count; i++) {
    const struct run *run = &job->runs[i];
    gap__chunk_rehome(s, job->range->slot[job->page + run->from]);
    gap__mapping_unmap(s, job->window->slot[run->at]); /* or it stays there, lent, until the next time */
  }
}

/* After an error the old chunk is at home, or torn. */
static int exchange(struct job *job) {
  struct gap__policy_state *s = job->s;
  if (!gap__slab_assure(&s->mappings, job->run_count + 1)) return GAP_ENOMETA;
  int rc = gap__mapping_unmap(s, gap__chunk_at(s, job->chunk)->home);
  if (rc) return rc;
  rc = map_runs(job);
  if (!rc) settle(job);
  else if (!restore(job)) tear(job);
  return rc;
}

static void report_holes(const struct job *job) {
  for (uint32_t from = 0, to; gap__convert_run(job->idle, job->pages, true, &from, &to); from = to)
    gap__events_pages(job->s, job->range, job->page + from, -(int64_t)(to - from));
}

/* ---- one chunk ---- */

/* Within the hard limit the new chunks need room beside the old one: idle memory makes it. */
static bool has_room(struct gap__policy_state *s, uint32_t pages) {
  uint64_t hard = gap__hard_limit(s);
  if (pages > hard) return false;
  if (gap__held_pages(s) + pages > hard) gap__trim_idle(s, NULL, hard - pages, false);
  return gap__held_pages(s) + pages <= hard;
}

static void count(struct job *job) {
  struct gap__conversion *convert = &job->s->convert;
  convert->count++;
  convert->pages += job->idle_count;
  convert->bytes += (int64_t)(job->pages - job->idle_count) << GAP__PAGE_SHIFT;
}

/* 0, or the driver's error. */
static int exchange_chunk(struct job *job) {
  struct gap__policy_state *s = job->s;
  s->convert.quiet = true;
  int rc = fill(job);
  if (!rc) rc = exchange(job);
  s->convert.quiet = false;
  if (rc) {
    drop_runs(job);
    if (!s->convert.torn.chunk) put_back(job);
    return rc;
  }
  report_holes(job);
  gap__chunk_abandon(s, job->chunk);
  return 0;
}

/* ---- standing still ---- */

/* What streams that were retired have left queued, which no gate holds. */
static bool settle_retired(struct gap__policy_state *s) {
  int rc = 0;
  for (struct gap__lane *lane = s->lanes; lane && !rc; lane = lane->next)
    if (lane->ended && lane->mark_count) rc = gap__lane_wait(lane, gap__lane_closed(lane));
  return !rc && gap__use_settle(s);
}

static void close_epochs(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lane_close_epoch(lane);
}

static void poll_epochs(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lane_poll(lane);
}

static bool stand_still(struct gap__policy_state *s, enum gap__stillness how, enum gap__refusal *why) {
  *why = GAP__REFUSED_peer;
  if (atomic_load_explicit(&s->device->peered, memory_order_relaxed)) return false;
  close_epochs(s);
  *why = GAP__REFUSED_driver;
  if (how == GAP__STILL_BY_PROMISE) return gap__lane_drain_device(s) == 0;
  *why = GAP__REFUSED_thread;
  return settle_retired(s) && gap__gate_close(s, why) == 0;
}

/* ---- as many as are wanted ---- */

/* One pick.  GAP_EAGAIN: there is no room, until others have made some.  How much is kept is known once it was set aside: requests
 * have gone on being served from its idle pages. */
static int try_pick(struct gap__policy_state *s, const struct gap__pick *pick, uint64_t *freed) {
  struct job job;
  if (!set_aside(&job, s, pick->chunk)) return 0;
  if (!has_room(s, job.pages - job.idle_count)) {
    put_back(&job);
    return GAP_EAGAIN;
  }
  int rc = exchange_chunk(&job);
  if (!rc) count(&job);
  *freed += rc ? 0 : job.idle_count;
  return rc == GAP_EAGAIN ? GAP_EDEVICE : rc;
}

/* Those that find no room wait for the others: each exchange makes more. */
static uint64_t exchange_all(struct gap__policy_state *s, struct gap__convert_plan *plan, uint64_t want) {
  uint64_t freed = 0, before;
  uint32_t waiting = plan->count;
  int rc = 0;
  do {
    uint32_t left = 0, i = 0;
    before = freed;
    for (; i < waiting && freed < want && (!rc || rc == GAP_EAGAIN); i++) {
      rc = try_pick(s, &plan->picks[i], &freed);
      if (rc == GAP_EAGAIN) plan->picks[left++] = plan->picks[i];
    }
    waiting = left;
  } while (waiting && freed < want && freed > before && (!rc || rc == GAP_EAGAIN));
  if (freed < want) s->convert.refused[GAP__REFUSED_room] += waiting;
  s->convert.refused[GAP__REFUSED_driver] += rc && rc != GAP_EAGAIN;
  return freed;
}

static void count_refused(struct gap__policy_state *s, const struct gap__convert_plan *plan) {
  for (int i = 0; i < GAP__REFUSAL_COUNT; i++) s->convert.refused[i] += plan->refused[i];
}

static bool is_worth_it(const struct gap__convert_plan *plan, struct gap__convert_wish wish) {
  return plan->count && plan->whole < wish.pages && plan->whole + plan->idle >= wish.least;
}

/* Under the gate, or the promise: all that was freed before is out of use now, so that more may be idle. */
static uint64_t convert_still(struct gap__policy_state *s, struct gap__convert_wish wish) {
  struct gap__convert_plan plan;
  poll_epochs(s);
  gap__pending_poll(s, NULL);
  gap__convert_plan(s, true, &plan);
  count_refused(s, &plan);
  if (!is_worth_it(&plan, wish)) return 0;
  return exchange_all(s, &plan, wish.pages == UINT64_MAX ? UINT64_MAX : wish.pages - plan.whole);
}

static void fold_all(struct gap__policy_state *s) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) gap__hollow_fold(&lane->arena[kind]);
    gap__unlock(&lane->lock);
  }
}

uint64_t gap__convert(struct gap__policy_state *s, struct gap__convert_wish wish, enum gap__stillness how) {
  struct gap__convert_plan plan;
  enum gap__refusal why;
  uint64_t began = gap__dev_now_ns(s->dev), freed = 0;
  if (!gap__convert_heal(s)) return 0;
  fold_all(s);
  gap__convert_plan(s, false, &plan); /* before all streams are stopped */
  if (!is_worth_it(&plan, wish)) {
    count_refused(s, &plan);
    return 0;
  }
  if (stand_still(s, how, &why)) freed = convert_still(s, wish);
  else s->convert.refused[why]++;
  gap__gate_open(s);
  s->convert.ns += (int64_t)(gap__dev_now_ns(s->dev) - began);
  return freed;
}

/* ---- to another place ---- */

/* All of a chunk; what is behind its pages does not matter, they keep their addresses. */
static int move_chunk(struct gap__policy_state *s, uint32_t chunk, enum gap__place place) {
  struct job job = job_of(s, chunk, place);
  if (place == GAP__PLACE_DEVICE && !has_room(s, job.pages)) return GAP_ENOMEM;
  note_runs(&job);
  return exchange_chunk(&job);
}

bool gap__convert_still(struct gap__policy_state *s, enum gap__stillness how) {
  enum gap__refusal why;
  if (!gap__convert_heal(s)) return false;
  if (stand_still(s, how, &why)) {
    s->overflow.missed = false;
    return true;
  }
  s->convert.refused[why]++;
  gap__gate_open(s);
  return false;
}

uint64_t gap__convert_move(struct gap__policy_state *s, const struct gap__pick *picks, uint32_t count, uint64_t most,
                           enum gap__place place) {
  uint64_t moved = 0, all = 0, hard = gap__hard_limit(s);
  int rc = 0;
  for (uint32_t i = 0; i < count && all + picks[i].kept <= most; i++) all += picks[i].kept;
  if (place == GAP__PLACE_DEVICE) has_room(s, (uint32_t)(all < hard ? all : hard)); /* for all of them at once */
  for (uint32_t i = 0; i < count && !rc && moved + picks[i].kept <= most; i++) {
    rc = move_chunk(s, picks[i].chunk, place);
    moved += rc ? 0 : picks[i].kept;
  }
  s->convert.refused[rc == GAP_ENOMEM ? GAP__REFUSED_room : GAP__REFUSED_driver] += rc != 0;
  return moved;
}

/* The window's addresses are given back with all others. */
void gap__convert_destroy(struct gap__policy_state *s) {
  gap__gate_destroy(s);
  if (s->convert.torn.chunk && !gap__chunk_at(s, s->convert.torn.chunk)->mappings)
    gap__chunk_release(s, s->convert.torn.chunk);
  if (s->convert.stream) gap__dev_stream_destroy(s->dev, s->convert.stream);
  if (!s->convert.window) return;
  gap__slab_destroy(&s->convert.window->blocks);
  gap__meta_unmap(s->convert.window, sizeof *s->convert.window);
}
