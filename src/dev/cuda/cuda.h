/* The NVIDIA driver: the driver API, loaded with dlopen when a device is opened, so that no toolkit is needed to build or run.
 *
 * A device is opened in its primary context, the one that the CUDA runtime and PyTorch use.  What the card and the driver
 * can do is found by trying it (a page with every wanted flag, a page of host memory, a value written in stream order), not by
 * belief; what does not work is given up step by step, in the end down to segments by cuMemAlloc.
 *
 * Every call leaves the calling thread's current context and its stream capture mode as they were, and works while any
 * stream captures.  The first error that makes the context unusable is logged with the driver's own words, later ones are
 * not; a driver that is shutting down (at exit) fails quietly.
 *
 * Unlike `sim` and `host`, the driver does not find every wrong use: an event or a chunk that was given back must not be
 * named again, and unmapping several whole mappings at once passes. */
#ifndef GAP_CUDA_H
#define GAP_CUDA_H

#include "dev/dev.h"

struct gap__cuda_params {
  const char *driver; /* file: NULL: libcuda.so.1 */
  bool no_vmm;        /* segments only */
  /* Chunks that a network card may reach.  Off by default: such a chunk cannot be mapped twice reliably.  On an H200 (driver 580) cuMemMap
   * answered CUDA_ERROR_UNKNOWN for it, for good, after a dozen moves under queued work; without the flag never.  What must be
   * registered with a card goes into a segment (GAP_POOL_CONTIGUOUS). */
  bool rdma;
};

/* What was found when the device was opened. */
struct gap__cuda_info {
  int driver_version; /* 13000: CUDA 13.0 */
  char name[128];
  unsigned char uuid[16];
  int capability_major, capability_minor, processors;
  uint64_t granularity_bytes; /* 0: not known */
  bool vmm, exportable, rdma, host_chunks, wait_values, gates, stream_ids;
  char missing[512];  /* entry points the driver lacks, with blanks between; "" none */
  char fallback[512]; /* why something that was wanted was given up; "" when nothing was */
};

/* `ordinal` is CUDA's (CUDA_VISIBLE_DEVICES applies).  NULL `params`: defaults.
 * GAP_ENOTSUP: no driver, or one without what is needed (named in the log); GAP_EDEVICE: no such device, or the driver refuses;
 * GAP_ENOMETA. */
int gap__cuda_create(int ordinal, const struct gap__cuda_params *, struct gap__dev **out);
/* How many devices the driver shows; opens none. */
int gap__cuda_device_count(const struct gap__cuda_params *, int *out);
/* The device that is current in the calling thread; 0 where none is. */
int gap__cuda_current_device(struct gap__dev *);
/* The same where no device is open yet. */
int gap__cuda_current_ordinal(const struct gap__cuda_params *);
/* What was found; NULL when `dev` is of another backend. */
const struct gap__cuda_info *gap__cuda_info(struct gap__dev *dev);

#endif
