/* See device.h.  The driver is loaded by hand; its functions keep their names. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gap_backend backend;

void check(int code, const char *what) {
  if (code == 0) return;
  fprintf(stderr, "%s: %s\n", what, gap_strerror(code));
  exit(1);
}

gap_backend device_backend(void) { return backend; }

/* ---- the driver ---- */

static void *driver_function(const char *name) {
  static void *library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *function = library ? dlsym(library, name) : NULL;
  if (!function) {
    fprintf(stderr, "the CUDA driver has no %s\n", name);
    exit(1);
  }
  return function;
}

/* Calls a function of the driver by name; every one returns an int and takes what fits into registers. */
typedef int call_fn(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
static void driver_call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
  void *function = driver_function(name);
  call_fn *call;
  memcpy(&call, &function, sizeof call);
  int rc = call(a, b, c, d, e);
  if (rc == 0) return;
  fprintf(stderr, "%s: error %d of the driver\n", name, rc);
  exit(1);
}

static void use_first_device(void) {
  int device;
  void *context;
  driver_call("cuInit", 0, 0, 0, 0, 0);
  driver_call("cuDeviceGet", (uintptr_t)&device, 0, 0, 0, 0);
  driver_call("cuDevicePrimaryCtxRetain", (uintptr_t)&context, (uintptr_t)device, 0, 0, 0);
  driver_call("cuCtxSetCurrent", (uintptr_t)context, 0, 0, 0, 0);
}

/* ---- opening ---- */

static void print_line(void *unused, int level, const char *line) {
  (void)unused, (void)level;
  fprintf(stderr, "gapless: %s\n", line);
}

static int parse_backend(int argc, char **argv, gap_backend *out) {
  static const char *const names[] = {"cuda", "host", "sim"}; /* in the order of gap_backend */
  if (argc == 1) return 0;
  if (argc == 3 && strcmp(argv[1], "--backend") == 0)
    for (int i = 0; i < 3; i++)
      if (strcmp(argv[2], names[i]) == 0) {
        *out = (gap_backend)i;
        return 1;
      }
  fprintf(stderr, "usage: %s [--backend cuda|host|sim]\n", argv[0]);
  exit(2);
}

gap_heap *device_open(int argc, char **argv, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  int chosen = parse_backend(argc, argv, &options.backend);
  options.conf = conf;
  if (chosen) gap_set_log(print_line, NULL);
  int rc = gap_heap_create(&options, &heap);
  if (rc && !chosen) {
    options.backend = GAP_BACKEND_HOST;
    rc = gap_heap_create(&options, &heap);
  }
  check(rc, "gap_heap_create");
  gap_set_log(print_line, NULL);
  backend = options.backend;
  if (backend == GAP_BACKEND_CUDA) use_first_device();
  return heap;
}

/* ---- streams and work ---- */

gap_stream device_stream(void) {
  static gap_stream last = 2; /* elsewhere any number names a stream; 0, 1 and 2 are the default ones */
  uintptr_t stream = 0;
  if (backend != GAP_BACKEND_CUDA) return ++last;
  driver_call("cuStreamCreate", (uintptr_t)&stream, 1 /* non-blocking */, 0, 0, 0);
  return stream;
}

void device_stream_destroy(gap_stream stream) {
  if (backend == GAP_BACKEND_CUDA) driver_call("cuStreamDestroy_v2", stream, 0, 0, 0, 0);
}

void device_fill(gap_addr addr, int byte, uint64_t bytes, gap_stream stream) {
  if (backend == GAP_BACKEND_HOST) memset((void *)(uintptr_t)addr, byte, bytes);
  if (backend == GAP_BACKEND_CUDA) driver_call("cuMemsetD8Async", addr, (uintptr_t)byte, bytes, stream, 0);
}

int device_first_byte(gap_addr addr, gap_stream stream) {
  unsigned char byte = 0;
  if (backend == GAP_BACKEND_SIM) return -1;
  if (backend == GAP_BACKEND_HOST) return *(unsigned char *)(uintptr_t)addr;
  driver_call("cuStreamSynchronize", stream, 0, 0, 0, 0);
  driver_call("cuMemcpyDtoH_v2", (uintptr_t)&byte, addr, 1, 0, 0);
  return byte;
}

void device_capture_begin(gap_stream stream) {
  if (backend == GAP_BACKEND_CUDA) driver_call("cuStreamBeginCapture_v2", stream, 2 /* relaxed */, 0, 0, 0);
}

void *device_capture_end(gap_stream stream) {
  void *graph = NULL, *ready = NULL;
  if (backend != GAP_BACKEND_CUDA) return NULL;
  driver_call("cuStreamEndCapture", stream, (uintptr_t)&graph, 0, 0, 0);
  driver_call("cuGraphInstantiateWithFlags", (uintptr_t)&ready, (uintptr_t)graph, 0, 0, 0);
  return ready;
}

void device_graph_run(void *graph, gap_stream stream) {
  if (backend == GAP_BACKEND_CUDA) driver_call("cuGraphLaunch", (uintptr_t)graph, stream, 0, 0, 0);
}
