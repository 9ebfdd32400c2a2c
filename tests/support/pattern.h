/* What the tests of allocation patterns share: a card, on which each pattern is played at full size or scaled down, and blocks
 * whose contents are looked at when they go.  docs/reliability.md says which test holds which pattern. */
#ifndef GAP_TESTS_PATTERN_H
#define GAP_TESTS_PATTERN_H

#include "support/gapless_try.h"

struct pattern_card {
  const char *name;
  bool real;           /* on `host`, with contents; else on `sim` */
  uint64_t scale;      /* all sizes are divided by it */
  uint64_t window_max; /* the longest window of addresses; 0: no limit.  Not scaled yet, like the next */
  uint64_t addresses;  /* in all; 0: no limit */
};
enum { PATTERN_CARDS = 6 };
extern const struct pattern_card pattern_cards[PATTERN_CARDS];

struct world {
  struct try t;
  const struct pattern_card *card;
  uint64_t tags, seed;
};

struct piece {
  gap_addr at; /* 0: none */
  uint64_t bytes, tag;
  gap_stream stream;
};

/* A card of `bytes` at full size; `lag_us` and `manual` (queued work runs when the test says so) are for `sim` and `host`. */
struct world world_begin(const struct pattern_card *, uint64_t bytes, const char *conf);
struct world world_with(const struct pattern_card *, uint64_t bytes, uint64_t lag_us, bool manual, const char *conf);
/* Nothing wrong was seen by the checkers of heap and device. */
void world_end(struct world *);

/* A size of the pattern on this card: whole pages stay whole pages. */
uint64_t scaled(const struct world *, uint64_t bytes);

/* A block with contents of its own; `bytes` are not scaled here. */
struct piece put(struct world *, gap_stream, uint64_t bytes);
struct piece put_in(struct world *, gap_stream, gap_pool_id, uint64_t bytes);
/* Gives it contents of its own (again). */
void stamp(struct world *, struct piece *);
/* Its contents are still its own. */
void look(struct world *, const struct piece *);
/* Looks, and frees it. */
void drop(struct world *, struct piece *);

uint64_t held_now(struct world *);
uint64_t held_peak(struct world *);
/* Pages that live blocks lie on, whole or in part: no allocator that moves nothing can do with less. */
uint64_t touched_bytes(struct world *);
/* Time passes on the device, for programs that synchronise: all work queued so far has run. */
void settle(struct world *);
/* Calls that ask the driver for memory or move it: no events, no questions. */
uint64_t memory_calls(struct world *);

/* One test of a pattern on each card. */
#define ON_EACH_CARD(pattern) \
  {#pattern, pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[0]}, \
      {#pattern " windows up to 16 GiB", pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[1]}, \
      {#pattern " 240 GiB of addresses", pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[2]}, \
      {#pattern " on host", pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[3]}, \
      {#pattern " on host, small windows", pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[4]}, { \
#pattern " on host, few addresses", pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[5] \
  }

#endif
