/* A process's sheet: its statistics in shared memory, for `gapless top` and `gapless metrics`.
 *
 * A file named PID.sheet beside the door of serve.h, in the folder of the user's own (door.h), of mode 0600.  The process that made it holds
 * an flock on it as long as it lives, however it ends: a sheet without one is nobody's, and whoever finds it takes it away.  The file is
 * written whole before it gets its name.
 *
 * Readers only map it and ask nobody, so they see the last figures of a process that is stopped or hangs, and how old these are.  The
 * thread of serve.c writes twice a second; allocations know nothing of it.
 *
 *     head | names of the figures, each ended by a NUL | device | device | ...
 *
 * A device is a sequence number and the words of a struct gap__sheet_device, figures behind it in the order of the names.  The number is
 * odd while the words are written: a reader that finds it odd, or changed when it has read all words, reads again.  Words are
 * stored with release and loaded with acquire, so that none is seen without the number before it.
 *
 * Names say what is in a sheet, so that a command reads those of older and newer libraries; a new version is for what is laid out
 * otherwise. */
#ifndef GAP_API_SHEET_H
#define GAP_API_SHEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "gapless/gapless.h"

#define GAP__SHEET_MAGIC "GAPSHEET"
enum {
  GAP__SHEET_VERSION = 1,
  GAP__SHEET_DEVICES = 16,
  GAP__SHEET_USAGES = 32,
  GAP__SHEET_PERIOD_MS = 500,
  GAP__SHEET_NAME_BYTES = 32
};
#define GAP__SHEET_SUFFIX ".sheet"

struct gap__sheet_head {
  char magic[8];
  uint32_t version, names_at, names_bytes, figure_count;
  uint32_t devices_at, device_bytes, device_most; /* bytes: with the sequence number, a multiple of 64 */
  uint32_t period_ms;
  int64_t process;
  char program[64], release[24]; /* its name and gapless's version, NUL at the end */
  _Atomic uint64_t looked_ns;    /* CLOCK_MONOTONIC: when the thread was last at work */
  _Atomic uint32_t device_count; /* in use */
};

struct gap__sheet_usage { /* what a stream has in a pool */
  uint64_t stream, pool_first, pool_second, live_blocks, live_bytes, pending_bytes, idle_bytes;
  char tag[32];
};

struct gap__sheet_device {
  uint64_t taken_ns;      /* CLOCK_MONOTONIC: when these figures were so */
  uint32_t heap, ordinal; /* heap: which of the process's, from 0 */
  uint32_t is_busy;       /* a lock was not free then: these are older figures */
  uint32_t usage_count, usage_missed;
  char strategy[24], backend[12];
  unsigned char uuid[16]; /* of the card; all 0: not known */
  uint64_t card_free_bytes, card_bytes;
  char refusal[512]; /* why a request was refused last; "" none was */
  struct gap__sheet_usage usage[GAP__SHEET_USAGES];
};
_Static_assert(sizeof(struct gap__sheet_device) % 8 == 0, "it is copied word by word");

typedef _Atomic uint64_t gap__sheet_word;

/* ---- the process's side ---- */

struct gap__sheet {
  struct gap__sheet_head *head; /* NULL: there is none */
  size_t bytes;
  int fd;
  char name[GAP__SHEET_NAME_BYTES];
  struct stat about;
  uint64_t *made; /* one device as it is put together */
};

/* 0, GAP_EIO, GAP_ENOMETA. */
int gap__sheet_make(struct gap__sheet *, int folder);
/* The figures of all devices that are open; the heaps stay meanwhile. */
void gap__sheet_publish(struct gap__sheet *, gap_heap *const *heaps, int count);
/* Takes the name away, and no more. */
void gap__sheet_remove_name(const struct gap__sheet *, int folder);
/* After the name: the rest.  In the child of a fork: this alone. */
void gap__sheet_close(struct gap__sheet *);

/* ---- both sides ---- */

/* Is it a sheet's name?  *process: whose. */
bool gap__sheet_is_name(const char *name, long *process);
/* Takes away what processes that are gone have left in an open folder of `user`'s. */
void gap__sheet_sweep(int folder, uid_t user);
/* Opens a sheet whose process lives.  The descriptor, or -1. */
int gap__sheet_open(int folder, const char *name, uid_t user);
/* Where the figures of a device are, in words behind its sequence number. */
enum { GAP__SHEET_FIGURES_AT = sizeof(struct gap__sheet_device) / 8 };

#endif
