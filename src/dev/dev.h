/* The device seam: the contract between the allocator and a device driver.
 *
 * A port implements `struct gap__dev_ops`; everything above calls the checked layer `gap__dev_...`
 * (dev.c), which counts and times every call once, for all backends.  Every call here is cold path.
 *
 * Rules that hold on every backend, because the CUDA driver makes them:
 *  - A chunk maps whole: no offset into it, no partial unmap.  `bytes` of map and unmap equal the chunk's size.
 *  - One chunk may be mapped at several addresses at once; each sees the same bytes.
 *  - A mapped range is usable by kernels only after set_access.  set_access may span several mappings
 *    that lie side by side, and then costs per chunk.
 *  - map, set_access, unmap and release return at once, also under running kernels.  Unmapping an address
 *    that queued work still uses is a fault: the caller must know (by events) that it does not.
 *  - Releasing a chunk that is still mapped defers the release of its memory to the last unmap.
 *  - segment_free waits for all work on the device (cuMemFree); the others never wait.
 *  - The clock belongs to the seam, so time-dependent policy is a deterministic test on `sim`.
 * Threads: any thread may call at any time; the backend locks what it must.
 * Errors: 0 or a negative GAP_E...; GAP_ENOMEM only when device memory is exhausted. */
#ifndef GAP_DEV_H
#define GAP_DEV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gapless/gapless.h" /* gap_addr, gap_stream, GAP_E... */

#define GAP__PAGE_SHIFT 21
#define GAP__PAGE ((uint64_t)1 << GAP__PAGE_SHIFT) /* the driver's granularity, 2 MiB */

typedef uint64_t gap__chunk;    /* physical handle; 0 is none */
typedef uint64_t gap__event;    /* event handle; 0 is none */
typedef uint64_t gap__node;     /* of a graph; 0 is none */
typedef uint64_t gap__module;   /* loaded code; 0 is none */
typedef uint64_t gap__function; /* of a module; 0 is none */

/* A kernel's launch.  Kernels take one argument, a struct by value. */
struct gap__launch {
  gap__function function;
  uint32_t blocks[3], threads, shared_bytes;
  const void *argument;
};

enum gap__place { GAP__PLACE_DEVICE, GAP__PLACE_HOST };

/* Capabilities are data, read once at start; no caller asks "is this CUDA?". */
struct gap__dev_caps {
  uint64_t total_bytes;       /* physical memory of the device */
  uint64_t granularity_bytes; /* smallest chunk and its alignment: 2 MiB */
  bool vmm;                   /* reserve/map work; else only segments */
  bool host_chunks;           /* GAP__PLACE_HOST works */
  bool exportable;            /* chunks are created exportable */
  bool rdma;                  /* chunks may be registered with a network card */
  bool wait_values;           /* write_value / wait_value work */
  /* of the card, in every process the same; all 0: no other process can have it, or it cannot be told */
  unsigned char uuid[16];
  bool gates;             /* gate / value_await work */
  bool stepped;           /* time is simulated: no background threads, gap__heap_tick() drives them */
  uint32_t arch;          /* 90: code for compute capability 9.0 can be loaded; 0: none can */
  uint32_t processors;    /* that run blocks of a kernel side by side */
  uint32_t toolkit_major; /* code made by a newer toolkit than this is not loaded: 13 */
};

/* Every driver call, for counters: GAP__CALL(name). */
/* clang-format off */
#define GAP__DEV_CALLS(X) \
  X(reserve) X(unreserve) X(chunk_create) X(chunk_release) X(map) X(set_access) X(unmap) \
  X(segment_alloc) X(segment_free) X(event_create) X(event_destroy) X(event_record) X(event_query) X(event_wait) \
  X(stream_wait) X(stream_id) X(stream_capturing) X(stream_front) X(node_before) \
  X(stream_create) X(stream_destroy) X(copy) X(write_value) X(wait_value) X(pin) X(unpin) X(mem_info) \
  X(peer_enable) X(peer_disable) X(chunk_export) X(chunk_import) X(stream_blocking) X(gate) X(value_await) \
  X(set_read_access) X(module_load) X(module_unload) X(module_find) X(launch)
/* clang-format on */

enum gap__dev_call {
#define X(name) GAP__CALL_##name,
  GAP__DEV_CALLS(X)
#undef X
      GAP__CALL_COUNT
};

struct gap__dev;

struct gap__dev_ops {
  const char *name; /* "sim", "host", "cuda" */
  void (*destroy)(struct gap__dev *);

  /* Addresses. `bytes` is a multiple of 2 MiB, `align` a power of two >= 2 MiB.
   * GAP_ENOTSUP or GAP_ENOMEM when no window of that size can be had (the caller halves and retries). */
  int (*reserve)(struct gap__dev *, uint64_t bytes, uint64_t align, gap_addr *out);
  int (*unreserve)(struct gap__dev *, gap_addr, uint64_t bytes); /* nothing may be mapped in it */

  /* Physical memory. */
  int (*chunk_create)(struct gap__dev *, uint64_t bytes, enum gap__place, gap__chunk *out);
  int (*chunk_release)(struct gap__dev *, gap__chunk);
  int (*map)(struct gap__dev *, gap_addr, uint64_t bytes, gap__chunk);
  int (*set_access)(struct gap__dev *, gap_addr, uint64_t bytes); /* owner and all enabled peers */
  /* optional: the same, and writes by these addresses are faults */
  int (*set_read_access)(struct gap__dev *, gap_addr, uint64_t bytes);
  /* exactly one mapping; not every backend refuses more */
  int (*unmap)(struct gap__dev *, gap_addr, uint64_t bytes);

  /* Segments: one driver allocation, address and memory together (native policy; fallback without vmm). */
  int (*segment_alloc)(struct gap__dev *, uint64_t bytes, gap_addr *out);
  int (*segment_free)(struct gap__dev *, gap_addr);

  /* Events. An event is made for one stream's context and may be recorded again and again.  One that was never recorded is
   * complete; one recorded on a capturing stream became part of the graph: query and wait give GAP_EDEVICE,
   * and spoil the capture. */
  int (*event_create)(struct gap__dev *, gap_stream, gap__event *out);
  int (*event_destroy)(struct gap__dev *, gap__event);
  int (*event_record)(struct gap__dev *, gap__event, gap_stream);
  int (*event_query)(struct gap__dev *, gap__event); /* GAP_OK complete, GAP_EAGAIN not yet */
  int (*event_wait)(struct gap__dev *, gap__event);  /* blocks the calling thread */
  /* Work queued on the stream from now on runs after the event; nobody waits on the host.  After an event of a capture the stream takes
   * part in it; GAP_EDEVICE where it takes part in another, or in one and the event is of none. */
  int (*stream_wait)(struct gap__dev *, gap_stream, gap__event);

  /* Streams. `stream_id` is unique over the life of the process, a handle is not.  GAP_EAGAIN: the stream captures, and to
   * ask would spoil it. */
  int (*stream_id)(struct gap__dev *, gap_stream, uint64_t *out);
  int (*stream_capturing)(struct gap__dev *, gap_stream, bool *out);

  /* Optional: the order inside a graph that is being captured.  `stream_front`: the capture that the stream takes part in, by a
   * number that is never used again (0: none, or a spoilt one), and the nodes after which its next operation comes; *count is the
   * room in `nodes`, then how many there are, of which no more than the room are told.  `node_before`: in the same way nodes
   * directly after which a node comes; here *count becomes how many are told.  After means after the end: GAP_ENOTSUP where an
   * order is less than that.  A graph is not guarded by the driver: to be asked about by who captures it only. */
  int (*stream_front)(struct gap__dev *, gap_stream, uint64_t *capture, gap__node *nodes, uint32_t *count);
  int (*node_before)(struct gap__dev *, gap__node, gap__node *nodes, uint32_t *count);

  /* A stream of our own, for copies and replays; it waits for no other. */
  int (*stream_create)(struct gap__dev *, gap_stream *out);
  int (*stream_destroy)(struct gap__dev *, gap_stream); /* work queued on it still runs */

  /* Data, in stream order. */
  int (*copy)(struct gap__dev *, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream);
  int (*write_value)(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
  int (*wait_value)(struct gap__dev *, gap_stream, gap_addr, uint32_t value); /* until *addr >= value */

  /* Optional: is the stream ordered with the legacy default stream, so that what comes on it waits for what that stream was given
   * before, and the other way round?  Where it is missing none is. */
  int (*stream_blocking)(struct gap__dev *, gap_stream, bool *out);

  /* A gate, in one step of the stream's order with nothing between: `value` is written to *arrived, and what follows waits until
   * *open >= value.  Both words lie in pinned memory; the host opens by storing into *open.  GAP_EDEVICE: the stream captures.
   * Streams beyond some number may share a queue of the hardware, where one's wait keeps the other's write back: so the
   * host must not wait for arrival without a limit. */
  int (*gate)(struct gap__dev *, gap_stream, gap_addr arrived, gap_addr open, uint32_t value);
  /* Blocks the calling thread until a gate has written at least `value` to *word; GAP_EAGAIN after `limit_ns`. */
  int (*value_await)(struct gap__dev *, gap_addr word, uint32_t value, uint64_t limit_ns);

  /* Optional: code of our own.  `image` is what the driver loads for caps.arch; a function may use up to `shared_bytes` of a block's memory.
   * The argument is read before `launch` returns. */
  int (*module_load)(struct gap__dev *, const void *image, gap__module *out);
  int (*module_unload)(struct gap__dev *, gap__module); /* nothing of it may run */
  int (*module_find)(struct gap__dev *, gap__module, const char *name, uint32_t shared_bytes, gap__function *out);
  int (*launch)(struct gap__dev *, const struct gap__launch *, gap_stream);

  /* Host memory that copies and values may use under its own address, from the device's side too. */
  int (*pin)(struct gap__dev *, void *, uint64_t bytes);
  int (*unpin)(struct gap__dev *, void *, uint64_t bytes);

  int (*mem_info)(struct gap__dev *, uint64_t *free_bytes, uint64_t *total_bytes);
  uint64_t (*now_ns)(struct gap__dev *); /* monotonic */

  /* Optional: other devices of the process.  What set_access is called on from here on is open to the peer too (for what is mapped
   * already, call it again); segments all at once.  GAP_ENOTSUP: the hardware cannot. */
  int (*peer_enable)(struct gap__dev *, int peer_ordinal);
  int (*peer_disable)(struct gap__dev *, int peer_ordinal); /* what is mapped already stays open */

  /* Optional: other processes.  The descriptor is the caller's to close; an imported chunk is released like one of our own. */
  int (*chunk_export)(struct gap__dev *, gap__chunk, int *fd);
  int (*chunk_import)(struct gap__dev *, int fd, gap__chunk *out);

  /* Optional: the driver's own words about the last call of this thread that failed ("" if none did), cut to `bytes`. */
  void (*last_error)(struct gap__dev *, char *text, size_t bytes);

  /* Optional (NULL elsewhere): says that the calls this thread makes from here on belong to the background worker (true)
   * or to the caller (false).  `sim` charges the worker's own timeline, and now_ns is the worker's time meanwhile; real
   * backends have real threads. */
  void (*background)(struct gap__dev *, bool on);
  /* Optional with `background`: true while the worker's timeline lies behind the clock, i.e. it has time to work. */
  bool (*background_idle)(struct gap__dev *);
  /* Optional with `background`: new work for the worker exists from now on; an idle worker cannot have begun earlier. */
  void (*background_ask)(struct gap__dev *);
};

struct gap__dev_counters {
  _Atomic uint64_t calls[GAP__CALL_COUNT];
  _Atomic uint64_t ns[GAP__CALL_COUNT]; /* time of the calls made by allocating threads */
  _Atomic uint64_t background_calls[GAP__CALL_COUNT];
  _Atomic uint64_t background_ns[GAP__CALL_COUNT]; /* time of the calls made by the page maker */
};

/* The base every backend embeds as its first member. */
struct gap__dev {
  const struct gap__dev_ops *ops;
  struct gap__dev_caps caps;
  int ordinal;
  struct gap__dev_counters counters;
};

/* The checked layer: same names, same arguments, counted and timed; a NULL op gives GAP_ENOTSUP.  Preconditions are
 * asserted in debug builds. */
void gap__dev_destroy(struct gap__dev *);
int gap__dev_reserve(struct gap__dev *, uint64_t bytes, uint64_t align, gap_addr *out);
int gap__dev_unreserve(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__dev_chunk_create(struct gap__dev *, uint64_t bytes, enum gap__place, gap__chunk *out);
int gap__dev_chunk_release(struct gap__dev *, gap__chunk);
int gap__dev_map(struct gap__dev *, gap_addr, uint64_t bytes, gap__chunk);
int gap__dev_set_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__dev_set_read_access(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__dev_unmap(struct gap__dev *, gap_addr, uint64_t bytes);
int gap__dev_segment_alloc(struct gap__dev *, uint64_t bytes, gap_addr *out);
int gap__dev_segment_free(struct gap__dev *, gap_addr);
int gap__dev_event_create(struct gap__dev *, gap_stream, gap__event *out);
int gap__dev_event_destroy(struct gap__dev *, gap__event);
int gap__dev_event_record(struct gap__dev *, gap__event, gap_stream);
int gap__dev_event_query(struct gap__dev *, gap__event);
int gap__dev_event_wait(struct gap__dev *, gap__event);
int gap__dev_stream_wait(struct gap__dev *, gap_stream, gap__event);
int gap__dev_stream_id(struct gap__dev *, gap_stream, uint64_t *out);
int gap__dev_stream_capturing(struct gap__dev *, gap_stream, bool *out);
int gap__dev_stream_front(struct gap__dev *, gap_stream, uint64_t *capture, gap__node *nodes, uint32_t *count);
int gap__dev_node_before(struct gap__dev *, gap__node, gap__node *nodes, uint32_t *count);
int gap__dev_stream_create(struct gap__dev *, gap_stream *out);
int gap__dev_stream_destroy(struct gap__dev *, gap_stream);
int gap__dev_copy(struct gap__dev *, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream);
int gap__dev_write_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__dev_wait_value(struct gap__dev *, gap_stream, gap_addr, uint32_t value);
int gap__dev_stream_blocking(struct gap__dev *, gap_stream, bool *out);
int gap__dev_gate(struct gap__dev *, gap_stream, gap_addr arrived, gap_addr open, uint32_t value);
int gap__dev_value_await(struct gap__dev *, gap_addr word, uint32_t value, uint64_t limit_ns);
int gap__dev_module_load(struct gap__dev *, const void *image, gap__module *out);
int gap__dev_module_unload(struct gap__dev *, gap__module);
int gap__dev_module_find(struct gap__dev *, gap__module, const char *name, uint32_t shared_bytes, gap__function *out);
int gap__dev_launch(struct gap__dev *, const struct gap__launch *, gap_stream);
int gap__dev_pin(struct gap__dev *, void *, uint64_t bytes);
int gap__dev_unpin(struct gap__dev *, void *, uint64_t bytes);
int gap__dev_mem_info(struct gap__dev *, uint64_t *free_bytes, uint64_t *total_bytes);
uint64_t gap__dev_now_ns(struct gap__dev *);
/* May an event be recorded on the stream now?  Not while it is captured, nor when the driver cannot tell: an event that
 * becomes part of a graph never completes. */
bool gap__dev_recordable(struct gap__dev *, gap_stream);
int gap__dev_peer_enable(struct gap__dev *, int peer_ordinal);
int gap__dev_peer_disable(struct gap__dev *, int peer_ordinal);
int gap__dev_chunk_export(struct gap__dev *, gap__chunk, int *fd);
int gap__dev_chunk_import(struct gap__dev *, int fd, gap__chunk *out);
/* "" where the backend has no words of its own */
void gap__dev_last_error(struct gap__dev *, char *text, size_t bytes);
void gap__dev_background(struct gap__dev *, bool on); /* per thread; also sends counts to background_* */
bool gap__dev_background_idle(struct gap__dev *);     /* true where the backend has real threads */
void gap__dev_background_ask(struct gap__dev *);      /* call when work for the worker appears; nothing elsewhere */
const char *gap__dev_call_name(enum gap__dev_call);

/* Backends. */
struct gap__sim_params;  /* sim/sim.h */
struct gap__host_params; /* host/host.h */
struct gap__cuda_params; /* cuda/cuda.h */

#endif
