/* What a store reaches: gapless remote --bench. */
#ifndef GAP_CLI_REMOTE_BENCH_H
#define GAP_CLI_REMOTE_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gapless/remote.h"

struct remote_bench {
  uint64_t value_bytes;
  uint32_t depth; /* values under way at once */
  double seconds; /* of putting, and of getting */
  bool quiet;
};

struct remote_speed {
  uint64_t values, failed;
  double seconds, bytes_per_s, values_per_s;
  uint64_t median_ns, p99_ns; /* of one batch of one value */
};

/* Puts for some seconds, then gets what was put.  0 or a negative GAP_E... */
int remote_bench_run(gap_remote *remote, const struct remote_bench *bench, struct remote_speed *put,
                     struct remote_speed *get);

/* The same by redis-benchmark, one server: bytes a second, of SET and of GET.  False: it is not installed, or it failed. */
bool remote_beside(const char *host, const char *port, const struct remote_bench *bench, double *set, double *get);

#endif
