#include "core/overflow.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "conf/tiers.h"
#include "core/arena.h"
#include "core/chunk.h"
#include "core/figures.h"
#include "core/place.h"
#include "core/trim.h"

/* ---- whether, and how much ---- */

static void say_once(struct gap__policy_state *s, const char *why) {
  if (!s->overflow.said) gap__log(GAP__LOG_WARNING, "device %d: overflow: %s", s->device->ordinal, why);
  s->overflow.said = true;
}

/* Without `tiers` host memory may be used, as by all tiers; where they are named without it, it may not. */
static bool is_allowed(const struct gap__conf *conf) {
  struct gap__conf_tiers tiers;
  return conf->overflow && (!conf->tiers[0] || (!gap__conf_tiers_read(conf->tiers, &tiers) && tiers.host));
}

void gap__overflow_configure(struct gap__policy_state *s) {
  bool wanted = is_allowed(gap__device_conf(s->device));
  s->overflow.on = wanted && s->dev->caps.host_chunks;
  if (wanted && !s->overflow.on) say_once(s, "off: the driver puts no host memory behind device addresses");
}

uint64_t gap__overflow_limit(const struct gap__policy_state *s) {
  uint64_t bytes = gap__device_conf(s->device)->overflow_bytes;
  return bytes ? bytes >> GAP__PAGE_SHIFT : UINT64_MAX;
}

/* ---- the budget ---- */

bool gap__overflow_ask(struct gap__policy_state *s, uint64_t pages) {
  struct gap__overflow *o = &s->overflow;
  if (!gap__heap_take_host(s->device, pages << GAP__PAGE_SHIFT, o->refusal, sizeof o->refusal)) return false;
  o->promised_pages += pages;
  return true;
}

void gap__overflow_settle(struct gap__policy_state *s) {
  gap__heap_give_host(s->device, s->overflow.promised_pages << GAP__PAGE_SHIFT);
  s->overflow.promised_pages = 0;
}

void gap__overflow_count(struct gap__policy_state *s, int64_t pages) {
  struct gap__overflow *o = &s->overflow;
  o->pages += (uint64_t)pages;
  if (o->pages > o->peak_pages) o->peak_pages = o->pages;
  if (pages > 0) o->promised_pages -= (uint64_t)pages;
  else gap__heap_give_host(s->device, (uint64_t)-pages << GAP__PAGE_SHIFT);
}

void gap__overflow_refused(struct gap__policy_state *s, int rc) {
  struct gap__overflow *o = &s->overflow;
  snprintf(o->refusal, sizeof o->refusal, "the driver gives no more host memory: %s", gap_strerror(rc));
  say_once(s, o->refusal);
}

void gap__overflow_ease(struct gap__policy_state *s, uint64_t bytes) {
  uint64_t pages = (bytes >> GAP__PAGE_SHIFT) + 1;
  gap__lock(&s->lock);
  gap__trim_host(s, NULL, s->overflow.pages > pages ? s->overflow.pages - pages : 0, UINT32_MAX, false);
  gap__figures_sample(s);
  gap__unlock(&s->lock);
}

/* ---- blocks ---- */

/* Others may use the addresses still, so the chunks go when they are out of use. */
void gap__overflow_leave(struct gap__policy_state *s, struct gap__range *range, uint32_t block) {
  const struct gap__block *b = gap__block(range->arena->lane, block);
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++) {
    uint32_t m = range->slot[page];
    bool home = gap__slot_is_home(s, range, page);
    if (home && gap__chunk_at(s, gap__mapping_at(s, m)->chunk)->host) gap__chunk_leave(s, gap__mapping_at(s, m)->chunk);
  }
  gap__place_dissolve(range->arena, block);
}

/* Pages there that are in use, but for those of blocks that were moved. */
static uint64_t pages_in_use(struct gap__policy_state *s) {
  uint64_t pages = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    struct gap__arena *arena = &lane->arena[GAP__ARENA_OVERFLOW];
    if (!arena->host_pages) continue;
    gap__lock(&lane->lock);
    gap__arena_flush(arena);
    uint64_t idle = arena->idle_units >> GAP__PAGE_UNIT_SHIFT, all = (uint64_t)arena->home_pages;
    gap__unlock(&lane->lock);
    pages += all > idle ? all - idle : 0;
  }
  return pages;
}

void gap__overflow_served(struct gap__policy_state *s, uint64_t bytes) {
  uint64_t pages = pages_in_use(s); /* the request's block is none of the idle ones any more */
  s->overflow.placed_bytes += (int64_t)bytes;
  if (pages > s->overflow.need_pages) s->overflow.need_pages = pages;
}

/* ---- figures ---- */

/* The bytes of a block on pages in host memory. */
static uint64_t host_bytes_of(const struct gap__policy_state *s, const struct gap__range *range,
                              const struct gap__block *b) {
  uint64_t units = 0;
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++) {
    uint32_t from = page << GAP__PAGE_UNIT_SHIFT, to = from + GAP__PAGE_UNITS;
    if (!gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->host) continue;
    units += (to < b->off + b->len ? to : b->off + b->len) - (from > b->off ? from : b->off);
  }
  return units << GAP__UNIT_SHIFT;
}

static uint64_t live_in_range(const struct gap__policy_state *s, const struct gap__range *range) {
  struct gap__lane *lane = range->arena->lane;
  uint64_t bytes = 0;
  gap__lock(&lane->lock);
  for (uint32_t i = gap__block_covering(range, 0); i; i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->state == GAP__LIVE || b->state == GAP__PENDING) bytes += host_bytes_of(s, range, b);
  }
  gap__unlock(&lane->lock);
  return bytes;
}

uint64_t gap__overflow_live_bytes(struct gap__policy_state *s) {
  uint64_t bytes = 0;
  for (uint32_t i = 1; s->overflow.pages && i <= s->range_count; i++)
    if (gap__range_at(s, i)->arena->host_pages) bytes += live_in_range(s, gap__range_at(s, i));
  return bytes;
}

void gap__overflow_stats(struct gap__policy_state *s, struct gap__stats *out) {
  out->overflow_bytes += (int64_t)(s->overflow.pages << GAP__PAGE_SHIFT);
  out->overflow_bytes_peak += (int64_t)(s->overflow.peak_pages << GAP__PAGE_SHIFT);
  out->overflow_live_bytes += (int64_t)gap__overflow_live_bytes(s);
  out->overflow_out_bytes += s->overflow.out_bytes;
  out->overflow_back_bytes += s->overflow.back_bytes;
  out->overflow_placed_bytes += s->overflow.placed_bytes;
  out->overflow_refused += s->overflow.refused;
}

void gap__overflow_words(const struct gap__policy_state *s, char *text, size_t bytes) {
  char there[GAP__TEXT_BYTES];
  if (bytes) text[0] = '\0';
  if (s->overflow.on)
    snprintf(text, bytes, " Overflow: %s of host memory, and no more: %s.",
             gap__text_size(s->overflow.pages << GAP__PAGE_SHIFT, there),
             s->overflow.refusal[0] ? s->overflow.refusal : "what is there is in use");
}
