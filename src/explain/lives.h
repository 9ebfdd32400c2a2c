/* The life of every block: when it was allocated, let go and free for all streams.  What a history's blocks are for is told
 * from their lives. */
#ifndef GAP_EXPLAIN_LIVES_H
#define GAP_EXPLAIN_LIVES_H

#include "trace/history.h"

#define GAP__LIFE_NEVER UINT32_MAX

enum gap__category {
  GAP__CAT_WEIGHTS,
  GAP__CAT_GRADIENTS,
  GAP__CAT_ACTIVATIONS,
  GAP__CAT_OPTIMISER,
  GAP__CAT_TEMPORARY,
  GAP__CAT_UNKNOWN,
  GAP__CAT_COUNT
};

struct gap__life {
  uint64_t addr, bytes; /* rounded to 512, or as large as the block that is there at the end */
  uint32_t born;        /* the event that allocated it; 0 where it was there before the first */
  uint32_t let_go;      /* the event of free_requested, GAP__LIFE_NEVER where there is none */
  uint32_t gone;        /* the event of free_completed, or GAP__LIFE_NEVER */
  uint32_t stack;       /* of the allocation, 0 unknown */
  uint16_t pool;
  uint8_t category; /* enum gap__category */
  bool before;      /* it was there before the first event */
};

struct gap__lives {
  struct gap__life *at;
  uint32_t count;
  uint32_t *of_event; /* the life that an alloc begins and a free ends, GAP__LIFE_NEVER where there is none */
  uint32_t event_count;
  uint64_t peak_bytes, peak_requested_bytes;
  uint32_t peak_event;
};

/* 0, GAP_ENOMETA, or GAP_ELIMIT beyond 2^31 events. */
int gap__lives_find(const struct gap__history *, uint32_t device, struct gap__lives *);
void gap__lives_free(struct gap__lives *);

/* What an event adds to the live bytes; live bytes before the first event. */
int64_t gap__lives_change(const struct gap__lives *, const struct gap__hist_event *, uint32_t index);
int64_t gap__lives_at_start(const struct gap__lives *);

static inline uint64_t gap__lives_rounded(uint64_t size) { return size ? (size + 511) & ~(uint64_t)511 : 512; }

/* Is it live after this event? */
static inline bool gap__life_covers(const struct gap__life *life, uint32_t event) {
  return life->born <= event && life->gone > event;
}

#endif
