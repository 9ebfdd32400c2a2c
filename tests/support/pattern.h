/* What the tests of allocation patterns share: a card, on which each pattern is played at full size or scaled down, and blocks
 * whose contents are looked at when they go.  docs/reliability.md says which test holds which pattern. */
#ifndef GAP_TESTS_PATTERN_H
#define GAP_TESTS_PATTERN_H

#include "support/gapless_try.h"

/* A card as the patterns want it, already scaled. */
struct pattern_request {
  uint64_t total_bytes, window_max_bytes, address_bytes, lag_us;
  bool manual; /* queued work runs when the test says so */
};

struct world;

/* What the backends differ in.  NULL: there is no such thing. */
struct pattern_device {
  const char *(*absent)(void); /* why it cannot be tried here */
  void (*open)(struct world *, const struct pattern_request *, struct gap__dev **out);
  void (*close)(struct world *); /* before the heap ends */
  gap_stream (*stream)(struct world *, gap_stream name);
  void (*pass)(struct world *, uint64_t ns); /* time of the card's own */
  void (*settle)(struct world *);            /* all work queued so far has run */
  void (*delay)(struct world *,
                gap_stream); /* later work of the stream waits for PATTERN_DELAY_MS, or until somebody waits for it */
  /* Bytes. */
  int (*fill)(struct world *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
  int (*expect)(struct world *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
  uint64_t (*faults)(struct world *);
  bool fills_whole; /* so fast that whole blocks are filled and compared, not parts */
  /* Captures; `take` ends one with a graph that `launch` runs. */
  void (*capture)(struct world *, gap_stream, bool on);
  void *(*take)(struct world *, gap_stream);
  void (*launch)(struct world *, void *graph, gap_stream);
  void (*drop)(struct world *, void *graph);
  int (*walk)(struct world *, gap__dev_visit *, void *arg); /* mappings, in order of addresses */
};
extern const struct pattern_device pattern_sim, pattern_host, pattern_fake, pattern_real;
enum { PATTERN_DELAY_MS = 300 };

struct pattern_card {
  const char *name;
  const struct pattern_device *device;
  uint64_t scale; /* all sizes are divided by it */
  uint64_t
      window_max; /* the longest window of addresses; 0: no limit; 1: none can be had.  Not scaled yet, like the next */
  uint64_t addresses; /* in all; 0: no limit */
};
enum { PATTERN_CARDS = 10 };
extern const struct pattern_card pattern_cards[PATTERN_CARDS];

enum { PATTERN_STREAMS = 40 };
struct world {
  struct try t;
  const struct pattern_card *card;
  const struct pattern_device *device;
  bool real;      /* it has bytes, and less time to lose: fewer steps */
  uint64_t scale; /* the card's, or more where the card is smaller than the pattern's */
  uint64_t tags, seed;
  struct {
    gap_stream name, handle;
  } streams[PATTERN_STREAMS];
  int stream_count;
  struct kernels *kernels; /* a real card's */
  gap_addr ballast;        /* what the pattern's card has not */
};

struct piece {
  gap_addr at; /* 0: none */
  uint64_t bytes, tag;
  gap_stream stream;
};

/* A card of `bytes` at full size; `lag_us` and `manual` are for `sim` and `host`.  Skips the test where there is no such card. */
struct world world_begin(const struct pattern_card *, uint64_t bytes, const char *conf);
struct world world_with(const struct pattern_card *, uint64_t bytes, uint64_t lag_us, bool manual, const char *conf);
/* Nothing wrong was seen by the checkers of heap and device, and no more was said than one line where addresses are refused. */
void world_end(struct world *);

/* The handle of the stream that the test calls `name`: the device may want streams of its own. */
gap_stream here(struct world *, gap_stream name);
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

/* A test of the pattern on a card. */
#define ON_CARD(pattern, suffix, card) \
  { #pattern suffix, pattern, NULL, NULL, (void *)(uintptr_t)&pattern_cards[card] }

/* On each. */
#define ON_EACH_CARD(pattern) \
  ON_CARD(pattern, "", 0), ON_CARD(pattern, " windows up to 16 GiB", 1), ON_CARD(pattern, " 240 GiB of addresses", 2), \
      ON_CARD(pattern, " on host", 3), ON_CARD(pattern, " on host, small windows", 4), \
      ON_CARD(pattern, " on host, few addresses", 5), ON_CARD(pattern, " by the driver's backend", 6), \
      ON_CARD(pattern, " on a GPU", 7)

/* Where no window can be had at all: for patterns that need no page to serve elsewhere. */
#define ON_CARDS_WITHOUT_ADDRESSES(pattern) \
  ON_CARD(pattern, " no addresses", 8), ON_CARD(pattern, " on host, no addresses", 9)

/* Runs the group; with an argument only the tests whose names fit it ("* on a GPU"). */
#define RUN_PATTERNS(tests, argc, argv) \
  ((argc) > 1 ? cmocka_set_test_filter((argv)[1]) : (void)0, cmocka_run_group_tests(tests, NULL, NULL))

#endif
