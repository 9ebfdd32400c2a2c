/* A row of cells that shows a card's address space: '#' live, '.' idle memory, ' ' addresses without memory. */
#ifndef GAP_PICTURE_H
#define GAP_PICTURE_H

#include "gapless/tools.h"

enum { PICTURE_CELLS = 96 };

struct picture {
  char cells[PICTURE_CELLS + 1];
  uint64_t live_bytes, idle_bytes, largest_idle_bytes;
};

/* `mark` is a block to be shown as '2' instead, 0: none. */
int picture_draw(gap_card *, uint64_t cell_bytes, gap_addr mark, struct picture *out);

#endif
