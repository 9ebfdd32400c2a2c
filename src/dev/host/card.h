/* A card that several processes share: a file that says how large it is, and how much of it each of them holds.
 *
 * Each process has bytes of its own (its memfd); what they share is the room.  A process that is killed holds nothing any more, as on
 * a real card: a holder is told by a lock on the file, which the kernel takes away with the process.  (A child that it forked keeps
 * the lock while it lives.)  The file is made by whoever opens it first, and removed by nobody. */
#ifndef GAP_HOST_CARD_H
#define GAP_HOST_CARD_H

#include <stdint.h>

enum { GAP__CARD_UUID_BYTES = 16 };

struct gap__card;

/* GAP_EIO: the file cannot be opened, locked or made, or is another user's; GAP_EFORMAT: it is no card, or one of another size than
 * `total_bytes`; GAP_ELIMIT: as many processes as can share it do; GAP_ENOMETA. */
int gap__card_open(const char *path, uint64_t total_bytes, struct gap__card **out);
void gap__card_close(struct gap__card *); /* what it held is free again; NULL is fine */
/* 0, or GAP_ENOMEM: it is not free; GAP_EIO. */
int gap__card_take(struct gap__card *, uint64_t bytes);
void gap__card_give(struct gap__card *, uint64_t bytes);
/* What nobody holds. */
uint64_t gap__card_free_bytes(struct gap__card *);
void gap__card_uuid(const struct gap__card *, unsigned char out[GAP__CARD_UUID_BYTES]);

#endif
