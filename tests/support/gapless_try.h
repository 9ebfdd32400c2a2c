/* What the tests of the strategy `gapless` share: a heap on one simulated card or on `host`, and calls that must succeed. */
#ifndef GAP_TESTS_GAPLESS_TRY_H
#define GAP_TESTS_GAPLESS_TRY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/heap.h"
#include "core/state.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define PAGE GAP__PAGE
#define DEFAULT ((gap_pool_id){0, 0})
#define STREAM_A ((gap_stream)1024)
#define STREAM_B ((gap_stream)2048)

struct try {
  gap_heap *heap;
  struct gap__dev *dev;
  struct gap__stats stats; /* of the last try_stats() */
};

/* A card of 4 GiB without lag; `conf` is a configuration string, e.g. "max_memory:64MiB". */
struct try try_sim(const char *conf);
struct try try_sim_with(const struct gap__sim_params *, const char *conf, enum gap__maker);
struct try try_host(const struct gap__host_params *, const char *conf, enum gap__maker);
/* A heap on a device of any backend. */
struct try try_on(struct gap__dev *, const char *conf, enum gap__maker);
/* Checks the heap and ends it. */
void try_end(struct try *);

gap_addr try_get(struct try *, gap_stream, uint64_t bytes);
gap_addr try_get_pool(struct try *, gap_stream, gap_pool_id, uint64_t bytes);
void try_refuse(struct try *, gap_stream, uint64_t bytes, int code);
void try_give(struct try *, gap_addr);
void try_check(struct try *);
/* Fresh statistics; also looks for figures that contradict each other. */
const struct gap__stats *try_stats(struct try *);
uint64_t try_held(struct try *);
uint64_t try_trim(struct try *);
void try_cap(struct try *, uint64_t bytes);
/* The strategy's own records. */
struct gap__policy_state *try_state(struct try *);
uint64_t try_calls(struct try *, enum gap__dev_call);

/* A small generator: the same seed gives the same sequence everywhere. */
uint64_t try_random(uint64_t *seed, uint64_t below);
/* Between low and high, evenly in the logarithm. */
uint64_t try_log_uniform(uint64_t *seed, uint64_t low, uint64_t high);

#endif
