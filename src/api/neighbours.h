/* Other gapless processes of this user on the same card: found by their sockets, asked for idle memory, and given to.
 *
 * Each (heap, device) whose card can be told from others has a socket in the folder of door.h, named by the card and the process.  One
 * thread a process sleeps until somebody asks; it gives what core/neighbour.h lets go, and allocations know nothing of it.
 *
 * Who asks, in a request that would fail otherwise: every neighbour once, one after the other, until enough came free; again, every
 * quarter of a second, while they hold idle memory that they will part with soon.  It waits for one that does not answer once
 * (ANSWER_MS), and then leaves it out for a second, two, four, at most sixteen; and it waits in all 15 s at once and a quarter of the time after
 * that, so that a process whose requests fail again and again is not slowed down by hope.  Every wait is bounded, whatever the
 * others do, and an answer is only believed as far as the driver has more free memory than before. */
#ifndef GAP_API_NEIGHBOURS_H
#define GAP_API_NEIGHBOURS_H

#include "core/heap.h"

/* Joins or leaves, as the configuration says, for every device that is open.  A socket that cannot be made is said in the log, and the heap
 * works without. */
void gap__neighbours_update(gap_heap *);
/* Before a heap is destroyed: returns when nobody is given from it any more. */
void gap__neighbours_leave(gap_heap *);

/* A gap__ask_fn. */
void gap__neighbours_ask(void *client, int ordinal, uint64_t bytes, struct gap__asked *);

/* Between the two files. */
enum { GAP__NEIGHBOUR_PREFIX_BYTES = 64 };
struct gap__neighbour_self {
  struct gap__dev *dev;
  char uuid[33], name[80]; /* its own name in the folder */
};
/* False: it has no socket. */
bool gap__neighbours_self(gap_heap *, int device, struct gap__neighbour_self *out);
/* How the names of all sockets on a card begin. */
void gap__neighbours_prefix(const char *uuid, char out[GAP__NEIGHBOUR_PREFIX_BYTES]);
/* In the child of a fork. */
void gap__neighbours_forget_locks(void);

#endif
