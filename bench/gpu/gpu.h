/* What the benchmarks on a GPU share: clocks, medians, the device, and one JSON object a line of output.
 *
 * They use the public header and the driver's own, and are compiled on the GPU machine (bench/gpu.sh --part build --part bench). */
#ifndef GAP_BENCH_GPU_H
#define GAP_BENCH_GPU_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gapless/gapless.h"

#define CU(call) GPU_CHECK(call, 1)
#define GAP(call) GPU_CHECK(call, 0)
/* Costs a branch when all is well: calls of tens of nanoseconds are timed through it. */
#define GPU_CHECK(call, is_driver) \
  do { \
    int gpu_rc = (int)(call); \
    if (__builtin_expect(gpu_rc != 0, 0)) gpu_fail(gpu_rc, #call, __FILE__, __LINE__, is_driver); \
  } while (0)
/* Ends the program with the call and the error's text. */
_Noreturn void gpu_fail(int rc, const char *call, const char *file, int line, int is_driver);

uint64_t gpu_wall_ns(void);

struct gpu_spread {
  double median, least, most;
};
/* Sorts `values`. */
struct gpu_spread gpu_spread(double *values, unsigned count);
double gpu_percentile(double *sorted, unsigned count, double percent);

/* The primary context of device 0, current in the calling thread. */
void gpu_open(void);
/* A non-blocking stream. */
CUstream gpu_stream(void);
/* The kernel `name` of a PTX text. */
CUfunction gpu_kernel(const char *ptx, const char *name);
int64_t gpu_stat(gap_heap *heap, const char *name);
gap_heap *gpu_heap(const char *conf);

/* {"what": ..., "unit": ..., "median": ..., "least": ..., "most": ...} */
void gpu_print(const char *what, const char *unit, struct gpu_spread);
/* {"figure": ..., "asked": ..., "reached": ..., "met": ...}; returns 1 when it is missed. */
int gpu_figure(const char *what, const char *unit, double asked, double reached, int at_least);
/* Driver, device and commit. */
void gpu_where(void);

#endif
