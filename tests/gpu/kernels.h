/* Work for a real card: kernels that fill, compare and take their time, from PTX text that the driver compiles, so that no
 * toolkit is needed.  They run in the primary context, in stream order. */
#ifndef GAP_TESTS_KERNELS_H
#define GAP_TESTS_KERNELS_H

#include "dev/dev.h"

struct kernels;

/* `dev` is of the cuda backend.  GAP_EDEVICE: the driver refuses (a line on stderr says why). */
int kernels_open(struct gap__dev *dev, struct kernels **out);
void kernels_close(struct kernels *); /* waits for what is queued; NULL is fine */

/* `bytes` is a multiple of 8. */
int kernels_fill(struct kernels *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* Counts the words that are not `pattern`. */
int kernels_expect(struct kernels *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
/* One thread that waits, by the card's clock. */
int kernels_delay(struct kernels *, uint64_t ns, gap_stream);
/* Wrong words that every kernels_expect so far has found; waits for them. */
uint64_t kernels_wrong(struct kernels *);
/* Waits for the whole device. */
int kernels_wait(struct kernels *);
/* Waits until the streams that were used are idle, at most `ms`: one may wait for a value. */
void kernels_settle(struct kernels *, unsigned ms);
/* Begins a capture in global mode, in which most driver calls are forbidden to everybody; or ends it and drops the graph. */
int kernels_capture(struct kernels *, gap_stream, bool on);
/* Ends a capture with a graph that can be launched, again and again. */
int kernels_graph_take(struct kernels *, gap_stream, void **graph);
int kernels_graph_launch(struct kernels *, void *graph, gap_stream);
void kernels_graph_drop(struct kernels *, void *graph);
/* Nothing that was called since has spoilt the capture. */
bool kernels_capture_is_whole(struct kernels *, gap_stream);
/* A stream that the legacy default stream waits for; 0: the driver refuses. */
gap_stream kernels_blocking_stream(struct kernels *);

#endif
