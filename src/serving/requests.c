#include "serving/requests.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "trace/cells.h"
#include "trace/input.h"
#include "trace/message.h"

enum { REQUESTS_MOST = 1 << 26, TIME_CELLS = 5 };

struct reading {
  struct gap__requests *out;
  uint64_t line, most;
  uint64_t first_us;                            /* arrivals count from the first one */
  int input_column, output_column, time_column; /* CSV; -1: none */
  char **message;
};

/* ---- one request ---- */

static int grow(void **array, uint64_t *room, uint64_t wanted, size_t bytes) {
  uint64_t more = *room ? *room : 1024;
  if (wanted <= *room) return 0;
  while (more < wanted) more *= 2;
  void *grown = realloc(*array, more * bytes);
  if (!grown) return GAP_ENOMETA;
  *array = grown;
  *room = more;
  return 0;
}

static int add_request(struct reading *r, uint64_t arrival_us, uint64_t input, uint64_t output) {
  struct gap__requests *out = r->out;
  if (input > GAP__REQUEST_TOKENS_MOST || output > GAP__REQUEST_TOKENS_MOST || out->count == REQUESTS_MOST)
    return gap__message_set(r->message, GAP_ELIMIT, "line %llu: more than 16,777,216 tokens, or too many requests",
                            (unsigned long long)r->line);
  int rc = grow((void **)&out->at, &out->room, out->count + 1, sizeof *out->at);
  if (rc) return rc;
  if (!out->count) r->first_us = arrival_us;
  struct gap__request_line *line = &out->at[out->count++];
  *line = (struct gap__request_line){.arrival_us = arrival_us > r->first_us ? arrival_us - r->first_us : 0,
                                     .input = input ? (uint32_t)input : 1,
                                     .output = (uint32_t)output};
  if (line->input + line->output > out->longest) out->longest = line->input + line->output;
  return 0;
}

static int wrong_line(struct reading *r, const char *what) {
  return gap__message_set(r->message, GAP_EFORMAT, "line %llu: %s", (unsigned long long)r->line, what);
}

/* ---- JSON lines ---- */

static int add_blocks(struct reading *r, const json_t *ids) {
  struct gap__requests *out = r->out;
  struct gap__request_line *line = &out->at[out->count - 1];
  size_t count = json_array_size(ids);
  if (count > UINT32_MAX - out->block_count) return wrong_line(r, "too many hash_ids");
  int rc = grow((void **)&out->blocks, &out->block_room, out->block_count + count, sizeof *out->blocks);
  if (rc) return rc;
  line->block_first = (uint32_t)out->block_count;
  line->block_count = (uint32_t)count;
  for (size_t i = 0; i < count; i++) {
    if (!json_is_integer(json_array_get(ids, i))) return wrong_line(r, "hash_ids are not all whole numbers");
    out->blocks[out->block_count++] = (uint64_t)json_integer_value(json_array_get(ids, i));
  }
  return 0;
}

static int take_object(struct reading *r, const json_t *object) {
  const json_t *input = json_object_get(object, "input_length"), *output = json_object_get(object, "output_length");
  const json_t *time = json_object_get(object, "timestamp");
  json_int_t in = json_integer_value(input), out = json_integer_value(output);
  double ms = json_number_value(time);
  if (!json_is_integer(input) || !json_is_integer(output) || in < 0 || out < 0)
    return wrong_line(r, "input_length and output_length are wanted, whole numbers of 0 or more");
  int rc = add_request(r, ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000) : 0, (uint64_t)in, (uint64_t)out);
  return rc ? rc : add_blocks(r, json_object_get(object, "hash_ids"));
}

static int take_json(struct reading *r, const char *line, size_t length) {
  json_t *object = json_loadb(line, length, 0, NULL);
  int rc = object ? take_object(r, object) : wrong_line(r, "it is no JSON object");
  json_decref(object);
  return rc;
}

/* ---- CSV ---- */

static int column_of(const struct gap__cell *cells, size_t count, const char *name) {
  for (size_t i = 0; i < count && i < GAP__CELLS_MAX; i++)
    if (gap__cell_is(&cells[i], name)) return (int)i;
  return -1;
}

static int take_head(struct reading *r, const char *line, size_t length) {
  static const char *const names[][2] = {{"ContextTokens", "GeneratedTokens"},
                                         {"num_prefill_tokens", "num_decode_tokens"}};
  struct gap__cell cells[GAP__CELLS_MAX];
  size_t count = gap__cells_split(line, length, cells);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    r->input_column = column_of(cells, count, names[i][0]);
    r->output_column = column_of(cells, count, names[i][1]);
    r->time_column = column_of(cells, count, "TIMESTAMP");
    if (r->input_column >= 0 && r->output_column >= 0) return 0;
  }
  return wrong_line(r, "it is no trace of requests: a CSV file begins with the names of its columns (ContextTokens and "
                       "GeneratedTokens, or num_prefill_tokens and num_decode_tokens), a JSON line with {");
}

/* "2023-11-16 18:17:03.9799600" in microseconds of its month: traces are shorter than that. */
static bool read_time(const struct gap__cell *cell, uint64_t *out_us) {
  char text[40];
  unsigned year, month, day, hour, minute;
  double second;
  if (cell->length >= sizeof text) return false;
  memcpy(text, cell->text, cell->length);
  text[cell->length] = 0;
  if (sscanf(text, "%u-%u-%u %u:%u:%lf", &year, &month, &day, &hour, &minute, &second) != TIME_CELLS + 1) return false;
  if (day > 31 || hour > 23 || minute > 59 || !(second >= 0 && second < 61)) return false;
  *out_us = (((day * 24ull + hour) * 60 + minute) * 60) * 1000000 + (uint64_t)(second * 1e6);
  return true;
}

static int take_cells(struct reading *r, const char *line, size_t length) {
  struct gap__cell cells[GAP__CELLS_MAX];
  uint64_t input, output, time_us = 0;
  size_t count = gap__cells_split(line, length, cells);
  if (count == 1 && !cells[0].length) return 0; /* an empty line */
  if (r->input_column >= (int)count || r->output_column >= (int)count || r->time_column >= (int)count)
    return wrong_line(r, "it has too few columns");
  const struct gap__cell *in = &cells[r->input_column], *out = &cells[r->output_column];
  if (gap__text_parse_u64(in->text, in->length, &input) || gap__text_parse_u64(out->text, out->length, &output))
    return wrong_line(r, "a number of tokens is none");
  if (r->time_column >= 0 && !read_time(&cells[r->time_column], &time_us)) return wrong_line(r, "the time is none");
  return add_request(r, time_us, input, output);
}

/* ---- files ---- */

static int take_line(struct reading *r, const char *line, size_t length) {
  bool json = length && line[0] == '{';
  if (r->line == 1 && !json) return take_head(r, line, length);
  if (json) return take_json(r, line, length);
  return r->input_column >= 0 ? take_cells(r, line, length) : length ? wrong_line(r, "it is no JSON object") : 0;
}

static int take_all(struct reading *r, struct gap__input *input) {
  const char *line;
  size_t length;
  int rc = 0;
  while (!rc && (!r->most || r->out->count < r->most)) {
    rc = gap__input_line(input, &line, &length, r->message);
    if (rc || !line) break;
    r->line++;
    rc = take_line(r, line, length);
  }
  if (!rc && !r->out->count) rc = gap__message_set(r->message, GAP_EFORMAT, "there is no request in it");
  return rc;
}

int gap__requests_read_opened(struct gap__input *input, uint64_t most, struct gap__requests *out, char **message) {
  struct reading r = {
      .out = out, .most = most, .input_column = -1, .output_column = -1, .time_column = -1, .message = message};
  *out = (struct gap__requests){0};
  int rc = take_all(&r, input);
  gap__input_close(input);
  if (rc) gap__requests_free(out);
  return rc ? gap__message_settle(message, rc) : 0;
}

int gap__requests_read(const char *path, uint64_t most, struct gap__requests *out, char **message) {
  struct gap__input input;
  int rc = gap__input_open(&input, path, NULL, NULL, message);
  return rc ? rc : gap__requests_read_opened(&input, most, out, message);
}

void gap__requests_free(struct gap__requests *requests) {
  free(requests->at);
  free(requests->blocks);
  *requests = (struct gap__requests){0};
}

/* ---- tokens ---- */

static int32_t token_of(uint64_t whose, uint64_t position) {
  uint64_t z = (whose ^ position * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  return (int32_t)((z ^ z >> 31) & 0x7fffffff);
}

int32_t gap__request_token(const struct gap__requests *requests, uint64_t index, uint32_t position) {
  const struct gap__request_line *line = &requests->at[index];
  uint32_t block = position / GAP__BLOCK_TOKENS;
  if (position < line->input && block < line->block_count)
    return token_of(2 * requests->blocks[line->block_first + block], position % GAP__BLOCK_TOKENS);
  return token_of(2 * index + 1, position);
}
