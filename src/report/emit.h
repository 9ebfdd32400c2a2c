/* JSON, written as it comes: commas are put where they belong.  Names are given by the program and need no escapes. */
#ifndef GAP_REPORT_EMIT_H
#define GAP_REPORT_EMIT_H

#include "base/text.h"

struct gap__emit { /* zero-initialise it */
  struct gap__text text;
  bool follows; /* a value stands before, in the same list or object */
};

void gap__emit_name(struct gap__emit *, const char *name); /* of the value that follows, in an object */
void gap__emit_begin(struct gap__emit *, char bracket);    /* '{' or '[' */
void gap__emit_end(struct gap__emit *, char bracket);
void gap__emit_number(struct gap__emit *, uint64_t);
void gap__emit_signed(struct gap__emit *, int64_t);
void gap__emit_real(struct gap__emit *, double); /* to four decimals */
void gap__emit_bool(struct gap__emit *, bool);
void gap__emit_null(struct gap__emit *);
/* What is no UTF-8 becomes U+FFFD; NULL becomes null. */
void gap__emit_text(struct gap__emit *, const char *);
/* The first `most` bytes of it. */
void gap__emit_start(struct gap__emit *, const char *, size_t most);
void gap__emit_address(struct gap__emit *, uint64_t); /* "0x7f12c0000000" */
/* A value that is JSON already; NULL, for want of host memory, fails the whole. */
void gap__emit_json(struct gap__emit *, const char *json);
/* The members of an object that is JSON already, inside an object that is open. */
void gap__emit_members(struct gap__emit *, const char *json);

/* Values with a name, in an object. */
#define GAP__EMIT(emit, kind, name, value) (gap__emit_name((emit), (name)), gap__emit_##kind((emit), (value)))
#define GAP__EMIT_NULL(emit, name) (gap__emit_name((emit), (name)), gap__emit_null(emit))
/* `member` of each of `count` items, as a list; the same with a name: a column. */
#define GAP__EMIT_ITEMS(emit, kind, items, count, member) \
  do { \
    gap__emit_begin((emit), '['); \
    for (uint32_t emit_at = 0; emit_at < (count); emit_at++) gap__emit_##kind((emit), (items)[emit_at].member); \
    gap__emit_end((emit), ']'); \
  } while (0)
#define GAP__EMIT_COLUMN(emit, kind, name, items, count, member) \
  do { \
    gap__emit_name((emit), (name)); \
    GAP__EMIT_ITEMS(emit, kind, items, count, member); \
  } while (0)

#endif
