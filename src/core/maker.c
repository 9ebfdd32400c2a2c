/* The page maker: see maker.h.
 *
 * A new page costs some 55 us of driver time, most of it to make it accessible.  While an arena grows, pages made beyond its
 * end are an idle block like any other: the next request that fits nowhere else is served there without a driver call.  What
 * is idle there already does not count as made ahead: a training step that has just grown frees all it grew by, and the next
 * one takes it again.
 * It never makes more than the soft limit allows, stops when nothing has grown for a while, and holds the device lock for a
 * few pages at a time. */
#include "core/maker.h"

#include <pthread.h>
#include <time.h>

#include "base/worker.h"
#include "core/arena.h"
#include "core/chunk.h"
#include "core/convert.h"
#include "core/follow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/place.h"
#include "core/supply.h"
#include "core/watch.h"

enum { BATCH_PAGES = 4, AHEAD_MIN = 32, AHEAD_SHARE = 1 }; /* ahead: as much as is held */
#define KEEP_GOING_NS 1000000000ull                        /* 1 s after the last growth */
#define IDLE_POLL_NS 500000                                /* 0.5 ms between looks while an arena grows */

void gap__maker_ask(struct gap__policy_state *s, struct gap__arena *arena, uint32_t pages) {
  if (s->device->maker == GAP__MAKER_OFF || !gap__device_conf(s->device)->page_maker) return;
  if (atomic_load_explicit(&arena->lane->pinned, memory_order_relaxed)) return;
  uint64_t share = gap__held_pages(s) / AHEAD_SHARE;
  s->ahead_pages = AHEAD_MIN + 2 * pages > share ? AHEAD_MIN + 2 * pages : (uint32_t)share;
  s->ahead_made = 0;
  s->ahead_until_ns = gap__dev_now_ns(s->dev) + KEEP_GOING_NS;
  if (!atomic_load(&s->ahead)) gap__dev_background_ask(s->dev);
  if (!atomic_exchange(&s->ahead, arena)) pthread_cond_signal(&s->maker_wake);
}

void gap__maker_rest(struct gap__policy_state *s) {
  gap__lock(&s->lock);
  atomic_store(&s->ahead, NULL);
  gap__unlock(&s->lock);
}

/* The hole at the end of the newest range, longer than `units`; 0: there is none, or at least `enough` idle pages lie before it.
 * Lane lock held. */
static uint32_t tail_hole(const struct gap__arena *arena, struct gap__range **range, uint32_t enough, uint32_t units) {
  struct gap__lane *lane = arena->lane;
  *range = gap__range_at(lane->owner, arena->range_newest);
  const struct gap__block *tail = gap__block(lane, (*range)->tail);
  if (tail->state != GAP__HOLE || tail->len <= units) return 0;
  const struct gap__block *before = tail->prev ? gap__block(lane, tail->prev) : NULL;
  uint32_t ready = before && before->state == GAP__IDLE ? before->len >> GAP__PAGE_UNIT_SHIFT : 0;
  return ready < enough ? (*range)->tail : 0;
}

/* The same in a planned arena: any hole among the addresses of the plan, which needs them all. */
static uint32_t planned_hole(const struct gap__arena *arena, struct gap__range **range, uint32_t *units) {
  const struct gap__lane *lane = arena->lane;
  const struct gap__plan *plan = atomic_load_explicit(&lane->owner->plan, memory_order_relaxed);
  uint32_t end = plan ? gap__page_up(plan->units) << GAP__PAGE_UNIT_SHIFT : 0;
  *range = gap__range_at(lane->owner, lane->track.range);
  for (uint32_t i = arena->hole_head; i; i = gap__block(lane, i)->link_next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->range != lane->track.range || b->off >= end) continue;
    uint32_t length = b->len < end - b->off ? b->len : end - b->off;
    if (*units > length) *units = length;
    return i;
  }
  return 0;
}

/* Can pages be made here at once? A lent mapping whose address is in use would have to be waited for. */
static bool vacant(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page, uint32_t pages) {
  for (uint32_t i = page; i < page + pages; i++)
    if (range->slot[i] && !gap__mapping_settled(s, range->slot[i])) return false;
  return true;
}

static uint64_t limit_for(struct gap__policy_state *s, const struct gap__arena *arena) {
  uint64_t soft = gap__soft_limit(s, 0);
  return arena->kind == GAP__ARENA_PLANNED ? gap__follow_limit(s, soft, gap__hard_limit(s)) : soft;
}

/* A few pages; or one large chunk, which takes no longer, where large ones are wanted throughout. */
static uint32_t batch_pages(const struct gap__policy_state *s) {
  uint32_t pages = gap__converts(s) ? gap__limit_chunk_pages(s) : 0;
  return pages > BATCH_PAGES ? pages : BATCH_PAGES;
}

/* Reserves the next pages beyond the end. 0: enough are ready, or nothing may be made. Device lock held. */
static uint32_t reserve_next(struct gap__policy_state *s, struct gap__arena *arena) {
  struct gap__range *range;
  uint32_t pages = batch_pages(s), units = pages << GAP__PAGE_UNIT_SHIFT, reserved = 0;
  if (gap__held_pages(s) + pages > limit_for(s, arena)) return 0;
  gap__lock(&arena->lane->lock);
  uint32_t enough = s->ahead_made < s->ahead_pages ? UINT32_MAX : s->ahead_pages;
  bool planned = arena->kind == GAP__ARENA_PLANNED;
  uint32_t hole = planned ? planned_hole(arena, &range, &units) : tail_hole(arena, &range, enough, units);
  struct gap__spot spot = {.range = range, .off = hole ? gap__block(arena->lane, hole)->off : 0};
  if (hole && vacant(s, range, gap__page_of(spot.off), units >> GAP__PAGE_UNIT_SHIFT))
    reserved = gap__place_reserve(arena, &spot, units);
  gap__unlock(&arena->lane->lock);
  return reserved;
}

/* One batch. False: nothing to do now. */
static bool make_batch(struct gap__policy_state *s) {
  struct gap__arena *arena = atomic_load(&s->ahead);
  if (!arena) return false;
  uint32_t block = reserve_next(s, arena);
  if (!block) return false;
  const struct gap__block *b = gap__block(arena->lane, block);
  struct gap__range *range = gap__range_at(s, b->range);
  uint32_t pages = b->len >> GAP__PAGE_UNIT_SHIFT;
  gap__dev_background(s->dev, true);
  int rc = gap__supply_new(s, range, gap__page_of(b->off), pages, gap__limit_chunk_pages(s));
  gap__dev_background(s->dev, false);
  gap__lock(&arena->lane->lock);
  gap__place_dissolve(arena, block);
  gap__unlock(&arena->lane->lock);
  if (rc) return false;
  s->made_ahead += pages;
  s->ahead_made += pages;
  return true;
}

static bool worth_a_look(struct gap__policy_state *s) {
  if (!atomic_load_explicit(&s->ahead, memory_order_relaxed)) return false;
  if (gap__dev_now_ns(s->dev) < s->ahead_until_ns) return true;
  atomic_store(&s->ahead, NULL);
  return false;
}

void gap__maker_step(struct gap__policy_state *s) {
  if (!worth_a_look(s)) return;
  bool more = true;
  while (more && gap__dev_background_idle(s->dev)) {
    gap__lock_give_way(&s->lock); /* to requests */
    gap__lock(&s->lock);
    more = make_batch(s);
    gap__unlock(&s->lock);
  }
  if (!more) gap__dev_background_ask(s->dev); /* the time that passed is not saved up */
}

/* ---- as a thread ---- */

static void *maker_main(void *arg) {
  struct gap__policy_state *s = arg;
  pthread_mutex_lock(&s->maker_mutex);
  while (!s->maker_stop) {
    bool busy = atomic_load(&s->ahead) != NULL;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += busy ? IDLE_POLL_NS : 50 * IDLE_POLL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->maker_wake, &s->maker_mutex, &until);
    if (s->maker_stop) break;
    pthread_mutex_unlock(&s->maker_mutex);
    gap__maker_step(s);
    gap__watch_step(s);
    pthread_mutex_lock(&s->maker_mutex);
  }
  pthread_mutex_unlock(&s->maker_mutex);
  return NULL;
}

int gap__maker_start(struct gap__policy_state *s) {
  pthread_mutex_init(&s->maker_mutex, NULL);
  pthread_cond_init(&s->maker_wake, NULL);
  s->maker_running = s->device->maker == GAP__MAKER_THREAD && gap__worker_start(&s->maker_thread, maker_main, s);
  return 0;
}

void gap__maker_stop(struct gap__policy_state *s) {
  if (s->maker_running) {
    pthread_mutex_lock(&s->maker_mutex);
    s->maker_stop = true;
    pthread_cond_signal(&s->maker_wake);
    pthread_mutex_unlock(&s->maker_mutex);
    pthread_join(s->maker_thread, NULL);
  }
  pthread_cond_destroy(&s->maker_wake);
  pthread_mutex_destroy(&s->maker_mutex);
}
