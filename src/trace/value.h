/* A value of a pickle in 8 bytes: a tag in the low 4 bits, an index or a small integer above. */
#ifndef GAP_TRACE_VALUE_H
#define GAP_TRACE_VALUE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t gap__value;

enum gap__tag {
  GAP__TAG_UNSET, /* the value 0: a memo entry that was never stored */
  GAP__TAG_NONE,
  GAP__TAG_BOOL,
  GAP__TAG_INT,   /* signed, 60 bits */
  GAP__TAG_BIG,   /* an unsigned integer of more bits: index into wide */
  GAP__TAG_LOW,   /* below the 60 bits: nothing may be that negative, the amount is not kept */
  GAP__TAG_FLOAT, /* index into wide */
  GAP__TAG_BYTES, /* not kept */
  GAP__TAG_STRING,
  GAP__TAG_LIST,
  GAP__TAG_TUPLE,
  GAP__TAG_DICT,
  GAP__TAG_ENTRY /* a dict that was recognised as a trace entry at once: index of the entry */
};

static inline gap__value gap__value_of(enum gap__tag tag, uint64_t index) { return index << 4 | tag; }
static inline enum gap__tag gap__value_tag(gap__value value) { return (enum gap__tag)(value & 15); }
static inline uint32_t gap__value_index(gap__value value) { return (uint32_t)(value >> 4); }
static inline int64_t gap__value_int(gap__value value) { return (int64_t)value >> 4; }
static inline gap__value gap__value_of_int(int64_t number) { return gap__value_of(GAP__TAG_INT, (uint64_t)number); }

#endif
