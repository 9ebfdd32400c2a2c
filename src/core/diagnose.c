/* A failure explained: see diagnose.h. */
#include "core/diagnose.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "core/hollow.h"
#include "core/limit.h"
#include "core/neighbour.h"
#include "core/overflow.h"
#include "core/tally.h"
#include "core/trouble.h"

static uint32_t bare_pages(const struct gap__range *range, uint32_t from, uint32_t to) {
  uint32_t pages = 0;
  for (uint32_t page = from; page < to; page++) pages += gap__page_is_bare(range, page);
  return pages;
}

/* Of a block of the overflow, what lies on the device: that serves everybody. */
static void add_device_part(struct gap__idle *idle, const struct gap__arena *arena, const struct gap__block *b,
                            bool pinned) {
  const struct gap__policy_state *s = arena->lane->owner;
  const struct gap__range *range = gap__range_at(s, b->range);
  if (arena->home_pages == arena->host_pages) return;
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++) {
    uint32_t from = page << GAP__PAGE_UNIT_SHIFT, to = from + GAP__PAGE_UNITS, end = b->off + b->len;
    if (gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->host) continue;
    uint64_t bytes = (uint64_t)((to < end ? to : end) - (from > b->off ? from : b->off)) << GAP__UNIT_SHIFT;
    if (pinned || bytes < GAP__PAGE) idle->stuck_bytes += bytes;
    else idle->returnable_bytes += bytes;
    idle->pinned_bytes += pinned ? bytes : 0;
  }
}

static void add_block(struct gap__idle *idle, const struct gap__lane *lane, uint32_t index, bool pinned) {
  const struct gap__block *b = gap__block(lane, index);
  const struct gap__arena *arena = gap__range_at(lane->owner, b->range)->arena;
  if (arena->kind == GAP__ARENA_OVERFLOW) {
    add_device_part(idle, arena, b, pinned);
    return;
  }
  uint32_t from = gap__page_up(b->off), to = gap__page_of(b->off + b->len);
  uint32_t bare = b->state == GAP__HOLLOW ? bare_pages(gap__range_at(lane->owner, b->range), from, to) : 0;
  uint64_t whole = from < to ? (uint64_t)(to - from - bare) << GAP__PAGE_SHIFT : 0;
  uint64_t bytes = ((uint64_t)b->len << GAP__UNIT_SHIFT) - ((uint64_t)bare << GAP__PAGE_SHIFT);
  if (!bytes) return;
  idle->extents++;
  idle->returnable_bytes += pinned ? 0 : whole;
  idle->stuck_bytes += pinned ? bytes : bytes - whole;
  idle->pinned_bytes += pinned ? bytes : 0;
}

static void add_arena(struct gap__idle *idle, const struct gap__arena *arena, bool pinned) {
  const struct gap__lane *lane = arena->lane;
  uint64_t in_trays = arena->class_idle_units << GAP__UNIT_SHIFT;
  idle->extents += arena->class_idle_count;
  idle->stuck_bytes += in_trays;
  idle->pinned_bytes += pinned ? in_trays : 0;
  idle->class_bytes += in_trays;
  idle->trays += arena->tray_count;
  for (uint32_t word = 0; word < GAP__BIN_WORDS; word++)
    for (uint64_t bits = arena->bins.word[word]; bits; bits &= bits - 1) {
      uint32_t bin = word * 64 + (uint32_t)__builtin_ctzll(bits);
      for (uint32_t i = arena->bins.head[bin]; i; i = gap__block(lane, i)->link_next) add_block(idle, lane, i, pinned);
    }
}

static const struct gap__tray *tray_of(const struct gap__lane *lane, uint32_t index) {
  return gap__slab_at(&lane->trays, index);
}

static uint64_t tray_bytes(const struct gap__lane *lane, const struct gap__tray *tray) {
  return ((uint64_t)tray->count * lane->owner->classes.units[tray->class]) << GAP__UNIT_SHIFT;
}

/* Kept whole for the next request of its size. */
static void add_cached(struct gap__idle *idle, const struct gap__arena *arena, bool pinned) {
  const struct gap__lane *lane = arena->lane;
  if (arena->hot) add_block(idle, lane, arena->hot, pinned);
  for (uint32_t units = 1; units <= GAP__SMALL_UNITS; units++)
    for (uint32_t i = arena->front[units]; i; i = gap__block(lane, i)->link_next) add_block(idle, lane, i, pinned);
  for (uint32_t i = pinned ? 0 : arena->empty_trays; i; i = tray_of(lane, i)->next) {
    uint64_t bytes = tray_bytes(lane, tray_of(lane, i));
    idle->returnable_bytes += bytes;
    idle->stuck_bytes -= bytes;
  }
}

struct gap__idle gap__idle_figures(struct gap__policy_state *s) {
  struct gap__idle idle = {0};
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
      gap__arena_flush(&lane->arena[kind]);
      add_arena(&idle, &lane->arena[kind], atomic_load_explicit(&lane->pinned, memory_order_relaxed));
    }
    gap__unlock(&lane->lock);
  }
  return idle;
}

struct gap__idle gap__idle_glance(struct gap__policy_state *s) {
  struct gap__idle idle = {0};
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    bool pinned = atomic_load_explicit(&lane->pinned, memory_order_relaxed);
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
      add_arena(&idle, &lane->arena[kind], pinned);
      add_cached(&idle, &lane->arena[kind], pinned);
    }
    gap__unlock(&lane->lock);
  }
  return idle;
}

/* ---- the text ---- */

/* What is known of a request that failed. */
struct failure {
  const struct gap__request *req;
  struct gap__idle idle;
  uint64_t held, live, pending; /* bytes; pending: freed blocks that other streams may still use */
  uint64_t most;                /* that may be held */
  uint64_t others;   /* bytes of the card that other programs and contexts have; UINT64_MAX: the cap is what limits */
  uint64_t servable; /* the largest request that would be served now */
};

struct reason {
  char text[256];
  const char *cure; /* what to change, "" where nothing would help */
  int code;
};

static uint64_t pending_bytes(struct gap__policy_state *s) {
  int64_t bytes = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) bytes += lane->tally[kind].pending_bytes;
    gap__unlock(&lane->lock);
  }
  return (uint64_t)bytes;
}

static uint64_t held_by_others(const struct gap__policy_state *s, uint64_t most) {
  uint64_t cap = atomic_load(&s->device->cap_bytes), card = s->dev->caps.total_bytes;
  uint64_t left = most + (gap__limit_reserve(s) << GAP__PAGE_SHIFT);
  if (cap && cap - cap % GAP__PAGE <= most) return UINT64_MAX;
  return left < card ? card - left : 0;
}

static struct failure look_at(struct gap__policy_state *s, const struct gap__request *req) {
  struct failure f = {.req = req, .idle = gap__idle_figures(s)};
  f.held = gap__held_pages(s) << GAP__PAGE_SHIFT;
  f.live = (uint64_t)gap__tally_live_bytes(s);
  f.pending = pending_bytes(s);
  f.most = gap__limit_most(s) << GAP__PAGE_SHIFT;
  f.others = held_by_others(s, f.most);
  f.servable = (f.most > f.held ? f.most - f.held : 0) + f.idle.returnable_bytes;
  return f;
}

static void __attribute__((format(printf, 4, 5)))
give_reason(struct reason *r, int code, const char *cure, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(r->text, sizeof r->text, format, args);
  va_end(args);
  r->cure = cure;
  r->code = code;
}

/* What went wrong besides want of memory. */
static void say_trouble(struct reason *r, const struct gap__trouble *trouble) {
  const char *call = gap__dev_call_name((enum gap__dev_call)trouble->call), *what = gap_strerror(trouble->code);
  switch (trouble->kind) {
    case GAP__TROUBLE_RECORDS:
      give_reason(r, GAP_ENOMETA, "", "the host has no memory for the allocator's own records");
      break;
    case GAP__TROUBLE_LIMIT:
      give_reason(r, GAP_ELIMIT, "", "all ranges of addresses that can be told apart are in use");
      break;
    case GAP__TROUBLE_MEMORY:
      give_reason(r, GAP_ENOMEM, "let the other programs use less",
                  "the driver has no memory left (%s), though more may be held: other programs use the card", call);
      break;
    default:
      give_reason(r, trouble->code == GAP_ENOMEM || trouble->code == GAP_ENOMETA ? trouble->code : GAP_EDEVICE, "",
                  "a driver call failed (%s: %s)", call, what);
  }
}

/* More than may be held at all. */
static void say_too_large(struct reason *r, const struct gap__policy_state *s, const struct failure *f) {
  if (f->others == UINT64_MAX)
    give_reason(r, GAP_ENOMEM, "raise the cap, or ask for less at a time",
                "the request is larger than all that may be held");
  else if (f->req->bytes > s->dev->caps.total_bytes)
    give_reason(r, GAP_ENOMEM, "ask for less at a time", "the request is larger than all that may be held");
  else
    give_reason(r, GAP_ENOMEM, "ask for less at a time, or let other programs use less",
                "the request is larger than what the card has left");
}

/* Enough is idle, or will be: why does it not serve? */
static bool say_idle(struct reason *r, const struct failure *f) {
  uint64_t bytes = f->req->bytes, stuck = f->idle.stuck_bytes - f->idle.pinned_bytes;
  if (f->idle.pinned_bytes >= bytes)
    give_reason(r, GAP_ENOMEM, "release pools and graphs that are done, or take shared pools",
                "idle memory is held by private pools, whose pages stay until they are released");
  else if (f->pending && f->pending + f->servable >= bytes)
    give_reason(r, GAP_ENOMEM, "let those streams end before the request",
                "freed blocks wait for other streams that have not finished");
  else if (f->servable >= bytes)
    give_reason(r, GAP_ENOMEM,
                "let streams and captures end before the request; convert:gated frees what larger pieces trap",
                "enough is idle, but other streams may still use it, or larger pieces of memory trap it");
  else if (stuck + f->servable >= bytes)
    give_reason(r, GAP_ENOMEM,
                "give what lives long a pool of its own, so that it does not lie among what comes and goes",
                "enough is idle, but broken up between live blocks");
  else return false;
  return true;
}

static void find_reason(struct reason *r, const struct gap__policy_state *s, const struct failure *f) {
  bool too_large = f->req->bytes > f->most;
  if (f->req->units > GAP__UNITS_MAX) give_reason(r, GAP_ENOMEM, "", "no block can have a TiB or more");
  else if (too_large && s->trouble.kind != GAP__TROUBLE_MEMORY) /* a driver that is full has moved the limit */
    say_too_large(r, s, f);
  else if (s->trouble.kind) say_trouble(r, &s->trouble);
  else if (!say_idle(r, f))
    give_reason(r, GAP_ENOMEM,
                f->others == UINT64_MAX ? "raise the cap, ask for less at a time, or let what waits go to host memory"
                                        : "ask for less at a time, or let what waits go to host memory",
                "the memory is in use");
}

static const char *limit_words(const struct failure *f, char text[96]) {
  char others[GAP__TEXT_BYTES];
  if (f->others == UINT64_MAX) return "the cap";
  if (f->others < GAP__PAGE) return "what the card has left";
  snprintf(text, 96, "what the card has left beside %s of other programs and contexts",
           gap__text_size(f->others, others));
  return text;
}

int gap__diagnose_failure(struct gap__lane *lane, const struct gap__request *req) {
  struct gap__policy_state *s = lane->owner;
  struct failure f = look_at(s, req);
  char asked[GAP__TEXT_BYTES], held[GAP__TEXT_BYTES], live[GAP__TEXT_BYTES], most[GAP__TEXT_BYTES],
      whole[GAP__TEXT_BYTES], stuck[GAP__TEXT_BYTES], servable[GAP__TEXT_BYTES], limit[96], neighbours[200],
      overflow[400];
  struct reason why;
  find_reason(&why, s, &f);
  gap__text_size(req->bytes, asked);
  gap__text_size(f.held, held);
  gap__text_size(f.live, live);
  gap__text_size(f.most, most);
  gap__text_size(f.idle.returnable_bytes, whole);
  gap__text_size(f.idle.stuck_bytes, stuck);
  gap__text_size(f.servable, servable);
  gap__neighbour_words(s->device, neighbours, sizeof neighbours);
  gap__overflow_words(s, overflow, sizeof overflow);
  gap__device_explain(
      s->device,
      "asked for %s: %s. %s is live, %s is held of at most %s (%s); %s of idle memory could be moved, %s lies on "
      "pages that live blocks share%s%s.%s%s%s%s%s",
      asked, why.text, live, held, most, limit_words(&f, limit), whole, stuck,
      f.servable < req->bytes ? "; the most that would be served is " : "", f.servable < req->bytes ? servable : "",
      *why.cure ? " What would help: " : "", why.cure, *why.cure ? "." : "", neighbours, overflow);
  return why.code;
}
