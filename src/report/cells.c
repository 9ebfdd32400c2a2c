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
  uint64_t small;                       /* blocks below it, and gaps below it between them, are merged */
  uint64_t by_category[GAP__CAT_COUNT]; /* of the cell that is open */
};

static uint64_t end_of(const struct gap__cell *cell) { return cell->offset + cell->bytes; }

static bool joins(const struct maker *maker, const struct gap__cell *last, uint32_t row, uint64_t offset,
                  uint64_t bytes) {
  const struct gap__block *largest = &maker->moment->blocks[last->block];
  return bytes < maker->small && last->row == row && largest->bytes < maker->small &&
         offset - end_of(last) < maker->small;
}

static void widen(struct maker *maker, struct gap__cell *cell, uint32_t index, uint64_t offset) {
  const struct gap__block *block = &maker->moment->blocks[index];
  cell->bytes = offset + block->bytes - cell->offset;
  cell->live += block->bytes;
  cell->blocks++;
  cell->state = 2;
  if (block->bytes > maker->moment->blocks[cell->block].bytes) cell->block = index;
}

static void add(struct maker *maker, struct gap__cell *cells, uint32_t *count, uint32_t index) {
  const struct gap__block *block = &maker->moment->blocks[index];
  uint32_t row = maker->row_of_segment[block->segment];
  if (row == NO_ROW) return;
  uint64_t offset = block->addr - maker->moment->rows[row].segment.addr;
  struct gap__cell *last = *count ? &cells[*count - 1] : NULL;
  if (last && joins(maker, last, row, offset, block->bytes)) {
    widen(maker, last, index, offset);
  } else {
    last = &cells[(*count)++];
    *last = (struct gap__cell){.offset = offset,
                               .bytes = block->bytes,
                               .live = block->bytes,
                               .row = row,
                               .blocks = 1,
                               .block = index,
                               .state = block->pending};
    memset(maker->by_category, 0, sizeof maker->by_category);
  }
  maker->by_category[gap__block_category(maker->subject, block)] += block->bytes;
  last->category = (uint8_t)gap__category_most(maker->by_category);
}

static uint32_t make(struct maker *maker, struct gap__cell *cells) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < maker->moment->block_count; i++) add(maker, cells, &count, i);
  return count;
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

int gap__cells_make(struct gap__moment *moment, const struct gap__subject *subject, const uint32_t *row_of_segment,
                    uint32_t most) {
  struct maker maker = {.moment = moment, .subject = subject, .row_of_segment = row_of_segment};
  struct gap__cell *cells = malloc(((size_t)moment->block_count + 1) * sizeof *cells);
  if (!cells) return GAP_ENOMETA;
  uint32_t count = make(&maker, cells);
  for (maker.small = 4096; count > most && maker.small < UINT64_MAX / 2; maker.small *= 2) count = make(&maker, cells);
  qsort(cells, count, sizeof *cells, by_row);
  moment->cells = cells;
  moment->cell_count = count;
  tell_rows(moment);
  return 0;
}
