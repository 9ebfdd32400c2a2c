/* Compaction: the emptiest slabs are moved into the gaps of the others, and go back to the heap.
 *
 * With slabs in order of what they hold, the most that can be emptied is the longest beginning of that order which fits into
 * the gaps of the rest; so what is left is as few slabs as can hold it all, plus those that nobody may move.  What moves is laid
 * down in the order of the tables: pieces of a sequence become neighbours.  Time grows with the entries of all tables. */
#include <stdlib.h>
#include <string.h>

#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"
#include "kv/table.h"

enum { SLAB_STAYS, SLAB_GOES, SLAB_FIXED };

struct move {
  struct gap_kv *kv;
  uint8_t *plan;   /* by slab */
  uint32_t *order; /* slabs that may go, the emptiest first */
  uint32_t order_count;
  uint32_t *now_at; /* by KV page; 0: it stays */
  gap_kv_entry *pairs;
  uint32_t pair_count;
  uint32_t cursor; /* KV page from which on free places are looked for */
};

/* ---- runs ---- */

static bool is_next(const struct gap_kv *kv, uint32_t page, uint32_t next) {
  return next == page + 1 && (!kv->slab_shift || next & ((1u << kv->slab_shift) - 1));
}

static double mean_run(const struct gap_kv *kv) {
  uint64_t pages = 0, runs = 0;
  for (uint32_t i = 1; i < kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, i);
    for (uint32_t g = 0; s->live && !s->swapped && g < kv->options.group_count; g++) {
      const uint32_t *row = kv_row(kv, g, i);
      for (uint32_t c = s->first[g]; c < s->columns; c++, pages++)
        runs += c == s->first[g] || !is_next(kv, row[c - 1], row[c]);
    }
  }
  return runs ? (double)pages / (double)runs : 0;
}

/* ---- which slabs ---- */

/* Bare KV pages are known by their numbers; those that leave are being read, and those that are held copied. */
static void fix_slabs(struct move *m) {
  struct gap_kv *kv = m->kv;
  m->plan[0] = SLAB_FIXED; /* the null page */
  for (uint32_t i = 0; kv->bare_pages && i < kv->page_count; i++)
    if (kv->state[i] == KV_BARE) m->plan[i >> kv->slab_shift] = SLAB_FIXED;
  for (uint32_t i = 0; i < kv->leaving_count; i++)
    for (uint32_t n = 0; n < kv->leaving[i].count; n++) m->plan[kv->leaving[i].pages[n] >> kv->slab_shift] = SLAB_FIXED;
  for (const struct kv_hold *hold = kv->holds; hold; hold = hold->next)
    for (uint32_t n = 0; n < hold->count; n++) m->plan[hold->pages[n] >> kv->slab_shift] = SLAB_FIXED;
}

static int by_use(const void *a, const void *b, void *arg) {
  const uint32_t *used = arg, x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  if (used[x] != used[y]) return used[x] < used[y] ? -1 : 1;
  return x > y ? -1 : x < y; /* of equals the high ones */
}

/* How many of the order go, with how many KV pages. */
static uint32_t choose(const struct move *m, uint64_t most_pages, uint32_t *pages) {
  const struct gap_kv *kv = m->kv;
  uint64_t room = 0, moved = 0;
  uint32_t n = 0, size = 1u << kv->slab_shift;
  for (uint32_t slab = 0; slab < kv->slab_count; slab++)
    if (kv->slab_used[slab]) room += size - kv->slab_used[slab];
  for (; n < m->order_count; n++) {
    uint32_t used = kv->slab_used[m->order[n]];
    room -= size - used;
    if (moved + used > room || moved + used > most_pages) break;
    moved += used;
  }
  *pages = (uint32_t)moved;
  return n;
}

static void plan_slabs(struct move *m, uint64_t bytes_most, uint32_t *pages) {
  struct gap_kv *kv = m->kv;
  uint64_t page_bytes = kv->part_bytes * kv->layers;
  fix_slabs(m);
  for (uint32_t slab = 0; slab < kv->slab_count; slab++)
    if (kv->slab_used[slab] && m->plan[slab] == SLAB_STAYS) m->order[m->order_count++] = slab;
  qsort_r(m->order, m->order_count, sizeof *m->order, by_use, kv->slab_used);
  uint32_t n = choose(m, bytes_most ? bytes_most / page_bytes : UINT64_MAX, pages);
  for (uint32_t i = 0; i < n; i++) m->plan[m->order[i]] = SLAB_GOES;
}

/* ---- which KV pages, and where to ---- */

/* The next gap in a slab that stays and is in use. */
static uint32_t next_gap(struct move *m) {
  struct gap_kv *kv = m->kv;
  uint32_t size = 1u << kv->slab_shift;
  for (;; m->cursor++) {
    uint32_t slab = m->cursor >> kv->slab_shift;
    bool of_use = kv->slab_used[slab] && m->plan[slab] != SLAB_GOES;
    if (!of_use) m->cursor = (slab + 1) * size - 1;
    else if (kv_bits_has(&kv->free, m->cursor)) return m->cursor;
  }
}

static void move_page(struct move *m, uint32_t page) {
  struct gap_kv *kv = m->kv;
  if (m->plan[page >> kv->slab_shift] != SLAB_GOES || m->now_at[page]) return;
  uint32_t to = next_gap(m);
  kv_bits_remove(&kv->free, to);
  kv->slab_used[to >> kv->slab_shift]++;
  m->now_at[page] = to;
  m->pairs[m->pair_count++] = (gap_kv_entry){page, (int32_t)to};
}

static void plan_pages(struct move *m, uint32_t slabs_going) {
  struct gap_kv *kv = m->kv;
  for (uint32_t i = 1; i < kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, i);
    for (uint32_t g = 0; s->live && !s->swapped && g < kv->options.group_count; g++)
      for (uint32_t c = s->first[g]; c < s->columns; c++) move_page(m, kv_row(kv, g, i)[c]);
  }
  for (uint32_t i = 0; i < slabs_going; i++) { /* cached ones */
    uint32_t first = m->order[i] << kv->slab_shift;
    for (uint32_t page = first; page < first + (1u << kv->slab_shift); page++)
      if (kv->state[page] != KV_FREE) move_page(m, page);
  }
}

/* ---- moving ---- */

static void give_up(struct move *m) {
  for (uint32_t i = 0; i < m->pair_count; i++) kv_page_give(m->kv, (uint32_t)m->pairs[i].id);
  m->pair_count = 0;
}

static void rewrite_tables(struct move *m) {
  struct gap_kv *kv = m->kv;
  for (uint32_t i = 1; i < kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, i);
    for (uint32_t g = 0; s->live && !s->swapped && g < kv->options.group_count; g++)
      for (uint32_t c = s->first[g]; c < s->columns; c++) {
        uint32_t to = m->now_at[kv_row(kv, g, i)[c]];
        if (to) kv_set(kv, g, i, c, to);
      }
  }
}

static int move_all(struct move *m) {
  struct gap_kv *kv = m->kv;
  int rc = gap__kv_copy(kv, kv->region.base, kv->region.base, m->pairs, m->pair_count, kv->options.stream);
  if (rc) {
    give_up(m);
    return rc;
  }
  rewrite_tables(m);
  for (uint32_t i = 0; i < m->pair_count; i++) gap__kv_page_move(kv, m->pairs[i].index, (uint32_t)m->pairs[i].id);
  return 0;
}

static int compact(struct move *m, gap_kv_compaction *out) {
  struct gap_kv *kv = m->kv;
  uint32_t pages = 0;
  int rc = gap__kv_copies_queue(kv); /* they name KV pages that may move */
  if (rc) return rc;
  plan_slabs(m, out->bytes_most, &pages);
  m->pairs = malloc((pages + 1) * sizeof *m->pairs);
  if (!m->pairs) return GAP_ENOMETA;
  uint32_t going = 0;
  while (going < m->order_count && m->plan[m->order[going]] == SLAB_GOES) going++;
  plan_pages(m, going);
  rc = move_all(m);
  out->bytes_moved = rc ? 0 : m->pair_count * kv->part_bytes * kv->layers;
  return rc ? rc : gap__kv_flush(kv);
}

int gap__kv_compact(struct gap_kv *kv, gap_kv_compaction *out) {
  struct move m = {.kv = kv,
                   .plan = gap__meta_map(kv->slab_count),
                   .order = gap__meta_map(kv->slab_count * sizeof(uint32_t)),
                   .now_at = gap__meta_map(kv->page_count * sizeof(uint32_t))};
  int rc = m.plan && m.order && m.now_at ? compact(&m, out) : GAP_ENOMETA;
  gap__meta_unmap(m.plan, kv->slab_count);
  gap__meta_unmap(m.order, kv->slab_count * sizeof(uint32_t));
  gap__meta_unmap(m.now_at, kv->page_count * sizeof(uint32_t));
  free(m.pairs);
  return rc;
}

int gap_kv_compact(gap_kv *kv, gap_kv_compaction *c) {
  if (!kv || !c || c->size != sizeof *c) return GAP_EINVAL;
  gap__lock(&kv->lock);
  c->run_before = mean_run(kv);
  c->slabs_before = kv_slabs_held(kv);
  int rc = gap__kv_compact(kv, c);
  uint32_t released = rc ? 0 : gap__kv_slabs_release(kv, UINT32_MAX);
  c->slabs_after = kv_slabs_held(kv);
  c->pages_returned = released * (kv->slab_bytes >> GAP__PAGE_SHIFT);
  c->run_after = mean_run(kv);
  kv->stats.compactions += !rc;
  kv->stats.bytes_compacted += c->bytes_moved;
  gap__unlock(&kv->lock);
  return rc;
}

int gap_kv_trim(gap_kv *kv, uint64_t *pages) {
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  gap__kv_leaving_poll(kv);
  uint32_t released = gap__kv_slabs_release(kv, UINT32_MAX);
  if (pages) *pages = released * (kv->slab_bytes >> GAP__PAGE_SHIFT);
  gap__unlock(&kv->lock);
  return 0;
}
