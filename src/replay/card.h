/* The card that a history is replayed on: simulated, or a real one through its driver.
 *
 * Both are asked the same things: the program reaches a time, a second stream uses a block until it is let go, the device runs behind
 * the program by a lag.  The simulated card does these by its books.  On a real one there is no program, so streams of our own stand
 * for the recorded ones, and queued waits on a word of pinned memory stand for the work that keeps them busy. */
#ifndef GAP_REPLAY_CARD_H
#define GAP_REPLAY_CARD_H

#include "core/heap.h"
#include "gapless/tools.h"

struct gap__card;

struct gap__card_ops {
  /* The program does nothing until the device's clock shows `ns`. */
  void (*wait_until)(struct gap__card *, uint64_t ns);
  /* The card's stream for a recorded or made-up one.  GAP_ENOMETA, GAP_EDEVICE. */
  int (*stream)(struct gap__card *, uint64_t recorded, gap_stream *out);
  /* What is queued on the stream from here on ends only after its release; whoever waits for it brings the release about. */
  int (*hold)(struct gap__card *, gap_stream);
  int (*release)(struct gap__card *, gap_stream);
  void (*lag_set)(struct gap__card *, uint64_t us);
  /* When the device has been destroyed. */
  void (*close)(struct gap__card *);
};

struct gap__card {
  const struct gap__card_ops *ops;
  struct gap__dev *dev; /* belongs to the heap from the moment there is one */
  enum gap__maker maker;
};

int gap__card_sim(const gap_replay_options *, struct gap__card **out);
/* Takes the device over, also on failure.  It must have real time and wait values. */
int gap__card_real(struct gap__dev *, const gap_replay_options *, struct gap__card **out);

#endif
