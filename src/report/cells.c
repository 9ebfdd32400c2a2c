/* Blocks that are too many to be drawn: neighbours below a size become one cell, the size doubling until it is enough. */
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "report/moment.h"

#define NO_ROW UINT32_MAX

struct maker {
  struct gap__moment *moment;
  const struct gap__subject *subject;
  const uint32_t *row_of_segment;
  uint64_t small; /* blocks below it, and gaps below it between them, are merged */
  struct gap__cell open;
  bool is_open;
  uint64_t by_category[GAP__CAT_COUNT]; /* of the cell that is open */
  struct gap__cell *cells;              /* NULL: they are only counted */
  uint32_t count;
};

static uint64_t end_of(const struct gap__cell *cell) { return cell->offset + cell->bytes; }

static bool joins(const struct maker *maker, uint32_t row, uint64_t offset, uint64_t bytes) {
  const struct gap__cell *open = &maker->open;
  return maker->is_open && bytes < maker->small && open->row == row &&
         maker->moment->blocks[open->block].bytes < maker->small && offset - end_of(open) < maker->small;
}

static void widen(struct maker *maker, uint32_t index, uint64_t offset) {
  const struct gap__block *block = &maker->moment->blocks[index];
  struct gap__cell *open = &maker->open;
  open->bytes = offset + block->bytes - open->offset;
  open->live += block->bytes;
  open->blocks++;
  open->state = 2;
  if (block->bytes > maker->moment->blocks[open->block].bytes) open->block = index;
}

static void close_cell(struct maker *maker) {
  if (!maker->is_open) return;
  maker->open.category = (uint8_t)gap__category_most(maker->by_category);
  if (maker->cells) maker->cells[maker->count] = maker->open;
  maker->count++;
  maker->is_open = false;
}

static void open_cell(struct maker *maker, uint32_t index, uint32_t row, uint64_t offset) {
  const struct gap__block *block = &maker->moment->blocks[index];
  close_cell(maker);
  maker->is_open = true;
  maker->open = (struct gap__cell){.offset = offset,
                                   .bytes = block->bytes,
                                   .live = block->bytes,
                                   .row = row,
                                   .blocks = 1,
                                   .block = index,
                                   .state = block->pending};
  memset(maker->by_category, 0, sizeof maker->by_category);
}

static void add(struct maker *maker, uint32_t index) {
  const struct gap__block *block = &maker->moment->blocks[index];
  uint32_t row = maker->row_of_segment[block->segment];
  if (row == NO_ROW) return;
  uint64_t offset = block->addr - maker->moment->rows[row].segment.addr;
  if (joins(maker, row, offset, block->bytes)) widen(maker, index, offset);
  else open_cell(maker, index, row, offset);
  maker->by_category[gap__block_category(maker->subject, block)] += block->bytes;
}

static void make(struct maker *maker) {
  maker->count = 0;
  for (uint32_t i = 0; i < maker->moment->block_count; i++) add(maker, i);
  close_cell(maker);
}

static int by_row(const void *left, const void *right) {
  const struct gap__cell *a = left, *b = right;
  if (a->row != b->row) return a->row < b->row ? -1 : 1;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void tell_rows(struct gap__moment *moment) {
  for (uint32_t i = 0; i < moment->cell_count; i++) {
    struct gap__row *row = &moment->rows[moment->cells[i].row];
    if (row->cell_count++ == 0) row->cell_first = i;
  }
}

/* Counted until they fit, then made. */
int gap__cells_make(struct gap__moment *moment, const struct gap__subject *subject, const uint32_t *row_of_segment,
                    uint32_t most) {
  struct maker maker = {.moment = moment, .subject = subject, .row_of_segment = row_of_segment};
  make(&maker);
  for (uint64_t small = 4096; maker.count > most && small < UINT64_MAX / 2; small *= 2) {
    maker.small = small;
    make(&maker);
  }
  maker.cells = malloc(((size_t)maker.count + 1) * sizeof *maker.cells);
  if (!maker.cells) return GAP_ENOMETA;
  make(&maker);
  qsort(maker.cells, maker.count, sizeof *maker.cells, by_row);
  moment->cells = maker.cells;
  moment->cell_count = maker.count;
  tell_rows(moment);
  return 0;
}
