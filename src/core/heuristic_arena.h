/* What the strategy `heuristic` knows of an arena, and has chosen for it.
 *
 * An arena is a stream and a kind of size, up to 1 MiB or above.  Whether its sizes come again is watched by 16 places: each has the
 * last size that fell into it, and a request whose size is not there is a miss.  An arena is steady after a round of 64 requests with at
 * most 4 misses: few sizes, again and again, which segments serve without any further driver call and without waste.  It is so no
 * longer with the fifth miss of a round.
 *
 * Arenas are found without a lock; they are made under the heap's lock.  Where there is no place left one serves all others. */
#ifndef GAP_HEURISTIC_ARENA_H
#define GAP_HEURISTIC_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>

#include "gapless/gapless.h"

enum {
  GAP__ARENA_SIZES = 16,
  GAP__ARENA_ROUND = 64,
  GAP__ARENA_MISSES = 4,   /* of a round */
  GAP__ARENA_PLACES = 256, /* a power of two */
  GAP__ARENA_NEAR = 8      /* places in which one may be */
};

struct gap__heuristic_arena {
  _Atomic bool used;
  _Atomic uint8_t reason; /* enum gap__heuristic_reason: what serves follows from it */
  _Atomic bool is_large;
  _Atomic bool steady;
  _Atomic uint32_t asked, missed; /* in this round; threads may lose a count to each other */
  _Atomic gap_stream stream;
  _Atomic uint64_t sizes[GAP__ARENA_SIZES];
  /* guarded by the heap's lock */
  uint64_t held_bytes, asked_bytes; /* at the last change */
  int64_t changes;
};

struct gap__heuristic_arenas {
  struct gap__heuristic_arena at[GAP__ARENA_PLACES], others; /* `others`: of both kinds and many streams */
};

/* The arena of a request; NULL: not met yet. */
struct gap__heuristic_arena *gap__heuristic_find(struct gap__heuristic_arenas *, gap_stream, uint64_t bytes);
/* The same, made if need be; *is_new.  Under the heap's lock. */
struct gap__heuristic_arena *gap__heuristic_add(struct gap__heuristic_arenas *, gap_stream, uint64_t bytes,
                                                bool *is_new);
/* Its handle may be given to another stream. */
void gap__heuristic_forget(struct gap__heuristic_arenas *, gap_stream);

/* A size that was not there; the end of a round.  Out of line. */
void gap__heuristic_miss(struct gap__heuristic_arena *, uint64_t bytes);
void gap__heuristic_round(struct gap__heuristic_arena *);

static inline uint32_t gap__heuristic_place(uint64_t bytes) { return (uint32_t)(bytes * 0x9E3779B97F4A7C15u >> 60); }

static inline void gap__heuristic_watch(struct gap__heuristic_arena *arena, uint64_t bytes) {
  uint64_t there = atomic_load_explicit(&arena->sizes[gap__heuristic_place(bytes)], memory_order_relaxed);
  uint32_t asked = atomic_load_explicit(&arena->asked, memory_order_relaxed) + 1;
  atomic_store_explicit(&arena->asked, asked, memory_order_relaxed);
  if (there != bytes) gap__heuristic_miss(arena, bytes);
  if (asked >= GAP__ARENA_ROUND) gap__heuristic_round(arena);
}

#endif
