/* Plan files: the requests of a repeating program in order of time, each with its size, its stream, its life and its address.
 * docs/plan.md describes the bytes.  `gapless plan` writes them, the library follows them. */
#ifndef GAP_PLANFILE_H
#define GAP_PLANFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

struct gap__plan_entry {
  uint64_t bytes, align, offset; /* align: 1 in a plan that was read */
  uint32_t stream;               /* index */
  uint32_t from, to;             /* positions: from < to <= moments */
};

struct gap__planfile {
  struct gap__plan_entry *at; /* in order of `from` */
  uint32_t count, moments;
  uint64_t *streams; /* handles as recorded, in order of appearance; at least one */
  uint32_t stream_count;
  uint64_t plan_bytes, bound_bytes, total_bytes; /* the highest end, its lower bound, the sum of all sizes */
};

/* The bytes of a file, malloc'ed.  GAP_ENOMETA. */
int gap__planfile_encode(const struct gap__planfile *, unsigned char **out, size_t *bytes);
/* Reads and checks them in full, of at most `most` requests.  GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA; `why` is added to. */
int gap__planfile_decode(const unsigned char *data, size_t bytes, uint32_t most, struct gap__planfile *,
                         struct gap__text *why);
void gap__planfile_free(struct gap__planfile *); /* what it points to */

/* Shares no code with what places: do two entries overlap, or does one lie where it must not?  GAP_EMISMATCH, GAP_ENOMETA. */
int gap__planfile_check(const struct gap__planfile *, struct gap__text *why);

#endif
