/* Carrying pieces between the device and where they are kept.
 *
 * Host memory: copies of up to 32 MiB on two streams of our own, some under way at once.  The card adds up what goes
 * and what has come back, if it can (card_sum.h); else threads of a crew add up what has arrived, or check what is to
 * go, behind the copies.  Disk and servers: pieces of up to 8 MiB pass through a few buffers of pinned memory, so that
 * the disk and the copy engine work side by side.
 *
 * When a call has failed, nothing is under way any more, unless the driver does not even say what is over (`lost`):
 * then memory that copies may still write to is not given back. */
#ifndef GAP_TIER_CARRY_H
#define GAP_TIER_CARRY_H

#include "tier/card_sum.h"
#include "tier/image.h"
#include "tier/spans.h"

enum { GAP__CARRY_WINDOW = 8, GAP__CARRY_STAGES = 4, GAP__CARRY_HOST_UNITS = 16, GAP__CARRY_DISK_UNITS = 4 };

struct gap__carrier {
  struct gap__dev *dev;
  gap_stream streams[2];                    /* 0: not made yet */
  gap__event events[GAP__CARRY_WINDOW];     /* 0: the same */
  unsigned char *stages[GAP__CARRY_STAGES]; /* of GAP__CARRY_DISK_UNITS; NULL: none */
  struct gap__spans spans; /* where pieces' addresses are places in a byte string: what it is packed from; else none */
  struct gap__far *far;    /* of pieces on servers; NULL: there are none */
  struct gap__card_sums sums; /* a slot for each of the window */
  bool lost;
  char words[400]; /* why a call failed, where it was not the driver */
};

/* Makes what is not there yet. */
int gap__carrier_ready(struct gap__carrier *);
/* Buffers for the disk, from the pool; and gives them back. */
int gap__carrier_stage(struct gap__carrier *, struct gap__pinned *);
void gap__carrier_unstage(struct gap__carrier *, struct gap__pinned *);
void gap__carrier_free(struct gap__carrier *);

/* Called for each piece in its order; other than 0 ends the carrying with it. */
typedef int gap__carry_fn(void *arg, const struct gap__piece *);

/* Off the device.  `done`: all of the piece is where it is kept, its checksum aside, which is there when the call returns. */
int gap__carry_out_host(struct gap__carrier *, struct gap__piece *, uint32_t count, gap__carry_fn *done, void *arg);
int gap__carry_out_disk(struct gap__carrier *, struct gap__disk *, struct gap__piece *, uint32_t count,
                        gap__carry_fn *done, void *arg);
/* Onto the device, all of it there when the call returns.  `before`: the piece's addresses are about to be written.  GAP_EIO: a piece is not
 * what was saved, or cannot be read; `words` says which. */
int gap__carry_in_host(struct gap__carrier *, const struct gap__piece *, uint32_t count, gap__carry_fn *before,
                       void *arg);
int gap__carry_in_disk(struct gap__carrier *, struct gap__disk *, const struct gap__piece *, uint32_t count,
                       gap__carry_fn *before, void *arg);

#endif
