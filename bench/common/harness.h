/* What every benchmark needs: options, clocks, medians with their spread, and where it ran.
 *
 * Subjects are measured in turns (all of them once, then all again), so that what else the machine does falls on all
 * of them; times are CPU time of the thread unless a name says wall. */
#ifndef GAP_BENCH_HARNESS_H
#define GAP_BENCH_HARNESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct bench_options {
  bool json, quick;
  unsigned repeat;
  int first; /* of the arguments that are no options */
};

/* Reads --json, --quick, --repeat N and --help; `repeat` and `repeat_quick` are the defaults of N.  `about` says
 * what the program measures, and what else may stand on the command line.  Exits on --help (0) and on wrong usage
 * (2). */
struct bench_options bench_options_read(int argc, char **argv, const char *about, unsigned repeat,
                                        unsigned repeat_quick);

uint64_t bench_thread_ns(void);
uint64_t bench_wall_ns(void);
/* glibc leaves out lock prefixes while a process has one thread, which flatters whoever locks. */
void bench_start_idle_thread(void);

struct bench_spread {
  double median, least, p10, p90, most;
  unsigned count;
};
struct bench_spread bench_spread_of(const double *values, unsigned count);
json_t *bench_spread_json(const struct bench_spread *);

/* Machine, system, compiler, commit and time of day as one object, and as lines for people. */
json_t *bench_where(void);
void bench_where_print(void);

void *bench_alloc(size_t bytes); /* zeroed; exits when there is no memory */

#endif
