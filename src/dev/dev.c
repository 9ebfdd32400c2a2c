/* The checked layer: what is the same for every backend is written here once. */
#include "dev/dev.h"

#include <assert.h>

/* Whether this thread works for the page maker at the moment. */
static _Thread_local bool in_background;

static void account(struct gap__dev *dev, enum gap__dev_call call, uint64_t start_ns) {
  uint64_t ns = dev->ops->now_ns(dev) - start_ns;
  struct gap__dev_counters *counters = &dev->counters;
  _Atomic uint64_t *calls = in_background ? counters->background_calls : counters->calls;
  _Atomic uint64_t *times = in_background ? counters->background_ns : counters->ns;
  atomic_fetch_add_explicit(&calls[call], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&times[call], ns, memory_order_relaxed);
}

/* Failed calls count too: they cost time. */
#define CHECKED(dev, op, ...) \
  do { \
    if (!(dev)->ops->op) return GAP_ENOTSUP; \
    uint64_t start_ns = (dev)->ops->now_ns(dev); \
    int rc = (dev)->ops->op((dev), __VA_ARGS__); \
    account((dev), GAP__CALL_##op, start_ns); \
    return rc; \
  } while (0)

#define ASSERT_PAGES(dev, bytes) assert((bytes) > 0 && (bytes) % (dev)->caps.granularity_bytes == 0)
#define ASSERT_RANGE(dev, addr, bytes) \
  assert((addr) != 0 && (addr) % (dev)->caps.granularity_bytes == 0 && (addr) + (bytes) > (addr))

void gap__dev_destroy(struct gap__dev *dev) {
  if (dev) dev->ops->destroy(dev);
}

int gap__dev_reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  ASSERT_PAGES(dev, bytes);
  assert(align >= dev->caps.granularity_bytes && (align & (align - 1)) == 0);
  CHECKED(dev, reserve, bytes, align, out);
}

int gap__dev_unreserve(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  ASSERT_PAGES(dev, bytes);
  ASSERT_RANGE(dev, addr, bytes);
  CHECKED(dev, unreserve, addr, bytes);
}

int gap__dev_chunk_create(struct gap__dev *dev, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  ASSERT_PAGES(dev, bytes);
  CHECKED(dev, chunk_create, bytes, place, out);
}

int gap__dev_chunk_release(struct gap__dev *dev, gap__chunk chunk) { CHECKED(dev, chunk_release, chunk); }

int gap__dev_map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk chunk) {
  ASSERT_PAGES(dev, bytes);
  ASSERT_RANGE(dev, addr, bytes);
  CHECKED(dev, map, addr, bytes, chunk);
}

int gap__dev_set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  ASSERT_PAGES(dev, bytes);
  ASSERT_RANGE(dev, addr, bytes);
  CHECKED(dev, set_access, addr, bytes);
}

int gap__dev_set_read_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  ASSERT_PAGES(dev, bytes);
  ASSERT_RANGE(dev, addr, bytes);
  CHECKED(dev, set_read_access, addr, bytes);
}

int gap__dev_unmap(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  ASSERT_PAGES(dev, bytes);
  ASSERT_RANGE(dev, addr, bytes);
  CHECKED(dev, unmap, addr, bytes);
}

int gap__dev_segment_alloc(struct gap__dev *dev, uint64_t bytes, gap_addr *out) {
  assert(bytes > 0);
  CHECKED(dev, segment_alloc, bytes, out);
}

int gap__dev_segment_free(struct gap__dev *dev, gap_addr addr) { CHECKED(dev, segment_free, addr); }

int gap__dev_event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  CHECKED(dev, event_create, stream, out);
}

int gap__dev_event_destroy(struct gap__dev *dev, gap__event event) { CHECKED(dev, event_destroy, event); }

int gap__dev_event_record(struct gap__dev *dev, gap__event event, gap_stream stream) {
  CHECKED(dev, event_record, event, stream);
}

int gap__dev_event_query(struct gap__dev *dev, gap__event event) { CHECKED(dev, event_query, event); }

int gap__dev_event_wait(struct gap__dev *dev, gap__event event) { CHECKED(dev, event_wait, event); }

int gap__dev_stream_wait(struct gap__dev *dev, gap_stream stream, gap__event event) {
  CHECKED(dev, stream_wait, stream, event);
}

int gap__dev_stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) { CHECKED(dev, stream_id, stream, out); }

int gap__dev_stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  CHECKED(dev, stream_capturing, stream, out);
}

int gap__dev_stream_front(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *nodes,
                          uint32_t *count) {
  CHECKED(dev, stream_front, stream, capture, nodes, count);
}

int gap__dev_node_before(struct gap__dev *dev, gap__node node, gap__node *nodes, uint32_t *count) {
  CHECKED(dev, node_before, node, nodes, count);
}

int gap__dev_stream_create(struct gap__dev *dev, gap_stream *out) { CHECKED(dev, stream_create, out); }

int gap__dev_stream_destroy(struct gap__dev *dev, gap_stream stream) { CHECKED(dev, stream_destroy, stream); }

int gap__dev_copy(struct gap__dev *dev, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream stream) {
  CHECKED(dev, copy, dst, src, bytes, stream);
}

int gap__dev_write_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  assert(addr % sizeof value == 0);
  CHECKED(dev, write_value, stream, addr, value);
}

int gap__dev_wait_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  assert(addr % sizeof value == 0);
  CHECKED(dev, wait_value, stream, addr, value);
}

int gap__dev_stream_blocking(struct gap__dev *dev, gap_stream stream, bool *out) {
  CHECKED(dev, stream_blocking, stream, out);
}

int gap__dev_gate(struct gap__dev *dev, gap_stream stream, gap_addr arrived, gap_addr open, uint32_t value) {
  assert(arrived % sizeof value == 0 && open % sizeof value == 0);
  CHECKED(dev, gate, stream, arrived, open, value);
}

int gap__dev_value_await(struct gap__dev *dev, gap_addr word, uint32_t value, uint64_t limit_ns) {
  assert(word % sizeof value == 0);
  CHECKED(dev, value_await, word, value, limit_ns);
}

int gap__dev_module_load(struct gap__dev *dev, const void *image, gap__module *out) {
  CHECKED(dev, module_load, image, out);
}

int gap__dev_module_unload(struct gap__dev *dev, gap__module module) { CHECKED(dev, module_unload, module); }

int gap__dev_module_find(struct gap__dev *dev, gap__module module, const char *name, uint32_t shared_bytes,
                         gap__function *out) {
  CHECKED(dev, module_find, module, name, shared_bytes, out);
}

int gap__dev_launch(struct gap__dev *dev, const struct gap__launch *launch, gap_stream stream) {
  CHECKED(dev, launch, launch, stream);
}

int gap__dev_pin(struct gap__dev *dev, void *memory, uint64_t bytes) { CHECKED(dev, pin, memory, bytes); }

int gap__dev_unpin(struct gap__dev *dev, void *memory, uint64_t bytes) { CHECKED(dev, unpin, memory, bytes); }

int gap__dev_mem_info(struct gap__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes) {
  CHECKED(dev, mem_info, free_bytes, total_bytes);
}

int gap__dev_peer_enable(struct gap__dev *dev, int peer_ordinal) { CHECKED(dev, peer_enable, peer_ordinal); }

int gap__dev_peer_disable(struct gap__dev *dev, int peer_ordinal) { CHECKED(dev, peer_disable, peer_ordinal); }

int gap__dev_chunk_export(struct gap__dev *dev, gap__chunk chunk, int *fd) { CHECKED(dev, chunk_export, chunk, fd); }

int gap__dev_chunk_import(struct gap__dev *dev, int fd, gap__chunk *out) { CHECKED(dev, chunk_import, fd, out); }

void gap__dev_last_error(struct gap__dev *dev, char *text, size_t bytes) {
  if (dev->ops->last_error) dev->ops->last_error(dev, text, bytes);
  else if (bytes) text[0] = '\0';
}

uint64_t gap__dev_now_ns(struct gap__dev *dev) { return dev->ops->now_ns(dev); }

bool gap__dev_recordable(struct gap__dev *dev, gap_stream stream) {
  bool capturing = false;
  int rc = gap__dev_stream_capturing(dev, stream, &capturing);
  return rc == GAP_ENOTSUP || (rc == 0 && !capturing);
}

void gap__dev_background(struct gap__dev *dev, bool on) {
  in_background = on;
  if (dev->ops->background) dev->ops->background(dev, on);
}

bool gap__dev_background_idle(struct gap__dev *dev) {
  return !dev->ops->background_idle || dev->ops->background_idle(dev);
}

void gap__dev_background_ask(struct gap__dev *dev) {
  if (dev->ops->background_ask) dev->ops->background_ask(dev);
}

const char *gap__dev_call_name(enum gap__dev_call call) {
  static const char *const names[GAP__CALL_COUNT] = {
#define X(name) #name,
      GAP__DEV_CALLS(X)
#undef X
  };
  return (unsigned)call < GAP__CALL_COUNT ? names[call] : "unknown";
}
