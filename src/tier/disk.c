#include "tier/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/text.h"
#include "gapless/gapless.h"

/* ---- the file ---- */

/* Where the file system knows no files without a name: one with a name that is gone at once. */
static int open_named(const char *folder) {
  char path[300];
  snprintf(path, sizeof path, "%s/gapless.XXXXXX", folder);
  int file = mkostemp(path, O_CLOEXEC);
  if (file >= 0) unlink(path);
  return file;
}

static int open_file(const char *folder) {
  int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  return file >= 0 ? file : open_named(folder);
}

static bool set_direct(int file, bool on) {
  int flags = fcntl(file, F_GETFL);
  return flags >= 0 && fcntl(file, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Writes a block and reads it again: what the file system says of itself is not always so. */
static int probe(struct gap__disk *d) {
  unsigned char *block = mmap(NULL, 2 * GAP__IO_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t at;
  if (block == MAP_FAILED) return ENOMEM;
  memset(block, 0x5A, GAP__IO_BLOCK);
  gap__io_begin(&d->io, 0, true, block, GAP__IO_BLOCK, 0);
  int why = gap__io_wait(&d->io, 0, &at);
  if (!why) gap__io_begin(&d->io, 0, false, block + GAP__IO_BLOCK, GAP__IO_BLOCK, 0);
  if (!why) why = gap__io_wait(&d->io, 0, &at);
  if (!why && memcmp(block, block + GAP__IO_BLOCK, GAP__IO_BLOCK) != 0) why = EIO;
  munmap(block, 2 * GAP__IO_BLOCK);
  return why;
}

/* The best way that works, and a line when it is not the best there is. */
static int choose_way(struct gap__disk *d, bool plain) {
  int no_ring = gap__io_open(&d->io, d->file, plain), why;
  d->direct = set_direct(d->file, true);
  int no_direct = d->direct ? 0 : errno;
  why = probe(d);
  if (why && d->direct && set_direct(d->file, false)) {
    d->direct = false;
    no_direct = why;
    why = probe(d);
  }
  if (why && d->io.ringed) { /* a kernel too old for these operations */
    no_ring = why;
    gap__io_close(&d->io);
    gap__io_open(&d->io, d->file, true);
    why = probe(d);
  }
  if (!why && !plain && (no_ring || no_direct))
    gap__log(GAP__LOG_WARNING, "%s: %s%s%s%s: reads and writes take more time there", d->folder,
             no_ring ? "no io_uring (" : "", no_ring ? strerror(no_ring) : "", no_ring ? ")" : "",
             no_direct ? " no O_DIRECT" : "");
  return why;
}

/* What the file system has free; 0 where it does not say. */
static uint64_t free_bytes(const char *folder) {
  struct statvfs about;
  return statvfs(folder, &about) ? 0 : (uint64_t)about.f_bavail * about.f_frsize;
}

/* A larger file would have the process killed (SIGXFSZ). */
static uint64_t within_limit(const char *folder, uint64_t bytes) {
  char text[GAP__TEXT_BYTES];
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return bytes;
  gap__log(GAP__LOG_WARNING, "%s: files of this process may have %s (RLIMIT_FSIZE): that is all there will be", folder,
           gap__text_size(limit.rlim_cur, text));
  return limit.rlim_cur;
}

static uint64_t units_of(const char *folder, uint64_t bytes) {
  if (!bytes) bytes = free_bytes(folder) / 5 * 4;
  uint64_t units = within_limit(folder, bytes) / GAP__DISK_UNIT;
  return units < UINT32_MAX / 2 ? units : UINT32_MAX / 2;
}

static size_t map_words(const struct gap__disk *d) { return d->units_most / 64 + 1; }
static size_t maps_bytes(const struct gap__disk *d) { return 2 * map_words(d) * sizeof *d->used; }

static int refuse(struct gap__disk *d, const char *what, int why) {
  snprintf(d->refusal, sizeof d->refusal, "%s: %s: %s", d->folder, what, strerror(why));
  return GAP_EIO;
}

int gap__disk_open(struct gap__disk *d, const char *folder, uint64_t most_bytes, bool plain) {
  *d = (struct gap__disk){.file = open_file(folder)};
  snprintf(d->folder, sizeof d->folder, "%s", folder);
  if (d->file < 0) return refuse(d, "no file can be made there", errno);
  d->units_most = (uint32_t)units_of(folder, most_bytes);
  if (!d->units_most) {
    close(d->file);
    d->file = -1;
    return refuse(d, "there is no room for a file of 2 MiB", ENOSPC);
  }
  d->used = gap__meta_map(maps_bytes(d));
  d->held = d->used ? d->used + map_words(d) : NULL;
  int why = d->used ? choose_way(d, plain) : 0, rc = d->used ? 0 : GAP_ENOMETA;
  if (why) rc = refuse(d, "the file cannot be used", why);
  if (!rc) return 0;
  if (d->used) gap__io_close(&d->io);
  gap__meta_unmap(d->used, maps_bytes(d));
  close(d->file);
  d->used = NULL;
  d->file = -1;
  return rc;
}

/* What cannot be given back the file has till its end. */
static void await_holes(struct gap__disk *d) {
  uint64_t at;
  (void)gap__io_wait(&d->io, GAP__DISK_HOLES, &at);
}

void gap__disk_close(struct gap__disk *d) {
  await_holes(d);
  gap__io_close(&d->io);
  gap__meta_unmap(d->used, maps_bytes(d));
  close(d->file);
}

void gap__disk_door(const struct gap__disk *d, struct gap__disk *door) {
  *door = (struct gap__disk){.file = d->file, .direct = d->direct};
  snprintf(door->folder, sizeof door->folder, "%s", d->folder);
  gap__io_open(&door->io, d->file, !d->io.ringed);
}

void gap__disk_shut(struct gap__disk *door) { gap__io_close(&door->io); }

/* ---- space ---- */

static bool has(const uint64_t *map, uint32_t unit) { return map[unit / 64] >> unit % 64 & 1; }

/* How many units the count of the map's bits changes by. */
static uint32_t set(uint64_t *map, uint32_t first, uint32_t units, bool on) {
  uint32_t changed = 0;
  for (uint32_t unit = first; unit < first + units; unit++) {
    changed += has(map, unit) != on;
    if (on) map[unit / 64] |= 1ull << unit % 64;
    else map[unit / 64] &= ~(1ull << unit % 64);
  }
  return changed;
}

/* The first unused unit, looked for before the end of what was ever used. */
static uint32_t first_unused(const struct gap__disk *d) {
  for (uint32_t word = 0; word * 64 < d->units_end; word++)
    if (d->used[word] != UINT64_MAX) return word * 64 + (uint32_t)__builtin_ctzll(~d->used[word]);
  return d->units_end;
}

/* A file system that cannot reserve says so; what is not there is then noticed by the write. */
static int allocate(struct gap__disk *d, uint32_t first, uint32_t units) {
  int why;
  do why = fallocate(d->file, 0, (off_t)(first * GAP__DISK_UNIT), (off_t)(units * GAP__DISK_UNIT)) ? errno : 0;
  while (why == EINTR);
  return why == EOPNOTSUPP || why == ENOSYS ? 0 : why;
}

/* To the end of the stride, or of the size, or to what is held already. */
static uint32_t end_of_stride(const struct gap__disk *d, uint32_t end) {
  while (end % GAP__DISK_STRIDE && end < d->units_most && !has(d->held, end)) end++;
  return end;
}

/* Space for these units, and for what comes next where there is enough. */
static int reserve(struct gap__disk *d, uint32_t first, uint32_t units) {
  uint32_t from = first, end = first + units, far = end_of_stride(d, end);
  while (from < end && has(d->held, from)) from++;
  if (from == end) return 0;
  await_holes(d);
  int why = allocate(d, from, far - from);
  if (why && far > end) why = allocate(d, from, (far = end) - from);
  if (!why) d->units_held += set(d->held, from, far - from, true);
  return why;
}

int gap__disk_take(struct gap__disk *d, uint32_t units, uint32_t *first, uint32_t *got) {
  uint32_t at = first_unused(d), count = 0;
  while (count < units && at + count < d->units_most && !has(d->used, at + count)) count++;
  if (!count) {
    char most[GAP__TEXT_BYTES];
    snprintf(d->refusal, sizeof d->refusal, "%s: all of the %s that tiers allows are in use", d->folder,
             gap__text_size(d->units_most * GAP__DISK_UNIT, most));
    return GAP_ELIMIT;
  }
  int why = reserve(d, at, count);
  if (why) return refuse(d, "no more space for what is to be kept", why);
  d->units_used += set(d->used, at, count, true);
  if (at + count > d->units_end) d->units_end = at + count;
  *first = at;
  *got = count;
  return 0;
}

void gap__disk_give(struct gap__disk *d, uint32_t first, uint32_t units) {
  d->units_used -= set(d->used, first, units, false);
}

/* The units from `unit` on that have space and no use. */
static uint32_t run_of_unused(const struct gap__disk *d, uint32_t unit) {
  uint32_t end = unit;
  while (end < d->units_most && has(d->held, end) && !has(d->used, end)) end++;
  return end - unit;
}

void gap__disk_tidy(struct gap__disk *d) {
  uint32_t unused = d->units_held - d->units_used;
  if (!unused || (d->units_used && unused < GAP__DISK_STRIDE)) return;
  bool tight = free_bytes(d->folder) < unused * GAP__DISK_UNIT; /* who needs as much next finds it */
  for (uint32_t unit = 0; unit < d->units_most && d->units_held > d->units_used; unit++) {
    uint32_t units = run_of_unused(d, unit);
    if (!units) continue;
    gap__io_begin_hole(&d->io, GAP__DISK_HOLES, units * GAP__DISK_UNIT, unit * GAP__DISK_UNIT);
    d->units_held -= set(d->held, unit, units, false);
    unit += units;
  }
  if (tight) await_holes(d);
}

/* ---- data ---- */

void gap__disk_begin(struct gap__disk *d, unsigned transfer, bool write, void *memory, uint32_t first, uint32_t units) {
  gap__io_begin(&d->io, transfer, write, memory, units * GAP__DISK_UNIT, first * GAP__DISK_UNIT);
}

int gap__disk_wait(struct gap__disk *d, unsigned transfer) {
  uint64_t at = 0;
  int why = gap__io_wait(&d->io, transfer, &at);
  if (!why) return 0;
  snprintf(d->refusal, sizeof d->refusal, "%s: %s at byte %llu", d->folder,
           why == ENODATA ? "the file ends where it should not," : strerror(why), (unsigned long long)at);
  return GAP_EIO;
}
