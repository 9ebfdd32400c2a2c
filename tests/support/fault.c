/* See fault.h. */
#include "support/fault.h"

#include <stdatomic.h>

static _Thread_local struct fault *watched;

struct fault *fault_watched(void) {
  return watched;
}
void fault_watch(struct fault *f) { watched = f; }
void fault_clear(struct fault *f) { atomic_store(&f->over, true); }
void fault_quietly(struct fault *f, bool on) {
  atomic_store(&f->over, on);
  fault_watch(on ? NULL : f);
}

bool fault_strikes(struct fault *f, int kind) {
  const struct fault_plan *plan = &f->plan;
  uint64_t call = ++f->calls[kind];
  bool chosen = plan->nth && !f->over && plan->kind == kind && (plan->lasting ? call >= plan->nth : call == plan->nth);
  f->hits += chosen;
  f->done[kind] += !chosen;
  return chosen;
}

/* `ops` is the first member, so the table that a device points to is the fault. */
static struct fault *fault_of(const struct gap__dev *dev) { return (struct fault *)(uintptr_t)dev->ops; }

/* A call that may fail; the backend's own host memory is not the allocator's. */
#define FORWARD(op, ...) \
  do { \
    struct fault *f = fault_of(dev); \
    if (fault_strikes(f, GAP__CALL_##op)) return f->plan.code; \
    struct fault *before = watched; \
    watched = NULL; \
    int rc = f->inner->op(dev, __VA_ARGS__); \
    watched = before; \
    f->done[GAP__CALL_##op] -= rc != 0; \
    return rc; \
  } while (0)

static int reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  FORWARD(reserve, bytes, align, out);
}
static int unreserve(struct gap__dev *dev, gap_addr addr, uint64_t bytes) { FORWARD(unreserve, addr, bytes); }
static int chunk_create(struct gap__dev *dev, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  FORWARD(chunk_create, bytes, place, out);
}
static int chunk_release(struct gap__dev *dev, gap__chunk chunk) { FORWARD(chunk_release, chunk); }
static int map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk chunk) {
  FORWARD(map, addr, bytes, chunk);
}
static int set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) { FORWARD(set_access, addr, bytes); }
static int unmap(struct gap__dev *dev, gap_addr addr, uint64_t bytes) { FORWARD(unmap, addr, bytes); }
static int segment_alloc(struct gap__dev *dev, uint64_t bytes, gap_addr *out) { FORWARD(segment_alloc, bytes, out); }
static int segment_free(struct gap__dev *dev, gap_addr addr) { FORWARD(segment_free, addr); }
static int event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  FORWARD(event_create, stream, out);
}
static int event_destroy(struct gap__dev *dev, gap__event event) { FORWARD(event_destroy, event); }
static int event_record(struct gap__dev *dev, gap__event event, gap_stream stream) {
  FORWARD(event_record, event, stream);
}
static int event_query(struct gap__dev *dev, gap__event event) { FORWARD(event_query, event); }
static int event_wait(struct gap__dev *dev, gap__event event) { FORWARD(event_wait, event); }
static int stream_wait(struct gap__dev *dev, gap_stream stream, gap__event event) {
  FORWARD(stream_wait, stream, event);
}
static int stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) { FORWARD(stream_id, stream, out); }
static int stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  FORWARD(stream_capturing, stream, out);
}
static int stream_front(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *nodes, uint32_t *count) {
  FORWARD(stream_front, stream, capture, nodes, count);
}
static int node_before(struct gap__dev *dev, gap__node node, gap__node *nodes, uint32_t *count) {
  FORWARD(node_before, node, nodes, count);
}
static int stream_create(struct gap__dev *dev, gap_stream *out) { FORWARD(stream_create, out); }
static int stream_destroy(struct gap__dev *dev, gap_stream stream) { FORWARD(stream_destroy, stream); }
static int copy(struct gap__dev *dev, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream stream) {
  FORWARD(copy, dst, src, bytes, stream);
}
static int write_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  FORWARD(write_value, stream, addr, value);
}
static int wait_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  FORWARD(wait_value, stream, addr, value);
}
static int stream_blocking(struct gap__dev *dev, gap_stream stream, bool *out) {
  FORWARD(stream_blocking, stream, out);
}
static int gate(struct gap__dev *dev, gap_stream stream, gap_addr arrived, gap_addr open, uint32_t value) {
  FORWARD(gate, stream, arrived, open, value);
}
static int value_await(struct gap__dev *dev, gap_addr word, uint32_t value, uint64_t limit_ns) {
  FORWARD(value_await, word, value, limit_ns);
}
static int pin(struct gap__dev *dev, void *memory, uint64_t bytes) { FORWARD(pin, memory, bytes); }
static int unpin(struct gap__dev *dev, void *memory, uint64_t bytes) { FORWARD(unpin, memory, bytes); }
static int mem_info(struct gap__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes) {
  FORWARD(mem_info, free_bytes, total_bytes);
}

static int peer_enable(struct gap__dev *dev, int peer) { FORWARD(peer_enable, peer); }
static int peer_disable(struct gap__dev *dev, int peer) { FORWARD(peer_disable, peer); }
static int chunk_export(struct gap__dev *dev, gap__chunk chunk, int *fd) { FORWARD(chunk_export, chunk, fd); }
static int chunk_import(struct gap__dev *dev, int fd, gap__chunk *out) { FORWARD(chunk_import, fd, out); }

static void destroy(struct gap__dev *dev) {
  struct fault *before = watched;
  watched = NULL;
  fault_of(dev)->destroyed = true;
  dev->ops = fault_of(dev)->inner;
  dev->ops->destroy(dev);
  watched = before;
}

/* Calls that may fail; the others keep the backend's own function. */
/* clang-format off */
#define TAKEN_OVER(X) \
  X(reserve) X(unreserve) X(chunk_create) X(chunk_release) X(map) X(set_access) X(unmap) X(segment_alloc) X(segment_free) \
  X(event_create) X(event_destroy) X(event_record) X(event_query) X(event_wait) X(stream_wait) X(stream_id) \
  X(stream_capturing) X(stream_front) X(node_before) X(stream_create) X(stream_destroy) X(copy) X(write_value) X(wait_value) X(pin) X(unpin) X(mem_info) \
  X(peer_enable) X(peer_disable) X(chunk_export) X(chunk_import) X(stream_blocking) X(gate) X(value_await)
/* clang-format on */

void fault_attach(struct fault *f, struct gap__dev *dev, const struct fault_plan *plan) {
  *f = (struct fault){.ops = *dev->ops, .inner = dev->ops, .plan = *plan};
  f->ops.destroy = destroy;
#define X(name) \
  if (f->ops.name) f->ops.name = name;
  TAKEN_OVER(X)
#undef X
  dev->ops = &f->ops;
}

const char *fault_kind_name(int kind) {
  static const char *const names[] = {"host_pages", "host_bytes", "record"};
  return kind < GAP__CALL_COUNT ? gap__dev_call_name(kind) : names[kind - GAP__CALL_COUNT];
}
