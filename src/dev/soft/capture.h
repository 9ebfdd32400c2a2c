/* Captures on the backends without a driver: the nodes that a graph gets, and what each comes after.  A stream takes part in a
 * capture from its begin, or from when it waits for an event of it, to the capture's end; what is queued on it meanwhile is a node
 * behind the stream's front and becomes that.  The work itself runs as any other, as if the graph were launched as it is made. */
#ifndef GAP_SOFT_CAPTURE_H
#define GAP_SOFT_CAPTURE_H

#include "dev/dev.h"

struct gap__soft_front { /* of a stream, or of an event: what a stream's was.  Zero-initialise it */
  uint64_t capture;      /* 0: none */
  gap__node *nodes;
  uint32_t count, capacity;
};

struct gap__soft_graphs { /* all of a device.  Zero-initialise it */
  uint64_t captures;      /* so far */
  uint32_t *first;        /* of a node's predecessors; nodes count from 1 */
  gap__node *before;
  uint32_t node_count, node_max, before_count, before_max;
};

/* Begins a capture; nothing where the stream captures already. */
void gap__soft_capture_begin(struct gap__soft_graphs *, struct gap__soft_front *);
/* A node behind the front.  GAP_ENOMETA.  Nothing where nothing is captured. */
int gap__soft_capture_add(struct gap__soft_graphs *, struct gap__soft_front *);
/* `front` comes after `other`, too, and takes part in its capture.  GAP_EDEVICE: it takes part in another one, or `other` in none.
 * GAP_ENOMETA. */
int gap__soft_capture_join(struct gap__soft_front *front, const struct gap__soft_front *other);
void gap__soft_front_clear(struct gap__soft_front *);
/* Of the operations with these names. */
int gap__soft_stream_front(const struct gap__soft_front *, uint64_t *capture, gap__node *nodes, uint32_t *count);
int gap__soft_node_before(const struct gap__soft_graphs *, gap__node, gap__node *nodes, uint32_t *count);
void gap__soft_graphs_free(struct gap__soft_graphs *);

#endif
