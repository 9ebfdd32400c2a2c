/* MiniMalloc's CSV form: a block a line, its life as [lower, upper) in any unit of time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/problem.h"
#include "trace/message.h"

enum column { LOWER, UPPER, SIZE, ALIGNMENT, IGNORED, COLUMN_KINDS };
enum { COLUMNS_MAX = 16 };

struct row {
  uint64_t value[COLUMN_KINDS];
};

struct table {
  enum column columns[COLUMNS_MAX];
  unsigned column_count, line;
  struct row *rows;
  uint32_t count, room;
  char **message;
};

/* The next cell of a line, without its comma. */
static size_t cell(const char *at, const char *end) {
  size_t length = 0;
  while (at + length < end && at[length] != ',') length++;
  return length;
}

static enum column column_of(const char *name, size_t length) {
  static const char *const names[] = {"lower", "upper", "size", "alignment"};
  for (int i = LOWER; i <= ALIGNMENT; i++)
    if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return (enum column)i;
  return IGNORED;
}

static bool is_known(const char *name, size_t length) {
  static const char *const known[] = {"id", "offset", "hint", "gaps"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strlen(known[i]) == length && memcmp(known[i], name, length) == 0) return true;
  return column_of(name, length) != IGNORED;
}

static int read_head(struct table *table, const char *at, const char *end) {
  unsigned seen = 0;
  for (;; at++) {
    size_t length = cell(at, end);
    if (!is_known(at, length) || table->column_count == COLUMNS_MAX)
      return gap__message_set(table->message, GAP_EFORMAT, "line 1: \"%.*s\" is not a column of the CSV form",
                              (int)(length < 40 ? length : 40), at);
    enum column column = column_of(at, length);
    if (column != IGNORED && (seen & 1u << column))
      return gap__message_set(table->message, GAP_EFORMAT, "line 1: a column is there twice");
    seen |= 1u << column;
    table->columns[table->column_count++] = column;
    at += length;
    if (at == end) break;
  }
  unsigned wanted = 1u << LOWER | 1u << UPPER | 1u << SIZE;
  if ((seen & wanted) == wanted) return 0;
  return gap__message_set(table->message, GAP_EFORMAT, "line 1: the columns lower, upper and size are wanted");
}

static int add_row(struct table *table, const struct row *row) {
  if (row->value[LOWER] >= row->value[UPPER] || !row->value[SIZE] || !row->value[ALIGNMENT])
    return gap__message_set(table->message, GAP_EFORMAT, "line %u: a block without life, size or alignment",
                            table->line);
  if (table->count == GAP__PLAN_BLOCKS_MAX)
    return gap__message_set(table->message, GAP_ELIMIT, "line %u: more blocks than a plan can hold", table->line);
  if (table->count == table->room) {
    uint32_t room = 2 * table->room + 64;
    void *grown = realloc(table->rows, room * sizeof *table->rows);
    if (!grown) return GAP_ENOMETA;
    table->rows = grown;
    table->room = room;
  }
  table->rows[table->count++] = *row;
  return 0;
}

static int read_row(struct table *table, const char *at, const char *end) {
  struct row row = {.value[ALIGNMENT] = 1};
  for (unsigned i = 0; i < table->column_count; i++) {
    size_t length = at <= end ? cell(at, end) : 0;
    if (at > end || (table->columns[i] != IGNORED && gap__text_parse_u64(at, length, &row.value[table->columns[i]])))
      return gap__message_set(table->message, GAP_EFORMAT, "line %u: a whole number is wanted in column %u",
                              table->line, i + 1);
    at += length + 1;
  }
  if (at <= end) return gap__message_set(table->message, GAP_EFORMAT, "line %u: more cells than columns", table->line);
  return add_row(table, &row);
}

static int read_lines(struct table *table, const char *text, size_t bytes) {
  const char *end = text + bytes;
  int rc = 0;
  while (!rc && text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text)), *next = stop ? stop + 1 : end;
    if (!stop) stop = end;
    if (stop > text && stop[-1] == '\r') stop--;
    table->line++;
    if (table->line == 1) rc = read_head(table, text, stop);
    else if (stop > text) rc = read_row(table, text, stop);
    text = next;
  }
  return rc;
}

static int by_number(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static uint32_t rank_of(const uint64_t *times, uint32_t count, uint64_t time) {
  const uint64_t *found = bsearch(&time, times, count, sizeof *times, by_number);
  return found ? (uint32_t)(found - times) : 0;
}

static int by_birth(const void *a, const void *b) {
  const struct gap__plan_entry *left = a, *right = b;
  if (left->from != right->from) return left->from < right->from ? -1 : 1;
  return left->to < right->to ? -1 : left->to > right->to;
}

/* Times become ranks. */
static int make_entries(const struct table *table, struct gap_plan *plan) {
  uint64_t *times = malloc(((size_t)2 * table->count + 1) * sizeof *times);
  plan->at = calloc((size_t)table->count + 1, sizeof *plan->at);
  plan->streams = calloc(plan->stream_count = 1, sizeof *plan->streams);
  if (!times || !plan->at || !plan->streams) {
    free(times);
    return GAP_ENOMETA;
  }
  uint32_t distinct = 0;
  for (uint32_t i = 0; i < table->count; i++) {
    times[2 * i] = table->rows[i].value[LOWER];
    times[2 * i + 1] = table->rows[i].value[UPPER];
  }
  qsort(times, (size_t)2 * table->count, sizeof *times, by_number);
  for (uint32_t i = 0; i < 2 * table->count; i++)
    if (i == 0 || times[i] != times[distinct - 1]) times[distinct++] = times[i];
  for (uint32_t i = 0; i < table->count; i++) {
    const uint64_t *value = table->rows[i].value;
    plan->at[i] = (struct gap__plan_entry){.bytes = value[SIZE],
                                           .align = value[ALIGNMENT],
                                           .from = rank_of(times, distinct, value[LOWER]),
                                           .to = rank_of(times, distinct, value[UPPER])};
  }
  free(times);
  plan->count = table->count;
  plan->moments = distinct ? distinct - 1 : 0;
  qsort(plan->at, plan->count, sizeof *plan->at, by_birth);
  return 0;
}

int gap__plan_from_csv(const char *text, size_t bytes, struct gap_plan *plan, char **message) {
  struct table table = {.message = message};
  int rc = read_lines(&table, text, bytes);
  if (!rc) rc = make_entries(&table, plan);
  free(table.rows);
  return rc;
}
