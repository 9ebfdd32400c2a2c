/* Plan files for tests: made request by request, placed, written. */
#ifndef GAP_TESTS_PLAN_MAKER_H
#define GAP_TESTS_PLAN_MAKER_H

#include "base/planfile.h"

enum { PLAN_MOST = 4096 };

struct plan_maker {
  struct gap__plan_entry at[PLAN_MOST];
  uint32_t count, moments, streams;
  char path[64]; /* of the file; a name of its own */
};

void plan_begin(struct plan_maker *);
/* The next request; returns its index.  It lives until plan_free(), or to the end. */
uint32_t plan_alloc(struct plan_maker *, uint32_t stream, uint64_t bytes);
void plan_free(struct plan_maker *, uint32_t index);
/* Ends all lives, gives every request the lowest offset that is free during its life, and writes the file. */
void plan_finish(struct plan_maker *);
/* Writes the file as it is. */
void plan_write(struct plan_maker *);
void plan_write_bytes(const struct plan_maker *, const void *data, size_t bytes);
void plan_remove(const struct plan_maker *);
/* "plan:PATH", and `rest` before it.  In a buffer of the maker's: valid until the next call. */
const char *plan_conf(const struct plan_maker *, const char *rest);

#endif
