/* Idle memory for other gapless processes on the card.
 *
 * Who needs more than the driver has left asks the others (the rung `neighbours` of the ladder), and each gives back what it has not
 * used for a while (lend_after_ms): live memory never, and nothing that it uses again and again.  So nobody is pressed below what it
 * needs, and what nobody needs goes to whoever asks first.  How they find each other and talk is the client's matter
 * (struct gap__heap_params). */
#ifndef GAP_NEIGHBOUR_H
#define GAP_NEIGHBOUR_H

#include "core/state.h"

/* The side that is asked: gives up to `bytes` of old idle pages back to the driver, a few at a time, so that no request waits for long.
 * Takes the device lock.  Adds to *out. */
void gap__neighbour_give(struct gap__policy_state *, uint64_t bytes, struct gap__given *out);

/* The side that asks, without locks, for one request: begin with *asked zeroed.  True: the driver has more free than before, or may have soon;
 * look, and ask again. */
bool gap__neighbour_ask(struct gap__device *, uint64_t bytes, struct gap__asked *);
/* Another request: what was heard of the neighbours is no longer of interest. */
void gap__neighbour_forget(struct gap__device *);
/* A sentence, with a blank before it, on what they said of the last request; "" when nobody was asked. */
void gap__neighbour_words(struct gap__device *, char *text, size_t bytes);

#endif
