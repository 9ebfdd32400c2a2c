/* Whose stream each block is, with few enough streams to be drawn: those with most bytes at the peak, the rest as one. */
#ifndef GAP_REPORT_STREAMS_H
#define GAP_REPORT_STREAMS_H

#include "base/map.h"
#include "explain/subject.h"
#include "report/emit.h"

enum { GAP__STREAMS_LISTED = 8 }; /* "other" is one of them where there are more */

struct gap__streams {
  struct gap__map numbers; /* stream -> number, in the order of the first life */
  uint32_t *of_life;       /* number of each life's stream */
  uint8_t *place;          /* of each number: index among the listed */
  uint32_t count;          /* numbers */
  uint64_t listed[GAP__STREAMS_LISTED];
  uint32_t listed_count; /* "other" included */
  uint32_t others;       /* streams that "other" stands for */
};

int gap__streams_find(const struct gap__subject *, struct gap__streams *); /* 0 or GAP_ENOMETA */
void gap__streams_free(struct gap__streams *);
static inline uint32_t gap__streams_of_life(const struct gap__streams *streams, uint32_t life) {
  return streams->place[streams->of_life[life]];
}
/* Index among the listed; that of the last one for a stream that no life has. */
uint32_t gap__streams_place(const struct gap__streams *, uint64_t stream);
void gap__streams_emit(const struct gap__streams *, struct gap__emit *);

#endif
