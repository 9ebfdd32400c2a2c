/* A table of text: the first column flush left, the others flush right, each as wide as its widest cell. */
#ifndef GAP_TABLE_H
#define GAP_TABLE_H

#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 16, TABLE_CELL_BYTES = 48 };

struct table {
  char (*cells)[TABLE_CELL_BYTES];
  int columns, count, capacity; /* cells, row by row */
  int failed;                   /* the host had no memory */
};

void table_begin(struct table *, int columns);
/* The next cell, row by row. */
void table_cell(struct table *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints it with `indent` blanks before each line, and frees it. */
void table_end(struct table *, int indent, FILE *out);

#endif
