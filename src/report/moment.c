#include "report/moment.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

#define NO_ROW UINT32_MAX

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

/* Those that live after an event, by address. */
struct living {
  uint32_t *lives;
  uint32_t count, next;
};

static int by_address(const void *left, const void *right, void *arg) {
  const struct gap__life *lives = arg;
  uint64_t a = lives[*(const uint32_t *)left].addr, b = lives[*(const uint32_t *)right].addr;
  return a < b ? -1 : a > b;
}

static int list_living(const struct gap__subject *subject, uint32_t event, struct living *out) {
  const struct gap__lives *lives = &subject->lives;
  *out = (struct living){0};
  for (uint32_t i = 0; i < lives->count; i++) out->count += gap__life_covers(&lives->at[i], event);
  out->lives = malloc(((size_t)out->count + 1) * sizeof *out->lives);
  if (!out->lives) return GAP_ENOMETA;
  for (uint32_t i = 0, count = 0; i < lives->count; i++)
    if (gap__life_covers(&lives->at[i], event)) out->lives[count++] = i;
  qsort_r(out->lives, out->count, sizeof *out->lives, by_address, lives->at);
  return 0;
}

/* The life at an address; addresses are asked for in rising order. */
static uint32_t life_at(struct living *living, const struct gap__life *lives, uint64_t addr) {
  while (living->next < living->count && lives[living->lives[living->next]].addr < addr) living->next++;
  bool is_there = living->next < living->count && lives[living->lives[living->next]].addr == addr;
  return is_there ? living->lives[living->next] : GAP__LIFE_NEVER;
}

/* Segments and blocks are both in the order of addresses. */
static int list_blocks(const struct gap__picture *picture, const struct gap__life *lives, struct living *living,
                       struct gap__moment *moment) {
  uint32_t index = gap__tree_first(&picture->blocks, &picture->slab), segment = 0;
  moment->blocks = malloc(((size_t)picture->blocks.count + 1) * sizeof *moment->blocks);
  if (!moment->blocks) return GAP_ENOMETA;
  for (; index; index = gap__tree_next(&picture->blocks, &picture->slab, index)) {
    const struct gap__picture_block *from = gap__picture_block_at(picture, index);
    uint64_t addr = from->node.major;
    while (segment < picture->segment_count &&
           addr - picture->segments[segment].addr >= picture->segments[segment].bytes)
      segment++;
    if (segment == picture->segment_count) break;
    moment->blocks[moment->block_count++] = (struct gap__block){.addr = addr,
                                                                .bytes = from->bytes,
                                                                .segment = segment,
                                                                .life = life_at(living, lives, addr),
                                                                .stack = from->stack,
                                                                .pending = from->node.tag != 0};
  }
  return 0;
}

static int list_owners(const struct gap__picture *picture, struct gap__moment *moment) {
  moment->owners = malloc(((size_t)picture->segment_count + 1) * sizeof *moment->owners);
  if (!moment->owners) return GAP_ENOMETA;
  for (uint32_t i = 0; i < picture->segment_count; i++)
    moment->owners[i] = (struct gap__owner){picture->segments[i].stream, picture->segments[i].pool};
  return 0;
}

/* ---- arenas -------------------------------------------------------------------------------------------------------- */

static bool is_of(const struct gap__arena *arena, const struct gap__picture_segment *segment) {
  return arena->stream == segment->stream && arena->pool == segment->pool && arena->is_large == segment->is_large &&
         arena->is_expandable == segment->is_expandable && arena->is_paged == segment->is_paged;
}

static struct gap__arena *arena_of(struct gap__moment *moment, const struct gap__picture_segment *segment) {
  for (uint32_t i = 0; i < moment->arena_count; i++)
    if (is_of(&moment->arenas[i], segment)) return &moment->arenas[i];
  return NULL;
}

enum { ARENAS_MAX = 512 };

/* One for each kind of segment; beyond ARENAS_MAX the last one takes all. */
static int count_arenas(const struct gap__picture *picture, struct gap__moment *moment) {
  moment->arenas = calloc(ARENAS_MAX, sizeof *moment->arenas);
  if (!moment->arenas) return GAP_ENOMETA;
  for (uint32_t i = 0; i < picture->segment_count; i++) {
    const struct gap__picture_segment *segment = &picture->segments[i];
    struct gap__arena *arena = arena_of(moment, segment);
    if (!arena && moment->arena_count == ARENAS_MAX) arena = &moment->arenas[ARENAS_MAX - 1];
    if (!arena) {
      arena = &moment->arenas[moment->arena_count++];
      *arena = (struct gap__arena){.stream = segment->stream,
                                   .pool = segment->pool,
                                   .is_large = segment->is_large,
                                   .is_expandable = segment->is_expandable,
                                   .is_paged = segment->is_paged};
    }
    arena->segments++;
    arena->bytes += segment->bytes;
    arena->live += segment->live;
  }
  return 0;
}

static int by_held(const void *left, const void *right) {
  const struct gap__arena *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
  if (a->pool != b->pool) return a->pool < b->pool ? -1 : 1;
  return (int)b->is_large - (int)a->is_large;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static int by_size(const void *left, const void *right) {
  const struct gap__row *a = left, *b = right;
  if (a->segment.bytes != b->segment.bytes) return a->segment.bytes > b->segment.bytes ? -1 : 1;
  return a->segment.addr < b->segment.addr ? -1 : a->segment.addr > b->segment.addr;
}

static int by_arena(const void *left, const void *right) {
  const struct gap__row *a = left, *b = right;
  if (a->arena != b->arena) return a->arena < b->arena ? -1 : 1;
  return a->segment.addr < b->segment.addr ? -1 : a->segment.addr > b->segment.addr;
}

static void leave_out(struct gap__moment *moment, uint32_t most) {
  for (uint32_t i = most; i < moment->row_count; i++) {
    moment->left_segments++;
    moment->left_bytes += moment->rows[i].segment.bytes;
    moment->left_live += moment->rows[i].segment.live;
  }
  if (moment->row_count > most) moment->row_count = most;
}

static int list_rows(const struct gap__picture *picture, struct gap__moment *moment, uint32_t most) {
  moment->rows = calloc((size_t)picture->segment_count + 1, sizeof *moment->rows);
  if (!moment->rows) return GAP_ENOMETA;
  for (uint32_t i = 0; i < picture->segment_count; i++) {
    const struct gap__arena *arena = arena_of(moment, &picture->segments[i]);
    uint32_t number = arena ? (uint32_t)(arena - moment->arenas) : moment->arena_count - 1;
    moment->rows[moment->row_count++] = (struct gap__row){.segment = picture->segments[i], .arena = number};
  }
  qsort(moment->rows, moment->row_count, sizeof *moment->rows, by_size);
  leave_out(moment, most);
  qsort(moment->rows, moment->row_count, sizeof *moment->rows, by_arena);
  return 0;
}

/* Which row each segment of the picture is; NO_ROW for what was left out. */
static int number_rows(const struct gap__picture *picture, const struct gap__moment *moment, uint32_t **out) {
  uint32_t *rows = malloc(((size_t)picture->segment_count + 1) * sizeof *rows);
  *out = rows;
  if (!rows) return GAP_ENOMETA;
  memset(rows, 0xff, picture->segment_count * sizeof *rows);
  for (uint32_t i = 0; i < moment->row_count; i++)
    rows[gap__picture_segment_of(picture, moment->rows[i].segment.addr) - picture->segments] = i;
  return 0;
}

/* ---- the largest and the oldest ------------------------------------------------------------------------------------ */

struct order {
  const struct gap__moment *moment;
  const struct gap__subject *subject;
};

static int by_bytes(const void *left, const void *right, void *arg) {
  const struct order *order = arg;
  const struct gap__block *a = &order->moment->blocks[*(const uint32_t *)left];
  const struct gap__block *b = &order->moment->blocks[*(const uint32_t *)right];
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Events before the first one count as 0. */
static uint64_t birth(const struct order *order, const struct gap__block *block) {
  if (block->life == GAP__LIFE_NEVER || order->subject->lives.at[block->life].before) return 0;
  return (uint64_t)order->subject->lives.at[block->life].born + 1;
}

static int by_birth(const void *left, const void *right, void *arg) {
  const struct order *order = arg;
  uint64_t a = birth(order, &order->moment->blocks[*(const uint32_t *)left]);
  uint64_t b = birth(order, &order->moment->blocks[*(const uint32_t *)right]);
  if (a != b) return a < b ? -1 : 1;
  return by_bytes(left, right, arg);
}

static int take_first(const struct order *order, int (*compare)(const void *, const void *, void *), uint32_t most,
                      uint32_t **out) {
  uint32_t count = order->moment->block_count;
  uint32_t *sorted = malloc(((size_t)count + 1) * sizeof *sorted);
  if (!sorted) return GAP_ENOMETA;
  for (uint32_t i = 0; i < count; i++) sorted[i] = i;
  qsort_r(sorted, count, sizeof *sorted, compare, (void *)order);
  uint32_t *first = realloc(sorted, ((size_t)(count < most ? count : most) + 1) * sizeof *sorted);
  *out = first ? first : sorted;
  return 0;
}

static int find_top(struct gap__moment *moment, const struct gap__subject *subject, uint32_t most) {
  struct order order = {moment, subject};
  moment->top_count = moment->block_count < most ? moment->block_count : most;
  int rc = take_first(&order, by_bytes, most, &moment->largest);
  return rc ? rc : take_first(&order, by_birth, most, &moment->oldest);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int find_blocks(const struct gap__picture *picture, const struct gap__subject *subject,
                       struct gap__moment *moment) {
  struct living living;
  int rc = list_living(subject, moment->event, &living);
  if (!rc) rc = list_blocks(picture, subject->lives.at, &living, moment);
  free(living.lives);
  return rc;
}

int gap__moment_take(const struct gap__picture *picture, const struct gap__subject *subject, const char *name,
                     uint32_t event, const struct gap__moment_limits *limits, struct gap__moment *moment) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  uint32_t *row_of_segment = NULL;
  *moment = (struct gap__moment){.name = name,
                                 .event = event,
                                 .time_us = event < from->event_count ? from->events[event].time_us : 0,
                                 .held = picture->held,
                                 .live = picture->live,
                                 .pending = picture->pending,
                                 .segment_count = picture->segment_count};
  int rc = find_blocks(picture, subject, moment);
  if (!rc) rc = list_owners(picture, moment);
  if (!rc) rc = count_arenas(picture, moment);
  if (!rc) qsort(moment->arenas, moment->arena_count, sizeof *moment->arenas, by_held);
  if (!rc) rc = list_rows(picture, moment, limits->rows);
  if (!rc) rc = number_rows(picture, moment, &row_of_segment);
  if (!rc) rc = gap__cells_make(moment, subject, row_of_segment, limits->cells);
  if (!rc) rc = find_top(moment, subject, limits->top);
  free(row_of_segment);
  return rc;
}

void gap__moment_free(struct gap__moment *moment) {
  free(moment->blocks);
  free(moment->owners);
  free(moment->arenas);
  free(moment->rows);
  free(moment->cells);
  free(moment->largest);
  free(moment->oldest);
  *moment = (struct gap__moment){0};
}
