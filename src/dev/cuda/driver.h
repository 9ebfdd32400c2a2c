/* The driver's entry points, bound by name and version, and what its errors mean. */
#ifndef GAP_CUDA_DRIVER_H
#define GAP_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "dev/cuda/abi.h"

struct gap__cuda_driver {
#define GAP_CUDA_ENTRY(name, version, group, parameters) gap__cuda_result(*name) parameters;
#include "dev/cuda/entry_points.def"
#undef GAP_CUDA_ENTRY
  int version; /* 13000: CUDA 13.0 */
};

enum gap__cuda_group { GAP__CUDA_NEED, GAP__CUDA_VMM, GAP__CUDA_MAY };

/* Loads the library (once a process: the loader knows it, and it is never unloaded) and binds every entry point.  Those that are
 * missing are NULL and their names are added to `missing`.  GAP_ENOTSUP, with a line in the log, when there is no
 * library, or when it lacks what nothing works without; GAP_EDEVICE when it cannot be initialised (no device). */
int gap__cuda_driver_open(const char *library, struct gap__cuda_driver *out, struct gap__text *missing);

/* Whether every entry point of a group was found. */
bool gap__cuda_driver_has(const struct gap__cuda_driver *, enum gap__cuda_group);

/* A GAP_... code for one of the driver's. */
int gap__cuda_code(gap__cuda_result);
/* The context is lost: every later call fails in the same way. */
bool gap__cuda_is_sticky(gap__cuda_result);
/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", cut to `bytes`. */
void gap__cuda_describe_error(const struct gap__cuda_driver *, const char *call, gap__cuda_result, char *out,
                              size_t bytes);

#endif
