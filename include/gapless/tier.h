/* gapless: memory beyond the card.  This header is its manual; the rules of gapless.h apply.  Since 0.1.
 *
 * Where it may go is said by the key `tiers` of the configuration: host=SIZE,disk=/folder:SIZE.  Host memory is
 * *pinned*: locked, and registered with the driver, so that the device's copy engines reach it.  docs/tiers.md
 * explains.
 *
 * Threads.  Any thread may call anything at any time.  On one device one call sleeps and one wakes at a time, of
 * different pools; what goes over the disk, and all else, comes one after the other.
 * Errors.  Besides those named: GAP_EINVAL for a device that does not exist, GAP_ENOMETA, GAP_EFORKED, and what keeps a
 * device from being opened.  gap_explain says in words why a call was refused. */
#ifndef GAPLESS_TIER_H
#define GAPLESS_TIER_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the pool of pinned host memory of `device` `bytes` large (rounded up to 2 MiB): what is locked beyond that and
 * not in use goes back to the system.  Pinning takes time (tests/gpu/tiers.c measures it), so a program that is going
 * to need it asks for it beforehand.  GAP_ELIMIT: more than `tiers` says, or than four fifths of what the machine and
 * the process's control groups had to spare:
 * nothing has changed.  GAP_EDEVICE: the driver refused; what it did register stays in the pool. */
GAP_API int gap_reserve_host(gap_heap *heap, int device, uint64_t bytes);

/* ---- Sleep and wake ----
 *
 *     gap_pool_create(heap, 0, GAP_POOL_SHARED, "weights", &pool);   blocks of the pool, and work that uses them, then
 *     gap_sleep(heap, 0, "weights", 0, &freed);                      the memory is the driver's: for an other model, an other program
 *     gap_wake(heap, 0, "weights", 0);                               the same bytes at the same addresses
 *
 * Stream order: none; both are calls of the host that return when it is done.  The program promises that nothing that
 * uses the memory is launched from the call of gap_sleep to the return of gap_wake; what was launched before, on any
 * stream of the device, is waited for.  While they sleep, blocks may be freed, and gap_record_stream may name them;
 * allocations from the pool give GAP_ESTATE.  A graph that was captured with the memory is whole again when it is
 * awake. */

enum {
  GAP_SLEEP_DROP = 1, /* contents are of no use: nothing is saved, and what wakes has any bytes */
  GAP_SLEEP_UNCHANGED =
      2, /* nothing has written to it since gap_wake with GAP_WAKE_KEEP: that copy is used.  The program's word counts; only
                              where something was allocated since is all copied again */
  GAP_SLEEP_DISK = 4,  /* to the disk, though host memory has room */
  GAP_SLEEP_REMOTE = 8 /* to the servers of `tiers`, though host memory or the disk has room */
};
/* Gives the memory of all pools with the tag (NULL: with any tag) back to the driver; addresses stay reserved.
 * Contents go to pinned host memory as far as its budget goes, the rest to the disk of `tiers`, what has no room there
 * to its servers, with checksums.  `freed` (may be NULL): bytes given back.  What others know (gap_export,
 * gap_keep_memory) stays awake.  GAP_ESTATE: no pool has the tag.  GAP_ENOTSUP: one is GAP_POOL_CONTIGUOUS.
 * GAP_ELIMIT, GAP_EIO: there is no room, or the disk fails, full as it may be.  GAP_EDEVICE.  GAP_EINVAL: flags that
 * are unknown, or another one with GAP_SLEEP_DROP.  After an error all is awake and as it was; should the driver, too,
 * not give back what had fallen asleep before the failure, then that sleeps, whole, until gap_wake. */
GAP_API int gap_sleep(gap_heap *heap, int device, const char *tag, unsigned flags, uint64_t *freed);

enum {
  GAP_WAKE_KEEP = 1, /* the copy stays for a later GAP_SLEEP_UNCHANGED */
  GAP_WAKE_DROP = 2  /* what was saved is of no use, or is lost: it wakes with any bytes */
};
/* Brings it back.  Takes idle memory of the heap for it, and asks neighbours.  Fine where nothing sleeps.
 * GAP_ENOMEM: the device, or the cap, has no room.  GAP_EIO: what was saved is not what is there now (checksum), or
 * cannot be read.  GAP_ESTATE, GAP_ENOTSUP as gap_sleep.  GAP_EDEVICE.  After an error it sleeps on, whole; gap_explain
 * says why. */
GAP_API int gap_wake(gap_heap *heap, int device, const char *tag, unsigned flags);
/* Only what lies behind the block at `addr`, which is at the begin of one or inside: for a program that needs its
 * layers one after the other.  When the last of a pool is awake, so is the pool.  GAP_ENOTMINE, GAP_EFREED, or as
 * gap_wake. */
GAP_API int gap_wake_block(gap_heap *heap, gap_addr addr);

/* ---- Items: bytes kept beside the device, one by one ----
 *
 *     gap_tier_put(heap, 0, &span, 1, stream, 0, &item);      behind what `stream` was given so far, bytes go to host memory or to the disk
 *     gap_tier_join(heap, 0, item, stream);                   work that `stream` is given from here on may write there; a block may be freed
 *     gap_tier_get(heap, 0, item, 0, &span, 1, stream);       behind what `stream` was given so far, they come back, here or elsewhere
 *     gap_tier_join(heap, 0, item, stream);                   work that `stream` is given from here on finds them
 *     gap_tier_drop(heap, 0, item);
 *
 * An item is a byte string, packed from ranges of addresses end to end; ranges of the device's memory, or of host
 * memory that the device reaches.  Copies run on streams of the library's own, both ways at once.  None of these calls
 * waits for the device, except where it says so.  Checksums are made when bytes have arrived, and compared when they go
 * back: a join says where bytes are wrong.  Host memory is taken in units of 2 MiB of the device's pool, disk in units
 * of 2 MiB of the file of `tiers`; an item is rounded up once. */

typedef uint64_t gap_item; /* of one device; 0 is none */

typedef struct gap_span {
  gap_addr addr;
  uint64_t bytes; /* at least 1 */
} gap_span;

enum {
  GAP_PUT_HOST = 1, /* to host memory, or not at all */
  GAP_PUT_DISK = 2  /* to the disk, though host memory has room */
};
/* Takes room (0: in host memory while there is some, else on the disk) and begins to copy.  Until a join or wait
 * nothing may be written to the addresses, and they may not be freed.  Where there is no room but that of items that
 * were dropped and are on their way back, waits for them.  GAP_ELIMIT, GAP_EIO: there is no room: the budget, a size in
 * `tiers`, or the file system is used up.  GAP_ESTATE: the stream captures a graph.  GAP_EDEVICE.  After an error there
 * is no item. */
GAP_API int gap_tier_put(gap_heap *heap, int device, const gap_span *spans, uint32_t count, gap_stream stream,
                         unsigned flags, gap_item *out);
/* Begins to bring back the part of the string that begins at `from` and is as long as the spans together.  The item
 * stays: it may be asked for again, several times at once.  GAP_EINVAL: no such item, or no such part.  GAP_ESTATE,
 * GAP_EDEVICE. */
GAP_API int gap_tier_get(gap_heap *heap, int device, gap_item item, uint64_t from, const gap_span *spans,
                         uint32_t count, gap_stream stream);
/* What `stream` is given from here on comes behind all puts and gets of the item up to now.  The host waits until
 * checksums were compared, and, where the disk is its place, until bytes were written or read; never for copies between
 * device and host memory.  GAP_EIO: the bytes are not what was put, or could not be written or read.  GAP_EDEVICE.
 * After a put that failed the bytes are where they were, and nowhere else; a get that failed may be tried again. */
GAP_API int gap_tier_join(gap_heap *heap, int device, gap_item item, gap_stream stream);
/* The host waits until nothing of the item is under way.  Errors as gap_tier_join. */
GAP_API int gap_tier_wait(gap_heap *heap, int device, gap_item item);

typedef struct gap_item_info {
  size_t size;         /* sizeof(gap_item_info), set by the caller */
  uint64_t bytes;      /* of the string */
  uint64_t host_bytes; /* of host memory taken for it */
  uint64_t disk_bytes; /* of the disk */
  int copying;         /* until a join would neither wait nor have a stream wait */
  int busy;            /* that, or checksums are being made */
  int error;           /* what gap_tier_wait would give; 0 */
} gap_item_info;
/* GAP_EINVAL: no such item, or `size` is none that is known. */
GAP_API int gap_tier_look(gap_heap *heap, int device, gap_item item, gap_item_info *out);
/* The item is no more.  What is under way goes on, and its room comes back behind it. */
GAP_API int gap_tier_drop(gap_heap *heap, int device, gap_item item);

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
