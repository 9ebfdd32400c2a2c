/* Trays of blocks of one size class: see tray.h. */
#include "core/tray.h"

#include "core/arena.h"

enum { TRAYS_MAX = 1 << 20, STEPS_FROM = 2048, STEPS_TO = 4 << 20, REST_SHARE = 8 };

/* ---- classes ---- */

/* The fewest pages of which at most an eighth is left over; eight times the least always suffice. */
static uint32_t tray_pages(uint32_t units) {
  uint64_t pages = gap__page_up(units);
  while (pages * GAP__PAGE_UNITS % units * REST_SHARE > pages * GAP__PAGE_UNITS) pages++;
  return (uint32_t)pages;
}

static void add(struct gap__classes *classes, uint64_t bytes) {
  uint64_t units = bytes >> GAP__UNIT_SHIFT;
  if (units > GAP__UNITS_MAX || classes->count == GAP__CLASSES_MAX) return;
  classes->units[classes->count] = (uint32_t)units;
  classes->pages[classes->count++] = tray_pages((uint32_t)units);
}

/* Four steps between two powers of two: a block is at most a fifth waste. */
static void add_usual(struct gap__classes *classes) {
  for (uint64_t bytes = GAP__UNIT; bytes < STEPS_FROM; bytes += GAP__UNIT) add(classes, bytes);
  for (uint64_t power = STEPS_FROM; power < STEPS_TO; power *= 2)
    for (uint64_t bytes = power; bytes < 2 * power; bytes += power / 4) add(classes, bytes);
  add(classes, STEPS_TO);
}

void gap__classes_set(struct gap__classes *classes, const struct gap__conf *conf) {
  classes->count = 0;
  for (uint32_t i = 0; i < conf->pool_size_count; i++) add(classes, conf->pool_sizes[i]);
  if (!conf->pool_size_count) add_usual(classes);
}

/* ---- lists ---- */

static void class_push(struct gap__lane *lane, uint32_t class, uint32_t index) {
  struct gap__block *b = gap__block(lane, index);
  uint32_t head = lane->class_head[class];
  b->link_prev = 0;
  b->link_next = head;
  if (head) gap__block(lane, head)->link_prev = index;
  lane->class_head[class] = index;
}

static void class_remove(struct gap__lane *lane, uint32_t class, uint32_t index) {
  const struct gap__block *b = gap__block(lane, index);
  if (b->link_next) gap__block(lane, b->link_next)->link_prev = b->link_prev;
  if (b->link_prev) gap__block(lane, b->link_prev)->link_next = b->link_next;
  else lane->class_head[class] = b->link_next;
}

static struct gap__arena *arena_of(const struct gap__lane *lane, uint32_t block) {
  return gap__range_at(lane->owner, gap__block(lane, block)->range)->arena;
}

static void empty_insert(struct gap__lane *lane, uint32_t index) {
  struct gap__tray *tray = gap__tray_at(lane, index);
  struct gap__arena *arena = arena_of(lane, tray->first);
  tray->prev = 0;
  tray->next = arena->empty_trays;
  if (tray->next) gap__tray_at(lane, tray->next)->prev = index;
  arena->empty_trays = index;
}

static void empty_remove(struct gap__lane *lane, uint32_t index) {
  const struct gap__tray *tray = gap__tray_at(lane, index);
  if (tray->next) gap__tray_at(lane, tray->next)->prev = tray->prev;
  if (tray->prev) gap__tray_at(lane, tray->prev)->next = tray->next;
  else arena_of(lane, tray->first)->empty_trays = tray->next;
}

/* ---- blocks ---- */

static void file(struct gap__lane *lane, uint32_t class, uint32_t index, uint32_t tray) {
  struct gap__block *b = gap__block(lane, index);
  b->state = GAP__CACHED;
  b->tray = true;
  b->slack = tray;
  class_push(lane, class, index);
  struct gap__arena *arena = arena_of(lane, index);
  arena->class_idle_units += b->len;
  arena->class_idle_count++;
}

static void unfile(struct gap__lane *lane, uint32_t class, uint32_t index) {
  struct gap__block *b = gap__block(lane, index);
  struct gap__arena *arena = arena_of(lane, index);
  class_remove(lane, class, index);
  arena->class_idle_units -= b->len;
  arena->class_idle_count--;
  b->state = GAP__RESERVED;
}

void gap__tray_pick(struct gap__lane *lane, uint32_t index) {
  struct gap__block *b = gap__block(lane, index);
  struct gap__tray *tray = gap__tray_at(lane, b->slack);
  unfile(lane, tray->class, index);
  if (tray->live++ == 0) empty_remove(lane, b->slack);
  b->link_prev = b->slack;
}

uint32_t gap__tray_take(struct gap__lane *lane, uint32_t class) {
  uint32_t index = lane->class_head[class];
  if (index) gap__tray_pick(lane, index);
  return index;
}

void gap__tray_give(struct gap__lane *lane, uint32_t index) {
  const struct gap__block *b = gap__block(lane, index);
  uint32_t number = b->link_prev;
  struct gap__tray *tray = gap__tray_at(lane, number);
  gap__range_stamp(gap__range_at(lane->owner, b->range), b->off, b->len, lane->epoch);
  file(lane, tray->class, index, number);
  if (--tray->live == 0) empty_insert(lane, number);
}

/* ---- trays ---- */

static int trays_ready(struct gap__lane *lane) {
  return lane->trays.base ? 0 : gap__slab_init_fitting(&lane->trays, sizeof(struct gap__tray), TRAYS_MAX);
}

/* Cuts pieces of `units` off a block; the last of them, and how many.  What is left over is idle. */
static uint32_t cut_pieces(struct gap__arena *arena, uint32_t block, uint32_t units, uint32_t *count) {
  struct gap__lane *lane = arena->lane;
  uint32_t last = 0, rest = block;
  *count = 0;
  while (rest && gap__block(lane, rest)->len >= units) {
    uint32_t piece = rest;
    rest = 0;
    if (gap__block(lane, piece)->len > units && !(rest = gap__block_cut(arena, piece, units))) {
      rest = piece; /* no more records */
      break;
    }
    last = piece;
    ++*count;
  }
  if (rest) gap__block_attach(arena, rest, GAP__IDLE);
  return last;
}

int gap__tray_cut(struct gap__arena *arena, uint32_t block, uint32_t class) {
  struct gap__lane *lane = arena->lane;
  uint32_t number = trays_ready(lane) ? 0 : gap__slab_take(&lane->trays), count;
  if (!number) {
    gap__block_attach(arena, block, GAP__IDLE);
    return GAP_ENOMETA;
  }
  uint32_t piece = cut_pieces(arena, block, lane->owner->classes.units[class], &count);
  if (!piece) {
    gap__slab_give(&lane->trays, number);
    return GAP_ENOMETA;
  }
  *gap__tray_at(lane, number) = (struct gap__tray){.first = block, .count = count, .class = class};
  for (uint32_t i = 0; i < count; i++, piece = gap__block(lane, piece)->prev) file(lane, class, piece, number);
  empty_insert(lane, number);
  arena->tray_count++;
  return 0;
}

static void dissolve(struct gap__arena *arena, uint32_t number) {
  struct gap__lane *lane = arena->lane;
  struct gap__tray *tray = gap__tray_at(lane, number);
  uint32_t first = tray->first, index = first;
  empty_remove(lane, number);
  for (uint32_t i = 0; i < tray->count; i++, index = gap__block(lane, index)->next) {
    unfile(lane, tray->class, index);
    gap__block(lane, index)->tray = false;
  }
  for (uint32_t i = 1; i < tray->count; i++) gap__block_absorb_next(arena, first);
  gap__block_attach(arena, first, GAP__IDLE);
  tray->count = 0;
  arena->tray_count--;
  gap__slab_give(&lane->trays, number);
}

void gap__tray_dissolve_empty(struct gap__arena *arena) {
  while (arena->empty_trays) dissolve(arena, arena->empty_trays);
}
