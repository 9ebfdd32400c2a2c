/* A moment as JSON; web/src/data.ts says what the fields mean. */
#include <stdlib.h>

#include "report/moment.h"

enum { STACK_MOST = 40 };

struct writer {
  const struct gap__moment *moment;
  const struct gap__subject *subject;
  const struct gap__streams *streams;
  struct gap__names *names;
  struct gap__emit *emit;
};

static void put_arenas(const struct writer *writer) {
  struct gap__emit *emit = writer->emit;
  gap__emit_name(emit, "arenas");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < writer->moment->arena_count; i++) {
    const struct gap__arena *arena = &writer->moment->arenas[i];
    gap__emit_begin(emit, '{');
    GAP__EMIT(emit, number, "stream", gap__streams_place(writer->streams, arena->stream));
    GAP__EMIT(emit, number, "pool", arena->pool);
    GAP__EMIT(emit, text, "kind", arena->is_paged ? "paged" : arena->is_large ? "large" : "small");
    GAP__EMIT(emit, bool, "expandable", arena->is_expandable);
    GAP__EMIT(emit, number, "segments", arena->segments);
    GAP__EMIT(emit, number, "bytes", arena->bytes);
    GAP__EMIT(emit, number, "live_bytes", arena->live);
    gap__emit_end(emit, '}');
  }
  gap__emit_end(emit, ']');
}

static void put_rows(const struct writer *writer) {
  const struct gap__row *rows = writer->moment->rows;
  uint32_t count = writer->moment->row_count;
  struct gap__emit *emit = writer->emit;
  gap__emit_name(emit, "rows");
  gap__emit_begin(emit, '{');
  GAP__EMIT_COLUMN(emit, number, "arena", rows, count, arena);
  GAP__EMIT_COLUMN(emit, address, "address", rows, count, segment.addr);
  GAP__EMIT_COLUMN(emit, number, "bytes", rows, count, segment.bytes);
  GAP__EMIT_COLUMN(emit, number, "live_bytes", rows, count, segment.live);
  gap__emit_name(emit, "page_bytes");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < count; i++) gap__emit_number(emit, gap__figures_page(&rows[i].segment));
  gap__emit_end(emit, ']');
  GAP__EMIT_COLUMN(emit, number, "cell_first", rows, count, cell_first);
  GAP__EMIT_COLUMN(emit, number, "cell_count", rows, count, cell_count);
  gap__emit_end(emit, '}');
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

static const struct gap__life *seen_life(const struct writer *writer, const struct gap__block *block) {
  const struct gap__life *life = block->life == GAP__LIFE_NEVER ? NULL : &writer->subject->lives.at[block->life];
  return life && !life->before ? life : NULL;
}

static int64_t born_event(const struct writer *writer, const struct gap__block *block) {
  const struct gap__life *life = seen_life(writer, block);
  return life ? (int64_t)life->born : -1;
}

static int64_t born_us(const struct writer *writer, const struct gap__block *block) {
  const struct gap__life *life = seen_life(writer, block);
  return life ? writer->subject->history->devices[writer->subject->device].events[life->born].time_us : -1;
}

static uint32_t stack_of(const struct writer *writer, const struct gap__block *block) {
  return block->stack || block->life == GAP__LIFE_NEVER ? block->stack : writer->subject->lives.at[block->life].stack;
}

static const struct gap__block *block_of(const struct writer *writer, uint32_t cell) {
  return &writer->moment->blocks[writer->moment->cells[cell].block];
}

/* A column about the cells' blocks; -1 where there are several. */
static void put_births(const struct writer *writer, const char *name,
                       int64_t (*of)(const struct writer *, const struct gap__block *)) {
  gap__emit_name(writer->emit, name);
  gap__emit_begin(writer->emit, '[');
  for (uint32_t i = 0; i < writer->moment->cell_count; i++)
    gap__emit_signed(writer->emit, writer->moment->cells[i].blocks > 1 ? -1 : of(writer, block_of(writer, i)));
  gap__emit_end(writer->emit, ']');
}

static int put_sites(const struct writer *writer) {
  int rc = 0;
  gap__emit_name(writer->emit, "site");
  gap__emit_begin(writer->emit, '[');
  for (uint32_t i = 0; !rc && i < writer->moment->cell_count; i++) {
    uint32_t site;
    rc = gap__names_site(writer->names, stack_of(writer, block_of(writer, i)), &site);
    gap__emit_number(writer->emit, site);
  }
  gap__emit_end(writer->emit, ']');
  return rc;
}

static int put_cells(const struct writer *writer) {
  const struct gap__cell *cells = writer->moment->cells;
  uint32_t count = writer->moment->cell_count;
  struct gap__emit *emit = writer->emit;
  gap__emit_name(emit, "cells");
  gap__emit_begin(emit, '{');
  GAP__EMIT_COLUMN(emit, number, "offset_bytes", cells, count, offset);
  GAP__EMIT_COLUMN(emit, number, "bytes", cells, count, bytes);
  GAP__EMIT_COLUMN(emit, number, "state", cells, count, state);
  GAP__EMIT_COLUMN(emit, number, "blocks", cells, count, blocks);
  GAP__EMIT_COLUMN(emit, number, "live_bytes", cells, count, live);
  GAP__EMIT_COLUMN(emit, number, "category", cells, count, category);
  put_births(writer, "born_event", born_event);
  put_births(writer, "born_us", born_us);
  int rc = put_sites(writer);
  gap__emit_end(emit, '}');
  return rc;
}

/* ---- the largest and the oldest ------------------------------------------------------------------------------------ */

static int put_stack(const struct writer *writer, uint32_t stack) {
  const struct gap__history *history = writer->subject->history;
  int rc = 0;
  gap__emit_name(writer->emit, "stack");
  gap__emit_begin(writer->emit, '[');
  for (uint32_t i = 0; !rc && stack && i < history->stacks[stack].count && i < STACK_MOST; i++) {
    uint32_t frame;
    rc = gap__names_frame(writer->names, history->stack_frames[history->stacks[stack].first + i], &frame);
    gap__emit_number(writer->emit, frame);
  }
  gap__emit_end(writer->emit, ']');
  return rc;
}

static int put_block(const struct writer *writer, const struct gap__block *block) {
  const struct gap__owner *owner = &writer->moment->owners[block->segment];
  uint32_t stack = stack_of(writer, block), site;
  struct gap__emit *emit = writer->emit;
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, address, "address", block->addr);
  GAP__EMIT(emit, number, "bytes", block->bytes);
  GAP__EMIT(emit, bool, "pending", block->pending);
  GAP__EMIT(emit, signed, "born_event", born_event(writer, block));
  GAP__EMIT(emit, signed, "born_us", born_us(writer, block));
  GAP__EMIT(emit, number, "stream", gap__streams_place(writer->streams, owner->stream));
  GAP__EMIT(emit, number, "pool", owner->pool);
  GAP__EMIT(emit, number, "category", gap__block_category(writer->subject, block));
  int rc = gap__names_site(writer->names, stack, &site);
  GAP__EMIT(emit, number, "site", site);
  if (!rc) rc = put_stack(writer, stack);
  gap__emit_end(emit, '}');
  return rc;
}

static int put_top(const struct writer *writer, const char *name, const uint32_t *blocks) {
  int rc = 0;
  gap__emit_name(writer->emit, name);
  gap__emit_begin(writer->emit, '[');
  for (uint32_t i = 0; !rc && i < writer->moment->top_count; i++)
    rc = put_block(writer, &writer->moment->blocks[blocks[i]]);
  gap__emit_end(writer->emit, ']');
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static void put_head(const struct gap__moment *moment, struct gap__emit *emit) {
  GAP__EMIT(emit, text, "name", moment->name);
  GAP__EMIT(emit, number, "event", moment->event);
  GAP__EMIT(emit, signed, "time_us", moment->time_us);
  GAP__EMIT(emit, number, "held_bytes", moment->held);
  GAP__EMIT(emit, number, "live_bytes", moment->live);
  GAP__EMIT(emit, number, "pending_bytes", moment->pending);
  GAP__EMIT(emit, number, "segment_count", moment->segment_count);
  GAP__EMIT(emit, number, "block_count", moment->block_count);
}

static void put_left_out(const struct gap__moment *moment, struct gap__emit *emit) {
  gap__emit_name(emit, "left_out");
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "segments", moment->left_segments);
  GAP__EMIT(emit, number, "bytes", moment->left_bytes);
  GAP__EMIT(emit, number, "live_bytes", moment->left_live);
  gap__emit_end(emit, '}');
}

int gap__moment_emit(const struct gap__moment *moment, const struct gap__subject *subject,
                     const struct gap__streams *streams, struct gap__names *names, struct gap__emit *emit) {
  struct writer writer = {moment, subject, streams, names, emit};
  gap__emit_begin(emit, '{');
  put_head(moment, emit);
  put_arenas(&writer);
  put_rows(&writer);
  int rc = put_cells(&writer);
  put_left_out(moment, emit);
  if (!rc) rc = put_top(&writer, "largest", moment->largest);
  if (!rc) rc = put_top(&writer, "oldest", moment->oldest);
  gap__emit_end(emit, '}');
  return rc;
}
