/* Streams and events of the cuda backend. */
#include <pthread.h>
#include <time.h>

#include "dev/cuda/state.h"

enum { AWAIT_NS = 10000 }; /* between two looks at a word */

/* An event can be recorded only on streams of its own context.  A stream whose context cannot be told is taken for one of
 * the primary context: the record would say otherwise. */
static gap__cuda_context context_of(struct cuda *cuda, gap_stream stream) {
  gap__cuda_context context = NULL;
  if (is_default_stream(stream)) return cuda->context;
  bool told = cuda->driver.cuStreamGetCtx(stream_of(stream), &context) == GAP__CUDA_SUCCESS && context;
  return told ? context : cuda->context;
}

int gap__cuda_event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  struct cuda *cuda = cuda_of(dev);
  struct gap__cuda_scope scope;
  gap__cuda_event event = NULL;
  int rc = gap__cuda_enter(cuda, cuda->context, &scope);
  if (rc != 0) return rc;
  gap__cuda_context context = context_of(cuda, stream), popped;
  bool foreign = context != cuda->context;
  if (foreign) rc = CUDA_CALL(cuda, cuCtxPushCurrent, context);
  if (rc == 0) {
    rc = CUDA_CALL(cuda, cuEventCreate, &event, GAP__CU_EVENT_DISABLE_TIMING);
    if (foreign) (void)CUDA_CALL(cuda, cuCtxPopCurrent, &popped);
  }
  gap__cuda_leave(cuda, &scope);
  if (rc == 0) *out = (uintptr_t)event;
  return rc;
}

int gap__cuda_event_destroy(struct gap__dev *dev, gap__event event) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuEventDestroy, event_of(event));
}

int gap__cuda_event_record(struct gap__dev *dev, gap__event event, gap_stream stream) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuEventRecord, event_of(event), stream_of(stream));
}

int gap__cuda_event_query(struct gap__dev *dev, gap__event event) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuEventQuery, event_of(event));
}

int gap__cuda_event_wait(struct gap__dev *dev, gap__event event) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuEventSynchronize, event_of(event));
}

int gap__cuda_stream_wait(struct gap__dev *dev, gap_stream stream, gap__event event) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuStreamWaitEvent, stream_of(stream), event_of(event), 0);
}

/* While another stream of the context that the legacy stream waits for is capturing, the legacy stream must not be touched:
 * to the caller that is the same as capturing. */
int gap__cuda_stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  struct cuda *cuda = cuda_of(dev);
  struct gap__cuda_scope scope;
  unsigned status = GAP__CU_STREAM_CAPTURE_STATUS_NONE;
  int rc = gap__cuda_enter(cuda, cuda->context, &scope);
  if (rc != 0) return rc;
  gap__cuda_result result = cuda->driver.cuStreamIsCapturing(stream_of(stream), &status);
  gap__cuda_leave(cuda, &scope);
  bool barred = result == GAP__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  rc = gap__cuda_check(cuda, "cuStreamIsCapturing", barred ? GAP__CUDA_SUCCESS : result);
  if (rc == 0) *out = barred || status != GAP__CU_STREAM_CAPTURE_STATUS_NONE;
  return rc;
}

/* Both calls are of before edges had data: where a node waits for less than another's end (programmatic launches) they give
 * CUDA_ERROR_LOSSY_QUERY.  The legacy stream takes part in no capture. */
int gap__cuda_stream_front(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *nodes,
                           uint32_t *count) {
  struct cuda *cuda = cuda_of(dev);
  unsigned status = GAP__CU_STREAM_CAPTURE_STATUS_NONE;
  gap__cuda_graph graph;
  const gap__cuda_node *front = NULL;
  uint64_t id = 0;
  size_t have = 0;
  if (!cuda->driver.cuStreamGetCaptureInfo) return GAP_ENOTSUP;
  int rc = 0;
  if (stream > 1)
    CALL_IN_CONTEXT(rc, cuda, cuStreamGetCaptureInfo, stream_of(stream), &status, &id, &graph, &front, &have);
  if (rc != 0) return rc;
  if (status != GAP__CU_STREAM_CAPTURE_STATUS_ACTIVE) id = have = 0;
  for (uint32_t i = 0; i < *count && i < have; i++) nodes[i] = (uintptr_t)front[i];
  *capture = id;
  *count = have < UINT32_MAX ? (uint32_t)have : UINT32_MAX;
  return 0;
}

int gap__cuda_node_before(struct gap__dev *dev, gap__node node, gap__node *nodes, uint32_t *count) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_node before[GAP__CUDA_NODES_MAX];
  size_t told = *count < GAP__CUDA_NODES_MAX ? *count : GAP__CUDA_NODES_MAX;
  if (!cuda->driver.cuGraphNodeGetDependencies) return GAP_ENOTSUP;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuGraphNodeGetDependencies, (gap__cuda_node)(uintptr_t)node, before, &told);
  if (rc != 0) return rc;
  *count = 0;
  for (size_t i = 0; i < told && i < GAP__CUDA_NODES_MAX && before[i]; i++) nodes[(*count)++] = (uintptr_t)before[i];
  return 0;
}

/* Before CUDA 12.0 the driver has no ids: the handle must do, and the thread stands for its own stream. */
static uint64_t id_by_handle(gap_stream stream) {
  if (stream == 2) return (uint64_t)1 << 63 | (uintptr_t)pthread_self();
  return stream <= 1 ? 1 : stream;
}

/* Asking a capturing stream for its id would spoil the capture, whatever the thread's capture mode. */
int gap__cuda_stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) {
  struct cuda *cuda = cuda_of(dev);
  bool capturing = false;
  uint64_t id = id_by_handle(stream);
  int rc = 0;
  if (cuda->info.stream_ids) {
    rc = gap__cuda_stream_capturing(dev, stream, &capturing);
    if (rc == 0 && capturing) return GAP_EAGAIN;
    if (rc == 0) CALL_IN_CONTEXT(rc, cuda, cuStreamGetId, stream_of(stream), &id);
  }
  if (rc == 0) *out = id;
  return rc;
}

int gap__cuda_stream_create(struct gap__dev *dev, gap_stream *out) {
  struct cuda *cuda = cuda_of(dev);
  struct gap__cuda_scope scope;
  gap__cuda_stream stream = NULL;
  int rc = gap__cuda_enter(cuda, cuda->context, &scope);
  if (rc != 0) return rc;
  rc = CUDA_CALL(cuda, cuStreamCreate, &stream, GAP__CU_STREAM_NON_BLOCKING);
  gap__cuda_leave(cuda, &scope);
  if (rc == 0) *out = (uintptr_t)stream;
  return rc;
}

int gap__cuda_stream_destroy(struct gap__dev *dev, gap_stream stream) {
  struct cuda *cuda = cuda_of(dev);
  if (is_default_stream(stream)) return GAP_EINVAL;
  RETURN_CALL(cuda, cuStreamDestroy, stream_of(stream));
}

int gap__cuda_copy(struct gap__dev *dev, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream stream) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemcpyAsync, dst, src, bytes, stream_of(stream));
}

int gap__cuda_write_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuStreamWriteValue32, stream_of(stream), addr, value, GAP__CU_STREAM_WRITE_VALUE_DEFAULT);
}

int gap__cuda_wait_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuStreamWaitValue32, stream_of(stream), addr, value, GAP__CU_STREAM_WAIT_VALUE_GEQ);
}

int gap__cuda_stream_blocking(struct gap__dev *dev, gap_stream stream, bool *out) {
  struct cuda *cuda = cuda_of(dev);
  unsigned flags = 0;
  int rc = 0;
  CALL_IN_CONTEXT(rc, cuda, cuStreamGetFlags, stream_of(stream), &flags);
  if (rc == 0) *out = !(flags & GAP__CU_STREAM_NON_BLOCKING);
  return rc;
}

static union gap__cuda_memop memop(unsigned operation, gap_addr addr, uint32_t value, unsigned flags) {
  return (union gap__cuda_memop){
      .value = {.operation = operation, .address = addr, .number = {.value = value}, .flags = flags}};
}

/* Both in one call: between two calls another thread could launch. */
int gap__cuda_gate(struct gap__dev *dev, gap_stream stream, gap_addr arrived, gap_addr open, uint32_t value) {
  struct cuda *cuda = cuda_of(dev);
  union gap__cuda_memop ops[2] = {
      memop(GAP__CU_STREAM_MEM_OP_WRITE_VALUE_32, arrived, value, GAP__CU_STREAM_WRITE_VALUE_DEFAULT),
      memop(GAP__CU_STREAM_MEM_OP_WAIT_VALUE_32, open, value, GAP__CU_STREAM_WAIT_VALUE_GEQ)};
  RETURN_CALL(cuda, cuStreamBatchMemOp, stream_of(stream), 2, ops, 0);
}

/* The card writes the word; the driver is not asked. */
int gap__cuda_value_await(struct gap__dev *dev, gap_addr word, uint32_t value, uint64_t limit_ns) {
  uint64_t end = dev->ops->now_ns(dev) + limit_ns;
  while (__atomic_load_n((const uint32_t *)(uintptr_t)word, __ATOMIC_ACQUIRE) < value) {
    if (dev->ops->now_ns(dev) >= end) return GAP_EAGAIN;
    nanosleep(&(struct timespec){.tv_nsec = AWAIT_NS}, NULL);
  }
  return 0;
}
