/* A plan: requests in order, each with its size, its stream, its place in time and its address. */
#ifndef GAP_PLAN_PLAN_H
#define GAP_PLAN_PLAN_H

#include "base/planfile.h"
#include "gapless/plan.h"
#include "plan/clock.h"
#include "trace/history.h"
#include "trace/input.h"

struct gap_plan {
  struct gap__plan_entry *at; /* in order of `from` */
  uint32_t count, moments;
  uint64_t *times;   /* of moments 0 to `moments`; NULL: not known */
  uint64_t *streams; /* handles as recorded, in order of appearance; at least one */
  uint32_t stream_count;
  gap_plan_info info;
};

/* What to place: entries without offsets.  `message` as the readers of src/trace have it.  GAP_EINVAL as gap_plan_make. */
int gap__plan_from_history(const struct gap__history *, const gap_plan_options *, struct gap_plan *, char **message);
/* MiniMalloc's CSV form: see minimalloc.h. */
int gap__plan_from_csv(struct gap__input *, struct gap_plan *, char **message);

/* Gives every entry an offset and fills the info. */
int gap__plan_place(struct gap_plan *, uint64_t capacity_bytes, const struct gap__plan_clock *, char **message);

/* The same with addresses of its own for each stream: no two share a page. */
int gap__plan_place_apart(struct gap_plan *, const struct gap__plan_clock *, char **message);

/* Shares no code with what places: do two entries overlap, or does one lie where it must not?  GAP_EMISMATCH, GAP_ENOMETA. */
int gap__plan_verify(const struct gap_plan *, char **message);

/* The file: see docs/plan.md.  Encoded ones are malloc'ed. */
int gap__plan_encode(const struct gap_plan *, unsigned char **out, size_t *bytes);
int gap__plan_decode(const unsigned char *data, size_t bytes, struct gap_plan *, char **message);
void gap__plan_release(struct gap_plan *); /* what it points to */

#endif
