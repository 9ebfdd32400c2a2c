/* The simulated card's own records.  One lock guards all of it; no call blocks while holding it. */
#ifndef GAP_SIM_STATE_H
#define GAP_SIM_STATE_H

#include "base/lock.h"
#include "base/map.h"
#include "base/meta.h"
#include "dev/sim/sim.h"
#include "dev/soft/capture.h"
#include "dev/soft/space.h"

/* Handles are generation << 32 | index; a generation ends when the record is given back, so a stale handle is unknown. */
struct sim_chunk {
  uint32_t link; /* of the slab; as in the other records */
  uint32_t generation;
  uint64_t bytes;
  uint32_t mapping_count;
  enum gap__place place;
  bool released; /* by its owner: the memory goes with the last mapping */
};

struct sim_mapping { /* or a segment: chunk 0 */
  uint32_t link;
  uint32_t chunk; /* index */
  gap_addr addr;
  uint64_t bytes;
  bool accessible;
};

/* Events of a stream are numbered in the order of their records.  A held stream keeps back those with order > open_order. */
struct sim_stream {
  uint32_t link;
  struct gap__soft_front front;
  uint64_t order;      /* records so far */
  uint64_t open_order; /* UINT64_MAX: not held */
  uint64_t tail_ns;    /* when all that was queued so far completes */
  uint64_t gate_order; /* records before the last gate */
  gap_addr gate;       /* the word that opens it; 0: there was none */
  uint32_t gate_value;
};

struct sim_event {
  uint32_t link;
  uint32_t generation;
  uint32_t stream;              /* index, of the last record */
  struct gap__soft_front front; /* captured: where it was recorded */
  uint64_t order;               /* 0: never recorded, which counts as complete */
  uint64_t complete_ns;
};

struct sim {
  struct gap__dev dev; /* first */
  struct gap__lock lock;
  struct gap__sim_params params;
  _Atomic uint64_t now_ns;
  _Atomic uint64_t worker_ns; /* how far the background worker has got */
  bool queued;                /* work may be queued since the device was last drained */
  bool caught_up;             /* all streams stood before a gate, and the program has not gone on since */
  uint64_t used_bytes;        /* of the card: chunks and segments */
  uint64_t host_bytes;        /* of chunks in host memory */
  uint64_t neighbour_bytes;
  struct gap__space space;
  struct gap__slab chunks, mappings, streams, events;
  struct gap__soft_graphs graphs;
  struct gap__map stream_of; /* stream key -> index */
  struct gap__map pinned;    /* host address -> bytes */
  struct gap__map arrivals;  /* word of a gate -> when it is written */
  gap_addr segment_cursor, segment_next;
};

static inline struct sim *sim_of(struct gap__dev *dev) { return (struct sim *)dev; }

/* The time of whoever calls: the clock, or the worker's timeline. */
uint64_t gap__sim_time(struct gap__dev *);
void gap__sim_charge(struct sim *, double us);
void gap__sim_wait_until(struct sim *, uint64_t ns);
double gap__sim_cost(const struct gap__sim_price *, uint64_t bytes); /* us */

/* memory.c */
int gap__sim_reserve(struct gap__dev *, uint64_t bytes, uint64_t align, gap_addr *out);
int gap__sim_unreserve(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__sim_chunk_create(struct gap__dev *, uint64_t bytes, enum gap__place, gap__chunk *out);
int gap__sim_chunk_release(struct gap__dev *, gap__chunk);
int gap__sim_map(struct gap__dev *, gap_addr, uint64_t bytes, gap__chunk);
int gap__sim_set_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__sim_unmap(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__sim_pin(struct gap__dev *, void *, uint64_t bytes);
int gap__sim_unpin(struct gap__dev *, void *, uint64_t bytes);
int gap__sim_mem_info(struct gap__dev *, uint64_t *free_bytes, uint64_t *total_bytes);
/* Whether the card has `bytes` left; charges for the attempt when it has not. */
bool gap__sim_fits(struct sim *, uint64_t bytes);
uint64_t gap__sim_free_bytes(const struct sim *);

/* segment.c */
int gap__sim_segment_alloc(struct gap__dev *, uint64_t bytes, gap_addr *out);
int gap__sim_segment_free(struct gap__dev *, gap_addr);

/* stream.c */
int gap__sim_event_create(struct gap__dev *, gap_stream, gap__event *out);
int gap__sim_event_destroy(struct gap__dev *, gap__event);
int gap__sim_event_record(struct gap__dev *, gap__event, gap_stream);
int gap__sim_event_query(struct gap__dev *, gap__event);
int gap__sim_event_wait(struct gap__dev *, gap__event);
int gap__sim_stream_wait(struct gap__dev *, gap_stream, gap__event);
int gap__sim_stream_id(struct gap__dev *, gap_stream, uint64_t *out);
int gap__sim_stream_capturing(struct gap__dev *, gap_stream, bool *out);
int gap__sim_stream_front(struct gap__dev *, gap_stream, uint64_t *capture, gap__node *nodes, uint32_t *count);
int gap__sim_node_before(struct gap__dev *, gap__node, gap__node *nodes, uint32_t *count);
void gap__sim_forget_captures(struct sim *); /* at the end */
int gap__sim_copy(struct gap__dev *, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream);
int gap__sim_gate(struct gap__dev *, gap_stream, gap_addr arrived, gap_addr open, uint32_t value);
int gap__sim_value_await(struct gap__dev *, gap_addr word, uint32_t value, uint64_t limit_ns);
void gap__sim_drain(struct sim *); /* waits for all work on the device */

#endif
