/* What a second thread adds: two threads do the work at once, and the same is done by one of them alone.
 *
 * Scaling is 2 x (time of one alone) / (time of both at once): 2 when neither feels the other.  By wall time it is
 * what a program sees, and what else runs on the machine; by CPU time it sees only waiting that costs CPU, and cache
 * lines that move. */
#ifndef GAP_BENCH_SCALING_H
#define GAP_BENCH_SCALING_H

#include "harness.h"
#include "workload.h"

struct bench_scaling {
  double wall, cpu;       /* scaling */
  double one_ns, both_ns; /* CPU time of an operation: alone, and with the other thread at work */
};

struct bench_pair; /* two threads that wait for work */

struct bench_pair *bench_pair_start(void);
void bench_pair_stop(struct bench_pair *);
/* users[0] alone, then users[0] and users[1] at once.  Users without a subject run a loop that shares nothing. */
struct bench_scaling bench_pair_measure(struct bench_pair *, struct bench_user users[2], uint32_t count,
                                        uint64_t pair_bytes);
/* Operations of the unshared loop that take about `target_ns`. */
uint32_t bench_loop_calibrate(uint64_t target_ns);

#endif
