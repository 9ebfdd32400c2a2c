/* gapless: memory beyond the card.  This header is its manual; the rules of gapless.h apply.  Since 0.1.
 *
 * Where it may go is said by the key `tiers` of the configuration: host=SIZE,disk=/folder:SIZE.  Host memory is *pinned*: locked,
 * and registered with the driver, so that the device's copy engines reach it.  docs/tiers.md explains.
 *
 * Threads.  Any thread may call anything at any time; calls for one device run one after the other.
 * Errors.  Besides those named: GAP_EINVAL for a device that does not exist, GAP_ENOMETA, GAP_EFORKED, and what keeps a device
 * from being opened.  gap_explain says in words why a call was refused. */
#ifndef GAPLESS_TIER_H
#define GAPLESS_TIER_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the pool of pinned host memory of `device` `bytes` large (rounded up to 2 MiB): what is locked beyond that and not in use goes
 * back to the system.  Pinning takes some 0.1 s a GiB, so a program that is going to need it asks for it beforehand.
 * GAP_ELIMIT: more than `tiers` says, or than four fifths of what the machine and the process's control groups had to spare:
 * nothing has changed.  GAP_EDEVICE: the driver refused; what it did register stays in the pool. */
GAP_API int gap_reserve_host(gap_heap *heap, int device, uint64_t bytes);

typedef struct gap_tiers {
  size_t size;                /* sizeof(gap_tiers), set by the caller */
  uint64_t host_locked_bytes; /* of the device's pool */
  uint64_t host_used_bytes;   /* of these */
  uint64_t host_more_bytes;   /* that could be had beside what is used, by the budget as it is now */
} gap_tiers;
/* GAP_EINVAL: `size` is none that is known. */
GAP_API int gap_get_tiers(gap_heap *heap, int device, gap_tiers *out);

#ifdef __cplusplus
}
#endif
#endif
