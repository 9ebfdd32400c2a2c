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

struct reason {
  char text[256];
  int code;
};

static void __attribute__((format(printf, 3, 4))) give_reason(struct reason *r, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(r->text, sizeof r->text, format, args);
  va_end(args);
  r->code = code;
}

/* What went wrong besides want of memory. */
static void say_trouble(struct reason *r, const struct gap__trouble *trouble) {
  const char *call = gap__dev_call_name((enum gap__dev_call)trouble->call), *what = gap_strerror(trouble->code);
  switch (trouble->kind) {
    case GAP__TROUBLE_RECORDS:
      give_reason(r, GAP_ENOMETA, "the host has no memory for the allocator's own records");
      break;
    case GAP__TROUBLE_LIMIT:
      give_reason(r, GAP_ELIMIT, "all ranges of addresses that can be told apart are in use");
      break;
    case GAP__TROUBLE_MEMORY:
      give_reason(r, GAP_ENOMEM,
                  "the driver has no memory left (%s), though more may be held: other programs use the card", call);
      break;
    default:
      give_reason(r, trouble->code == GAP_ENOMEM || trouble->code == GAP_ENOMETA ? trouble->code : GAP_EDEVICE,
                  "a driver call failed (%s: %s)", call, what);
  }
}

static void find_reason(struct reason *r, const struct gap__policy_state *s, const struct gap__request *req,
                        const struct gap__idle *idle, uint64_t limit) {
  bool too_large = req->bytes > limit << GAP__PAGE_SHIFT;
  if (req->units > GAP__UNITS_MAX) give_reason(r, GAP_ENOMEM, "no block can have a TiB or more");
  else if (too_large && s->trouble.kind != GAP__TROUBLE_MEMORY) /* a driver that is full has moved the limit */
    give_reason(r, GAP_ENOMEM, "the request is larger than all that may be held");
  else if (s->trouble.kind) say_trouble(r, &s->trouble);
  else if (idle->pinned_bytes >= req->bytes)
    give_reason(r, GAP_ENOMEM, "idle memory is held by private pools, whose pages stay until they are released");
  else if (s->pending_count) give_reason(r, GAP_ENOMEM, "freed blocks wait for other streams that have not finished");
  else give_reason(r, GAP_ENOMEM, "the memory is in use");
}

int gap__diagnose_failure(struct gap__lane *lane, const struct gap__request *req) {
  struct gap__policy_state *s = lane->owner;
  struct gap__idle idle = gap__idle_figures(s);
  uint64_t cap = atomic_load(&s->device->cap_bytes), limit = gap__limit_most(s);
  char asked[GAP__TEXT_BYTES], held[GAP__TEXT_BYTES], live[GAP__TEXT_BYTES], most[GAP__TEXT_BYTES],
      whole[GAP__TEXT_BYTES], stuck[GAP__TEXT_BYTES], neighbours[200], overflow[400];
  struct reason why;
  find_reason(&why, s, req, &idle, limit);
  gap__text_size(req->bytes, asked);
  gap__text_size(gap__held_pages(s) << GAP__PAGE_SHIFT, held);
  gap__text_size((uint64_t)gap__tally_live_bytes(s), live);
  gap__text_size(limit << GAP__PAGE_SHIFT, most);
  gap__text_size(idle.returnable_bytes, whole);
  gap__text_size(idle.stuck_bytes, stuck);
  gap__neighbour_words(s->device, neighbours, sizeof neighbours);
  gap__overflow_words(s, overflow, sizeof overflow);
  gap__device_explain(
      s->device,
      "asked for %s: %s. %s is live, %s is held of at most %s (%s); %s of idle memory could be moved, %s lies on "
      "pages that live blocks share.%s%s",
      asked, why.text, live, held, most, cap ? "the cap" : "what the card has left", whole, stuck, neighbours,
      overflow);
  return why.code;
}
