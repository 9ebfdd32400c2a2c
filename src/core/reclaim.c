/* The reclaim ladder: see reclaim.h and design section 4.
 *
 * Rungs: 1 an idle block · 2 pending frees that are ready · 3 idle pages instead of growing (beyond the soft limit)
 * · 4 growing · 5 idle pages at the hard limit · 6 waiting for the earliest event that may help; where events cannot tell,
 * for the whole device · 7 conversion, where it is allowed · 8 idle memory of other gapless processes on the card · 9 callbacks
 * · 10 host memory, where it is allowed (overflow.h) · 11 failure with a diagnosis.
 * After each rung that may have freed something the idle blocks are searched again. */
#include "core/reclaim.h"

#include "core/convert.h"
#include "core/diagnose.h"
#include "core/figures.h"
#include "core/follow.h"
#include "core/gate.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/loot.h"
#include "core/maker.h"
#include "core/neighbour.h"
#include "core/overflow.h"
#include "core/overflow_move.h"
#include "core/pending.h"
#include "core/place.h"
#include "core/sleep.h"
#include "core/supply.h"
#include "core/tray.h"
#include "core/trouble.h"

enum { OTHER_STREAMS = 256 };
enum {
  LOSSES_MAX = 8,     /* of what neighbours gave, to others, until a request fails */
  WELCOME_SHARE = 4,  /* of what is held: so much more is asked of neighbours than a request needs, */
  WELCOME_PAGES = 256 /* at most 512 MiB: given in some ten milliseconds */
};

struct ladder {
  struct gap__policy_state *s;
  struct gap__lane *lane;
  const struct gap__request *req;
  uint32_t units;           /* that are looked for: of the request, or the least of it */
  bool aligned;             /* those of whole pages */
  struct gap__arena *arena; /* of the request's kind */
  uint64_t began;           /* of the rung at hand */
  uint32_t block;           /* the answer */
  uint32_t unplanned;       /* pages taken from places of a plan */
  bool polled;              /* it was asked what the lane's stream has ended */
  bool converted;           /* conversion was tried: what is left for it may be taken */
};

/* Ends the rung at hand: its time counts in any case, its count only when it served. */
static bool rung_done(struct ladder *l, enum gap__rung rung, bool served) {
  uint64_t now = gap__dev_now_ns(l->s->dev);
  l->s->rung_ns[rung] += (int64_t)(now - l->began);
  l->s->rung_count[rung] += served;
  l->began = now;
  return served;
}

/* More addresses.  Where some will do, it is no trouble that there are no others. */
static bool add_addresses(struct ladder *l, bool has_some) {
  struct gap__trouble before = l->s->trouble;
  bool added = gap__arena_add_range(l->arena, l->units) == 0;
  if (!added && has_some) l->s->trouble = before;
  return added;
}

static bool find_spot(struct ladder *l, enum gap__place_goal goal, struct gap__spot *spot, uint32_t *block) {
  bool tight = gap__limit_is_tight(l->s);
  if (l->s->stolen && tight) gap__loot_refresh(l->s, l->lane); /* of what is lent more may be taken back */
  gap__lock(&l->lane->lock);
  gap__place_search(l->arena, l->units, l->aligned, goal, spot);
  if ((!spot->range || (tight && spot->missing >= GAP__PLACE_BLOCKED)) && add_addresses(l, spot->range != NULL))
    gap__place_search(l->arena, l->units, l->aligned, goal, spot);
  *block = spot->range ? gap__place_reserve(l->arena, spot, l->units) : 0;
  gap__unlock(&l->lane->lock);
  if (spot->range && !*block) gap__trouble_records(l->s);
  return *block != 0;
}

/* A copy needs room beside its original, so some is left until conversion has been tried; in a pool that keeps its pages it never is. */
static uint64_t usable_limit(const struct ladder *l) {
  uint64_t hard = gap__hard_limit(l->s);
  bool pinned = atomic_load_explicit(&l->lane->pinned, memory_order_relaxed);
  return l->converted || pinned ? hard : hard - gap__convert_spare(l->s, hard);
}

/* Supplies a place that is RESERVED, a page or more around it included, and hands back what lies around it. */
static int supply_place(struct ladder *l, struct gap__supply *q, uint32_t off) {
  int rc = gap__supply_pages(q);
  gap__lock(&l->lane->lock);
  l->block = rc ? 0 : gap__place_settle(l->arena, q->block, off, l->units);
  if (!l->block) gap__place_dissolve(l->arena, q->block);
  gap__unlock(&l->lane->lock);
  if (!rc && !l->block) gap__trouble_records(l->s);
  return rc || l->block ? rc : GAP_ENOMETA;
}

/* What was taken back cost no more than an idle block. */
static enum gap__rung rung_of(const struct gap__supply *q, bool limited, bool served) {
  if (q->stolen) return limited ? GAP__RUNG_steal : GAP__RUNG_steal_ready;
  return q->grown || !served ? GAP__RUNG_grow : GAP__RUNG_fit;
}

/* The same from the device's memory. */
static int supply(struct ladder *l, const struct gap__spot *spot, uint32_t block, uint64_t soft) {
  struct gap__policy_state *s = l->s;
  uint64_t hard = usable_limit(l);
  if (soft > hard) soft = hard;
  struct gap__supply q = {.lane = l->lane,
                          .range = spot->range,
                          .block = block,
                          .soft = soft,
                          .firm = gap__firm_limit(soft, hard),
                          .hard = hard};
  bool limited = gap__held_pages(s) + spot->missing > q.hard;
  int rc = supply_place(l, &q, spot->off);
  if (rc == GAP_ENOMEM) gap__limit_refused(s);
  l->unplanned += q.unplanned;
  if (q.grown) gap__maker_ask(s, l->arena, q.grown);
  rung_done(l, rung_of(&q, limited, l->block != 0), l->block != 0);
  return rc;
}

/* What fits best lies where memory has moved away from, and all of it can be taken back: no driver call, and the same addresses as the
 * last time. */
static bool fit_hollow(struct ladder *l) {
  struct gap__spot spot = {0};
  uint32_t block = 0;
  for (int tries = 0; tries < 2 && !block; tries++) {
    gap__lock(&l->lane->lock);
    enum gap__place_claim claim = gap__place_hollow(l->arena, l->units, l->aligned, &spot);
    if (claim == GAP__CLAIM_NOW) block = gap__place_reserve(l->arena, &spot, l->units);
    gap__unlock(&l->lane->lock);
    if (claim != GAP__CLAIM_LATER || tries) break;
    gap__loot_refresh(l->s, l->lane);
  }
  return block && supply(l, &spot, block, gap__soft_limit(l->s, l->req->bytes)) == 0;
}

static bool fit_in(struct ladder *l, struct gap__arena *arena) {
  gap__lock(&l->lane->lock);
  l->block = l->req->tray ? gap__tray_take(l->lane, l->req->class) : 0;
  if (!l->block) {
    gap__arena_flush(arena);
    l->block = gap__arena_fit(arena, l->units, l->aligned);
  }
  gap__unlock(&l->lane->lock);
  return l->block != 0;
}

static bool fit_mapped(struct ladder *l, struct gap__arena *arena) {
  gap__lock(&l->lane->lock);
  l->block = gap__arena_fit_mapped(arena, l->units, l->aligned);
  gap__unlock(&l->lane->lock);
  return l->block != 0;
}

/* Among the idle blocks; what is taken back for a hollow one counts by itself. */
static bool search_idle(struct ladder *l, enum gap__rung rung) {
  return rung_done(l, rung, fit_in(l, l->arena)) || fit_hollow(l) || rung_done(l, rung, fit_mapped(l, l->arena));
}

/* A small request in a corner of the large arena: no page of its own is needed. */
static bool fit_corner(struct ladder *l) {
  struct gap__arena *large = &l->lane->arena[GAP__ARENA_LARGE];
  return l->arena->kind == GAP__ARENA_SMALL && !l->req->tray && (fit_in(l, large) || fit_mapped(l, large));
}

/* Chooses a place and supplies its pages. */
static bool serve(struct ladder *l, enum gap__place_goal goal) {
  struct gap__spot spot;
  uint32_t block;
  if (l->units >> GAP__PAGE_UNIT_SHIFT > gap__limit_most(l->s)) return false; /* do not look for addresses in vain */
  uint64_t soft = gap__soft_limit(l->s, l->req->bytes);
  return find_spot(l, goal, &spot, &block) && supply(l, &spot, block, soft) == 0;
}

/* Does the small arena better look for a corner before it takes a whole page? In a private pool, whose pages stay, and
 * where there is hardly a page left. */
static bool page_is_precious(const struct ladder *l) {
  return atomic_load_explicit(&l->lane->pinned, memory_order_relaxed) ||
         atomic_load_explicit(&l->s->scarce, memory_order_relaxed);
}

/* What the lane's stream has ended, once: not asked for requests that idle blocks serve. */
static void poll(struct ladder *l) {
  if (!l->polled) gap__lane_poll(l->lane);
  l->polled = true;
}

static bool search_units(struct ladder *l) {
  if (search_idle(l, GAP__RUNG_fit)) return true;
  poll(l);
  bool freed = gap__pending_poll(l->s, l->lane) > 0;
  if (freed && search_idle(l, GAP__RUNG_pending)) return true;
  if (page_is_precious(l) && rung_done(l, GAP__RUNG_fit, fit_corner(l))) return true;
  if (serve(l, GAP__PLACE_FEW_MISSING)) return true;
  if (rung_done(l, GAP__RUNG_fit, fit_corner(l))) return true;
  return serve(l, GAP__PLACE_FEW_CONSUMED);
}

/* It may have fallen asleep while the lock was given up. */
static bool search(struct ladder *l) {
  if (l->lane->asleep) return false;
  if (search_units(l)) return true;
  if (!l->req->least || l->units == l->req->least) return false;
  l->units = l->req->least;
  return search_units(l);
}

/* Waits for the earliest event that may free pages or a block. False: nothing is pending. */
static bool wait_once(struct ladder *l) {
  uint32_t epoch = 0;
  struct gap__lane *lane = gap__loot_wait_for(l->s, l->lane, &epoch);
  bool waited = lane ? gap__lane_wait(lane, epoch) == 0 : gap__pending_wait(l->s);
  rung_done(l, GAP__RUNG_wait, false);
  return waited;
}

/* Where events cannot tell what is over the whole device is waited for. */
static bool drain(struct ladder *l) {
  bool drained = gap__lane_drain(l->s);
  rung_done(l, GAP__RUNG_wait, false);
  if (!drained || !search(l)) return false;
  l->s->rung_count[GAP__RUNG_wait]++;
  return true;
}

/* Own idle pages serve first; what is lacking of the rest is asked for.  All of it the next time: idle pages may be of no use
 * here. */
static bool ask_neighbours(struct ladder *l, struct gap__asked *asked) {
  struct gap__policy_state *s = l->s;
  uint64_t pages = gap__page_up(l->units), idle = gap__idle_figures(s).returnable_bytes >> GAP__PAGE_SHIFT;
  uint64_t lacking = gap__limit_short(s, asked->rounds || idle >= pages ? pages : pages - idle);
  if (!lacking) return false;
  uint64_t soon = gap__held_pages(s) / WELCOME_SHARE;
  asked->welcome = (soon < WELCOME_PAGES ? soon : WELCOME_PAGES) << GAP__PAGE_SHIFT;
  gap__unlock(&s->lock); /* others go on, and what they free serves too */
  bool goes_on = gap__neighbour_ask(s->device, lacking << GAP__PAGE_SHIFT, asked);
  gap__lock(&s->lock);
  gap__limit_ask_again(s);
  rung_done(l, GAP__RUNG_neighbours, false);
  return goes_on;
}

/* Others may be faster to take what a neighbour gave: then it is asked again, but not for ever. */
static bool borrow(struct ladder *l) {
  struct gap__asked asked = {0};
  gap__neighbour_forget(l->s->device);
  for (int lost = 0; lost < LOSSES_MAX && ask_neighbours(l, &asked); lost += !asked.hope)
    if (search(l)) {
      l->s->rung_count[GAP__RUNG_neighbours]++;
      return true;
    }
  return false;
}

/* Streams that only other strategies of the device have seen must stand still, too. */
static void note_other_streams(struct ladder *l) {
  gap_stream streams[OTHER_STREAMS];
  uint32_t count = OTHER_STREAMS;
  if (!gap__heap_several_strategies(l->s->device)) return;
  gap__unlock(&l->s->lock); /* theirs must not be taken under ours */
  bool all = gap__heap_other_streams(l->s->device, GAP__STRATEGY_GAPLESS, streams, &count);
  gap__lock(&l->s->lock);
  for (uint32_t i = 0; i < count; i++) {
    gap_stream stream = gap__stream_normal(streams[i]);
    gap__gate_note(l->s, stream, stream == GAP__STREAM_PER_THREAD ? GAP__THREAD_NONE : 0);
  }
  l->s->gate.incomplete |= !all;
}

static uint64_t missing_pages(const struct ladder *l, const struct gap__spot *spot, uint32_t block) {
  const struct gap__block *b = gap__block(l->lane, block);
  uint64_t missing = 0;
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++)
    missing += !gap__slot_is_home(l->s, spot->range, page);
  return missing;
}

/* What the place lacks within a limit. */
static uint64_t lacking(const struct ladder *l, uint64_t missing, uint64_t limit) {
  uint64_t wanted = gap__held_pages(l->s) + missing;
  return wanted > limit ? wanted - limit : 0;
}

/* The place is chosen first: what lies idle under it must not be given away.  What is left for copies serves when the rest does not do. */
static bool convert(struct ladder *l) {
  struct gap__policy_state *s = l->s;
  struct gap__spot spot;
  uint32_t block;
  if (l->lane->asleep || !gap__converts(s) || l->units >> GAP__PAGE_UNIT_SHIFT > gap__limit_most(s)) return false;
  note_other_streams(l);
  uint64_t soft = gap__soft_limit(s, l->req->bytes), hard = gap__hard_limit(s);
  if (!find_spot(l, GAP__PLACE_FEW_CONSUMED, &spot, &block)) return false;
  uint64_t missing = missing_pages(l, &spot, block);
  struct gap__convert_wish wish = {.pages = lacking(l, missing, usable_limit(l)), .least = lacking(l, missing, hard)};
  uint64_t freed = gap__convert(s, wish, GAP__STILL_BY_GATE);
  if (!freed)
    gap__lane_wait(l->lane, gap__lane_closed(l->lane)); /* what is whole must be out of use to be cut to what fits */
  rung_done(l, GAP__RUNG_convert, false);
  l->converted = true;
  if (supply(l, &spot, block, soft)) return search(l);
  s->rung_count[GAP__RUNG_convert] += freed > 0;
  return true;
}

static bool call_back(struct ladder *l) {
  struct gap__device *device = l->s->device;
  gap__unlock(&l->s->lock); /* the callback frees through the ordinary calls */
  bool freed = gap__heap_last_resort(device, l->lane->stream, l->req->bytes);
  gap__lock(&l->s->lock);
  rung_done(l, GAP__RUNG_callbacks, false);
  return freed;
}

/* What the program called cold makes room behind the gate, and the request gets that. */
static bool chill(struct ladder *l) {
  if (!l->s->overflow.marks || !gap__converts(l->s)) return false;
  note_other_streams(l);
  return gap__overflow_chill(l->s, gap__page_up(l->units), GAP__STILL_BY_GATE) && search(l);
}

/* Idle pages there are taken from wherever they lie before any are made. */
static bool grow_overflow(struct ladder *l) {
  struct gap__spot spot;
  struct gap__supply q = {.lane = l->lane, .hard = gap__overflow_limit(l->s)};
  if (!find_spot(l, GAP__PLACE_FEW_MISSING, &spot, &q.block)) return false;
  q.range = spot.range;
  return supply_place(l, &q, spot.off) == 0;
}

/* All of the block in host memory.  One of a size class is in no tray there (alloc_pooled). */
static bool overflow(struct ladder *l) {
  const struct gap__request *req = l->req;
  struct gap__arena *arena = l->arena;
  if (!l->s->overflow.on || l->lane->asleep) return false;
  if (chill(l)) {
    l->s->rung_count[GAP__RUNG_overflow]++;
    return true;
  }
  l->units = req->tray ? l->lane->owner->classes.units[req->class] : req->units;
  l->aligned = l->units % GAP__PAGE_UNITS == 0;
  l->arena = &l->lane->arena[GAP__ARENA_OVERFLOW];
  if (rung_done(l, GAP__RUNG_overflow, fit_in(l, l->arena) || grow_overflow(l))) {
    gap__overflow_served(l->s, req->bytes);
    return true;
  }
  l->units = req->units;
  l->aligned = req->aligned;
  l->arena = arena;
  return false;
}

/* The driver refused addresses, and no range is long enough: nothing that is freed can help. */
static bool too_long(const struct ladder *l) {
  if (l->s->trouble.kind != GAP__TROUBLE_ADDRESSES) return false;
  for (uint16_t i = l->arena->range_newest; i; i = gap__range_at(l->s, i)->older)
    if ((uint64_t)gap__range_at(l->s, i)->pages << GAP__PAGE_UNIT_SHIFT >= l->units) return false;
  return true;
}

static bool climb(struct ladder *l) {
  if (l->req->units > GAP__UNITS_MAX) return false; /* a shorter block would do for no one */
  if (search(l)) return true;
  if (too_long(l)) return false;
  while (wait_once(l))
    if (search(l)) {
      l->s->rung_count[GAP__RUNG_wait]++;
      return true;
    }
  if (drain(l) || convert(l) || borrow(l)) return true;
  if (call_back(l) && search(l)) {
    l->s->rung_count[GAP__RUNG_callbacks]++;
    return true;
  }
  return overflow(l);
}

static struct ladder begin(struct gap__lane *lane, const struct gap__request *req, int arena) {
  struct gap__policy_state *s = lane->owner;
  gap__lock(&s->lock);
  gap__epochs_renumber(s);
  gap__convert_heal(s);
  struct ladder l = {.s = s,
                     .lane = lane,
                     .req = req,
                     .units = req->units,
                     .aligned = req->aligned,
                     .arena = &lane->arena[arena],
                     .began = gap__dev_now_ns(s->dev)};
  s->trouble = (struct gap__trouble){0};
  s->overflow.refusal[0] = '\0';
  gap__lane_close_epoch(lane);
  if (lane->mark_count > GAP__MARKS_OPEN / 2) gap__lane_poll(lane);
  return l;
}

static void end(struct ladder *l) {
  gap__figures_sample(l->s);
  gap__limit_judge(l->s);
  gap__unlock(&l->s->lock);
}

/* A small block's tray lies where the blocks around an address are found quickly among many. */
static int arena_for(const struct gap__lane *lane, const struct gap__request *req) {
  uint32_t units = req->tray ? lane->owner->classes.units[req->class] : req->units;
  return units <= GAP__SMALL_UNITS ? GAP__ARENA_SMALL : GAP__ARENA_LARGE;
}

int gap__reclaim(struct gap__lane *lane, const struct gap__request *req, uint32_t *block) {
  struct gap__policy_state *s = lane->owner;
  struct ladder l = begin(lane, req, arena_for(lane, req));
  bool served = false;
  int rc = 0;
  uint32_t most = gap__device_conf(s->device)->nmalloc;
  for (uint32_t tries = 0; !served && tries < (most ? most : 1); tries++) {
    s->retries += tries > 0;
    served = climb(&l);
  }
  if (!served && lane->asleep) {
    gap__sleep_explain(lane);
    rc = GAP_ESTATE;
  } else if (!served && s->trouble.kind == GAP__TROUBLE_ADDRESSES) rc = GAP_ENOTSUP;
  else if (!served) {
    s->ooms++;
    s->overflow.refused += s->overflow.on;
    rc = gap__diagnose_failure(lane, req);
    gap__report_oom(s->device, lane->stream, lane->pool, req->bytes);
    rung_done(&l, GAP__RUNG_fail, false);
    s->rung_count[GAP__RUNG_fail]++;
  }
  end(&l);
  *block = l.block;
  return rc;
}

/* ---- a place that is given ---- */

/* The lane lock is held. */
static int reserve_at(struct ladder *l, struct gap__spot *spot, uint32_t *block) {
  gap__arena_flush(l->arena);
  enum gap__place_state found = gap__place_look(spot->range, spot->off, l->units, block);
  if (found > GAP__PLACE_FREE) return GAP_EAGAIN;
  spot->missing = gap__place_missing(spot->range, spot->off, l->units);
  if (spot->missing == UINT32_MAX) return GAP_ENOMEM;
  *block = gap__place_reserve(l->arena, spot, l->units);
  return *block ? 0 : GAP_ENOMETA;
}

int gap__reclaim_at(struct gap__lane *lane, const struct gap__request *req, struct gap__range *range, uint32_t off,
                    uint32_t *block, bool *contested) {
  struct ladder l = begin(lane, req, GAP__ARENA_PLANNED);
  struct gap__spot spot = {.range = range, .off = off};
  uint32_t reserved;
  poll(&l);
  gap__pending_poll(l.s, lane);
  uint64_t soft = gap__follow_limit(l.s, gap__soft_limit(l.s, req->bytes), gap__hard_limit(l.s));
  gap__lock(&lane->lock);
  int rc = lane->asleep ? GAP_ESTATE : reserve_at(&l, &spot, &reserved);
  gap__unlock(&lane->lock);
  if (!rc) rc = supply(&l, &spot, reserved, soft);
  end(&l);
  *block = l.block;
  *contested = l.unplanned != 0;
  return rc;
}
