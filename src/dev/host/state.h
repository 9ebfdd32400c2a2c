/* The host backend's own records.  One mutex guards all of it; queued work runs while it is held, so that a use and an unmap
 * never overlap: what would be a race on a device is a counted fault here. */
#ifndef GAP_HOST_STATE_H
#define GAP_HOST_STATE_H

#include <pthread.h>

#include "base/map.h"
#include "base/meta.h"
#include "dev/host/card.h"
#include "dev/host/host.h"
#include "dev/soft/capture.h"
#include "dev/soft/space.h"

/* Handles are generation << 32 | index, so a stale handle is unknown. */
struct host_chunk {
  uint32_t link; /* of the slab; as in the other records */
  uint32_t generation;
  uint64_t bytes;
  uint32_t *pages; /* of the memfd: physical pages need not lie side by side */
  uint32_t mapping_count;
  enum gap__place place;
  bool released;
};

struct host_mapping {
  uint32_t link;
  uint32_t chunk; /* index */
  gap_addr addr;
  uint64_t bytes;
  uint64_t born; /* sequence: work queued earlier meant what lay here before */
  uint32_t uses; /* queued operations that touch it */
  bool accessible;
  bool is_segment;
};

struct host_event {
  uint32_t link;
  uint32_t generation;
  uint64_t recorded, done;      /* serials: complete when equal */
  uint32_t stream;              /* of the last record */
  struct gap__soft_front front; /* captured: where it was recorded */
};

enum host_op_kind { OP_FILL, OP_EXPECT, OP_COPY, OP_WRITE, OP_WAIT, OP_EVENT, OP_AWAIT, OP_CALL };

struct host_op {
  enum host_op_kind kind;
  gap_addr addr, src;
  uint64_t bytes;
  uint64_t value;    /* pattern, value, or the serial of an event's record */
  uint64_t sequence; /* when it was queued */
  gap__event event;
  void (*call)(void *); /* with `src` */
  bool is_gate;         /* a wait that belongs to a gate */
  bool is_gated;        /* it was queued behind a closed gate: it holds nothing, and uses what is mapped when it runs */
};

/* Events and waits for them touch no memory; what a call touches is not known. */
static inline bool gap__host_touches_memory(const struct host_op *op) {
  return op->kind != OP_EVENT && op->kind != OP_AWAIT && op->kind != OP_CALL;
}

struct host_stream { /* never reused */
  struct host_op *ops;
  size_t first, count, capacity; /* ops[first .. first+count) wait */
  uint32_t gates;                /* of them */
  struct gap__soft_front front;
};

struct host_pages { /* free pages of the memfd, taken from the end */
  uint32_t *free;
  size_t count;
};

struct host {
  struct gap__dev dev; /* first */
  pthread_mutex_t lock;
  pthread_cond_t progress; /* an operation has run */
  struct gap__host_params params;
  struct gap__card *card; /* NULL: not shared */
  int fd;
  struct host_pages pages[2]; /* by place: the memfd holds the device's pages first, then the host's */
  uint64_t used_bytes;        /* of the device */
  uint64_t window_bytes;      /* reserved by the caller, segments not counted */
  uint64_t sequence, faults;
  struct gap__space space;
  struct gap__slab chunks, mappings, events;
  struct host_stream *streams; /* [0] unused */
  size_t stream_count, stream_max;
  struct gap__soft_graphs graphs;
  struct gap__map stream_of; /* stream key -> index */
  struct gap__map pinned;    /* address -> bytes */
};

static inline struct host *host_of(struct gap__dev *dev) { return (struct host *)dev; }
static inline struct host_mapping *gap__host_mapping_at(struct host *host, gap_addr addr) {
  uint32_t index = gap__space_at(&host->space, addr);
  return index ? gap__slab_at(&host->mappings, index) : NULL;
}
/* Wrong use of the driver. */
static inline int gap__host_misuse(struct host *host) {
  host->faults++;
  return GAP_EINVAL;
}

/* memory.c */
int gap__host_pages_init(struct host *);
int gap__host_reserve(struct gap__dev *, uint64_t bytes, uint64_t align, gap_addr *out);
int gap__host_unreserve(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__host_chunk_create(struct gap__dev *, uint64_t bytes, enum gap__place, gap__chunk *out);
int gap__host_chunk_release(struct gap__dev *, gap__chunk);
int gap__host_map(struct gap__dev *, gap_addr, uint64_t bytes, gap__chunk);
int gap__host_set_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__host_set_read_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__host_unmap(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__host_segment_alloc(struct gap__dev *, uint64_t bytes, gap_addr *out);
int gap__host_segment_free(struct gap__dev *, gap_addr);

/* queue.c */
int gap__host_event_create(struct gap__dev *, gap_stream, gap__event *out);
int gap__host_event_destroy(struct gap__dev *, gap__event);
int gap__host_event_record(struct gap__dev *, gap__event, gap_stream);
int gap__host_event_query(struct gap__dev *, gap__event);
int gap__host_event_wait(struct gap__dev *, gap__event);
int gap__host_stream_wait(struct gap__dev *, gap_stream, gap__event);
int gap__host_stream_id(struct gap__dev *, gap_stream, uint64_t *out);
int gap__host_stream_capturing(struct gap__dev *, gap_stream, bool *out);
int gap__host_stream_front(struct gap__dev *, gap_stream, uint64_t *capture, gap__node *nodes, uint32_t *count);
int gap__host_node_before(struct gap__dev *, gap__node, gap__node *nodes, uint32_t *count);
int gap__host_copy(struct gap__dev *, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream);
int gap__host_write_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__host_wait_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__host_gate(struct gap__dev *, gap_stream, gap_addr arrived, gap_addr open, uint32_t value);
int gap__host_value_await(struct gap__dev *, gap_addr word, uint32_t value, uint64_t limit_ns);
void gap__host_drain(struct host *); /* waits for all queued work; gives the lock up while nothing can run */

/* run.c: what operations do.  True when it ran, false when it must wait. */
bool gap__host_hold(struct host *, const struct host_op *); /* false: it touches what is not usable */
bool gap__host_execute(struct host *, const struct host_op *);

#endif
