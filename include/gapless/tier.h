/* gapless: memory beyond the card.  This header is its manual; the rules of gapless.h apply.  Since 0.1.
 *
 * Where it may go is said by the key `tiers` of the configuration: host=SIZE,disk=/folder:SIZE.  Host memory is *pinned*: locked,
 * and registered with the driver, so that the device's copy engines reach it.  docs/tiers.md explains.
 *
 * Threads.  Any thread may call anything at any time.  On one device one call sleeps and one wakes at a time, of different pools; what goes
 * over the disk, and all else, comes one after the other.
 * Errors.  Besides those named: GAP_EINVAL for a device that does not exist, GAP_ENOMETA, GAP_EFORKED, and what keeps a device
 * from being opened.  gap_explain says in words why a call was refused. */
#ifndef GAPLESS_TIER_H
#define GAPLESS_TIER_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the pool of pinned host memory of `device` `bytes` large (rounded up to 2 MiB): what is locked beyond that and not in use goes
 * back to the system.  Pinning takes time (tests/gpu/tiers.c measures it), so a program that is going to need it asks for it beforehand.
 * GAP_ELIMIT: more than `tiers` says, or than four fifths of what the machine and the process's control groups had to spare:
 * nothing has changed.  GAP_EDEVICE: the driver refused; what it did register stays in the pool. */
GAP_API int gap_reserve_host(gap_heap *heap, int device, uint64_t bytes);

/* ---- Sleep and wake ----
 *
 *     gap_pool_create(heap, 0, GAP_POOL_SHARED, "weights", &pool);   blocks of the pool, and work that uses them, then
 *     gap_sleep(heap, 0, "weights", 0, &freed);                      the memory is the driver's: for an other model, an other program
 *     gap_wake(heap, 0, "weights", 0);                               the same bytes at the same addresses
 *
 * Stream order: none; both are calls of the host that return when it is done.  The program promises that nothing that uses the memory
 * is launched from the call of gap_sleep to the return of gap_wake; what was launched before, on any stream of the device, is waited
 * for.  While they sleep, blocks may be freed, and gap_record_stream may name them; allocations from the pool give GAP_ESTATE.
 * A graph that was captured with the memory is whole again when it is awake. */

enum {
  GAP_SLEEP_DROP = 1, /* contents are of no use: nothing is saved, and what wakes has any bytes */
  GAP_SLEEP_UNCHANGED =
      2, /* nothing has written to it since gap_wake with GAP_WAKE_KEEP: that copy is used.  The program's word counts; only
                              where something was allocated since is all copied again */
  GAP_SLEEP_DISK = 4 /* to the disk, though host memory has room */
};
/* Gives the memory of all pools with the tag (NULL: with any tag) back to the driver; addresses stay reserved.  Contents go to pinned host
 * memory as far as its budget goes, the rest to the disk of `tiers`, with checksums.  `freed` (may be NULL): bytes given back.
 * What others know (gap_export, gap_keep_memory) stays awake.
 * GAP_ESTATE: no pool has the tag.  GAP_ENOTSUP: one is GAP_POOL_CONTIGUOUS.  GAP_ELIMIT, GAP_EIO: there is no room, or the disk fails, full
 * as it may be.  GAP_EDEVICE.  GAP_EINVAL: flags that are unknown, or another one with GAP_SLEEP_DROP.
 * After an error all is awake and as it was; should the driver, too, not give back what had fallen asleep before the failure, then that
 * sleeps, whole, until gap_wake. */
GAP_API int gap_sleep(gap_heap *heap, int device, const char *tag, unsigned flags, uint64_t *freed);

enum { GAP_WAKE_KEEP = 1 }; /* the copy stays for a later GAP_SLEEP_UNCHANGED */
/* Brings it back.  Takes idle memory of the heap for it, and asks neighbours.  Fine where nothing sleeps.
 * GAP_ENOMEM: the device, or the cap, has no room.  GAP_EIO: what was saved is not what is there now (checksum), or cannot be read.
 * GAP_ESTATE, GAP_ENOTSUP as gap_sleep.  GAP_EDEVICE.  After an error it sleeps on, whole; gap_explain says why. */
GAP_API int gap_wake(gap_heap *heap, int device, const char *tag, unsigned flags);
/* Only what lies behind the block at `addr`, which is at the begin of one or inside: for a program that needs its layers one after the other.
 * When the last of a pool is awake, so is the pool.  GAP_ENOTMINE, GAP_EFREED, or as gap_wake. */
GAP_API int gap_wake_block(gap_heap *heap, gap_addr addr);

typedef struct gap_tiers {
  size_t size;                /* sizeof(gap_tiers), set by the caller */
  uint64_t host_locked_bytes; /* of the device's pool */
  uint64_t host_used_bytes;   /* of these */
  uint64_t host_more_bytes;   /* that could be had beside what is used, by the budget as it is now */
  uint64_t disk_used_bytes;
  uint64_t asleep_bytes;   /* addresses whose memory is the driver's */
  uint64_t sleeps, wakes;  /* calls that succeeded */
  uint64_t saved_bytes;    /* copied off the device, in all */
  uint64_t restored_bytes; /* and back */
  uint64_t spared_bytes;   /* not copied: GAP_SLEEP_UNCHANGED */
  uint64_t time_us;        /* in these calls */
} gap_tiers;
/* GAP_EINVAL: `size` is none that is known. */
GAP_API int gap_get_tiers(gap_heap *heap, int device, gap_tiers *out);

#ifdef __cplusplus
}
#endif
#endif
