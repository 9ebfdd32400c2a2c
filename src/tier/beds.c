#include "tier/beds.h"

#include <stdlib.h>

struct collecting {
  struct tier_beds *beds;
  gap_pool_id pool;
  bool asleep;
  gap_addr from, to;
};

static bool make_room(struct tier_beds *b) {
  if (b->count < b->room) return true;
  uint32_t room = b->room ? 2 * b->room : 64;
  struct tier_bed *beds = realloc(b->beds, room * sizeof *beds);
  if (!beds) return false;
  b->beds = beds;
  b->room = room;
  return true;
}

static int add(void *arg, const struct gap__bed *bed) {
  const struct collecting *c = arg;
  uint64_t bytes = (uint64_t)bed->pages * GAP__PAGE;
  if (bed->asleep != c->asleep || bed->addr >= c->to || bed->addr + bytes <= c->from) return 0;
  if (!make_room(c->beds)) return GAP_ENOMETA;
  c->beds->beds[c->beds->count++] = (struct tier_bed){.is = *bed, .pool = c->pool};
  return 0;
}

int gap__beds_collect(struct tier_beds *b, gap_pool_id pool, bool asleep, gap_addr from, gap_addr to) {
  struct collecting c = {b, pool, asleep, from, to};
  return gap__sleep_visit(b->state, pool, add, &c, &b->kept_pages);
}

static int by_address(const void *a, const void *b) {
  const struct tier_bed *x = a, *y = b;
  return x->is.addr < y->is.addr ? -1 : x->is.addr > y->is.addr;
}

void gap__beds_sort(struct tier_beds *b) {
  if (b->count) qsort(b->beds, b->count, sizeof *b->beds, by_address);
}

void gap__beds_free(struct tier_beds *b) { free(b->beds); }

struct tier_bed *gap__beds_at(const struct tier_beds *b, gap_addr addr) {
  uint32_t low = 0, high = b->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (b->beds[middle].is.addr <= addr) low = middle;
    else high = middle;
  }
  return &b->beds[low];
}

uint64_t gap__beds_pages(const struct tier_beds *b, bool empty_only) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < b->count; i++) pages += !empty_only || b->beds[i].is.empty ? b->beds[i].is.pages : 0;
  return pages;
}

bool gap__bed_lives(const struct gap__bed *bed, gap_addr addr, uint64_t bytes) {
  uint64_t first = (addr - bed->addr) / GAP__PAGE;
  for (uint64_t i = first; i < first + bytes / GAP__PAGE; i++)
    if (bed->live[i / 64] >> i % 64 & 1) return true;
  return false;
}

int gap__pieces_add(struct tier_pieces *p, const struct gap__piece *piece) {
  if (p->count == p->room) {
    uint32_t room = p->room ? 2 * p->room : 64;
    struct gap__piece *pieces = realloc(p->pieces, room * sizeof *pieces);
    if (!pieces) return GAP_ENOMETA;
    p->pieces = pieces;
    p->room = room;
  }
  p->pieces[p->count++] = *piece;
  return 0;
}
