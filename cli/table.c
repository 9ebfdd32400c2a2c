#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *table, int columns) { *table = (struct table){.columns = columns}; }

static int reserve(struct table *table) {
  if (table->count < table->capacity) return 1;
  int capacity = table->capacity ? table->capacity * 2 : 64;
  void *cells = realloc(table->cells, (size_t)capacity * sizeof *table->cells);
  if (!cells) return 0;
  table->cells = cells;
  table->capacity = capacity;
  return 1;
}

void table_cell(struct table *table, const char *format, ...) {
  if (!reserve(table)) {
    table->failed = 1;
    return;
  }
  va_list args;
  va_start(args, format);
  vsnprintf(table->cells[table->count++], TABLE_CELL_BYTES, format, args);
  va_end(args);
}

static void measure(const struct table *table, int widths[TABLE_COLUMNS_MAX]) {
  for (int i = 0; i < table->count; i++) {
    int length = (int)strlen(table->cells[i]), *width = &widths[i % table->columns];
    if (length > *width) *width = length;
  }
}

void table_end(struct table *table, int indent, FILE *out) {
  int widths[TABLE_COLUMNS_MAX] = {0};
  measure(table, widths);
  for (int i = 0; i < table->count && !table->failed; i++) {
    int column = i % table->columns;
    if (column == 0) fprintf(out, "%*s%-*s", indent, "", widths[0], table->cells[i]);
    else fprintf(out, "  %*s", widths[column], table->cells[i]);
    if (column == table->columns - 1) fputc('\n', out);
  }
  free(table->cells);
  *table = (struct table){0};
}
