/* The checker: walks every record and compares it with the invariants of state.h. */
#include "core/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/arena.h"
#include "core/hollow.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/overflow.h"
#include "core/tally.h"
#include "core/tray.h"

struct report {
  char *text;
  size_t bytes;
  bool failed;
};

static void __attribute__((format(printf, 2, 3))) fail(struct report *r, const char *format, ...) {
  va_list args;
  if (r->failed) return;
  r->failed = true;
  va_start(args, format);
  vsnprintf(r->text, r->bytes, format, args);
  va_end(args);
}

/* What a walk over the blocks of a lane adds up to. */
struct census {
  int64_t count[GAP__KIND_COUNT], bytes[GAP__KIND_COUNT], requested[GAP__KIND_COUNT], pending_count[GAP__KIND_COUNT],
      pending_bytes[GAP__KIND_COUNT];
  uint64_t idle_units[GAP__ARENA_COUNT], home_pages;
  uint32_t idle_count[GAP__ARENA_COUNT], hollow_count[GAP__ARENA_COUNT], bare_pages[GAP__ARENA_COUNT];
  uint32_t hole_count[GAP__ARENA_COUNT], cached, in_trays[GAP__ARENA_COUNT];
  uint64_t class_idle_units[GAP__ARENA_COUNT];
  uint32_t class_idle_count[GAP__ARENA_COUNT];
  int64_t runs[GAP__ARENA_COUNT];
};

static void count_in_use(struct census *c, const struct gap__block *b, int kind) {
  int64_t bytes = (int64_t)b->len << GAP__UNIT_SHIFT;
  if (b->state == GAP__LIVE) c->count[kind]++, c->bytes[kind] += bytes;
  if (b->state == GAP__PENDING) c->pending_count[kind]++, c->pending_bytes[kind] += bytes;
  if (b->state == GAP__LIVE || b->state == GAP__PENDING) c->requested[kind] += bytes - b->slack;
}

static void count_block(struct census *c, const struct gap__block *b, int kind) {
  count_in_use(c, b, GAP__KIND_ALL);
  count_in_use(c, b, GAP__KIND_SMALL + (b->len > GAP__TORCH_SMALL_UNITS));
  if (gap__block_is_idle(b)) c->idle_count[kind]++, c->idle_units[kind] += b->len;
  c->hollow_count[kind] += b->state == GAP__HOLLOW;
  c->hole_count[kind] += b->state == GAP__HOLE;
  if (b->state == GAP__CACHED) c->cached++;
  c->in_trays[kind] += b->tray;
  if (b->state == GAP__CACHED && b->tray) c->class_idle_count[kind]++, c->class_idle_units[kind] += b->len;
}

static void check_block(struct report *r, const struct gap__range *range, uint32_t index, uint32_t prev, uint32_t off) {
  const struct gap__lane *lane = range->arena->lane;
  const struct gap__block *b = gap__block(lane, index);
  unsigned long long at = gap__range_addr(range, b->off);
  if (b->off != off || b->prev != prev || !b->len)
    fail(r, "block %#llx: blocks of a range must touch in address order", at);
  if (b->state == GAP__UNUSED || (b->state == GAP__RESERVED && !lane->visitors))
    fail(r, "block %#llx: state %d at rest", at, b->state);
  bool idle_too = prev && gap__block_is_idle(gap__block(lane, prev)) && gap__block_is_idle(b);
  if (idle_too || (prev && gap__block(lane, prev)->state == GAP__HOLE && b->state == GAP__HOLE))
    fail(r, "block %#llx: neighbours of one state must be merged", at);
  if (b->state == GAP__HOLE && (b->off % GAP__PAGE_UNITS || b->len % GAP__PAGE_UNITS))
    fail(r, "hole %#llx: not on page borders", at);
  if (gap__block_starting(range, b->off) != index) fail(r, "block %#llx: not found by its address", at);
  if (range->arena->kind == GAP__ARENA_PLANNED && gap__block_covering(range, b->off + b->len - 1) != index)
    fail(r, "block %#llx: not found by its end", at);
}

/* Has the page memory, as far as blocks say? */
static bool is_empty(const struct gap__range *range, const struct gap__block *b, uint32_t page) {
  return b->state == GAP__HOLE || gap__page_is_bare(range, page);
}

/* Pages behind a block: homes behind memory, nothing or lent mappings behind holes and where a hollow block is bare. */
static void check_pages(struct report *r, const struct gap__policy_state *s, const struct gap__range *range,
                        const struct gap__block *b) {
  for (uint32_t page = gap__page_of(b->off); page < gap__page_up(b->off + b->len); page++) {
    bool bare = gap__page_is_bare(range, page), empty = is_empty(range, b, page);
    if (gap__slot_is_home(s, range, page) == empty)
      fail(r, "page %#llx: %s", (unsigned long long)range->base + ((unsigned long long)page << GAP__PAGE_SHIFT),
           empty ? "a hole's page has a home" : "a block's page has no memory");
    if (bare && b->state != GAP__HOLLOW) fail(r, "page %u: bare in a block that is not hollow", page);
    bool in_use = b->state == GAP__LIVE || b->state == GAP__PENDING;
    if (gap__overflow_holds(range->arena) && !in_use && !empty &&
        gap__chunk_at(s, gap__mapping_at(s, range->slot[page])->chunk)->host)
      fail(r, "page %u: host memory behind nothing that lives", page);
    if (!bare && range->stamp[page] > range->arena->lane->epoch) fail(r, "page %u: stamped with a future epoch", page);
  }
}

/* Pages without memory, and the mapped stretches that end before them. */
static void count_empty(struct census *c, const struct gap__range *range, const struct gap__block *b, int kind) {
  uint32_t first = gap__page_of(b->off), end = b->state == GAP__HOLE ? first + 1 : gap__page_up(b->off + b->len);
  const struct gap__block *prev = b->prev ? gap__block(range->arena->lane, b->prev) : NULL;
  bool empty_before = !prev || is_empty(range, prev, first - (first << GAP__PAGE_UNIT_SHIFT == b->off));
  for (uint32_t page = first; page < end; page++) {
    bool empty = is_empty(range, b, page);
    c->runs[kind] += empty && !empty_before;
    c->bare_pages[kind] += gap__page_is_bare(range, page);
    empty_before = empty;
  }
}

static void check_range(struct report *r, const struct gap__policy_state *s, const struct gap__range *range,
                        struct census *c) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t off = 0, prev = 0, lent = 0;
  for (uint32_t i = range->first[0]; i && !r->failed; prev = i, i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    check_block(r, range, i, prev, off);
    check_pages(r, s, range, b);
    count_block(c, b, range->arena->kind);
    if (b->state == GAP__HOLE || b->state == GAP__HOLLOW) count_empty(c, range, b, range->arena->kind);
    off = b->off + b->len;
  }
  if (off != range->pages << GAP__PAGE_UNIT_SHIFT || range->tail != prev)
    fail(r, "range %#llx: does not end where it should", (unsigned long long)range->base);
  for (uint32_t page = 0; page < gap__page_up(off); page++) {
    bool home = gap__slot_is_home(s, range, page);
    c->home_pages += home;
    lent += range->slot[page] && !home;
  }
  if (lent != range->lent_pages)
    fail(r, "range %#llx: %u lent pages, %u counted", (unsigned long long)range->base, lent, range->lent_pages);
}

static uint32_t bin_length(const struct gap__lane *lane, const struct gap__bins *bins, struct report *r) {
  uint32_t count = 0;
  for (uint32_t bin = 0; bin < GAP__BIN_COUNT; bin++) {
    bool marked = bins->word[bin >> 6] >> (bin & 63) & 1;
    if (marked != (bins->head[bin] != 0)) fail(r, "bin %u: its bit and its list differ", bin);
    for (uint32_t i = bins->head[bin]; i; i = gap__block(lane, i)->link_next, count++)
      if (!gap__block_is_idle(gap__block(lane, i))) fail(r, "bin %u: holds a block that is not idle", bin);
  }
  return count;
}

/* Blocks kept whole: in the front of the small arena and in the hot slots of the others. */
static uint32_t cached_length(const struct gap__lane *lane) {
  uint32_t count = 0;
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) count += lane->arena[kind].hot != 0;
  for (uint32_t units = 1; units <= GAP__SMALL_UNITS; units++)
    for (uint32_t i = lane->arena[GAP__ARENA_SMALL].front[units]; i; i = gap__block(lane, i)->link_next) count++;
  return count;
}

static bool may_lie_in_tray(const struct gap__block *b) {
  return b->tray && (b->state == GAP__LIVE || b->state == GAP__PENDING || b->state == GAP__CACHED);
}

/* Its blocks lie side by side, all of the class, and as many of them as it says are in use. */
static void check_tray(struct report *r, const struct gap__lane *lane, uint32_t number) {
  const struct gap__tray *tray = gap__tray_at(lane, number);
  uint32_t live = 0, index = tray->first;
  for (uint32_t n = 0; n < tray->count; n++, index = gap__block(lane, index)->next) {
    const struct gap__block *b = gap__block(lane, index);
    if (!index || !may_lie_in_tray(b) || gap__tray_of(b) != number ||
        b->len != lane->owner->classes.units[tray->class]) {
      fail(r, "tray %u: block %u of it is not one of its class", number, n);
      return;
    }
    live += b->state != GAP__CACHED;
  }
  if (live != tray->live) fail(r, "tray %u: %u blocks are in use, %u are counted", number, live, tray->live);
}

/* The cached blocks of all classes. */
static uint32_t class_length(struct report *r, const struct gap__lane *lane) {
  uint32_t count = 0;
  for (uint32_t class = 0; class < GAP__CLASSES_MAX; class ++)
    for (uint32_t prev = 0, i = lane->class_head[class]; i; prev = i, i = gap__block(lane, i)->link_next, count++) {
      const struct gap__block *b = gap__block(lane, i);
      bool right = b->state == GAP__CACHED && b->tray && b->link_prev == prev;
      if (!right || gap__tray_at(lane, b->slack)->class != class)
        fail(r, "class %u: holds a block that is not idle in it", class);
    }
  return count;
}

static void check_trays(struct report *r, const struct gap__lane *lane, const struct census *c) {
  uint32_t trays[GAP__ARENA_COUNT] = {0}, blocks[GAP__ARENA_COUNT] = {0}, empty = 0, listed = 0;
  for (uint32_t i = 1; lane->trays.base && i < lane->trays.count && !r->failed; i++) {
    const struct gap__tray *tray = gap__tray_at(lane, i);
    if (!tray->count) continue;
    uint8_t kind = gap__range_at(lane->owner, gap__block(lane, tray->first)->range)->arena->kind;
    check_tray(r, lane, i);
    trays[kind]++;
    blocks[kind] += tray->count;
    empty += !tray->live;
  }
  for (int kind = 0; kind < GAP__ARENA_COUNT && !r->failed; kind++) {
    const struct gap__arena *arena = &lane->arena[kind];
    for (uint32_t i = arena->empty_trays; i; i = gap__tray_at(lane, i)->next) listed++;
    if (trays[kind] != arena->tray_count || blocks[kind] != c->in_trays[kind] ||
        c->class_idle_count[kind] != arena->class_idle_count || c->class_idle_units[kind] != arena->class_idle_units)
      fail(r, "arena: trays and the blocks in them are miscounted");
  }
  if (listed != empty) fail(r, "lane: %u trays are empty, %u are listed", empty, listed);
}

/* Who can be found, and who must be. */
static void check_finding(struct report *r, const struct gap__policy_state *s, const struct gap__lane *lane) {
  uint64_t hash = gap__lane_hash(lane->stream, lane->thread, lane->pool);
  uint64_t wanted = hash << 32 | (uint32_t)((const unsigned char *)lane - (const unsigned char *)s), slot;
  for (uint64_t i = hash; (slot = atomic_load(&s->lane_of[i & (GAP__LANE_SLOTS - 1)])) != 0 && slot != wanted;) i++;
  if ((slot == wanted) == lane->ended)
    fail(r, "lane of stream %#llx: %s", (unsigned long long)lane->stream,
         slot ? "ended, and found" : "cannot be found");
}

static void check_lane(struct report *r, struct gap__lane *lane, struct census *c) {
  struct gap__policy_state *s = lane->owner;
  const struct census before = *c;
  *c = (struct census){.home_pages = before.home_pages};
  memcpy(c->runs, before.runs, sizeof c->runs);
  for (uint32_t i = 1; i <= s->range_count && !r->failed; i++)
    if (gap__range_at(s, i)->arena->lane == lane) check_range(r, s, gap__range_at(s, i), c);
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
    const struct gap__arena *arena = &lane->arena[kind];
    if (c->idle_count[kind] != arena->idle_count || c->idle_units[kind] != arena->idle_units ||
        bin_length(lane, &arena->bins, r) != arena->idle_count)
      fail(r, "arena: idle blocks in the ranges, in the bins and in the counters differ");
    if (c->hollow_count[kind] != arena->hollow_count || c->bare_pages[kind] != arena->bare_pages)
      fail(r, "arena: hollow blocks or bare pages in the ranges and in the counters differ");
    if (c->hole_count[kind] != arena->hole_count) fail(r, "arena: holes in the ranges and in the list differ");
  }
  check_finding(r, s, lane);
  check_trays(r, lane, c);
  uint32_t found = cached_length(lane) + class_length(r, lane);
  if (c->cached != found) fail(r, "lane: %u blocks are kept whole, %u can be found", c->cached, found);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
    const struct gap__tally *t = &lane->tally[kind];
    if (t->count != c->count[kind] || t->bytes != c->bytes[kind] || t->requested != c->requested[kind] ||
        t->pending_count != c->pending_count[kind] || t->pending_bytes != c->pending_bytes[kind])
      fail(r, "lane: the tally says %lld live blocks of %lld bytes, the ranges hold %lld of %lld", (long long)t->count,
           (long long)t->bytes, (long long)c->count[kind], (long long)c->bytes[kind]);
  }
}

/* Nobody uses it: only the owner of the device lock looks. */
static void check_spare(struct report *r, struct gap__lane *lane, struct census *c) {
  uint64_t homes = c->home_pages;
  check_lane(r, lane, c);
  if (c->home_pages != homes || !gap__tally_is_empty(lane) || lane->mark_count) fail(r, "a spare lane is in use");
}

/* Of a device's memory and of host memory, each with what is loose. */
static void check_overflow(struct report *r, const struct gap__policy_state *s, uint64_t pages, uint64_t loose) {
  int64_t counted = 0;
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) counted += lane->arena[kind].host_pages;
  if (pages + loose != s->overflow.pages || loose != s->overflow.loose_pages || (int64_t)pages != counted)
    fail(r, "overflow: %llu pages have a home and %llu none, %llu are counted", (unsigned long long)pages,
         (unsigned long long)loose, (unsigned long long)s->overflow.pages);
  if (s->overflow.promised_pages) fail(r, "overflow: pages are promised at rest");
  uint32_t marks = 0;
  for (uint32_t i = 1; i < s->uses.count; i++) {
    const struct gap__use *use = gap__slab_at(&s->uses, i);
    marks += use->taken && use->marked;
  }
  if (marks != s->overflow.marks) fail(r, "overflow: %u marks, %u are counted", marks, s->overflow.marks);
}

static void check_chunks(struct report *r, const struct gap__policy_state *s, uint64_t home_pages) {
  uint64_t pages = 0, gone = 0, loose = s->drain_segment != 0; /* `gone`: asleep, and the driver's */
  uint64_t host = 0, loose_host = 0;
  for (uint32_t i = s->loose; i; i = gap__chunk_at(s, i)->next_loose) {
    *(gap__chunk_at(s, i)->host ? &loose_host : &loose) += gap__chunk_at(s, i)->pages;
    if (gap__chunk_at(s, i)->home) fail(r, "chunk %u: loose, with a home", i);
  }
  if (loose != s->loose_pages)
    fail(r, "loose: %llu pages, %llu are counted", (unsigned long long)loose, (unsigned long long)s->loose_pages);
  for (uint32_t i = 1; i <= s->range_count; i++) {
    const struct gap__range *range = gap__range_at(s, i);
    for (uint32_t page = 0; page < range->pages; page++) {
      uint32_t m = range->slot[page];
      if (!m) continue;
      const struct gap__mapping *mapping = gap__mapping_at(s, m);
      const struct gap__chunk_rec *c = gap__chunk_at(s, mapping->chunk);
      if (mapping->range != i || page < mapping->page || page >= mapping->page + c->pages)
        fail(r, "page %u: its slot names a mapping elsewhere", page);
      if (c->home == m && mapping->page == page)
        pages += c->pages, gone += c->handle ? 0 : c->pages, host += c->host ? c->pages : 0;
      if (mapping->away && !c->asleep) fail(r, "page %u: its memory is away, and awake", page);
      if (c->home == m && c->asleep && !range->arena->lane->asleep)
        fail(r, "page %u: it sleeps in a lane that does not", page);
      if (!c->handle && !c->asleep) fail(r, "page %u: there is no memory behind it", page);
      if (c->home == m && mapping->dark) fail(r, "page %u: its memory cannot be used", page);
      bool listed = false;
      for (uint32_t k = c->mappings; k; k = gap__mapping_at(s, k)->next) listed |= k == m;
      if (!listed) fail(r, "page %u: its mapping is not in its chunk's list", page);
    }
  }
  check_overflow(r, s, host, loose_host);
  if (pages - gone - host + loose != s->held_pages || home_pages != pages ||
      s->held[0].current != (int64_t)s->held_pages)
    fail(r, "held: %llu pages have a home, %llu are counted", (unsigned long long)pages,
         (unsigned long long)s->held_pages);
}

static void check_peaks(struct report *r, const struct gap__policy_state *s) {
  int64_t limits[GAP__KIND_COUNT] = {0};
  bool tripping = false; /* a lane is over its limit: its thread is about to raise the peak */
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
      const struct gap__tally *t = &lane->tally[kind];
      limits[kind] += t->bytes_limit;
      tripping |= t->bytes > t->bytes_limit;
    }
    limits[GAP__KIND_ALL] += lane->both.bytes;
    tripping |= gap__tally_left(lane) < 0;
  }
  for (int kind = 0; kind < GAP__KIND_COUNT && !tripping; kind++)
    if (limits[kind] > s->peak.allocated[kind]) fail(r, "tallies: the lanes could pass the device's peak unseen");
}

int gap__check(struct gap__policy_state *s, char *text, size_t bytes) {
  struct report r = {text, bytes, false};
  struct census c = {0};
  if (bytes) text[0] = 0;
  gap__lock(&s->lock);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__lock(&lane->lock);
  for (struct gap__lane *lane = s->lanes; lane && !r.failed; lane = lane->next) check_lane(&r, lane, &c);
  for (struct gap__lane *lane = s->spare_lanes; lane && !r.failed; lane = lane->next) check_spare(&r, lane, &c);
  if (!r.failed) check_chunks(&r, s, c.home_pages);
  if (!r.failed) check_peaks(&r, s);
  if (memcmp(c.runs, s->runs, sizeof c.runs) != 0) fail(&r, "mapped stretches are miscounted");
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) gap__unlock(&lane->lock);
  gap__unlock(&s->lock);
  return r.failed ? GAP_ESTATE : 0;
}
