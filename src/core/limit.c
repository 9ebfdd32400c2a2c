/* Limits on held pages: see limit.h. */
#include "core/limit.h"

#include "core/convert.h"
#include "core/follow.h"
#include "core/tally.h"

#define RESERVE_DEFAULT ((uint64_t)512 << 20)
enum {
  RESERVE_SHARE = 16,   /* of a small card */
  PLENTY_PAGES = 16,    /* the largest chunk while memory is plenty: 32 MiB */
  PLENTY_SHARE = 512,   /* and at most this part of what is held */
  THRASH_PRICE = 4,     /* pages stolen that buy a page more */
  THRASH_FORGIVE = 64,  /* pages allocated that make up for a page stolen */
  ASK_AGAIN_PAGES = 256 /* growth after which the driver is asked again what is free */
};

uint64_t gap__held_pages(const struct gap__policy_state *s) {
  return atomic_load_explicit(&s->device->held_bytes, memory_order_relaxed) >> GAP__PAGE_SHIFT;
}

uint64_t gap__held_pages_at(const struct gap__policy_state *s, enum gap__place place) {
  return place == GAP__PLACE_HOST ? s->overflow.pages : gap__held_pages(s);
}

/* UINT64_MAX: no cap.  A cap below a page allows none. */
static uint64_t cap_pages(const struct gap__policy_state *s) {
  uint64_t bytes = atomic_load_explicit(&s->device->cap_bytes, memory_order_relaxed);
  return bytes ? bytes >> GAP__PAGE_SHIFT : UINT64_MAX;
}
static bool capped(const struct gap__policy_state *s) { return cap_pages(s) != UINT64_MAX; }

uint64_t gap__limit_reserve_of(uint64_t card_bytes) {
  uint64_t share = card_bytes / RESERVE_SHARE;
  return share < RESERVE_DEFAULT ? share : RESERVE_DEFAULT;
}

static uint64_t reserve_pages(const struct gap__policy_state *s) {
  uint64_t bytes = atomic_load_explicit(&s->device->reserve_bytes, memory_order_relaxed);
  if (bytes == GAP__RESERVE_DEFAULT) bytes = capped(s) ? 0 : gap__limit_reserve_of(s->dev->caps.total_bytes);
  return bytes >> GAP__PAGE_SHIFT;
}

uint64_t gap__limit_reserve(const struct gap__policy_state *s) { return reserve_pages(s); }

/* What the driver has left, asked only when the last answer is used up or the end is near. */
static uint64_t driver_limit(struct gap__policy_state *s, uint64_t reserve) {
  uint64_t held = gap__held_pages(s), free_bytes, total;
  bool fresh = s->driver_limit > held + 2 * ASK_AGAIN_PAGES && held >= s->driver_asked &&
               held - s->driver_asked < ASK_AGAIN_PAGES;
  if (!fresh && gap__dev_mem_info(s->dev, &free_bytes, &total) == 0) {
    uint64_t pages = free_bytes >> GAP__PAGE_SHIFT;
    s->driver_asked = held;
    s->driver_limit = held + (pages > reserve ? pages - reserve : 0);
  }
  return s->driver_limit;
}

uint64_t gap__hard_limit(struct gap__policy_state *s) {
  uint64_t cap = cap_pages(s), reserve = reserve_pages(s);
  if (!reserve && !s->driver_refused) return cap;
  uint64_t driver = driver_limit(s, reserve);
  return cap < driver ? cap : driver;
}

uint64_t gap__limit_keep(struct gap__policy_state *s) {
  uint64_t cap = cap_pages(s), reserve = reserve_pages(s), free_bytes, total;
  s->driver_limit = 0; /* the driver is asked again */
  if (!reserve || !gap__held_pages(s) || gap__dev_mem_info(s->dev, &free_bytes, &total)) return cap;
  uint64_t spare = gap__held_pages(s) + (free_bytes >> GAP__PAGE_SHIFT), most = spare > reserve ? spare - reserve : 0;
  return cap < most ? cap : most;
}

uint64_t gap__limit_most(struct gap__policy_state *s) {
  uint64_t hard = gap__hard_limit(s), card = s->dev->caps.total_bytes >> GAP__PAGE_SHIFT;
  return hard < card ? hard : card;
}

uint32_t gap__limit_chunk_pages(const struct gap__policy_state *s) {
  uint64_t chosen = gap__device_conf(s->device)->chunk_max >> GAP__PAGE_SHIFT,
           card = s->dev->caps.total_bytes >> GAP__PAGE_SHIFT;
  if (chosen > 1) return (uint32_t)chosen;
  if (gap__follow_takes_turns(s)) return 1;
  if (gap__converts(s)) return PLENTY_PAGES;
  uint64_t held = gap__held_pages(s), part = held / PLENTY_SHARE;
  if (capped(s) || held >= card / 2 || part < 1) return 1;
  return part < PLENTY_PAGES ? (uint32_t)part : PLENTY_PAGES;
}

bool gap__limit_is_tight(const struct gap__policy_state *s) { return capped(s) && gap__limit_chunk_pages(s) == 1; }

void gap__limit_judge(struct gap__policy_state *s) {
  uint64_t held = gap__held_pages(s), hard = gap__hard_limit(s);
  atomic_store_explicit(&s->scarce, hard != UINT64_MAX && held + held / 4 >= hard, memory_order_relaxed);
}

uint64_t gap__limit_short(const struct gap__policy_state *s, uint64_t pages) {
  uint64_t cap = cap_pages(s), held = gap__held_pages(s), reserve = reserve_pages(s), free_bytes, total_bytes;
  uint64_t room = cap > held ? cap - held : 0;
  if (pages > room) pages = room;
  if (!pages || gap__dev_mem_info(s->dev, &free_bytes, &total_bytes)) return 0;
  uint64_t left = free_bytes >> GAP__PAGE_SHIFT, needed = pages + reserve;
  if (needed > total_bytes >> GAP__PAGE_SHIFT) return 0;
  return needed > left ? needed - left : 0;
}

void gap__limit_ask_again(struct gap__policy_state *s) { s->driver_limit = 0; }

void gap__limit_refused(struct gap__policy_state *s) {
  s->driver_limit = 0;
  s->driver_refused = true;
}

static int64_t allocated_pages(const struct gap__policy_state *s) {
  int64_t bytes = s->gone[GAP__KIND_SMALL].bytes_total + s->gone[GAP__KIND_LARGE].bytes_total;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    bytes += lane->tally[GAP__KIND_SMALL].bytes_total + lane->tally[GAP__KIND_LARGE].bytes_total;
    gap__unlock(&lane->lock);
  }
  return bytes >> GAP__PAGE_SHIFT;
}

/* A page that streams take from each other again and again costs more than one page more: once they have taken a quarter of what
 * is held, the limit gives way by a page for each THRASH_PRICE taken.  Steals are forgiven as memory is allocated, so that only
 * a program that steals more than a page for each THRASH_FORGIVE allocated ones gets there; and it gives way by a tenth at
 * most, or streams used in turn would hold what each of them once held. */
static double thrash_allowance(struct gap__policy_state *s, double limit) {
  int64_t allocated = allocated_pages(s), since = allocated - s->thrash_allocated;
  s->thrash += s->stolen_across - s->thrash_stolen - (since > 0 ? since : 0) / THRASH_FORGIVE;
  if (s->thrash < 0) s->thrash = 0;
  if (since < 0 || since >= THRASH_FORGIVE) s->thrash_allocated = allocated;
  s->thrash_stolen = s->stolen_across;
  int64_t excess = s->thrash - (int64_t)gap__held_pages(s) / 4;
  double pages = excess > 0 ? (double)(excess / THRASH_PRICE) : 0;
  return pages < limit / 10 ? pages : limit / 10;
}

uint64_t gap__soft_limit(struct gap__policy_state *s, uint64_t request_bytes) {
  if (capped(s)) return gap__hard_limit(s);
  int64_t live = gap__tally_live_bytes(s) + (int64_t)request_bytes;
  if (live < s->peak.active_bytes[0]) live = s->peak.active_bytes[0];
  double limit = gap__device_conf(s->device)->grow_limit * (double)live / (double)GAP__PAGE;
  limit += thrash_allowance(s, limit);
  uint64_t hard = gap__hard_limit(s);
  return limit < (double)hard ? (uint64_t)limit : hard;
}
