/* Servers as a place for what sleeps: pieces as values of a store (gapless/remote.h) under names that no other process
 * has.
 *
 * A *transfer* is a number by which its caller waits for what it began under it.  A store has no call that removes a
 * value: a name that is given back is given an empty value, and serves again.  Not thread-safe. */
#ifndef GAP_TIER_FAR_H
#define GAP_TIER_FAR_H

#include <stdbool.h>

#include "gapless/remote.h"

enum { GAP__FAR_TRANSFERS = 4, GAP__FAR_UNITS = 2, GAP__FAR_KEY_BYTES = 24 };

struct gap__far {
  gap_remote *remote;    /* NULL: not open */
  unsigned char run[16]; /* of this process and device: the beginning of every key */
  uint32_t names;        /* that were ever used: 1 .. names */
  uint32_t *unused, unused_count, unused_room;
  struct gap__far_transfer {
    gap_remote_item item;
    unsigned char key[GAP__FAR_KEY_BYTES];
    uint64_t bytes;           /* as asked */
    gap_remote_ticket ticket; /* 0: none is under way */
    int rc;                   /* why it did not begin */
    bool write;
  } transfers[GAP__FAR_TRANSFERS];
  char refusal[400]; /* why the last call failed, in words */
};

/* Whether servers are there shows with the first transfer. */
int gap__far_open(struct gap__far *, const char *servers);
void gap__far_close(struct gap__far *); /* nothing is under way */
/* A name, never 0; GAP_ENOMETA. */
int gap__far_take(struct gap__far *, uint32_t *name);
void gap__far_give(struct gap__far *, uint32_t name);
void gap__far_begin(struct gap__far *, unsigned transfer, bool write, void *memory, uint64_t bytes, uint32_t name);
/* 0, also where nothing was begun; or GAP_EIO with words: no server took it, or has it. */
int gap__far_wait(struct gap__far *, unsigned transfer);

#endif
