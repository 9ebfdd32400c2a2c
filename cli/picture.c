#include "picture.h"

#include <string.h>

enum kind { LIVE, MARKED, IDLE, HOLE, KINDS };
static const char letters[KINDS] = {'#', '2', '.', ' '};

struct drawing {
  struct picture *picture;
  uint64_t cell_bytes;
  gap_addr mark;
  uint64_t in_cell[KINDS]; /* bytes of each kind in the cell at hand */
  uint64_t filled;         /* their sum */
  int cells;
  uint64_t idle_run; /* idle bytes side by side, up to here */
  gap_addr end;      /* of the last piece */
};

static void flush_cell(struct drawing *drawing) {
  int most = 0;
  for (int kind = 1; kind < KINDS; kind++)
    if (drawing->in_cell[kind] > drawing->in_cell[most]) most = kind;
  if (drawing->cells < PICTURE_CELLS) drawing->picture->cells[drawing->cells++] = letters[most];
  memset(drawing->in_cell, 0, sizeof drawing->in_cell);
  drawing->filled = 0;
}

static void add(struct drawing *drawing, enum kind kind, uint64_t bytes) {
  while (bytes > 0 && drawing->cells < PICTURE_CELLS) {
    uint64_t room = drawing->cell_bytes - drawing->filled;
    uint64_t part = bytes < room ? bytes : room;
    drawing->in_cell[kind] += part;
    drawing->filled += part;
    bytes -= part;
    if (drawing->filled == drawing->cell_bytes) flush_cell(drawing);
  }
}

static void measure(struct drawing *drawing, enum kind kind, gap_addr addr, uint64_t bytes) {
  struct picture *picture = drawing->picture;
  if (kind == LIVE || kind == MARKED) picture->live_bytes += bytes;
  if (kind != IDLE || addr != drawing->end) drawing->idle_run = 0;
  if (kind != IDLE) return;
  picture->idle_bytes += bytes;
  drawing->idle_run += bytes;
  if (drawing->idle_run > picture->largest_idle_bytes) picture->largest_idle_bytes = drawing->idle_run;
}

static int piece(void *arg, enum gap_piece what, gap_addr addr, uint64_t bytes) {
  struct drawing *drawing = arg;
  enum kind kind = what == GAP_PIECE_HOLE ? HOLE : what == GAP_PIECE_IDLE ? IDLE : LIVE;
  if (kind == LIVE && drawing->mark != 0 && addr == drawing->mark) kind = MARKED;
  measure(drawing, kind, addr, bytes);
  add(drawing, kind, bytes);
  drawing->end = addr + bytes;
  return 0;
}

int picture_draw(gap_card *card, uint64_t cell_bytes, gap_addr mark, struct picture *out) {
  struct drawing drawing = {.picture = out, .cell_bytes = cell_bytes, .mark = mark};
  *out = (struct picture){0};
  int rc = gap_card_walk(card, piece, &drawing);
  if (drawing.filled > 0) flush_cell(&drawing);
  while (drawing.cells > 0 && out->cells[drawing.cells - 1] == ' ') drawing.cells--;
  out->cells[drawing.cells] = '\0';
  return rc;
}
