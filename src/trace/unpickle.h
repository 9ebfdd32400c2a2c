/* A pickle machine for data only: protocols 2 to 5, no classes, no calls, nothing is executed.
 *
 * It keeps strings, lists and tuples; what a dict becomes is up to a sink, which sees each dict once its items are there.
 * Every value takes 8 bytes.  Nesting costs no C stack, as nothing here recurses; open marks are limited to
 * GAP__MARKS_MAX, every array to GAP__VEC_MAX items, one string to GAP__STRING_MAX bytes, integers to 64 bits.
 * Errors begin with "byte N: ", N being the position in the decompressed stream of the opcode that failed. */
#ifndef GAP_TRACE_UNPICKLE_H
#define GAP_TRACE_UNPICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/input.h"
#include "trace/strings.h"
#include "trace/value.h"
#include "trace/vec.h"

#define GAP__MARKS_MAX 256
#define GAP__STRING_MAX ((uint64_t)16 << 20)

struct gap__list {                 /* of a list or a tuple */
  uint32_t first, count, capacity; /* into items */
  uint32_t note;                   /* of one that the sink has taken, which has no items any more; else 0 */
};

struct gap__dict_sink {
  /* A dict begins: gives it a value.  The input stands behind EMPTY_DICT; a sink may take the opcodes that fill the dict
   * itself, and further dicts behind it, provided that it does what the opcodes mean. */
  int (*begin)(void *arg, gap__value *dict);
  /* Items of a dict: `count` values, keys and values in turn.  `whole`: they came in one go, as SETITEMS gives them. */
  int (*fill)(void *arg, gap__value dict, const gap__value *items, uint32_t count, bool whole);
};

struct gap__unpickler {
  struct gap__input *input;
  char **message;
  const struct gap__dict_sink *sink;
  void *sink_arg;
  uint64_t op_at; /* position of the opcode at work */
  unsigned char op;
  uint32_t floor; /* stack items below this lie under the last open mark */
  uint32_t mark_count;
  uint32_t marks[GAP__MARKS_MAX]; /* the floor before each */
  struct gap__strings strings;
  GAP__VEC(gap__value) stack;
  GAP__VEC(gap__value) memo;
  GAP__VEC(gap__value) items;
  GAP__VEC(struct gap__list) lists;
  GAP__VEC(uint64_t) wide; /* big integers and the bits of floats */
};

int gap__unpickler_init(struct gap__unpickler *, struct gap__input *, const struct gap__dict_sink *, void *arg,
                        char **message);
void gap__unpickler_destroy(struct gap__unpickler *);
/* Runs to STOP.  Returns 0, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA, GAP_EIO, or what the sink returned. */
int gap__unpickler_run(struct gap__unpickler *, gap__value *result);

/* "byte N: " and the text; returns `code`. */
int gap__unpickle_fail(struct gap__unpickler *, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gap__unpickle_no_room(struct gap__unpickler *);

const char *gap__pickle_op_name(unsigned char code); /* NULL where there is no such opcode */
const char *gap__value_kind(gap__value);             /* "an integer", "a string", ... */

/* Conversions; false where the value is of another kind or out of range. */
static inline bool gap__unpickle_u64(const struct gap__unpickler *u, gap__value value, uint64_t *out) {
  if (gap__value_tag(value) == GAP__TAG_INT) {
    *out = (uint64_t)gap__value_int(value);
    return gap__value_int(value) >= 0;
  }
  if (gap__value_tag(value) == GAP__TAG_BIG) *out = u->wide.at[gap__value_index(value)];
  return gap__value_tag(value) == GAP__TAG_BIG;
}
bool gap__unpickle_real(const struct gap__unpickler *, gap__value, double *out);
/* The items of a list or tuple; NULL for anything else (an empty one gives a pointer all the same), and for one that was taken. */
const struct gap__list *gap__unpickle_list(const struct gap__unpickler *, gap__value);
/* The same, also for one that was taken. */
const struct gap__list *gap__unpickle_any_list(const struct gap__unpickler *, gap__value);
/* The sink has what it needs of a list: a note, not 0, stands for the items, whose room is given back if they are the last ones. */
void gap__unpickle_take_list(struct gap__unpickler *, gap__value list, uint32_t note);
int gap__unpickle_add_wide(struct gap__unpickler *, enum gap__tag, uint64_t bits, gap__value *out);

#endif
