/* What was saved of memory that sleeps, or of memory that woke with its copy kept: pieces by address.
 *
 * A piece is a run of pages of one device that was copied as one; it lies in pinned host memory, on the disk or on servers, with a checksum.
 * Pieces do not overlap, and are in order of their addresses.  Not thread-safe. */
#ifndef GAP_TIER_IMAGE_H
#define GAP_TIER_IMAGE_H

#include <stdbool.h>

#include "tier/disk.h"
#include "tier/far.h"
#include "tier/pinned.h"

struct gap__piece {
  gap_addr addr;
  uint32_t units; /* of 2 MiB */
  uint32_t disk;  /* first unit there, when `host` is NULL and `far` 0 */
  uint32_t far;   /* its name on servers; 0: it is not there */
  unsigned char *host;
  uint64_t sum;
  bool by_card; /* whose sum it is: card_sum.h or base/sum.h */
  gap_pool_id pool;
};

struct gap__image {
  struct gap__piece *pieces;
  uint32_t count, room, promised; /* count + promised <= room */
  struct gap__pinned *pinned;
  struct gap__disk *disk; /* NULL: none is used yet */
  struct gap__far *far;   /* the same */
};

static inline uint64_t gap__piece_bytes(const struct gap__piece *p) { return p->units * GAP__UNIT_PAGE; }

void gap__image_free(struct gap__image *); /* gives every piece back */
/* Makes room, so that as many can be added without fail; and takes back what was not needed.  GAP_ENOMETA. */
int gap__image_reserve(struct gap__image *, uint32_t count);
void gap__image_unreserve(struct gap__image *, uint32_t count);
/* Adds pieces for which there is room, and owns them from here on. */
void gap__image_add(struct gap__image *, const struct gap__piece *, uint32_t count);
/* The pieces that begin in [addr, addr + bytes): the first one's index, and how many. */
uint32_t gap__image_find(const struct gap__image *, gap_addr addr, uint64_t bytes, uint32_t *count);
/* Is each of these pages in a piece that does not reach beyond `count` pages?  Bit i of `pages`: page i from `addr` on is asked for. */
bool gap__image_covers(const struct gap__image *, gap_addr addr, const uint64_t *pages, uint32_t count);
/* Gives back the pieces that begin there. */
void gap__image_drop(struct gap__image *, gap_addr addr, uint64_t bytes);
/* What a piece lies in, of pieces that no image owns. */
void gap__piece_give(const struct gap__image *, const struct gap__piece *);

#endif
