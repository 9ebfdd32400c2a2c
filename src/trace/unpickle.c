#include "trace/unpickle.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "trace/message.h"

#define STOPPED 1 /* what op_stop returns */

typedef int handler(struct gap__unpickler *u);

struct opcode {
  const char *name;
  handler *run;
  uint32_t operand;
};

int gap__unpickle_fail(struct gap__unpickler *u, int code, const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  gap__message_set_v(&text, code, format, arguments);
  va_end(arguments);
  if (text) gap__message_set(u->message, code, "byte %llu: %s", (unsigned long long)u->op_at, text);
  free(text);
  return code;
}

int gap__unpickle_no_room(struct gap__unpickler *u) {
  return gap__unpickle_fail(
      u, GAP_ELIMIT, "too many entries for the reader (at most %u of a kind) or for the host's memory", GAP__VEC_MAX);
}

static int truncated(struct gap__unpickler *u) {
  return gap__unpickle_fail(
      u, GAP_EFORMAT, "the pickle ends in the middle (the stream has %llu bytes)",
      (unsigned long long)gap__input_position(u->input) + (uint64_t)(u->input->end - u->input->next));
}

/* ---- operands ------------------------------------------------------------------------------------------------------ */

/* Little-endian operand of fixed length; the loop has seen to it that the bytes are there. */
static uint64_t operand(struct gap__unpickler *u, uint32_t bytes) {
  uint64_t number = 0;
  for (uint32_t i = 0; i < bytes; i++) number |= (uint64_t)u->input->next[i] << (8 * i);
  u->input->next += bytes;
  return number;
}

/* Makes `count` bytes, at most GAP__INPUT_SLACK, contiguous at input->next. */
static int need_bytes(struct gap__unpickler *u, size_t count) {
  struct gap__input *input = u->input;
  if ((size_t)(input->end - input->next) >= count) return 0;
  int rc = gap__input_fill(input, u->message);
  if (rc) return rc;
  return (size_t)(input->end - input->next) >= count ? 0 : truncated(u);
}

/* ---- the stack ----------------------------------------------------------------------------------------------------- */

static int push(struct gap__unpickler *u, gap__value value) {
  if (!GAP__VEC_ROOM(u->stack, 1)) return gap__unpickle_no_room(u);
  u->stack.at[u->stack.count++] = value;
  return 0;
}

static int need_items(struct gap__unpickler *u, uint32_t count) {
  if (u->stack.count - u->floor >= count) return 0;
  return gap__unpickle_fail(u, GAP_EFORMAT, "the stack holds too few values for %s", gap__pickle_op_name(u->op));
}

static int op_mark(struct gap__unpickler *u) {
  if (u->mark_count == GAP__MARKS_MAX)
    return gap__unpickle_fail(u, GAP_ELIMIT, "nested more than %d deep", GAP__MARKS_MAX);
  u->marks[u->mark_count++] = u->floor;
  u->floor = u->stack.count;
  return 0;
}

/* Closes the last mark: its items are stack[*first ...); `below` values must lie under it. */
static int close_mark(struct gap__unpickler *u, uint32_t below, uint32_t *first) {
  if (u->mark_count == 0) return gap__unpickle_fail(u, GAP_EFORMAT, "%s without a MARK", gap__pickle_op_name(u->op));
  *first = u->floor;
  u->floor = u->marks[--u->mark_count];
  if (*first - u->floor >= below) return 0;
  return gap__unpickle_fail(u, GAP_EFORMAT, "nothing under the MARK for %s", gap__pickle_op_name(u->op));
}

static int op_pop(struct gap__unpickler *u) {
  uint32_t first = 0;
  if (u->stack.count == u->floor) return close_mark(u, 0, &first);
  u->stack.count--;
  return 0;
}

static int op_pop_mark(struct gap__unpickler *u) {
  uint32_t first = 0;
  int rc = close_mark(u, 0, &first);
  if (!rc) u->stack.count = first;
  return rc;
}

static int op_dup(struct gap__unpickler *u) {
  int rc = need_items(u, 1);
  return rc ? rc : push(u, u->stack.at[u->stack.count - 1]);
}

static int op_stop(struct gap__unpickler *u) {
  int rc = need_items(u, 1);
  return rc ? rc : STOPPED;
}

/* ---- atoms --------------------------------------------------------------------------------------------------------- */

static int op_proto(struct gap__unpickler *u) {
  unsigned version = (unsigned)operand(u, 1);
  if (version >= 2 && version <= 5) return 0;
  return gap__unpickle_fail(u, GAP_EFORMAT, "pickle protocol %u; 2 to 5 can be read", version);
}

static int op_frame(struct gap__unpickler *u) {
  uint64_t length = operand(u, 8);
  if (length <= GAP__INPUT_BYTES_MAX) return 0;
  return gap__unpickle_fail(u, GAP_EFORMAT, "a FRAME of %llu bytes", (unsigned long long)length);
}

static int op_none(struct gap__unpickler *u) { return push(u, gap__value_of(GAP__TAG_NONE, 0)); }
static int op_true(struct gap__unpickler *u) { return push(u, gap__value_of(GAP__TAG_BOOL, 1)); }
static int op_false(struct gap__unpickler *u) { return push(u, gap__value_of(GAP__TAG_BOOL, 0)); }
static int op_binint(struct gap__unpickler *u) { return push(u, gap__value_of_int((int32_t)operand(u, 4))); }
static int op_binint1(struct gap__unpickler *u) { return push(u, gap__value_of_int((int64_t)operand(u, 1))); }
static int op_binint2(struct gap__unpickler *u) { return push(u, gap__value_of_int((int64_t)operand(u, 2))); }

int gap__unpickle_add_wide(struct gap__unpickler *u, enum gap__tag tag, uint64_t bits, gap__value *out) {
  if (!GAP__VEC_ROOM(u->wide, 1)) return gap__unpickle_no_room(u);
  *out = gap__value_of(tag, u->wide.count);
  u->wide.at[u->wide.count++] = bits;
  return 0;
}

static int push_wide(struct gap__unpickler *u, enum gap__tag tag, uint64_t bits) {
  gap__value value = 0;
  int rc = gap__unpickle_add_wide(u, tag, bits, &value);
  return rc ? rc : push(u, value);
}

static int op_binfloat(struct gap__unpickler *u) {
  return push_wide(u, GAP__TAG_FLOAT, __builtin_bswap64(operand(u, 8)));
}

/* Two's complement, little-endian, of any length; the bytes beyond the eighth must only repeat the sign. */
static int push_long(struct gap__unpickler *u, const unsigned char *bytes, uint32_t count) {
  bool negative = count && (bytes[count - 1] & 0x80);
  unsigned char fill = negative ? 0xff : 0;
  uint64_t number = negative ? UINT64_MAX : 0;
  for (uint32_t i = 8; i < count; i++)
    if (bytes[i] != fill) return gap__unpickle_fail(u, GAP_ELIMIT, "an integer of more than 64 bits");
  for (uint32_t i = 0; i < count && i < 8; i++) {
    number &= ~((uint64_t)0xff << (8 * i));
    number |= (uint64_t)bytes[i] << (8 * i);
  }
  bool positive_fits = !negative && number < (uint64_t)1 << 59;
  bool negative_fits = negative && number >= (uint64_t)0 - ((uint64_t)1 << 59);
  if (positive_fits || negative_fits) return push(u, gap__value_of_int((int64_t)number));
  return negative ? push(u, gap__value_of(GAP__TAG_LOW, 0)) : push_wide(u, GAP__TAG_BIG, number);
}

static int long_of(struct gap__unpickler *u, uint64_t count) {
  if (count > 255) return gap__unpickle_fail(u, GAP_ELIMIT, "an integer of %llu bytes", (unsigned long long)count);
  int rc = need_bytes(u, (size_t)count);
  if (rc) return rc;
  rc = push_long(u, u->input->next, (uint32_t)count);
  u->input->next += count;
  return rc;
}

static int op_long1(struct gap__unpickler *u) { return long_of(u, operand(u, 1)); }
static int op_long4(struct gap__unpickler *u) { return long_of(u, operand(u, 4)); }

/* A string that may be longer than the window: gathered behind the last one, as the bytes arrive. */
static int long_string(struct gap__unpickler *u, uint64_t length, uint32_t *id) {
  struct gap__strings *strings = &u->strings;
  for (uint64_t have = 0, step; have < length; have += step) {
    size_t got;
    step = length - have < GAP__INPUT_WINDOW ? length - have : GAP__INPUT_WINDOW;
    if (!GAP__VEC_ROOM(strings->text, (size_t)(have + step))) return gap__unpickle_no_room(u);
    int rc = gap__input_take(u->input, strings->text.at + strings->text.count + have, (size_t)step, &got, u->message);
    if (rc) return rc;
    if (got < step) return truncated(u);
  }
  return gap__strings_intern_tail(strings, (uint32_t)length, id) ? gap__unpickle_no_room(u) : 0;
}

static int short_string(struct gap__unpickler *u, uint32_t length, uint32_t *id) {
  int rc = need_bytes(u, length);
  if (rc) return rc;
  if (gap__strings_intern(&u->strings, u->input->next, length, id)) return gap__unpickle_no_room(u);
  u->input->next += length;
  return 0;
}

static int string_of(struct gap__unpickler *u, uint64_t length) {
  uint32_t id;
  if (length > GAP__STRING_MAX)
    return gap__unpickle_fail(u, GAP_ELIMIT, "a string of %llu bytes", (unsigned long long)length);
  int rc = length <= GAP__INPUT_SLACK ? short_string(u, (uint32_t)length, &id) : long_string(u, length, &id);
  return rc ? rc : push(u, gap__value_of(GAP__TAG_STRING, id));
}

static int op_string1(struct gap__unpickler *u) { return string_of(u, operand(u, 1)); }
static int op_string4(struct gap__unpickler *u) { return string_of(u, operand(u, 4)); }
static int op_string8(struct gap__unpickler *u) { return string_of(u, operand(u, 8)); }

static int bytes_of(struct gap__unpickler *u, uint64_t length) {
  struct gap__input *input = u->input;
  while (length) {
    int rc = need_bytes(u, 1);
    if (rc) return rc;
    uint64_t here = (uint64_t)(input->end - input->next);
    if (here > length) here = length;
    input->next += here;
    length -= here;
  }
  return push(u, gap__value_of(GAP__TAG_BYTES, 0));
}

static int op_bytes1(struct gap__unpickler *u) { return bytes_of(u, operand(u, 1)); }
static int op_bytes4(struct gap__unpickler *u) { return bytes_of(u, operand(u, 4)); }
static int op_bytes8(struct gap__unpickler *u) { return bytes_of(u, operand(u, 8)); }

/* ---- lists and tuples ---------------------------------------------------------------------------------------------- */

/* Room for `more` items: in place where the list is the last in `items`, else at the end with twice the capacity, so that
 * moving costs a constant for each item. */
static int widen(struct gap__unpickler *u, struct gap__list *list, uint32_t more) {
  uint32_t wanted = list->count + more;
  if (wanted <= list->capacity) return 0;
  bool last = list->first + list->capacity == u->items.count;
  uint32_t capacity = last || wanted > 2 * list->capacity ? wanted : 2 * list->capacity;
  uint32_t extra = last ? capacity - list->capacity : capacity;
  if (!GAP__VEC_ROOM(u->items, extra)) return gap__unpickle_no_room(u);
  if (!last) {
    if (list->count) memcpy(u->items.at + u->items.count, u->items.at + list->first, list->count * sizeof *u->items.at);
    list->first = u->items.count;
  }
  u->items.count += extra;
  list->capacity = capacity;
  return 0;
}

/* The stack's items from `first` on become the list's. */
static int append_from(struct gap__unpickler *u, struct gap__list *list, uint32_t first) {
  uint32_t count = u->stack.count - first;
  int rc = widen(u, list, count);
  if (rc) return rc;
  if (count) memcpy(u->items.at + list->first + list->count, u->stack.at + first, count * sizeof *u->items.at);
  list->count += count;
  u->stack.count = first;
  return 0;
}

static int sequence_from(struct gap__unpickler *u, enum gap__tag tag, uint32_t first) {
  if (!GAP__VEC_ROOM(u->lists, 1)) return gap__unpickle_no_room(u);
  uint32_t index = u->lists.count++;
  u->lists.at[index] = (struct gap__list){.first = u->items.count};
  int rc = append_from(u, &u->lists.at[index], first);
  return rc ? rc : push(u, gap__value_of(tag, index));
}

static int sequence_of_mark(struct gap__unpickler *u, enum gap__tag tag) {
  uint32_t first = 0;
  int rc = close_mark(u, 0, &first);
  return rc ? rc : sequence_from(u, tag, first);
}

static int tuple_of(struct gap__unpickler *u, uint32_t count) {
  int rc = need_items(u, count);
  return rc ? rc : sequence_from(u, GAP__TAG_TUPLE, u->stack.count - count);
}

static int op_empty_list(struct gap__unpickler *u) { return sequence_from(u, GAP__TAG_LIST, u->stack.count); }
static int op_empty_tuple(struct gap__unpickler *u) { return sequence_from(u, GAP__TAG_TUPLE, u->stack.count); }
static int op_list(struct gap__unpickler *u) { return sequence_of_mark(u, GAP__TAG_LIST); }
static int op_tuple(struct gap__unpickler *u) { return sequence_of_mark(u, GAP__TAG_TUPLE); }
static int op_tuple1(struct gap__unpickler *u) { return tuple_of(u, 1); }
static int op_tuple2(struct gap__unpickler *u) { return tuple_of(u, 2); }
static int op_tuple3(struct gap__unpickler *u) { return tuple_of(u, 3); }

/* Appends the stack's items from `first` on to the list just below them. */
static int append_to_below(struct gap__unpickler *u, uint32_t first) {
  gap__value target = u->stack.at[first - 1];
  if (gap__value_tag(target) != GAP__TAG_LIST)
    return gap__unpickle_fail(u, GAP_EFORMAT, "appends to %s", gap__value_kind(target));
  return append_from(u, &u->lists.at[gap__value_index(target)], first);
}

static int op_append(struct gap__unpickler *u) {
  int rc = need_items(u, 2);
  return rc ? rc : append_to_below(u, u->stack.count - 1);
}

static int op_appends(struct gap__unpickler *u) {
  uint32_t first = 0;
  int rc = close_mark(u, 1, &first);
  return rc ? rc : append_to_below(u, first);
}

/* ---- dicts --------------------------------------------------------------------------------------------------------- */

static int op_empty_dict(struct gap__unpickler *u) {
  gap__value dict = 0;
  int rc = u->sink->begin(u->sink_arg, &dict);
  return rc ? rc : push(u, dict);
}

/* Hands the stack's items from `first` on to the dict. */
static int fill(struct gap__unpickler *u, gap__value dict, uint32_t first, bool whole) {
  uint32_t count = u->stack.count - first;
  enum gap__tag tag = gap__value_tag(dict);
  if (tag != GAP__TAG_DICT && tag != GAP__TAG_ENTRY)
    return gap__unpickle_fail(u, GAP_EFORMAT, "sets an item of %s", gap__value_kind(dict));
  if (count % 2) return gap__unpickle_fail(u, GAP_EFORMAT, "a key without a value");
  u->stack.count = first;
  return count ? u->sink->fill(u->sink_arg, dict, u->stack.at + first, count, whole) : 0;
}

static int op_setitem(struct gap__unpickler *u) {
  int rc = need_items(u, 3);
  return rc ? rc : fill(u, u->stack.at[u->stack.count - 3], u->stack.count - 2, false);
}

static int op_setitems(struct gap__unpickler *u) {
  uint32_t first = 0;
  int rc = close_mark(u, 1, &first);
  return rc ? rc : fill(u, u->stack.at[first - 1], first, true);
}

static int op_dict(struct gap__unpickler *u) {
  uint32_t first = 0;
  gap__value dict = 0;
  int rc = close_mark(u, 0, &first);
  if (!rc) rc = u->sink->begin(u->sink_arg, &dict);
  if (!rc) rc = fill(u, dict, first, true);
  return rc ? rc : push(u, dict);
}

/* ---- memo ---------------------------------------------------------------------------------------------------------- */

static int get(struct gap__unpickler *u, uint64_t index) {
  if (index >= u->memo.count || u->memo.at[index] == 0)
    return gap__unpickle_fail(u, GAP_EFORMAT, "memo entry %llu was never stored", (unsigned long long)index);
  return push(u, u->memo.at[index]);
}

/* An index beyond the bytes read so far is refused: every stored value took at least one byte, and so a few bytes cannot
 * ask for gigabytes. */
static int put(struct gap__unpickler *u, uint64_t index) {
  int rc = need_items(u, 1);
  if (rc) return rc;
  if (index > u->op_at) return gap__unpickle_fail(u, GAP_ELIMIT, "memo index %llu", (unsigned long long)index);
  if (index >= u->memo.count) {
    uint32_t more = (uint32_t)(index + 1 - u->memo.count);
    if (!GAP__VEC_ROOM(u->memo, more)) return gap__unpickle_no_room(u);
    memset(u->memo.at + u->memo.count, 0, more * sizeof *u->memo.at);
    u->memo.count += more;
  }
  u->memo.at[index] = u->stack.at[u->stack.count - 1];
  return 0;
}

static int op_binget(struct gap__unpickler *u) { return get(u, operand(u, 1)); }
static int op_long_binget(struct gap__unpickler *u) { return get(u, operand(u, 4)); }
static int op_binput(struct gap__unpickler *u) { return put(u, operand(u, 1)); }
static int op_long_binput(struct gap__unpickler *u) { return put(u, operand(u, 4)); }
static int op_memoize(struct gap__unpickler *u) { return put(u, u->memo.count); }

/* ---- the loop ------------------------------------------------------------------------------------------------------ */

static int op_refused(struct gap__unpickler *u) {
  return gap__unpickle_fail(u, GAP_EFORMAT, "opcode %s is refused: a snapshot holds plain data only",
                            gap__pickle_op_name(u->op));
}

static int op_text(struct gap__unpickler *u) {
  return gap__unpickle_fail(u, GAP_EFORMAT, "opcode %s is refused: it belongs to protocols 0 and 1; 2 to 5 can be read",
                            gap__pickle_op_name(u->op));
}

static const struct opcode opcodes[256] = {
#define PICKLE_OP(code, name, operand, handler) [code] = {#name, handler, operand},
#include "trace/opcodes.def"
#undef PICKLE_OP
};

const char *gap__pickle_op_name(unsigned char code) { return opcodes[code].name; }

static int step(struct gap__unpickler *u) {
  struct gap__input *input = u->input;
  u->op_at = gap__input_position(input);
  int rc = need_bytes(u, 1);
  if (rc) return rc;
  const struct opcode *op = &opcodes[*input->next];
  if (!op->run) return gap__unpickle_fail(u, GAP_EFORMAT, "0x%02x is not a pickle opcode", *input->next);
  rc = need_bytes(u, 1 + op->operand);
  if (rc) return rc;
  u->op = *input->next++;
  return op->run(u);
}

int gap__unpickler_run(struct gap__unpickler *u, gap__value *result) {
  int rc = need_bytes(u, 2);
  if (!rc && *u->input->next != 0x80)
    rc = gap__unpickle_fail(u, GAP_EFORMAT, "no pickle of protocol 2 to 5 begins with 0x%02x", *u->input->next);
  while (!rc) rc = step(u);
  if (rc != STOPPED) return rc;
  *result = u->stack.at[u->stack.count - 1];
  return 0;
}

int gap__unpickler_init(struct gap__unpickler *u, struct gap__input *input, const struct gap__dict_sink *sink,
                        void *arg, char **message) {
  *u = (struct gap__unpickler){.input = input, .sink = sink, .sink_arg = arg, .message = message};
  int rc = gap__strings_init(&u->strings);
  return rc ? gap__unpickle_no_room(u) : 0;
}

void gap__unpickler_destroy(struct gap__unpickler *u) {
  gap__strings_destroy(&u->strings);
  free(u->stack.at);
  free(u->memo.at);
  free(u->items.at);
  free(u->lists.at);
  free(u->wide.at);
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

const char *gap__value_kind(gap__value value) {
  static const char *const kinds[] = {
      [GAP__TAG_UNSET] = "nothing",       [GAP__TAG_NONE] = "None",      [GAP__TAG_BOOL] = "a truth value",
      [GAP__TAG_INT] = "an integer",      [GAP__TAG_BIG] = "an integer", [GAP__TAG_LOW] = "a negative integer",
      [GAP__TAG_FLOAT] = "a real number", [GAP__TAG_BYTES] = "bytes",    [GAP__TAG_STRING] = "a string",
      [GAP__TAG_LIST] = "a list",         [GAP__TAG_TUPLE] = "a tuple",  [GAP__TAG_DICT] = "a dict",
      [GAP__TAG_ENTRY] = "a trace entry",
  };
  if (gap__value_tag(value) == GAP__TAG_INT && gap__value_int(value) < 0) return kinds[GAP__TAG_LOW];
  return kinds[gap__value_tag(value)];
}

bool gap__unpickle_real(const struct gap__unpickler *u, gap__value value, double *out) {
  uint64_t whole;
  if (gap__value_tag(value) == GAP__TAG_FLOAT) {
    memcpy(out, &u->wide.at[gap__value_index(value)], sizeof *out);
    return true;
  }
  if (!gap__unpickle_u64(u, value, &whole)) return false;
  *out = (double)whole;
  return true;
}

const struct gap__list *gap__unpickle_any_list(const struct gap__unpickler *u, gap__value value) {
  enum gap__tag tag = gap__value_tag(value);
  return tag == GAP__TAG_LIST || tag == GAP__TAG_TUPLE ? &u->lists.at[gap__value_index(value)] : NULL;
}

const struct gap__list *gap__unpickle_list(const struct gap__unpickler *u, gap__value value) {
  const struct gap__list *list = gap__unpickle_any_list(u, value);
  return list && !list->note ? list : NULL;
}

void gap__unpickle_take_list(struct gap__unpickler *u, gap__value value, uint32_t note) {
  struct gap__list *list = &u->lists.at[gap__value_index(value)];
  if (list->first + list->capacity == u->items.count) u->items.count = list->first;
  *list = (struct gap__list){.note = note};
}
