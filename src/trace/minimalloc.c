#include "trace/minimalloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "trace/builder.h"
#include "trace/cells.h"
#include "trace/formats.h"
#include "trace/message.h"

enum column { LOWER, UPPER, SIZE, ALIGNMENT, READ_COLUMNS, COLUMNS = 8 };
enum { NEEDED = 1u << LOWER | 1u << UPPER | 1u << SIZE, READ = NEEDED | 1u << ALIGNMENT, LOOK_BYTES = 200 };

static const char *const names[COLUMNS] = {"lower", "upper", "size", "alignment", "id", "offset", "hint", "gaps"};

struct table {
  uint32_t columns[GAP__CELLS_MAX]; /* of each cell */
  size_t column_count;
  uint64_t line;
  struct gap__minimalloc *out;
  char **message;
};

static int read_head(struct table *table, const struct gap__cell *cells, size_t count) {
  unsigned seen = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t column = i < GAP__CELLS_MAX ? gap__cell_index(&cells[i], names, COLUMNS) : COLUMNS;
    if (column == COLUMNS) {
      const struct gap__cell *cell = &cells[i < GAP__CELLS_MAX ? i : 0];
      return gap__message_set(table->message, GAP_EFORMAT, "line 1: \"%.*s\" is not a column of the CSV form",
                              (int)(cell->length < 40 ? cell->length : 40), cell->text);
    }
    if (seen & READ & 1u << column)
      return gap__message_set(table->message, GAP_EFORMAT, "line 1: a column is there twice");
    seen |= 1u << column;
    table->columns[table->column_count++] = column;
  }
  if ((seen & NEEDED) == NEEDED) return 0;
  return gap__message_set(table->message, GAP_EFORMAT, "line 1: the columns lower, upper and size are wanted");
}

static int add_block(struct table *table, const uint64_t *value) {
  unsigned long long line = table->line;
  if (value[LOWER] >= value[UPPER] || !value[SIZE] || !value[ALIGNMENT])
    return gap__message_set(table->message, GAP_EFORMAT, "line %llu: a block without life, size or alignment", line);
  if (!GAP__VEC_ROOM(table->out->blocks, 1))
    return gap__message_set(table->message, GAP_ELIMIT, "line %llu: no room for more blocks", line);
  table->out->blocks.at[table->out->blocks.count++] =
      (struct gap__minimalloc_block){value[LOWER], value[UPPER], value[SIZE], value[ALIGNMENT]};
  return 0;
}

static int read_row(struct table *table, const struct gap__cell *cells, size_t count) {
  uint64_t value[READ_COLUMNS] = {[ALIGNMENT] = 1};
  unsigned long long line = table->line;
  for (size_t i = 0; i < table->column_count; i++) {
    uint32_t column = table->columns[i];
    bool bad = i >= count;
    if (!bad && column < READ_COLUMNS) bad = gap__text_parse_u64(cells[i].text, cells[i].length, &value[column]) != 0;
    if (bad)
      return gap__message_set(table->message, GAP_EFORMAT, "line %llu: a whole number is wanted in column %zu", line,
                              i + 1);
  }
  if (count > table->column_count)
    return gap__message_set(table->message, GAP_EFORMAT, "line %llu: more cells than columns", line);
  return add_block(table, value);
}

int gap__minimalloc_table(struct gap__input *input, struct gap__minimalloc *out, char **message) {
  struct table table = {.out = out, .message = message};
  struct gap__cell cells[GAP__CELLS_MAX];
  const char *line;
  size_t length;
  *out = (struct gap__minimalloc){0};
  for (;;) {
    int rc = gap__input_line(input, &line, &length, message);
    if (rc || !line) return rc;
    table.line++;
    size_t count = gap__cells_split(line, length, cells);
    if (table.line == 1) rc = read_head(&table, cells, count);
    else if (length) rc = read_row(&table, cells, count);
    if (rc) return rc;
  }
}

void gap__minimalloc_free(struct gap__minimalloc *table) {
  free(table->blocks.at);
  *table = (struct gap__minimalloc){0};
}

/* By the first line, which names the columns. */
bool gap__is_minimalloc(const struct gap__input *input) {
  size_t there = (size_t)(input->end - input->next), line = 0;
  while (line < there && line < LOOK_BYTES && input->next[line] >= ' ' && input->next[line] < 0x7f) line++;
  bool ends = line > 0 && line < there && (input->next[line] == '\r' || input->next[line] == '\n');
  return ends && memmem(input->next, line, "lower", 5) && memmem(input->next, line, "size", 4);
}

/* ---- as a history -------------------------------------------------------------------------------------------------- */

/* A birth or a death; the block's index is its own second half of the key, so that equal moments keep the file's order. */
struct moment {
  uint64_t time;
  uint32_t block;
  bool is_birth;
};

/* At one time blocks end before others begin: upper is exclusive. */
static int by_time(const void *left, const void *right) {
  const struct moment *a = left, *b = right;
  if (a->time != b->time) return a->time < b->time ? -1 : 1;
  if (a->is_birth != b->is_birth) return a->is_birth ? 1 : -1;
  return a->block < b->block ? -1 : a->block > b->block;
}

/* Addresses are invented: one after the other, each once. */
static int give_addresses(const struct gap__minimalloc *table, uint64_t *addresses, char **message) {
  uint64_t next = (uint64_t)1 << 40;
  for (uint32_t i = 0; i < table->blocks.count; i++) {
    addresses[i] = next;
    uint64_t size = table->blocks.at[i].size;
    if (size >> 48 || next >> 62)
      return gap__message_set(message, GAP_EFORMAT, "a block of %llu bytes, or all together: no device has that much",
                              (unsigned long long)size);
    next += (size + 511) & ~(uint64_t)511;
  }
  return 0;
}

static int add_moments(const struct gap__minimalloc *table, const struct moment *moments, const uint64_t *addresses,
                       struct gap__builder *builder) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < 2 * table->blocks.count; i++) {
    uint32_t block = moments[i].block;
    struct gap__hist_event event = {.addr = addresses[block], .size = table->blocks.at[block].size};
    rc = moments[i].is_birth ? gap__builder_add(builder, event) : gap__builder_free_block(builder, event);
  }
  return rc;
}

static int build(const struct gap__minimalloc *table, struct gap__builder *builder, char **message) {
  uint32_t count = table->blocks.count;
  struct moment *moments = calloc((size_t)2 * count + 1, sizeof *moments);
  uint64_t *addresses = calloc((size_t)count + 1, sizeof *addresses);
  int rc = moments && addresses ? give_addresses(table, addresses, message) : GAP_ENOMETA;
  for (uint32_t i = 0; !rc && i < count; i++) {
    moments[2 * (size_t)i] = (struct moment){table->blocks.at[i].lower, i, true};
    moments[2 * (size_t)i + 1] = (struct moment){table->blocks.at[i].upper, i, false};
  }
  if (!rc) qsort(moments, (size_t)2 * count, sizeof *moments, by_time);
  if (!rc) rc = add_moments(table, moments, addresses, builder);
  free(moments);
  free(addresses);
  return rc;
}

int gap__minimalloc_read(struct gap__input *input, struct gap__history **out, char **message) {
  struct gap__minimalloc table;
  struct gap__builder builder = {0};
  *out = NULL;
  int rc = gap__minimalloc_table(input, &table, message);
  if (!rc) rc = build(&table, &builder, message);
  if (!rc) rc = gap__builder_finish(&builder, out);
  gap__builder_drop(&builder);
  gap__minimalloc_free(&table);
  return rc ? gap__message_set(message, rc, "%s", gap_strerror(rc)) : 0;
}
