#include "gpu.h"

#include <string.h>
#include <time.h>

#ifndef GAP_COMMIT
#define GAP_COMMIT "unknown"
#endif

void gpu_fail(int rc, const char *call, const char *file, int line, int is_driver) {
  const char *text = NULL;
  if (is_driver) cuGetErrorString((CUresult)rc, &text);
  else text = gap_strerror(rc);
  fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, text ? text : "?", rc);
  exit(1);
}

uint64_t gpu_wall_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct gpu_spread gpu_spread(double *values, unsigned count) {
  qsort(values, count, sizeof *values, by_value);
  return (struct gpu_spread){gpu_percentile(values, count, 50), values[0], values[count - 1]};
}

double gpu_percentile(double *sorted, unsigned count, double percent) {
  return sorted[(unsigned)((count - 1) * percent / 100 + 0.5)];
}

void gpu_open(void) {
  CUdevice device;
  CUcontext context;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
}

CUstream gpu_stream(void) {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUfunction gpu_kernel(const char *ptx, const char *name) {
  CUmodule module;
  CUfunction function;
  CU(cuModuleLoadData(&module, ptx));
  CU(cuModuleGetFunction(&function, module, name));
  return function;
}

int64_t gpu_stat(gap_heap *heap, const char *name) {
  int64_t value = 0;
  GAP(gap_stat(heap, 0, name, &value));
  return value;
}

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  fprintf(stderr, "gapless[%d]: %s\n", level, line);
}

gap_heap *gpu_heap(const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap;
  gap_set_log(log_line, NULL);
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.conf = conf;
  GAP(gap_heap_create(&options, &heap));
  return heap;
}

void gpu_print(const char *what, const char *unit, struct gpu_spread spread) {
  printf("{\"what\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"least\": %.4g, \"most\": %.4g}\n", what, unit,
         spread.median, spread.least, spread.most);
  fflush(stdout);
}

int gpu_figure(const char *what, const char *unit, double asked, double reached, int at_least) {
  int met = at_least ? reached >= asked : reached <= asked;
  printf("{\"figure\": \"%s\", \"unit\": \"%s\", \"asked\": %.4g, \"reached\": %.4g, \"met\": %s}\n", what, unit, asked,
         reached, met ? "true" : "false");
  return !met;
}

void gpu_where(void) {
  char name[128] = "";
  int driver = 0;
  CU(cuDeviceGetName(name, sizeof name, 0));
  CU(cuDriverGetVersion(&driver));
  printf("{\"device\": \"%s\", \"cuda_driver\": %d, \"gapless\": \"%s\", \"commit\": \"%s\"}\n", name, driver,
         gap_version(), GAP_COMMIT);
}
