/* gapless: a GPU memory manager.  This header is the manual of the C interface; it compiles as C99 and C++11.
 *
 * Every function returns 0 or a negative GAP_E... code, results come last by out-parameters, and the library never prints,
 * exits or aborts: messages go to the log callback.  Sizes are in bytes.  Any thread may call any function at any time
 * unless it says otherwise. */
#ifndef GAPLESS_H
#define GAPLESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GAP_BUILD)
#define GAP_API __attribute__((visibility("default")))
#else
#define GAP_API
#endif

#define GAP_VERSION_MAJOR 0
#define GAP_VERSION_MINOR 1
#define GAP_VERSION_PATCH 0

typedef uint64_t gap_addr;   /* a device address: an integer, so that host code cannot dereference it by accident */
typedef uint64_t gap_stream; /* a stream handle as the driver knows it: 0 and 1 the legacy default, 2 per-thread default */

typedef struct gap_pool_id { /* a private pool in PyTorch's sense; {0, 0} is the default pool */
  uint64_t first, second;
} gap_pool_id;

typedef struct gap_heap gap_heap;

enum {
  GAP_OK = 0,
  GAP_EINVAL = -1,
  GAP_ENOMEM = -2,
  GAP_ENOMETA = -3,
  GAP_ENOTMINE = -4,
  GAP_EFREED = -5,
  GAP_ETOOBIG = -6,
  GAP_EAGAIN = -7,
  GAP_ENOTSUP = -8,
  GAP_EDEVICE = -9,
  GAP_ESTATE = -10,
  GAP_EIO = -11,
  GAP_EFORMAT = -12,
  GAP_ELIMIT = -13,
  GAP_EKEY = -14,
  GAP_EVALUE = -15,
  GAP_EMISMATCH = -16,
  GAP_EFORKED = -17
};

/* The meaning of a code in one sentence; never NULL. */
GAP_API const char *gap_strerror(int code);
/* "0.1.0" */
GAP_API const char *gap_version(void);

/* One line of text for a person.  `level` 0 error, 1 warning, 2 information, 3 debug.  Called from the thread that met the
 * event, possibly inside an allocation; must not call back into the heap.  NULL (the default) drops the lines. */
typedef void (*gap_log_fn)(void *arg, int level, const char *line);
GAP_API void gap_set_log(gap_log_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
