/* The sums of a picture that the words are made of. */
#ifndef GAP_EXPLAIN_FIGURES_H
#define GAP_EXPLAIN_FIGURES_H

#include "explain/picture.h"

/* Whose idle memory is asked for: a request is served from its own stream's and pool's memory of its own kind. */
struct gap__asker {
  uint64_t stream;
  uint16_t pool;
  bool is_small; /* up to 1 MiB, from segments for small blocks */
};

struct gap__figures {
  uint64_t held, live, pending; /* live does not include pending here */
  uint64_t idle;                /* held - live - pending = returnable + stuck */
  uint64_t returnable; /* in segments (pages, where they are expandable) that can go back to the driver at once */
  uint64_t stuck;      /* between live blocks, or in a private pool */
  uint64_t pool_held, pool_idle;     /* of private pools */
  uint64_t stream_held, stream_idle; /* of the default pool, of streams other than the asker's */
  uint64_t own_idle;                 /* that the asker may be served from, if it lay in one piece */
  uint64_t largest_own;              /* the largest piece of it */
  uint64_t largest_any;              /* the largest idle piece of all */
  uint32_t segments, pools, streams;
  /* segments that are at least half idle and yet cannot be returned: few live blocks keep much memory */
  uint32_t pinned_segments, pins;
  uint64_t pinned_idle, pin_bytes;
  uint32_t pin_stack; /* the stack of the smallest block that pins the most; 0 unknown */
  uint64_t pin_size, pin_keeps;
};

/* 0 or GAP_ENOMETA, like the next. */
int gap__figures_count(const struct gap__picture *, const struct gap__asker *, struct gap__figures *);

/* What of a segment can go back to the driver at once; nothing of a private pool. */
uint64_t gap__figures_returnable(const struct gap__picture *, const struct gap__picture_segment *);
/* The pages that an expandable segment is made of; 0: it is one piece. */
uint64_t gap__figures_page(const struct gap__picture_segment *);
/* Whole pages inside one gap of an expandable segment. */
uint64_t gap__figures_pages(const struct gap__picture_segment *, uint64_t addr, uint64_t bytes);
/* The stream that holds most of the default pool. */
int gap__figures_main_stream(const struct gap__picture *, uint64_t *out);
/* What the native policy would ask the driver for; in pages, the strategy gapless. */
uint64_t gap__figures_segment_for(uint64_t request, bool in_pages);
bool gap__asker_may_use(const struct gap__asker *, const struct gap__picture_segment *);

#endif
