#include "trace/cells.h"

#include <string.h>

static struct gap__cell trimmed(const char *text, size_t length) {
  while (length && (*text == ' ' || *text == '\t')) text++, length--;
  while (length && (text[length - 1] == ' ' || text[length - 1] == '\t')) length--;
  return (struct gap__cell){text, length};
}

size_t gap__cells_split(const char *line, size_t length, struct gap__cell cells[GAP__CELLS_MAX]) {
  size_t count = 0;
  for (const char *end = line + length;; line++) {
    const char *comma = memchr(line, ',', (size_t)(end - line)), *stop = comma ? comma : end;
    if (count < GAP__CELLS_MAX) cells[count] = trimmed(line, (size_t)(stop - line));
    count++;
    line = stop;
    if (!comma) return count;
  }
}

bool gap__cell_is(const struct gap__cell *cell, const char *text) {
  return strlen(text) == cell->length && memcmp(text, cell->text, cell->length) == 0;
}

uint32_t gap__cell_index(const struct gap__cell *cell, const char *const *names, uint32_t count) {
  uint32_t i = 0;
  while (i < count && !gap__cell_is(cell, names[i])) i++;
  return i;
}
