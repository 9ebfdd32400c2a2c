/* A CUDA driver for tests without a GPU: a shared library (GAP_TEST_FAKE_CUDA is its path) that answers cuGetProcAddress_v2 and
 * behaves like the driver, with the `host` backend behind it: real bytes, queued work that runs when the test lets it.
 *
 * It also watches its caller: a call that needs a context is made in one of the right device, nothing that a capture
 * forbids is called outside relaxed capture mode, contexts and modes come back as they were.  What is wrong is counted in
 * fake_cuda_wrong(), which must stay 0.  A test that links the library speaks with the same instance that dlopen gives. */
#ifndef GAP_TESTS_FAKE_CUDA_H
#define GAP_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/dev.h"

#define FAKE_CUDA_API __attribute__((visibility("default")))

enum fake_cuda_feature {
  FAKE_CUDA_VMM = 1,
  FAKE_CUDA_EXPORT = 2,
  FAKE_CUDA_RDMA = 4,
  FAKE_CUDA_HOST_CHUNKS = 8,
  FAKE_CUDA_VALUES = 16, /* no attribute: can only be refused */
  FAKE_CUDA_PEERS = 32
};

struct fake_cuda_settings {
  int device_count;           /* 0: 4 */
  uint64_t total_bytes;       /* of each device; 0: 128 MiB */
  uint64_t granularity_bytes; /* 0: 2 MiB */
  uint64_t window_max_bytes;  /* 0: no limit; 1: no window can be had */
  uint64_t address_bytes;     /* of all windows of a device; 0: no limit */
  const char *missing;        /* entry points that are not there, with blanks between; NULL: none */
  unsigned lacks;             /* features that the attributes deny */
  unsigned refuses;           /* features that are claimed, and fail when they are tried */
  bool manual;                /* queued work runs only when the test says so */
};

/* A program that is not a test gets cards by FAKE_CUDA_CARDS=N and FAKE_CUDA_LACKS=BITS in its environment. */
/* Starts anew; nothing of an earlier driver may be in use. */
FAKE_CUDA_API void fake_cuda_reset(const struct fake_cuda_settings *);
/* Calls of `name` (NULL: all) give `code` after `after` more good ones, `times` times. */
FAKE_CUDA_API void fake_cuda_fail(const char *name, unsigned code, uint64_t after, uint64_t times);
FAKE_CUDA_API uint64_t fake_cuda_calls(const char *name); /* NULL: all */
FAKE_CUDA_API uint64_t fake_cuda_wrong(void);

/* What modules hold: their image is text, and this finds a kernel by it and a name.  `run` is called in stream order with a copy of
 * the launch's argument. */
struct fake_cuda_grid {
  unsigned blocks[3], threads, shared_bytes;
};
struct fake_cuda_kernel {
  void (*run)(const void *argument, const struct fake_cuda_grid *);
  size_t argument_bytes;
};
typedef bool fake_cuda_find_kernel(const char *image, const char *name, struct fake_cuda_kernel *out);
FAKE_CUDA_API void fake_cuda_kernels(fake_cuda_find_kernel *);

/* The bytes and queues of a device: gap__host_run_all and the like work on it. */
FAKE_CUDA_API struct gap__dev *fake_cuda_host(int device);
/* Which devices the last cuMemSetAccess opened the memory to, one bit each. */
FAKE_CUDA_API uint64_t fake_cuda_readers(void);
/* How often a device's primary context is retained. */
FAKE_CUDA_API int fake_cuda_retained(int device);

/* What the calling thread does by itself: its contexts and capture mode, a stream of a context that is not the primary one. */
FAKE_CUDA_API void fake_cuda_push(int device, bool primary);
FAKE_CUDA_API void fake_cuda_pop(void);
FAKE_CUDA_API int fake_cuda_depth(void);
FAKE_CUDA_API unsigned fake_cuda_capture_mode(void);
FAKE_CUDA_API gap_stream fake_cuda_stream(int device, bool primary);
/* A capture in global mode begins or ends; while one goes on, the legacy stream is barred (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT). */
FAKE_CUDA_API void fake_cuda_capture(int device, gap_stream, bool on);

#endif
