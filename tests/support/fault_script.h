/* Scripts of heap calls that are played again and again, each time with another call failing.
 *
 * Without a fault every step must do what the script says, and the statistics must show that each rung the script names has
 * served.  With a fault a step may fail, but only with a code that says why; after each step the whole-heap checker passes,
 * the books equal the device, every live byte lies on memory of its own (replay/checker.h, which shares no code with the
 * allocator), and on `host` every block holds what was written into it.  When the fault is over the heap serves again and
 * gives everything back. */
#ifndef GAP_TESTS_FAULT_SCRIPT_H
#define GAP_TESTS_FAULT_SCRIPT_H

#include "core/heap.h"
#include "support/fault.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define COUNT(list) (sizeof(list) / sizeof *(list))
#define RUNG(name) (1u << GAP__RUNG_##name)

/* Spared as long as `gapless` loses a block that was freed under other streams' use when these fail. */
#define SPARED \
  (1ull << FAULT_PAGES | 1ull << GAP__CALL_stream_capturing | 1ull << GAP__CALL_event_create | \
   1ull << GAP__CALL_event_record)

enum { SCRIPT_SLOTS = 24 };

enum step_kind {
  STEP_GET,      /* a block of `bytes` into `slot`; `refused`: there is none */
  STEP_GIVE,     /* frees it */
  STEP_USE,      /* `stream` uses the block of `slot` */
  STEP_PASS,     /* all that is queued comes to its end */
  STEP_HOLD,     /* the stream completes nothing until it is waited for, or time passes */
  STEP_CAPTURE,  /* the stream is captured from here on, */
  STEP_CAPTURED, /* or no longer */
  STEP_ORDER,    /* what the stream gets from here on comes after what stream `slot` got: it joins that one's capture */
  STEP_RECYCLE,  /* `sim`: the stream's handle names a new stream */
  STEP_RETIRE,
  STEP_RETAIN, /* a private pool */
  STEP_RELEASE,
  STEP_TRIM, /* `pool` */
  STEP_CAP,  /* `bytes` */
  STEP_CONF, /* `conf` on top of what was said before */
  STEP_HELP, /* the next request that finds nothing makes the program free `slot` */
  STEP_TICK,
  STEP_DEFRAGMENT,
  STEP_COLD, /* the block of `slot` is rarely used; or, with `bytes`, no more */
};

struct step {
  enum step_kind kind;
  unsigned slot, stream, pool; /* pool 0: the default pool */
  uint64_t bytes;
  const char *conf;
  bool refused;
};

#define GET(at, on, size) \
  { .kind = STEP_GET, .slot = at, .stream = on, .bytes = size }
#define GET_POOL(at, on, from, size) \
  { .kind = STEP_GET, .slot = at, .stream = on, .pool = from, .bytes = size }
#define REFUSED(on, size) \
  { .kind = STEP_GET, .slot = SCRIPT_SLOTS - 1, .stream = on, .bytes = size, .refused = true }
#define REFUSED_POOL(on, from, size) \
  { .kind = STEP_GET, .slot = SCRIPT_SLOTS - 1, .stream = on, .pool = from, .bytes = size, .refused = true }
#define GIVE(at) \
  { .kind = STEP_GIVE, .slot = at }
#define USE(at, on) \
  { .kind = STEP_USE, .slot = at, .stream = on }
#define PASS \
  { .kind = STEP_PASS }
#define HOLD(on) \
  { .kind = STEP_HOLD, .stream = on }
#define CAPTURE(on) \
  { .kind = STEP_CAPTURE, .stream = on }
#define CAPTURED(on) \
  { .kind = STEP_CAPTURED, .stream = on }
#define ORDER(later, first) \
  { .kind = STEP_ORDER, .stream = later, .slot = first }
#define RECYCLE(on) \
  { .kind = STEP_RECYCLE, .stream = on }
#define RETIRE(on) \
  { .kind = STEP_RETIRE, .stream = on }
#define RETAIN(id) \
  { .kind = STEP_RETAIN, .pool = id }
#define RELEASE(id) \
  { .kind = STEP_RELEASE, .pool = id }
#define TRIM(of) \
  { .kind = STEP_TRIM, .pool = of }
#define CAP(size) \
  { .kind = STEP_CAP, .bytes = size }
#define CONF(text) \
  { .kind = STEP_CONF, .conf = text }
#define HELP(at) \
  { .kind = STEP_HELP, .slot = at }
#define DEFRAGMENT \
  { .kind = STEP_DEFRAGMENT }
#define COLD(at) \
  { .kind = STEP_COLD, .slot = at }
#define WARM(at) \
  { .kind = STEP_COLD, .slot = at, .bytes = 1 }
#define TICK \
  { .kind = STEP_TICK }

struct script {
  const char *name, *conf;
  const struct step *steps;
  unsigned step_count;
  enum gap__maker maker;
  uint64_t card_bytes;
  bool open;       /* a request may be refused where the script does not say so */
  uint64_t spared; /* kinds that do not fail: bits 1 << GAP__CALL_..., 1 << FAULT_... */
  uint64_t once;   /* kinds that fail once, not for good */
  unsigned share;  /* of the calls only each share-th fails, other ones for each kind; 0: all of them */
  /* What a run without a fault must have shown. */
  unsigned rungs; /* bits 1 << GAP__RUNG_... */
  bool (*reached)(const struct gap__stats *);
};

/* Plays the script on `sim` and on `host`: without a fault, then once for each call it makes, each way of failing. */
void script_torture(const struct script *);

#endif
