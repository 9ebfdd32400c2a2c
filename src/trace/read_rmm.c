/* The log of RMM's logging_resource_adaptor: a line for every allocation, free and refused request.
 *
 *   Thread,Time,Action,Pointer,Size,Stream
 *   1979932,14:21:19.998533,allocate,0x30a000000,256,0x2
 *
 * Columns may come in any order and further ones are passed over; a log without its first line has this order.  Times are those of a day
 * (a log that passes midnight goes on with the next day), or seconds since 1970; what is earlier than the line before, as the lines of
 * several threads may be, counts as simultaneous.  RMM frees in stream order, so a free is complete at once.  Nothing is known of threads,
 * segments, and of the memory that was free at a refusal. */
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "trace/builder.h"
#include "trace/cells.h"
#include "trace/formats.h"
#include "trace/message.h"

enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };
#define DAY_US ((int64_t)86400 * 1000000)
#define DAYS_MAX 1000000
#define LATE_US ((int64_t)60 * 1000000) /* a line that is later by more is one of the next day */

static const char *const column_names[COLUMNS] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

struct log {
  struct gap__builder builder;
  uint32_t at[COLUMNS]; /* the cell of each column; GAP__CELLS_MAX: absent */
  uint64_t line;
  int64_t base_us, last_us, days_us; /* of the first line; of the last, without the days that passed */
  bool has_base;
  char **message;
};

/* ---- cells --------------------------------------------------------------------------------------------------------- */

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(const char *text, size_t length, uint64_t *out) {
  *out = 0;
  for (size_t i = 0; i < length; i++) {
    int digit = digit_of(text[i]);
    if (digit < 0 || *out >> 60) return false;
    *out = *out << 4 | (uint64_t)digit;
  }
  return length > 0;
}

/* "0x7f00", "(nil)"; a stream may also be a plain number. */
static bool parse_handle(const struct gap__cell *cell, uint64_t *out) {
  *out = 0;
  if (gap__cell_is(cell, "(nil)") || gap__cell_is(cell, "nullptr")) return true;
  if (cell->length > 2 && cell->text[0] == '0' && (cell->text[1] | 0x20) == 'x')
    return parse_hex(cell->text + 2, cell->length - 2, out);
  return gap__text_parse_u64(cell->text, cell->length, out) == 0;
}

/* Two digits and what must follow them. */
static bool take_two(const char **at, const char *end, char then, int64_t *out) {
  const char *text = *at;
  if (end - text < 2 || digit_of(text[0]) > 9 || digit_of(text[1]) > 9 || digit_of(text[0]) < 0 ||
      digit_of(text[1]) < 0)
    return false;
  *out = digit_of(text[0]) * 10 + digit_of(text[1]);
  *at = text + 2;
  if (!then) return true;
  return *at < end && *(*at)++ == then;
}

/* Digits behind the point, in millionths. */
static bool take_fraction(const char *at, const char *end, int64_t *out) {
  int64_t unit = 100000;
  *out = 0;
  for (; at < end; at++, unit /= 10) {
    if (digit_of(*at) < 0 || digit_of(*at) > 9) return false;
    *out += unit * digit_of(*at);
  }
  return true;
}

/* 14:21:19.998533; older versions have a colon before the fraction. */
static bool parse_clock(const char *at, const char *end, int64_t *us) {
  int64_t hours, minutes, seconds, fraction = 0;
  if (!take_two(&at, end, ':', &hours) || !take_two(&at, end, ':', &minutes) || !take_two(&at, end, 0, &seconds))
    return false;
  if (hours > 23 || minutes > 59 || seconds > 60) return false;
  if (at < end && *at != '.' && *at != ':') return false;
  if (at < end && !take_fraction(at + 1, end, &fraction)) return false;
  *us = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + fraction;
  return true;
}

static bool parse_seconds(const char *at, const char *end, int64_t *us) {
  const char *point = memchr(at, '.', (size_t)(end - at)), *stop = point ? point : end;
  uint64_t seconds;
  int64_t fraction = 0;
  if (gap__text_parse_u64(at, (size_t)(stop - at), &seconds) || seconds > INT64_MAX / 4000000) return false;
  if (point && !take_fraction(point + 1, end, &fraction)) return false;
  *us = (int64_t)seconds * 1000000 + fraction;
  return true;
}

static bool parse_time(const struct gap__cell *cell, int64_t *us) {
  const char *end = cell->text + cell->length;
  return parse_clock(cell->text, end, us) || parse_seconds(cell->text, end, us);
}

/* ---- lines --------------------------------------------------------------------------------------------------------- */

static int wrong(const struct log *log, enum column column, const struct gap__cell *cell) {
  return gap__message_set(log->message, GAP_EFORMAT, "line %llu: \"%.*s\" is no %s of an RMM log",
                          (unsigned long long)log->line, (int)(cell->length < 40 ? cell->length : 40), cell->text,
                          column_names[column]);
}

static bool is_head(const struct gap__cell *cells, size_t count) {
  unsigned seen = 0;
  for (size_t i = 0; i < count; i++) seen |= 1u << gap__cell_index(&cells[i], column_names, COLUMNS);
  return seen & 1u << ACTION && seen & 1u << POINTER && seen & 1u << SIZE;
}

static void take_head(struct log *log, const struct gap__cell *cells, size_t count) {
  for (uint32_t i = 0; i < COLUMNS; i++) log->at[i] = GAP__CELLS_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t column = gap__cell_index(&cells[i], column_names, COLUMNS);
    if (column < COLUMNS) log->at[column] = i;
  }
}

/* Since the first line; never less than before. */
static int64_t pass_time(struct log *log, int64_t us) {
  if (!log->has_base) {
    log->base_us = log->last_us = us;
    log->has_base = true;
  }
  bool of_day = us < DAY_US && log->last_us < DAY_US;
  if (of_day && log->last_us - us > LATE_US && log->days_us < DAYS_MAX * DAY_US) {
    log->days_us += DAY_US;
    log->last_us = us;
  }
  if (us > log->last_us) log->last_us = us;
  return log->days_us + log->last_us - log->base_us;
}

enum kind { ALLOCATES, FREES, FAILS, NO_KIND };

static enum kind kind_of(const struct gap__cell *cell) {
  static const char *const names[] = {"allocate", "free", "deallocate", "allocate failure"};
  static const enum kind kinds[] = {ALLOCATES, FREES, FREES, FAILS, NO_KIND};
  return kinds[gap__cell_index(cell, names, 4)];
}

/* A request of no bytes may get no address: nothing was allocated. */
static int add(struct log *log, enum kind kind, struct gap__hist_event event) {
  if (!event.addr && !event.size) return 0;
  switch (kind) {
    case ALLOCATES: event.action = GAP__ACT_ALLOC; return gap__builder_add(&log->builder, event);
    case FREES: return gap__builder_free_block(&log->builder, event);
    default:
      event.action = GAP__ACT_OOM;
      event.addr = 0;
      return gap__builder_add(&log->builder, event);
  }
}

static int take_line(struct log *log, const struct gap__cell *cells, size_t count) {
  static const struct gap__cell zero = {"0", 1};
  const struct gap__cell *cell[COLUMNS];
  struct gap__hist_event event = {0};
  int64_t us = 0;
  for (uint32_t i = 0; i < COLUMNS; i++) {
    if (log->at[i] != GAP__CELLS_MAX && log->at[i] >= count)
      return gap__message_set(log->message, GAP_EFORMAT, "line %llu: %zu cells, %s is missing",
                              (unsigned long long)log->line, count, column_names[i]);
    cell[i] = log->at[i] == GAP__CELLS_MAX ? &zero : &cells[log->at[i]];
  }
  enum kind kind = kind_of(cell[ACTION]);
  if (kind == NO_KIND) return wrong(log, ACTION, cell[ACTION]);
  if (!parse_time(cell[TIME], &us)) return wrong(log, TIME, cell[TIME]);
  if (!parse_handle(cell[POINTER], &event.addr)) return wrong(log, POINTER, cell[POINTER]);
  if (gap__text_parse_u64(cell[SIZE]->text, cell[SIZE]->length, &event.size)) return wrong(log, SIZE, cell[SIZE]);
  if (!parse_handle(cell[STREAM], &event.stream)) return wrong(log, STREAM, cell[STREAM]);
  event.time_us = pass_time(log, us);
  int rc = add(log, kind, event);
  if (rc) gap__message_set(log->message, rc, "line %llu: no room for more lines", (unsigned long long)log->line);
  return rc;
}

static int read_lines(struct log *log, struct gap__input *input) {
  struct gap__cell cells[GAP__CELLS_MAX];
  const char *line;
  size_t length;
  for (;;) {
    int rc = gap__input_line(input, &line, &length, log->message);
    if (rc || !line) return rc;
    log->line++;
    size_t count = gap__cells_split(line, length, cells);
    if (count > GAP__CELLS_MAX) count = GAP__CELLS_MAX;
    if (length == 0) continue;
    if (is_head(cells, count)) take_head(log, cells, count); /* logs that were joined have several */
    else rc = take_line(log, cells, count);
    if (rc) return rc;
  }
}

int gap__rmm_read(struct gap__input *input, struct gap__history **out, char **message) {
  struct log log = {.at = {0, 1, 2, 3, 4, 5}, .message = message};
  *out = NULL;
  int rc = read_lines(&log, input);
  if (!rc) rc = gap__builder_finish(&log.builder, out);
  gap__builder_drop(&log.builder);
  if (!rc) (*out)->time_base_us = log.base_us;
  return rc == GAP_ENOMETA ? gap__message_set(message, rc, "out of host memory") : rc;
}

/* By the first line: a head, or an allocation with its time of day. */
bool gap__is_rmm(const struct gap__input *input) {
  const unsigned char *line = input->next;
  struct gap__cell cells[GAP__CELLS_MAX];
  uint64_t number;
  int64_t us;
  size_t there = (size_t)(input->end - line), length = 0;
  while (length < there && length < GAP__INPUT_LINE_MAX && line[length] != '\n') length++;
  if (length && line[length - 1] == '\r') length--;
  for (size_t i = 0; i < length; i++)
    if (line[i] < ' ' || line[i] > '~') return false;
  size_t count = gap__cells_split((const char *)line, length, cells);
  if (count > GAP__CELLS_MAX) return false;
  if (is_head(cells, count)) return true;
  return count == COLUMNS && kind_of(&cells[ACTION]) != NO_KIND && parse_time(&cells[TIME], &us) &&
         parse_handle(&cells[POINTER], &number);
}
