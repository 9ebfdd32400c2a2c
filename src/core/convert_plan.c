/* Choosing chunks to exchange: see convert_plan.h.
 *
 * What an exchange costs hardly depends on how much is copied (a page takes 1 us, the calls some 200), so the best chunk has the
 * most idle pages for each kept one, FIXED_PAGES of which stand for the calls.  Source: the policy study, section 2.
 * Bound: a look at every chunk, a few hundred to some 70,000. */
#include "core/convert_plan.h"

#include <stdlib.h>

#include "core/arena.h"
#include "core/lane.h"
#include "core/loot.h"

enum { FIXED_PAGES = 60 };

struct whole { /* pages of a range */
  uint32_t from, to;
};

static bool bit_of(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

bool gap__convert_run(const uint64_t *bits, uint32_t pages, bool wanted, uint32_t *from, uint32_t *to) {
  while (*from < pages && bit_of(bits, *from) != wanted) ++*from;
  for (*to = *from; *to < pages && bit_of(bits, *to) == wanted;) ++*to;
  return *from < pages;
}

/* The whole pages of an idle block that lie in the chunk and are out of use, as bits. */
static uint32_t mark(uint64_t *bits, const struct gap__range *range, const struct whole *chunk,
                     const struct gap__block *b, uint32_t epoch) {
  uint32_t from = gap__page_up(b->off), to = gap__page_of(b->off + b->len), count = 0;
  if (from < chunk->from) from = chunk->from;
  if (to > chunk->to) to = chunk->to;
  for (uint32_t page = from; page < to; page++) {
    uint32_t i = page - chunk->from;
    if (range->stamp[page] > epoch) continue;
    bits[i / 64] |= 1ull << (i % 64);
    count++;
  }
  return count;
}

uint32_t gap__convert_idle(const struct gap__policy_state *s, const struct gap__chunk_rec *c, uint32_t epoch,
                           uint64_t idle[GAP__CONVERT_WORDS]) {
  const struct gap__mapping *home = gap__mapping_at(s, c->home);
  const struct gap__range *range = gap__range_at(s, home->range);
  const struct gap__lane *lane = range->arena->lane;
  const struct whole chunk = {home->page, home->page + c->pages};
  uint32_t end = chunk.to << GAP__PAGE_UNIT_SHIFT, count = 0;
  for (uint32_t w = 0; w < GAP__CONVERT_WORDS; w++) idle[w] = 0;
  for (uint32_t i = gap__block_covering(range, chunk.from << GAP__PAGE_UNIT_SHIFT); i && gap__block(lane, i)->off < end;
       i = gap__block(lane, i)->next) {
    const struct gap__block *b = gap__block(lane, i);
    if (b->state == GAP__IDLE) count += mark(idle, range, &chunk, b, epoch);
  }
  return count;
}

static bool is_pinned(const struct gap__policy_state *s, uint32_t mapping) {
  const struct gap__lane *lane = gap__range_at(s, gap__mapping_at(s, mapping)->range)->arena->lane;
  return atomic_load_explicit(&lane->pinned, memory_order_relaxed);
}

static const struct gap__chunk_rec *at_home(const struct gap__policy_state *s, uint32_t chunk) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  return c->mappings && c->home && !c->asleep ? c : NULL;
}

/* A pinned pool's addresses stay as they are, old ones too: a graph may use them. */
enum gap__refusal gap__convert_refusal(const struct gap__policy_state *s, uint32_t chunk) {
  const struct gap__chunk_rec *c = at_home(s, chunk);
  if (!c) return GAP__REFUSED_driver;
  const struct gap__lane *lane = gap__range_at(s, gap__mapping_at(s, c->home)->range)->arena->lane;
  if (c->known) return GAP__REFUSED_known;
  for (uint32_t m = c->mappings; m; m = gap__mapping_at(s, m)->next)
    if (is_pinned(s, m)) return GAP__REFUSED_pinned;
  return lane->doubtful ? GAP__REFUSED_thread : GAP__REFUSAL_COUNT; /* its stream changed hands, and nobody said so */
}

static void consider(const struct gap__policy_state *s, uint32_t chunk, bool settled, struct gap__convert_plan *plan) {
  const struct gap__chunk_rec *c = gap__chunk_at(s, chunk);
  struct gap__arena *arena = gap__range_at(s, gap__mapping_at(s, c->home)->range)->arena;
  uint64_t idle[GAP__CONVERT_WORDS];
  gap__lock(&arena->lane->lock);
  gap__arena_flush(arena);
  uint32_t count = gap__convert_idle(s, c, settled ? arena->lane->completed : UINT32_MAX, idle);
  gap__unlock(&arena->lane->lock);
  enum gap__refusal refused = count ? gap__convert_refusal(s, chunk) : GAP__REFUSAL_COUNT;
  if (count == c->pages) {
    plan->whole += refused == GAP__REFUSED_pinned ? 0 : count;
  } else if (refused != GAP__REFUSAL_COUNT) {
    plan->refused[refused]++;
  } else if (count && plan->count < GAP__PICKS_MAX) {
    plan->picks[plan->count++] = (struct gap__pick){chunk, count, c->pages - count};
    plan->idle += count;
  }
}

/* The most idle pages for what it costs first; of equals the one made first. */
static int by_worth(const void *a, const void *b) {
  const struct gap__pick *x = a, *y = b;
  uint64_t one = (uint64_t)x->idle * (y->kept + FIXED_PAGES), other = (uint64_t)y->idle * (x->kept + FIXED_PAGES);
  if (one != other) return one > other ? -1 : 1;
  return x->chunk < y->chunk ? -1 : 1;
}

void gap__convert_plan(struct gap__policy_state *s, bool settled, struct gap__convert_plan *out) {
  *out = (struct gap__convert_plan){.picks = gap__scratch_picks(s)};
  for (uint32_t i = 1; i < s->chunks.count; i++)
    if (at_home(s, i) && !gap__chunk_at(s, i)->host) consider(s, i, settled, out);
  qsort(out->picks, out->count, sizeof *out->picks, by_worth);
}
