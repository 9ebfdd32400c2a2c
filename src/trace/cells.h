/* Lines of comma-separated cells, without quotes: what logs and small tables are made of. */
#ifndef GAP_TRACE_CELLS_H
#define GAP_TRACE_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GAP__CELLS_MAX = 16 };

struct gap__cell {
  const char *text;
  size_t length; /* without blanks around it */
};

/* How many cells there are; those beyond GAP__CELLS_MAX are counted but not given. */
size_t gap__cells_split(const char *line, size_t length, struct gap__cell cells[GAP__CELLS_MAX]);
bool gap__cell_is(const struct gap__cell *, const char *text);
/* Which of the names a cell has; `count` for none. */
uint32_t gap__cell_index(const struct gap__cell *, const char *const *names, uint32_t count);

#endif
