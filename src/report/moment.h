/* The address map of a device at a moment of its history: segments as rows, blocks as cells, few enough to be drawn. */
#ifndef GAP_REPORT_MOMENT_H
#define GAP_REPORT_MOMENT_H

#include "explain/picture.h"
#include "report/names.h"
#include "report/streams.h"

struct gap__block { /* that is live or pending */
  uint64_t addr, bytes;
  uint32_t segment; /* index in the picture, and in `owners` */
  uint32_t life;    /* GAP__LIFE_NEVER: no event tells of it */
  uint32_t stack;
  bool pending;
};

struct gap__owner {
  uint64_t stream;
  uint16_t pool;
};

struct gap__cell {
  uint64_t offset, bytes, live; /* offset from the row's address */
  uint32_t row, blocks;
  uint32_t block;   /* the largest one in it */
  uint8_t state;    /* 0 live, 1 pending, 2 several */
  uint8_t category; /* of most bytes */
};

struct gap__arena { /* segments that serve the same requests */
  uint64_t stream, bytes, live;
  uint32_t segments;
  uint16_t pool;
  bool is_large, is_expandable, is_paged;
};

struct gap__row {
  struct gap__picture_segment segment;
  uint32_t arena, cell_first, cell_count;
};

struct gap__moment_limits {
  uint32_t rows, cells; /* at most */
  uint32_t top;         /* of the largest and the oldest blocks */
};

struct gap__moment {
  const char *name;
  uint32_t event;
  int64_t time_us;
  uint64_t held, live, pending;
  struct gap__block *blocks; /* by address; all of them */
  struct gap__owner *owners; /* of each segment of the picture */
  uint32_t block_count, segment_count;
  struct gap__arena *arenas; /* most held first */
  uint32_t arena_count;
  struct gap__row *rows; /* by arena and address */
  uint32_t row_count;
  struct gap__cell *cells;
  uint32_t cell_count;
  uint64_t left_segments, left_bytes, left_live;
  uint32_t *largest, *oldest; /* blocks */
  uint32_t top_count;
};

/* What a picture shows; `event` is the last one that it includes.  0 or GAP_ENOMETA. */
int gap__moment_take(const struct gap__picture *, const struct gap__subject *, const char *name, uint32_t event,
                     const struct gap__moment_limits *, struct gap__moment *);
void gap__moment_free(struct gap__moment *);
int gap__moment_emit(const struct gap__moment *, const struct gap__subject *, const struct gap__streams *,
                     struct gap__names *, struct gap__emit *); /* 0 or GAP_ENOMETA */

/* cells.c */
/* Blocks of rows become cells; where there are more than `most`, small neighbours are merged.  0 or GAP_ENOMETA. */
int gap__cells_make(struct gap__moment *, const struct gap__subject *, const uint32_t *row_of_segment, uint32_t most);

/* The category of a block. */
static inline uint8_t gap__block_category(const struct gap__subject *subject, const struct gap__block *block) {
  return block->life == GAP__LIFE_NEVER ? GAP__CAT_UNKNOWN : subject->lives.at[block->life].category;
}

#endif
