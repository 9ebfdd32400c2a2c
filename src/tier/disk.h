/* A file without a name in a folder: where sleeping memory lies when host memory is not to have it.
 *
 * It is cut into units of 2 MiB.  Space is taken from the file system before anything is written (fallocate), so that a full disk
 * is noticed while everything is where it was, and given back by punching holes; both for many units at once, since a call takes as
 * long as writing half a unit does.  So there may be units that have space and no use, fewer than GAP__DISK_STRIDE of them after a tidy; none
 * when nothing is used.  Where a file system discards at once a hole takes about as long as reading what was there: holes are made behind the
 * caller while others have as much room, and who takes space of this file next waits for them.  Read and written with O_DIRECT where the file system has it.  Not thread-safe. */
#ifndef GAP_TIER_DISK_H
#define GAP_TIER_DISK_H

#include "tier/io.h"

#define GAP__DISK_UNIT ((uint64_t)2 << 20)
enum { GAP__DISK_STRIDE = 64 };
enum { GAP__DISK_HOLES = GAP__IO_TRANSFERS - 1 }; /* the transfer of holes; data have those below */

struct gap__disk {
  struct gap__io io;
  int file;
  bool direct;
  uint32_t units_most, units_used, units_held, units_end; /* no unit from `units_end` on was ever used */
  /* one bit a unit: it has a use; it has space in the file system, as those that have a use do */
  uint64_t *used, *held;
  char folder[256], refusal[400]; /* why the last call failed, in words */
};

/* `most_bytes` 0: four fifths of what the file system has free.  GAP_EIO: no file can be had there, `refusal` says why.  One line in the
 * log says where plain calls serve.  `plain`: tests. */
int gap__disk_open(struct gap__disk *, const char *folder, uint64_t most_bytes, bool plain);
void gap__disk_close(struct gap__disk *);
/* Another thread's way to the same file, for data only: a gap__io of its own, and words of its own.  Before the disk is closed it is shut. */
void gap__disk_door(const struct gap__disk *, struct gap__disk *door);
void gap__disk_shut(struct gap__disk *door);

/* Up to `units` units side by side; *got says how many.  GAP_ELIMIT: the size that was configured is used up; GAP_EIO: the file
 * system has no more. */
int gap__disk_take(struct gap__disk *, uint32_t units, uint32_t *first, uint32_t *got);
void gap__disk_give(struct gap__disk *, uint32_t first, uint32_t units);
void gap__disk_tidy(struct gap__disk *); /* space that is not used goes back, when it is much */
static inline uint32_t gap__disk_unused(const struct gap__disk *d) { return d->units_most - d->units_used; }

/* In the background, under a number below GAP__DISK_HOLES. */
void gap__disk_begin(struct gap__disk *, unsigned transfer, bool write, void *memory, uint32_t first, uint32_t units);
/* 0, or GAP_EIO with words. */
int gap__disk_wait(struct gap__disk *, unsigned transfer);

#endif
