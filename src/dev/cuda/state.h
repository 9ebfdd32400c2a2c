/* The cuda backend's own records, and how a call reaches the driver.
 *
 * Nothing here needs a lock: the driver has its own, and what is written after opening is the set of peers (atomic). */
#ifndef GAP_CUDA_STATE_H
#define GAP_CUDA_STATE_H

#include "dev/cuda/cuda.h"
#include "dev/cuda/driver.h"

enum { GAP__CUDA_PEERS_MAX = 64 }; /* bits of the set */
enum { GAP__CUDA_NODES_MAX = 64 }; /* asked for at once */

struct cuda {
  struct gap__dev dev;     /* first */
  struct gap__dev_ops ops; /* without what the probe gave up */
  struct gap__cuda_driver driver;
  struct gap__cuda_info info;
  gap__cuda_device device;
  gap__cuda_context context;      /* the primary one; NULL: not retained */
  struct gap__cuda_prop place[2]; /* of chunks, by enum gap__place */
  _Atomic uint64_t peers;         /* bit n: device n may reach what is mapped from now on */
  _Atomic uint64_t opened;        /* bit n: its primary context is retained and let into ours */
  atomic_bool lost;               /* a sticky error was reported */
};

static inline struct cuda *cuda_of(struct gap__dev *dev) { return (struct cuda *)dev; }
static inline gap__cuda_stream stream_of(gap_stream stream) { return (gap__cuda_stream)(uintptr_t)stream; }
static inline gap__cuda_event event_of(gap__event event) { return (gap__cuda_event)(uintptr_t)event; }
/* 0 and 1 are the legacy default stream, 2 the thread's own: they mean a stream of whatever context is current. */
static inline bool is_default_stream(gap_stream stream) { return stream <= 2; }

/* call.c */

/* What a call changes in the calling thread, and gives back. */
struct gap__cuda_scope {
  unsigned capture_mode;
  bool pushed;
};
/* Relaxed capture mode and `context` current.  On failure nothing is changed. */
int gap__cuda_enter(struct cuda *, gap__cuda_context, struct gap__cuda_scope *);
void gap__cuda_leave(struct cuda *, const struct gap__cuda_scope *);
/* The code of a result; a failure becomes the thread's last error, a sticky one is logged once. */
int gap__cuda_check(struct cuda *, const char *call, gap__cuda_result);
void gap__cuda_last_error(struct gap__dev *, char *text, size_t bytes);

/* One driver call inside a scope. */
#define CUDA_CALL(cuda, name, ...) gap__cuda_check((cuda), #name, (cuda)->driver.name(__VA_ARGS__))
/* One driver call in a scope of its own, in the primary context; sets `rc`. */
#define CALL_IN_CONTEXT(rc, cuda, name, ...) \
  do { \
    struct gap__cuda_scope scope; \
    (rc) = gap__cuda_enter((cuda), (cuda)->context, &scope); \
    if ((rc) != 0) break; \
    (rc) = CUDA_CALL((cuda), name, __VA_ARGS__); \
    gap__cuda_leave((cuda), &scope); \
  } while (0)
/* The whole body of an operation. */
#define RETURN_CALL(cuda, name, ...) \
  do { \
    int result; \
    CALL_IN_CONTEXT(result, cuda, name, __VA_ARGS__); \
    return result; \
  } while (0)

/* memory.c */
int gap__cuda_reserve(struct gap__dev *, uint64_t bytes, uint64_t align, gap_addr *out);
int gap__cuda_unreserve(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__cuda_chunk_create(struct gap__dev *, uint64_t bytes, enum gap__place, gap__chunk *out);
int gap__cuda_chunk_release(struct gap__dev *, gap__chunk);
int gap__cuda_map(struct gap__dev *, gap_addr, uint64_t bytes, gap__chunk);
int gap__cuda_set_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__cuda_set_read_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__cuda_unmap(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__cuda_segment_alloc(struct gap__dev *, uint64_t bytes, gap_addr *out);
int gap__cuda_segment_free(struct gap__dev *, gap_addr);
int gap__cuda_pin(struct gap__dev *, void *, uint64_t bytes);
int gap__cuda_unpin(struct gap__dev *, void *, uint64_t bytes);
int gap__cuda_mem_info(struct gap__dev *, uint64_t *free_bytes, uint64_t *total_bytes);

/* share.c */
int gap__cuda_peer_enable(struct gap__dev *, int peer);
int gap__cuda_peer_disable(struct gap__dev *, int peer);
void gap__cuda_close_peers(struct cuda *);
int gap__cuda_chunk_export(struct gap__dev *, gap__chunk, int *fd);
int gap__cuda_chunk_import(struct gap__dev *, int fd, gap__chunk *out);

/* queue.c */
int gap__cuda_event_create(struct gap__dev *, gap_stream, gap__event *out);
int gap__cuda_event_destroy(struct gap__dev *, gap__event);
int gap__cuda_event_record(struct gap__dev *, gap__event, gap_stream);
int gap__cuda_event_query(struct gap__dev *, gap__event);
int gap__cuda_event_wait(struct gap__dev *, gap__event);
int gap__cuda_stream_wait(struct gap__dev *, gap_stream, gap__event);
int gap__cuda_stream_id(struct gap__dev *, gap_stream, uint64_t *out);
int gap__cuda_stream_capturing(struct gap__dev *, gap_stream, bool *out);
int gap__cuda_stream_front(struct gap__dev *, gap_stream, uint64_t *capture, gap__node *nodes, uint32_t *count);
int gap__cuda_node_before(struct gap__dev *, gap__node, gap__node *nodes, uint32_t *count);
int gap__cuda_stream_create(struct gap__dev *, gap_stream *out);
int gap__cuda_stream_destroy(struct gap__dev *, gap_stream);
int gap__cuda_copy(struct gap__dev *, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream);
int gap__cuda_write_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__cuda_wait_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__cuda_stream_blocking(struct gap__dev *, gap_stream, bool *out);
int gap__cuda_gate(struct gap__dev *, gap_stream, gap_addr arrived, gap_addr open, uint32_t value);
int gap__cuda_value_await(struct gap__dev *, gap_addr word, uint32_t value, uint64_t limit_ns);

/* code.c */
int gap__cuda_module_load(struct gap__dev *, const void *image, gap__module *out);
int gap__cuda_module_unload(struct gap__dev *, gap__module);
int gap__cuda_module_find(struct gap__dev *, gap__module, const char *name, uint32_t shared_bytes, gap__function *out);
int gap__cuda_launch(struct gap__dev *, const struct gap__launch *, gap_stream);
bool gap__cuda_has_code(const struct cuda *); /* the driver has all that they need */

/* probe.c: finds what works, and takes the rest out of `ops` and `caps`. */
int gap__cuda_probe(struct cuda *, const struct gap__cuda_params *wanted);

#endif
