/* Statistics and the walk: see figures.h. */
#include "core/figures.h"

#include "core/arena.h"
#include "core/diagnose.h"
#include "core/follow.h"
#include "core/hollow.h"
#include "core/limit.h"
#include "core/overflow.h"
#include "core/tally.h"

static void run_to(struct gap__running *r, int64_t now) {
  if (now > r->current) r->added += now - r->current;
  else r->removed += r->current - now;
  r->current = now;
  if (now > r->peak) r->peak = now;
}

void gap__figures_sample(struct gap__policy_state *s) {
  int64_t small = s->runs[GAP__ARENA_SMALL],
          large = s->runs[GAP__ARENA_LARGE] + s->runs[GAP__ARENA_PLANNED] + s->runs[GAP__ARENA_OVERFLOW];
  run_to(&s->segments[0], small + large);
  run_to(&s->segments[1], small);
  run_to(&s->segments[2], large);
}

/* Idle blocks beside live ones, by arena kind: what torch calls inactive_split. */
static void sample_split(struct gap__policy_state *s) {
  int64_t count[3] = {0}, bytes[3] = {0};
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_OVERFLOW; kind++) {
      struct gap__arena *arena = &lane->arena[kind];
      gap__arena_flush(arena);
      count[gap__arena_figure(arena)] += arena->idle_count + arena->class_idle_count;
      bytes[gap__arena_figure(arena)] += (int64_t)((arena->idle_units + arena->class_idle_units) << GAP__UNIT_SHIFT);
      bytes[gap__arena_figure(arena)] -= (int64_t)arena->bare_pages << GAP__PAGE_SHIFT;
    }
    gap__unlock(&lane->lock);
  }
  count[0] = count[1] + count[2];
  bytes[0] = bytes[1] + bytes[2];
  for (int kind = 0; kind < 3; kind++) {
    run_to(&s->split[kind], count[kind]);
    run_to(&s->split_bytes[kind], bytes[kind]);
  }
}

static void add_running(struct gap__stat *to, const struct gap__running *from, int64_t unit) {
  for (int kind = 0; kind < 3; kind++) {
    to[kind].current += from[kind].current * unit;
    to[kind].peak += from[kind].peak * unit;
    to[kind].allocated += from[kind].added * unit;
    to[kind].freed += from[kind].removed * unit;
  }
}

enum { SLOT_BYTES = 4096 }; /* a slot of the table of lanes makes its page real */

/* Of the tables of a range, what was ever touched. */
static uint64_t range_bytes(const struct gap__range *range) {
  struct gap__lane *lane = range->arena->lane;
  gap__lock(&lane->lock);
  const struct gap__block *tail = gap__block(lane, range->tail);
  uint64_t used = tail->state == GAP__HOLE ? tail->off : tail->off + tail->len;
  gap__unlock(&lane->lock);
  return (used >> range->granule_shift) * sizeof(uint32_t) + gap__page_up((uint32_t)used) * 2 * sizeof(uint32_t);
}

static uint64_t table_bytes(const struct gap__policy_state *s) {
  uint64_t slots = s->lane_slab.in_use * (uint64_t)SLOT_BYTES;
  uint64_t bytes =
      offsetof(struct gap__policy_state, lane_of) + (slots < sizeof s->lane_of ? slots : sizeof s->lane_of);
  for (uint32_t i = 1; i < s->lane_slab.count; i++) {
    struct gap__lane *lane = gap__slab_at(&s->lane_slab, i);
    gap__lock(&lane->lock);
    bytes += sizeof *lane + gap__slab_bytes(&lane->blocks) + gap__slab_bytes(&lane->trays);
    gap__unlock(&lane->lock);
  }
  for (uint32_t i = 1; i <= s->range_count; i++) bytes += range_bytes(gap__range_at(s, i));
  return bytes + gap__slab_bytes(&s->chunks) + gap__slab_bytes(&s->mappings) + gap__slab_bytes(&s->uses);
}

static void add_idle(const struct gap__policy_state *s, const struct gap__idle *idle, uint64_t room,
                     struct gap__stats *out) {
  out->idle_returnable_bytes += (int64_t)(idle->returnable_bytes + (s->loose_pages << GAP__PAGE_SHIFT));
  out->idle_stuck_bytes += (int64_t)idle->stuck_bytes;
  out->idle_extents += (int64_t)idle->extents;
  out->class_idle_bytes += (int64_t)idle->class_bytes;
  out->class_trays += (int64_t)idle->trays;
  out->largest_servable_bytes += (int64_t)(room + idle->returnable_bytes);
}

/* What could still be taken from the driver. */
static uint64_t room_of(struct gap__policy_state *s) {
  uint64_t hard = gap__hard_limit(s), held = gap__held_pages(s);
  return hard == UINT64_MAX ? s->dev->caps.total_bytes - (held << GAP__PAGE_SHIFT)
                            : (hard > held ? hard - held : 0) << GAP__PAGE_SHIFT;
}

static void add_work(struct gap__policy_state *s, struct gap__stats *out) {
  out->stalls += s->stalls;
  out->stall_us += s->stall_ns / 1000;
  for (const struct gap__lane *lane = s->lanes; lane; lane = lane->next)
    out->asleep_bytes += (int64_t)(lane->asleep_pages << GAP__PAGE_SHIFT);
  out->pages_grown += s->grown;
  out->pages_made_ahead += s->made_ahead;
  out->pages_stolen += s->stolen;
  out->pages_stolen_alias += s->stolen_alias;
  out->pages_reclaimed_mapping += s->claimed;
  out->pages_trimmed += s->trimmed;
  out->reserve_bytes += (int64_t)(gap__limit_reserve(s) << GAP__PAGE_SHIFT);
  out->metadata_bytes += (int64_t)table_bytes(s);
  out->num_ooms += s->ooms;
  out->num_alloc_retries += s->retries;
  out->num_sync_all_streams += s->drains;
  out->num_device_alloc += s->device_allocs;
  out->num_device_free += s->device_frees;
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) {
    out->rung_count[rung] += s->rung_count[rung];
    out->rung_us[rung] += s->rung_ns[rung] / 1000;
  }
}

static void add_conversion(const struct gap__conversion *convert, struct gap__stats *out) {
  out->conversions += convert->count;
  out->bytes_copied += convert->bytes;
  out->pages_converted += convert->pages;
  out->convert_us += convert->ns / 1000;
#define X(name) out->convert_refused_##name += convert->refused[GAP__REFUSED_##name];
  GAP__REFUSALS(X)
#undef X
}

/* All that does not depend on how blocks lie. */
static void add_counted(struct gap__policy_state *s, struct gap__stats *out) {
  gap__figures_sample(s);
  add_running(out->reserved_bytes, s->held, (int64_t)GAP__PAGE);
  add_running(out->segment, s->segments, 1);
  add_work(s, out);
  add_conversion(&s->convert, out);
  gap__overflow_stats(s, out);
  gap__follow_stats(s, out);
}

void gap__figures_stats(struct gap__policy_state *s, struct gap__stats *out) {
  gap__lock(&s->lock);
  gap__tally_trip(s, NULL);
  gap__tally_stats(s, out);
  sample_split(s);
  add_running(out->inactive_split, s->split, 1);
  add_running(out->inactive_split_bytes, s->split_bytes, 1);
  struct gap__idle idle = gap__idle_figures(s);
  add_idle(s, &idle, room_of(s), out);
  add_counted(s, out);
  gap__unlock(&s->lock);
}

void gap__figures_glance(struct gap__policy_state *s, uint64_t room_bytes, struct gap__stats *out) {
  gap__tally_stats(s, out);
  struct gap__idle idle = gap__idle_glance(s);
  add_idle(s, &idle, room_bytes, out);
  add_counted(s, out);
}

static void reset_running(struct gap__running *r, bool peaks, bool accumulated) {
  for (int kind = 0; kind < 3; kind++) {
    if (peaks) r[kind].peak = r[kind].current;
    if (accumulated) r[kind].added = r[kind].removed = 0;
  }
}

void gap__figures_reset(struct gap__policy_state *s, bool peaks, bool accumulated) {
  reset_running(s->held, peaks, accumulated);
  reset_running(s->segments, peaks, accumulated);
  reset_running(s->split, peaks, accumulated);
  reset_running(s->split_bytes, peaks, accumulated);
  if (peaks) s->overflow.peak_pages = s->overflow.pages;
  if (accumulated) s->overflow.placed_bytes = s->overflow.out_bytes = s->overflow.back_bytes = s->overflow.refused = 0;
  if (accumulated) s->ooms = s->retries = s->drains = s->device_allocs = s->device_frees = 0;
}

/* ---- the walk ---- */

static enum gap__block_state public_state(uint8_t state) {
  switch (state) {
    case GAP__LIVE: return GAP__BLOCK_LIVE;
    case GAP__PENDING: return GAP__BLOCK_PENDING;
    case GAP__HOLE: return GAP__BLOCK_HOLE;
    default: return GAP__BLOCK_IDLE;
  }
}

/* A part of a block of one state: a hollow one is a hole where its pages are bare. */
struct piece {
  uint32_t off, end;
  uint8_t state;
};

static struct piece piece_at(const struct gap__range *range, const struct gap__block *b, uint32_t off) {
  struct piece piece = {off, b->off + b->len, b->state};
  if (b->state != GAP__HOLLOW) return piece;
  uint32_t page = gap__page_of(off);
  bool bare = gap__page_is_bare(range, page);
  while (page << GAP__PAGE_UNIT_SHIFT < piece.end && gap__page_is_bare(range, page) == bare) page++;
  if (page << GAP__PAGE_UNIT_SHIFT < piece.end) piece.end = page << GAP__PAGE_UNIT_SHIFT;
  piece.state = bare ? GAP__HOLE : GAP__IDLE;
  return piece;
}

/* The end of the mapped stretch that `off` lies in. */
static uint32_t stretch_end(const struct gap__range *range, const struct gap__block *b, uint32_t off) {
  const struct gap__lane *lane = range->arena->lane;
  for (struct piece piece; (piece = piece_at(range, b, off)).state != GAP__HOLE;) {
    off = piece.end;
    if (off < b->off + b->len) continue;
    if (!b->next) break;
    b = gap__block(lane, b->next);
  }
  return off;
}

/* Its beginning, for a block that is not hollow itself. */
static uint32_t stretch_start(const struct gap__range *range, const struct gap__block *b) {
  const struct gap__lane *lane = range->arena->lane;
  for (const struct gap__block *prev; b->prev && (prev = gap__block(lane, b->prev))->state != GAP__HOLE; b = prev) {
    uint32_t page = gap__page_up(b->off), first = gap__page_of(prev->off);
    while (prev->state == GAP__HOLLOW && page > first)
      if (gap__page_is_bare(range, --page)) return (page + 1) << GAP__PAGE_UNIT_SHIFT;
  }
  return b->off;
}

static void tell(const struct gap__range *range, const struct gap__block *b, struct piece piece, uint32_t start,
                 uint32_t end, struct gap__block_info *out) {
  const struct gap__lane *lane = range->arena->lane;
  uint64_t bytes = (uint64_t)(piece.end - piece.off) << GAP__UNIT_SHIFT;
  bool in_use = b->state == GAP__LIVE || b->state == GAP__PENDING;
  *out = (struct gap__block_info){.addr = gap__range_addr(range, piece.off),
                                  .bytes = bytes,
                                  .requested = in_use ? bytes - b->slack : 0,
                                  .stream = lane->stream,
                                  .pool = lane->pool,
                                  .state = public_state(piece.state),
                                  .is_large = b->len > GAP__TORCH_SMALL_UNITS,
                                  .is_mapped = true,
                                  .strategy = GAP__STRATEGY_GAPLESS,
                                  .segment = gap__range_addr(range, start),
                                  .segment_bytes = (uint64_t)(end - start) << GAP__UNIT_SHIFT};
}

static int walk_range(const struct gap__range *range, gap__walk_fn *visit, void *arg) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t start = 0, end = 0;
  for (uint32_t i = gap__block_covering(range, 0); i; i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    struct piece piece;
    for (uint32_t off = b->off; off < b->off + b->len; off = piece.end) {
      piece = piece_at(range, b, off);
      if (off >= end) {
        start = off;
        end = piece.state == GAP__HOLE ? piece.end : stretch_end(range, b, off);
      }
      struct gap__block_info info;
      tell(range, b, piece, start, end, &info);
      int rc = visit(arg, &info);
      if (rc) return rc;
    }
  }
  return 0;
}

/* The mapped stretch that a block in use lies in: from the last hole before it to the next one. */
static void describe(const struct gap__range *range, uint32_t index, struct gap__block_info *out) {
  const struct gap__block *b = gap__block(range->arena->lane, index);
  tell(range, b, piece_at(range, b, b->off), stretch_start(range, b), stretch_end(range, b, b->off), out);
}

int gap__figures_find(struct gap__policy_state *s, gap_addr addr, struct gap__block_info *out) {
  const struct gap__range *range = gap__range_of(s, addr);
  if (!range) return GAP_ENOTMINE;
  struct gap__lane *lane = range->arena->lane;
  gap__lock(&lane->lock);
  uint32_t index = gap__block_covering(range, (uint32_t)((addr - range->base) >> GAP__UNIT_SHIFT));
  uint8_t state = gap__block(lane, index)->state;
  bool in_use = state == GAP__LIVE || state == GAP__PENDING;
  if (in_use) describe(range, index, out);
  gap__unlock(&lane->lock);
  return in_use ? 0 : GAP_EFREED;
}

int gap__figures_walk(struct gap__policy_state *s, gap__walk_fn *visit, void *arg) {
  int rc = 0;
  gap__lock(&s->lock);
  for (uint32_t i = 1; i <= s->range_count && !rc; i++) {
    struct gap__arena *arena = gap__range_at(s, i)->arena;
    struct gap__lane *lane = arena->lane;
    gap__lock(&lane->lock);
    gap__arena_flush(arena); /* as in the statistics: what lies idle side by side is one block */
    rc = walk_range(gap__range_at(s, i), visit, arg);
    gap__unlock(&lane->lock);
  }
  gap__unlock(&s->lock);
  return rc;
}
