/* Threads that launch all the time, on `host`: each owns blocks on two streams of its own, which it compares, rewrites
 * and hands from one to the other behind an event.  What else they do, and what happens beside them, is the test's. */
#ifndef GAP_TESTS_STAGE_H
#define GAP_TESTS_STAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/gapless_try.h"

enum { STAGE_LAUNCHERS_MAX = 3, STAGE_OWNED = 8, STAGE_SAMPLE = 512 };

struct owned {
  gap_addr at; /* 0: none */
  uint64_t bytes, pattern;
  gap_stream stream; /* the last that wrote it */
};

struct launcher {
  struct stage *stage;
  pthread_t thread;
  uint64_t seed, launches, handed;
  gap_stream streams[2];
  gap__event event;
  struct owned owned[STAGE_OWNED];
};

struct stage {
  struct try t;
  void (*act)(struct launcher *, struct owned *);  /* once on one of a launcher's blocks */
  void (*give)(struct launcher *, struct owned *); /* at the end, on each */
  unsigned count, owned;                           /* launchers; blocks of each */
  struct launcher launchers[STAGE_LAUNCHERS_MAX];
  atomic_bool stop, pause;
  atomic_uint parked;
  _Atomic uint64_t errors;
};

/* The first that goes wrong is said. */
void stage_must(struct stage *, const char *what, int rc);
/* The ends of each page stand for the whole. */
typedef int stage_touch_fn(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
void stage_touch(struct stage *, const struct owned *, gap_stream, stage_touch_fn *);
/* Compares and rewrites. */
void stage_launch(struct launcher *, struct owned *);
/* The other stream goes on with the block, behind what this one has queued. */
void stage_hand_over(struct launcher *, struct owned *);

/* GAP_SOAK_SECONDS, or so many. */
uint64_t stage_seconds(uint64_t otherwise);
/* Makes the heap and starts the threads; `count`, `owned`, `act` and `give` are set. */
void stage_begin(struct stage *, const char *conf, uint64_t cap, uint64_t seed);
/* The threads hold still from the return of the one to the call of the other. */
void stage_hold(struct stage *);
void stage_let_go(struct stage *);
/* Ends the threads and lets the device run dry; nothing went wrong.  Launches. */
uint64_t stage_stop(struct stage *);
/* Is it not over yet?  `done`: what was to happen has happened; for that it goes on half a minute more at most. */
bool stage_goes_on(struct stage *, uint64_t end_ns, bool (*done)(const struct gap__stats *));

#endif
