/* Reads and writes of one file, several under way at once, and holes made in it.
 *
 * A *transfer* is a number by which its caller waits for what it began under it.  It goes in operations of 1 MiB (a hole is one), up to
 * GAP__IO_DEPTH of all transfers at once, through io_uring; where that is denied, by pread and pwrite in the call that begins it.  With O_DIRECT
 * memory, offsets and lengths are multiples of 4 KiB.  Not thread-safe. */
#ifndef GAP_TIER_IO_H
#define GAP_TIER_IO_H

#include "tier/uring.h"

enum { GAP__IO_DEPTH = 32, GAP__IO_TRANSFERS = 9, GAP__IO_BLOCK = 4096, GAP__IO_STEP = 1 << 20 };

struct gap__io {
  int file;
  bool ringed;
  struct gap__uring ring;
  uint32_t under_way;
  struct gap__io_op {      /* bytes 0: not in use */
    unsigned char *memory; /* NULL: a hole */
    uint64_t offset, bytes;
    uint8_t transfer;
    bool write;
  } ops[GAP__IO_DEPTH];
  struct gap__io_transfer {
    uint32_t left; /* operations under way */
    int why;       /* errno of the first that failed; ENODATA: the file ends there */
    uint64_t at;   /* its offset */
  } transfers[GAP__IO_TRANSFERS];
};

/* An errno when io_uring is denied and plain calls serve; `plain`: it is not even tried.  The file stays the caller's. */
int gap__io_open(struct gap__io *, int file, bool plain);
void gap__io_close(struct gap__io *); /* nothing is under way */
void gap__io_begin(struct gap__io *, unsigned transfer, bool write, void *memory, uint64_t bytes, uint64_t offset);
/* Space goes back to the file system: whoever reads or writes there, or takes space, waits first. */
void gap__io_begin_hole(struct gap__io *, unsigned transfer, uint64_t bytes, uint64_t offset);
/* Waits for all that was begun under the number.  0, or the errno of the first that failed, and *at its offset. */
int gap__io_wait(struct gap__io *, unsigned transfer, uint64_t *at);

#endif
