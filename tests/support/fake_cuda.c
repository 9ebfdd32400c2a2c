#include "support/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/map.h"
#include "dev/cuda/abi.h"
#include "dev/host/host.h"

enum { DEVICES_MAX = 8, STREAMS_MAX = 512, DEPTH_MAX = 8, CALLS_MAX = 80, FUNCTIONS_MAX = 256 };

/* A context: the primary one of a device, or another of the same device. */
struct gap__cuda_opaque {
  int device;
  bool alive;
};

struct fake_stream {
  gap__cuda_context context;
};

struct fake_device {
  struct gap__dev *host;
  struct gap__cuda_opaque primary, other;
  int retained;
  uint64_t peers; /* whose contexts were let in */
};

static struct {
  pthread_mutex_t lock; /* guards everything but the devices' own state */
  struct fake_cuda_settings settings;
  struct fake_device devices[DEVICES_MAX];
  struct fake_stream streams[STREAMS_MAX];
  int stream_count;
  struct gap__map event_context; /* event -> context */
  struct gap__map pinned;        /* address -> bytes */
  struct gap__map references;    /* chunk -> handles beyond the first */
  uint64_t readers, wrong;
  int captures; /* under way */
  fake_cuda_find_kernel *find_kernel;
  int function_count;
  struct {
    const char *name;
    uint64_t count;
  } calls[CALLS_MAX];
  struct {
    const char *name;
    unsigned code;
    uint64_t after, times;
  } fault;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local gap__cuda_context stack[DEPTH_MAX];
static _Thread_local int depth;
static _Thread_local unsigned capture_mode = GAP__CU_STREAM_CAPTURE_MODE_GLOBAL;

static gap__cuda_context current(void) { return depth ? stack[depth - 1] : NULL; }
static struct fake_device *device_here(void) { return &fake.devices[current()->device]; }
static struct gap__dev *host_here(void) { return device_here()->host; }
static bool works(unsigned feature) { return !((fake.settings.lacks | fake.settings.refuses) & feature); }

static gap__cuda_result result_of(int rc) {
  switch (rc) {
    case GAP_OK: return GAP__CUDA_SUCCESS;
    case GAP_EINVAL: return GAP__CUDA_ERROR_INVALID_VALUE;
    case GAP_EAGAIN: return GAP__CUDA_ERROR_NOT_READY;
    case GAP_ENOMEM: return GAP__CUDA_ERROR_OUT_OF_MEMORY;
    case GAP_EDEVICE: return GAP__CUDA_ERROR_CAPTURED_EVENT;
    default: return GAP__CUDA_ERROR_NOT_SUPPORTED;
  }
}

/* ---- What every call passes first ---- */

enum { PLAIN = 0, CONTEXT = 1, UNSAFE = 2 }; /* needs a current context; forbidden while a capture goes on */

static void count_call(const char *name) {
  int i = 0;
  while (i < CALLS_MAX - 1 && fake.calls[i].name && strcmp(fake.calls[i].name, name) != 0) i++;
  fake.calls[i].name = name;
  fake.calls[i].count++;
}

static gap__cuda_result planned_fault(const char *name) {
  if (fake.fault.times == 0 || (fake.fault.name && strcmp(fake.fault.name, name) != 0)) return GAP__CUDA_SUCCESS;
  if (fake.fault.after) {
    fake.fault.after--;
    return GAP__CUDA_SUCCESS;
  }
  fake.fault.times--;
  return fake.fault.code;
}

static gap__cuda_result wrong(gap__cuda_result code) {
  fake.wrong++;
  return code;
}

static gap__cuda_result pass_locked(const char *name, unsigned needs) {
  count_call(name);
  gap__cuda_result planned = planned_fault(name);
  if (planned != GAP__CUDA_SUCCESS) return planned;
  if ((needs & CONTEXT) && (!current() || !current()->alive)) return wrong(GAP__CUDA_ERROR_INVALID_CONTEXT);
  if ((needs & UNSAFE) && fake.captures && capture_mode != GAP__CU_STREAM_CAPTURE_MODE_RELAXED)
    return wrong(GAP__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result pass(const char *name, unsigned needs) {
  pthread_mutex_lock(&fake.lock);
  gap__cuda_result result = pass_locked(name, needs);
  pthread_mutex_unlock(&fake.lock);
  return result;
}

#define PASS(needs) \
  do { \
    gap__cuda_result passed = pass(__func__, needs); \
    if (passed != GAP__CUDA_SUCCESS) return passed; \
  } while (0)

static gap__cuda_result miss(void) {
  pthread_mutex_lock(&fake.lock);
  fake.wrong++;
  pthread_mutex_unlock(&fake.lock);
  return GAP__CUDA_ERROR_INVALID_VALUE;
}

/* ---- The driver ---- */

static unsigned number_from(const char *variable) {
  const char *text = getenv(variable);
  return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* For a program that knows nothing of this driver. */
static void start_by_environment(void) {
  struct fake_cuda_settings settings = {.device_count = (int)number_from("FAKE_CUDA_CARDS"),
                                        .lacks = number_from("FAKE_CUDA_LACKS")};
  if (settings.device_count && !fake.settings.device_count) fake_cuda_reset(&settings);
}

static gap__cuda_result cuInit(unsigned flags) {
  start_by_environment();
  PASS(PLAIN);
  if (flags) return GAP__CUDA_ERROR_INVALID_VALUE;
  return fake.settings.device_count > 0 ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_NO_DEVICE;
}

static gap__cuda_result cuDriverGetVersion(int *out) {
  PASS(PLAIN);
  *out = 13000;
  return GAP__CUDA_SUCCESS;
}

static const struct {
  const char *name;
  gap__cuda_result value;
} errors[] = {
#define GAP_CUDA_VALUE(name, value) {#name, value},
#define GAP_CUDA_STRUCT(ours, theirs)
#define GAP_CUDA_FIELD(ours, theirs, path)
#define GAP_CUDA_MEMBER(ours, path, theirs, their_path)
#include "dev/cuda/abi.def"
};

static const char *error_name(gap__cuda_result result) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (strncmp(errors[i].name, "CUDA_", 5) == 0 && errors[i].value == result) return errors[i].name;
  return NULL;
}

static gap__cuda_result cuGetErrorName(gap__cuda_result result, const char **out) {
  *out = error_name(result);
  return *out ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_VALUE;
}

static gap__cuda_result cuGetErrorString(gap__cuda_result result, const char **out) {
  *out = error_name(result) ? "as the fake driver was told" : NULL;
  return *out ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_VALUE;
}

/* ---- Devices and contexts ---- */

static bool is_device(int device) { return device >= 0 && device < fake.settings.device_count; }

static gap__cuda_result cuDeviceGetCount(int *out) {
  PASS(PLAIN);
  *out = fake.settings.device_count;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuDeviceGet(gap__cuda_device *out, int ordinal) {
  PASS(PLAIN);
  *out = ordinal;
  return is_device(ordinal) ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_DEVICE;
}

static gap__cuda_result cuDeviceGetName(char *out, int bytes, gap__cuda_device device) {
  PASS(PLAIN);
  snprintf(out, (size_t)bytes, "Fake %d", device);
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuDeviceGetUuid(struct gap__cuda_uuid *out, gap__cuda_device device) {
  PASS(PLAIN);
  memset(out, 0xA0 + device, sizeof *out);
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuDeviceTotalMem(size_t *out, gap__cuda_device device) {
  PASS(PLAIN);
  (void)device;
  *out = fake.settings.total_bytes;
  return GAP__CUDA_SUCCESS;
}

static int attribute(unsigned which) {
  unsigned has = ~fake.settings.lacks;
  switch (which) {
    case GAP__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case GAP__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 2;
    case GAP__CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return (has & FAKE_CUDA_VMM) != 0;
    case GAP__CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return (has & FAKE_CUDA_EXPORT) != 0;
    case GAP__CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: return (has & FAKE_CUDA_RDMA) != 0;
    case GAP__CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return (has & FAKE_CUDA_HOST_CHUNKS) != 0;
    default: return 0;
  }
}

static gap__cuda_result cuDeviceGetAttribute(int *out, unsigned which, gap__cuda_device device) {
  PASS(PLAIN);
  *out = attribute(which);
  return is_device(device) ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_DEVICE;
}

static gap__cuda_result cuDevicePrimaryCtxRetain(gap__cuda_context *out, gap__cuda_device device) {
  PASS(PLAIN);
  struct fake_device *at = &fake.devices[device];
  pthread_mutex_lock(&fake.lock);
  at->retained++;
  at->primary.alive = true;
  *out = &at->primary;
  pthread_mutex_unlock(&fake.lock);
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuDevicePrimaryCtxRelease(gap__cuda_device device) {
  PASS(PLAIN);
  struct fake_device *at = &fake.devices[device];
  pthread_mutex_lock(&fake.lock);
  bool held = at->retained > 0;
  if (held && --at->retained == 0) at->primary.alive = false;
  pthread_mutex_unlock(&fake.lock);
  return held ? GAP__CUDA_SUCCESS : miss();
}

static gap__cuda_result cuCtxGetCurrent(gap__cuda_context *out) {
  PASS(PLAIN);
  *out = current();
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuCtxPushCurrent(gap__cuda_context context) {
  PASS(PLAIN);
  if (!context || !context->alive || depth == DEPTH_MAX) return GAP__CUDA_ERROR_INVALID_CONTEXT;
  stack[depth++] = context;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuCtxPopCurrent(gap__cuda_context *out) {
  PASS(PLAIN);
  if (depth == 0) return miss();
  *out = stack[--depth];
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuCtxGetDevice(gap__cuda_device *out) {
  PASS(PLAIN);
  if (!current()) return GAP__CUDA_ERROR_INVALID_CONTEXT; /* no mistake: it is how to ask */
  *out = current()->device;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuThreadExchangeStreamCaptureMode(unsigned *mode) {
  PASS(PLAIN);
  unsigned was = capture_mode;
  capture_mode = *mode;
  *mode = was;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuDeviceCanAccessPeer(int *out, gap__cuda_device device, gap__cuda_device peer) {
  PASS(PLAIN);
  *out = works(FAKE_CUDA_PEERS) && is_device(device) && is_device(peer) && device != peer;
  return GAP__CUDA_SUCCESS;
}

/* The current context may reach the memory of `owner`. */
static gap__cuda_result cuCtxEnablePeerAccess(gap__cuda_context owner, unsigned flags) {
  PASS(CONTEXT | UNSAFE);
  (void)flags;
  struct fake_device *of = &fake.devices[owner->device];
  uint64_t bit = (uint64_t)1 << current()->device;
  pthread_mutex_lock(&fake.lock);
  bool again = of->peers & bit;
  of->peers |= bit;
  pthread_mutex_unlock(&fake.lock);
  return again ? GAP__CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : GAP__CUDA_SUCCESS;
}

/* ---- Memory ---- */

/* A chunk's handle says on which device it lies. */
#define DEVICE_SHIFT 56
static gap__cuda_handle outer(gap__chunk chunk) { return chunk | (uint64_t)(current()->device + 1) << DEVICE_SHIFT; }
static bool inner(gap__cuda_handle handle, gap__chunk *out) {
  *out = handle & (((uint64_t)1 << DEVICE_SHIFT) - 1);
  return handle >> DEVICE_SHIFT == (uint64_t)current()->device + 1;
}

static gap__cuda_result cuMemAlloc(gap__cuda_addr *out, size_t bytes) {
  *out = 0; /* also when it fails, as the driver does */
  PASS(CONTEXT | UNSAFE);
  return result_of(gap__dev_segment_alloc(host_here(), bytes, out));
}

static gap__cuda_result cuMemFree(gap__cuda_addr addr) {
  PASS(CONTEXT | UNSAFE);
  return result_of(gap__dev_segment_free(host_here(), addr));
}

static gap__cuda_result cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  PASS(CONTEXT);
  return result_of(gap__dev_mem_info(host_here(), free_bytes, total_bytes));
}

static gap__cuda_result cuMemHostRegister(void *memory, size_t bytes, unsigned flags) {
  PASS(CONTEXT | UNSAFE);
  (void)flags;
  pthread_mutex_lock(&fake.lock);
  bool again = gap__map_get(&fake.pinned, (uintptr_t)memory, NULL);
  int rc = again ? 0 : gap__map_put(&fake.pinned, (uintptr_t)memory, bytes);
  pthread_mutex_unlock(&fake.lock);
  if (!again && !rc) rc = gap__dev_pin(host_here(), memory, bytes);
  return again ? GAP__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : result_of(rc);
}

static gap__cuda_result cuMemHostUnregister(void *memory) {
  PASS(CONTEXT | UNSAFE);
  uint64_t bytes = 0;
  pthread_mutex_lock(&fake.lock);
  bool known = gap__map_remove(&fake.pinned, (uintptr_t)memory, &bytes);
  pthread_mutex_unlock(&fake.lock);
  if (known) gap__dev_unpin(host_here(), memory, bytes);
  return known ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static gap__cuda_result cuMemGetAllocationGranularity(size_t *out, const struct gap__cuda_prop *prop, unsigned option) {
  PASS(PLAIN);
  (void)prop;
  (void)option;
  *out = fake.settings.granularity_bytes;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuMemAddressReserve(gap__cuda_addr *out, size_t bytes, size_t align, gap__cuda_addr fixed,
                                            uint64_t flags) {
  PASS(CONTEXT);
  if (fixed || flags) return miss();
  return result_of(gap__dev_reserve(host_here(), bytes, align, out));
}

static gap__cuda_result cuMemAddressFree(gap__cuda_addr addr, size_t bytes) {
  PASS(CONTEXT);
  return result_of(gap__dev_unreserve(host_here(), addr, bytes));
}

static bool prop_works(const struct gap__cuda_prop *prop) {
  bool on_host = prop->location.type == GAP__CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (on_host && !works(FAKE_CUDA_HOST_CHUNKS)) return false;
  if (prop->requestedHandleTypes && !works(FAKE_CUDA_EXPORT)) return false;
  return !prop->allocFlags.gpuDirectRDMACapable || works(FAKE_CUDA_RDMA);
}

static gap__cuda_result cuMemCreate(gap__cuda_handle *out, size_t bytes, const struct gap__cuda_prop *prop,
                                    uint64_t flags) {
  PASS(CONTEXT | UNSAFE);
  bool on_card = prop->location.type == GAP__CU_MEM_LOCATION_TYPE_DEVICE;
  if (flags || prop->type != GAP__CU_MEM_ALLOCATION_TYPE_PINNED) return miss();
  if (on_card && prop->location.id != current()->device) return miss();
  if (!works(FAKE_CUDA_VMM) || !prop_works(prop)) return GAP__CUDA_ERROR_NOT_SUPPORTED;
  gap__chunk chunk;
  int rc = gap__dev_chunk_create(host_here(), bytes, on_card ? GAP__PLACE_DEVICE : GAP__PLACE_HOST, &chunk);
  if (rc == 0) *out = outer(chunk);
  return result_of(rc);
}

/* Whether other handles of the chunk remain. */
static bool drop_reference(gap__cuda_handle handle) {
  uint64_t more = 0;
  pthread_mutex_lock(&fake.lock);
  bool shared = gap__map_remove(&fake.references, handle, &more);
  if (shared && more > 1) (void)gap__map_put(&fake.references, handle, more - 1);
  pthread_mutex_unlock(&fake.lock);
  return shared;
}

static gap__cuda_result cuMemRelease(gap__cuda_handle handle) {
  PASS(CONTEXT);
  gap__chunk chunk;
  if (!inner(handle, &chunk)) return GAP__CUDA_ERROR_INVALID_VALUE;
  return drop_reference(handle) ? GAP__CUDA_SUCCESS : result_of(gap__dev_chunk_release(host_here(), chunk));
}

static gap__cuda_result cuMemMap(gap__cuda_addr addr, size_t bytes, size_t offset, gap__cuda_handle handle,
                                 uint64_t flags) {
  PASS(CONTEXT);
  gap__chunk chunk;
  if (offset || flags) return miss();
  if (!inner(handle, &chunk)) return GAP__CUDA_ERROR_INVALID_VALUE;
  return result_of(gap__dev_map(host_here(), addr, bytes, chunk));
}

static gap__cuda_result cuMemUnmap(gap__cuda_addr addr, size_t bytes) {
  PASS(CONTEXT);
  return result_of(gap__dev_unmap(host_here(), addr, bytes));
}

static gap__cuda_result cuMemSetAccess(gap__cuda_addr addr, size_t bytes, const struct gap__cuda_access *access,
                                       size_t count) {
  PASS(CONTEXT);
  uint64_t readers = 0;
  for (size_t i = 0; i < count; i++) {
    if (access[i].location.type != GAP__CU_MEM_LOCATION_TYPE_DEVICE || !is_device(access[i].location.id)) return miss();
    if (access[i].flags != access[0].flags || !(access[i].flags & GAP__CU_MEM_ACCESS_FLAGS_PROT_READ)) return miss();
    readers |= (uint64_t)1 << access[i].location.id;
  }
  if (!(readers >> current()->device & 1)) return miss();
  fake.readers = readers;
  bool writes = access[0].flags == GAP__CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return result_of(writes ? gap__dev_set_access(host_here(), addr, bytes)
                          : gap__dev_set_read_access(host_here(), addr, bytes));
}

/* The descriptor's file holds the handle. */
static gap__cuda_result cuMemExportToShareableHandle(void *out, gap__cuda_handle handle, unsigned kind,
                                                     uint64_t flags) {
  PASS(CONTEXT);
  if (kind != GAP__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags) return miss();
  int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || write(fd, &handle, sizeof handle) != sizeof handle) return GAP__CUDA_ERROR_UNKNOWN;
  *(int *)out = fd;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuMemImportFromShareableHandle(gap__cuda_handle *out, void *shared, unsigned kind) {
  PASS(CONTEXT);
  uint64_t handle, more = 0;
  if (kind != GAP__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return miss();
  if (pread((int)(intptr_t)shared, &handle, sizeof handle, 0) != sizeof handle) return GAP__CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&fake.lock);
  (void)gap__map_get(&fake.references, handle, &more);
  int rc = gap__map_put(&fake.references, handle, more + 1);
  pthread_mutex_unlock(&fake.lock);
  *out = handle;
  return result_of(rc);
}

/* ---- Streams and events ---- */

static gap__cuda_context context_of(gap__cuda_stream stream) {
  if ((uintptr_t)stream <= 2) return current();
  struct fake_stream *at = (struct fake_stream *)(void *)stream;
  return at >= fake.streams && at < fake.streams + fake.stream_count ? at->context : NULL;
}

static gap_stream number_of(gap__cuda_stream stream) { return (uintptr_t)stream; }

static gap__cuda_stream make_stream(gap__cuda_context context) {
  pthread_mutex_lock(&fake.lock);
  struct fake_stream *made = fake.stream_count < STREAMS_MAX ? &fake.streams[fake.stream_count++] : NULL;
  if (made) made->context = context;
  pthread_mutex_unlock(&fake.lock);
  return (gap__cuda_stream)(void *)made;
}

static gap__cuda_result cuStreamCreate(gap__cuda_stream *out, unsigned flags) {
  PASS(CONTEXT | UNSAFE);
  if (flags != GAP__CU_STREAM_NON_BLOCKING) return miss();
  *out = make_stream(current());
  return *out ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its own streams are ordered with nothing; the per-thread default stream is with the legacy one. */
static gap__cuda_result cuStreamGetFlags(gap__cuda_stream stream, unsigned *out) {
  PASS(CONTEXT);
  *out = number_of(stream) <= 2 ? 0 : GAP__CU_STREAM_NON_BLOCKING;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuStreamDestroy(gap__cuda_stream stream) {
  PASS(CONTEXT);
  return context_of(stream) ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_HANDLE;
}

static gap__cuda_result cuStreamGetCtx(gap__cuda_stream stream, gap__cuda_context *out) {
  PASS(CONTEXT);
  *out = context_of(stream);
  return *out ? GAP__CUDA_SUCCESS : GAP__CUDA_ERROR_INVALID_HANDLE;
}

/* Spoils a capture, in whatever mode the thread is. */
static gap__cuda_result cuStreamGetId(gap__cuda_stream stream, uint64_t *out) {
  PASS(CONTEXT);
  bool capturing = false;
  (void)gap__dev_stream_capturing(host_here(), number_of(stream), &capturing);
  if (capturing || (number_of(stream) <= 1 && fake.captures)) {
    (void)miss();
    return GAP__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result_of(gap__dev_stream_id(host_here(), number_of(stream), out));
}

static gap__cuda_result cuStreamIsCapturing(gap__cuda_stream stream, unsigned *out) {
  PASS(CONTEXT);
  bool capturing = false;
  if (number_of(stream) <= 1 && fake.captures) return GAP__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  int rc = gap__dev_stream_capturing(host_here(), number_of(stream), &capturing);
  *out = capturing;
  return result_of(rc);
}

enum { NODES_MAX = 256 };
static _Thread_local gap__node numbers[NODES_MAX];
static _Thread_local gap__cuda_node handles[NODES_MAX];

static gap__cuda_result cuStreamGetCaptureInfo(gap__cuda_stream stream, unsigned *status, uint64_t *id,
                                               gap__cuda_graph *graph, const gap__cuda_node **nodes, size_t *count) {
  PASS(CONTEXT);
  uint32_t have = NODES_MAX;
  if (number_of(stream) <= 1 && fake.captures) return GAP__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  int rc = gap__dev_stream_front(host_here(), number_of(stream), id, numbers, &have);
  if (rc != 0) return result_of(rc);
  for (uint32_t i = 0; i < have && i < NODES_MAX; i++) handles[i] = (gap__cuda_node)(uintptr_t)numbers[i];
  *status = *id ? GAP__CU_STREAM_CAPTURE_STATUS_ACTIVE : GAP__CU_STREAM_CAPTURE_STATUS_NONE;
  *graph = NULL;
  *nodes = handles;
  *count = have;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuGraphNodeGetDependencies(gap__cuda_node node, gap__cuda_node *nodes, size_t *count) {
  PASS(CONTEXT);
  uint32_t have = NODES_MAX;
  int rc = gap__dev_node_before(host_here(), (uintptr_t)node, numbers, &have);
  if (rc != 0) return result_of(rc);
  for (uint32_t i = 0; i < *count; i++) nodes[i] = i < have ? (gap__cuda_node)(uintptr_t)numbers[i] : NULL;
  if (*count > have) *count = have;
  return GAP__CUDA_SUCCESS;
}

/* Event and stream must be of one context. */
static bool belong_together(gap__cuda_event event, gap__cuda_stream stream) {
  uint64_t context = 0;
  pthread_mutex_lock(&fake.lock);
  bool known = gap__map_get(&fake.event_context, (uintptr_t)event, &context);
  pthread_mutex_unlock(&fake.lock);
  return known && context == (uintptr_t)context_of(stream);
}

static gap__cuda_result cuEventCreate(gap__cuda_event *out, unsigned flags) {
  PASS(CONTEXT);
  gap__event event;
  if (flags != GAP__CU_EVENT_DISABLE_TIMING) return miss();
  int rc = gap__dev_event_create(host_here(), 0, &event);
  if (rc != 0) return result_of(rc);
  pthread_mutex_lock(&fake.lock);
  rc = gap__map_put(&fake.event_context, event, (uintptr_t)current());
  pthread_mutex_unlock(&fake.lock);
  *out = (gap__cuda_event)(uintptr_t)event;
  return result_of(rc);
}

static gap__cuda_result cuEventDestroy(gap__cuda_event event) {
  PASS(CONTEXT);
  return result_of(gap__dev_event_destroy(host_here(), (uintptr_t)event));
}

static gap__cuda_result cuEventRecord(gap__cuda_event event, gap__cuda_stream stream) {
  PASS(CONTEXT);
  if (!belong_together(event, stream)) return GAP__CUDA_ERROR_INVALID_HANDLE;
  return result_of(gap__dev_event_record(host_here(), (uintptr_t)event, number_of(stream)));
}

static gap__cuda_result cuEventQuery(gap__cuda_event event) {
  PASS(CONTEXT | UNSAFE);
  return result_of(gap__dev_event_query(host_here(), (uintptr_t)event));
}

static gap__cuda_result cuEventSynchronize(gap__cuda_event event) {
  PASS(CONTEXT | UNSAFE);
  return result_of(gap__dev_event_wait(host_here(), (uintptr_t)event));
}

static gap__cuda_result cuStreamWaitEvent(gap__cuda_stream stream, gap__cuda_event event, unsigned flags) {
  PASS(CONTEXT);
  if (flags) return miss();
  return result_of(gap__dev_stream_wait(host_here(), number_of(stream), (uintptr_t)event));
}

static gap__cuda_result cuMemcpyAsync(gap__cuda_addr to, gap__cuda_addr from, size_t bytes, gap__cuda_stream stream) {
  PASS(CONTEXT);
  return result_of(gap__dev_copy(host_here(), to, from, bytes, number_of(stream)));
}

static gap__cuda_result cuStreamWaitValue32(gap__cuda_stream stream, gap__cuda_addr addr, uint32_t value,
                                            unsigned flags) {
  PASS(CONTEXT);
  if (!works(FAKE_CUDA_VALUES)) return GAP__CUDA_ERROR_NOT_SUPPORTED;
  if (flags != GAP__CU_STREAM_WAIT_VALUE_GEQ) return miss();
  return result_of(gap__dev_wait_value(host_here(), number_of(stream), addr, value));
}

static gap__cuda_result cuStreamWriteValue32(gap__cuda_stream stream, gap__cuda_addr addr, uint32_t value,
                                             unsigned flags) {
  PASS(CONTEXT);
  if (!works(FAKE_CUDA_VALUES)) return GAP__CUDA_ERROR_NOT_SUPPORTED;
  if (flags != GAP__CU_STREAM_WRITE_VALUE_DEFAULT) return miss();
  return result_of(gap__dev_write_value(host_here(), number_of(stream), addr, value));
}

/* Of the many operations there are: a write followed by a wait. */
static gap__cuda_result cuStreamBatchMemOp(gap__cuda_stream stream, unsigned count, union gap__cuda_memop *ops,
                                           unsigned flags) {
  PASS(CONTEXT);
  if (!works(FAKE_CUDA_VALUES)) return GAP__CUDA_ERROR_NOT_SUPPORTED;
  bool gate = count == 2 && flags == 0 && ops[0].operation == GAP__CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
              ops[1].operation == GAP__CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
              ops[0].value.flags == GAP__CU_STREAM_WRITE_VALUE_DEFAULT &&
              ops[1].value.flags == GAP__CU_STREAM_WAIT_VALUE_GEQ &&
              ops[0].value.number.value == ops[1].value.number.value;
  if (!gate) return miss();
  return result_of(gap__dev_gate(host_here(), number_of(stream), ops[0].value.address, ops[1].value.address,
                                 ops[0].value.number.value));
}

/* ---- Code ---- */

enum { SHARED_PLAIN = 48 << 10 }; /* bytes of a block that need no attribute */

struct fake_module {
  char *text; /* the image */
};
struct fake_function {
  struct fake_cuda_kernel kernel;
  unsigned shared_most;
};
struct fake_launched {
  struct fake_cuda_kernel kernel;
  struct fake_cuda_grid grid;
  _Alignas(16) unsigned char argument[];
};

static gap__cuda_result cuModuleLoadData(gap__cuda_module *out, const void *image) {
  PASS(CONTEXT | UNSAFE);
  if (!fake.find_kernel) return GAP__CUDA_ERROR_INVALID_VALUE;
  struct fake_module *module = malloc(sizeof *module);
  if (!module) return GAP__CUDA_ERROR_OUT_OF_MEMORY;
  *module = (struct fake_module){.text = strdup(image)};
  *out = (gap__cuda_module)(void *)module;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuModuleUnload(gap__cuda_module module) {
  PASS(CONTEXT | UNSAFE);
  struct fake_module *at = (struct fake_module *)(void *)module;
  free(at->text);
  free(at);
  return GAP__CUDA_SUCCESS;
}

static struct fake_function functions[FUNCTIONS_MAX];

static gap__cuda_result cuModuleGetFunction(gap__cuda_function *out, gap__cuda_module module, const char *name) {
  PASS(CONTEXT);
  struct fake_cuda_kernel kernel = {0};
  if (!fake.find_kernel(((struct fake_module *)(void *)module)->text, name, &kernel))
    return GAP__CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&fake.lock);
  struct fake_function *at = &functions[fake.function_count++ % FUNCTIONS_MAX];
  *at = (struct fake_function){.kernel = kernel, .shared_most = SHARED_PLAIN};
  pthread_mutex_unlock(&fake.lock);
  *out = (gap__cuda_function)(void *)at;
  return GAP__CUDA_SUCCESS;
}

static gap__cuda_result cuFuncSetAttribute(gap__cuda_function function, unsigned attribute, int value) {
  PASS(CONTEXT);
  if (attribute == GAP__CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value <= 100) return GAP__CUDA_SUCCESS;
  if (attribute != GAP__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 227 << 10) return miss();
  ((struct fake_function *)(void *)function)->shared_most = (unsigned)value;
  return GAP__CUDA_SUCCESS;
}

static void run_launched(void *arg) {
  struct fake_launched *launched = arg;
  launched->kernel.run(launched->argument, &launched->grid);
  free(launched);
}

static gap__cuda_result cuLaunchKernel(gap__cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                       gap__cuda_stream stream, void **arguments, void **extra) {
  PASS(CONTEXT);
  const struct fake_function *at = (struct fake_function *)(void *)function;
  if (!grid_x || !grid_y || !grid_z || !block_x || block_x > 1024 || block_y != 1 || block_z != 1 || extra)
    return miss();
  if (grid_y > 65535 || grid_z > 65535 || shared_bytes > at->shared_most) return miss();
  struct fake_launched *launched = malloc(sizeof *launched + at->kernel.argument_bytes);
  if (!launched) return GAP__CUDA_ERROR_OUT_OF_MEMORY;
  launched->kernel = at->kernel;
  launched->grid = (struct fake_cuda_grid){{grid_x, grid_y, grid_z}, block_x, shared_bytes};
  memcpy(launched->argument, arguments[0], at->kernel.argument_bytes);
  return result_of(gap__host_call(host_here(), run_launched, launched, number_of(stream)));
}

void fake_cuda_kernels(fake_cuda_find_kernel *find) { fake.find_kernel = find; }

/* ---- What dlsym finds ---- */

static bool is_listed(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)) != NULL; at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
  return false;
}

FAKE_CUDA_API gap__cuda_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                                   unsigned *status);
gap__cuda_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, unsigned *status) {
  void *found = NULL;
#define GAP_CUDA_ENTRY(entry, entry_version, group, parameters) \
  if (strcmp(name, #entry) == 0 && version == entry_version) { \
    gap__cuda_result(*function) parameters = entry; \
    memcpy(&found, &function, sizeof found); \
  }
#include "dev/cuda/entry_points.def"
#undef GAP_CUDA_ENTRY
  if (flags != GAP__CU_GET_PROC_ADDRESS_LEGACY_STREAM) return miss();
  if (is_listed(fake.settings.missing, name)) found = NULL;
  *out = found;
  *status = found ? GAP__CU_GET_PROC_ADDRESS_SUCCESS : GAP__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return GAP__CUDA_SUCCESS;
}

/* ---- Control ---- */

static void forget_all(void) {
  for (int i = 0; i < DEVICES_MAX; i++) gap__dev_destroy(fake.devices[i].host);
  gap__map_free(&fake.event_context);
  gap__map_free(&fake.pinned);
  gap__map_free(&fake.references);
  memset(fake.devices, 0, sizeof fake.devices);
  memset(fake.calls, 0, sizeof fake.calls);
  memset(&fake.fault, 0, sizeof fake.fault);
  fake.event_context = fake.pinned = fake.references = (struct gap__map){0};
  fake.stream_count = fake.captures = depth = 0;
  fake.readers = fake.wrong = 0;
  capture_mode = GAP__CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void fake_cuda_reset(const struct fake_cuda_settings *settings) {
  forget_all();
  fake.settings = *settings;
  if (!settings->device_count) fake.settings.device_count = 4;
  if (!settings->total_bytes) fake.settings.total_bytes = 64 * GAP__PAGE;
  if (!settings->granularity_bytes) fake.settings.granularity_bytes = GAP__PAGE;
  struct gap__host_params params = {.total_bytes = fake.settings.total_bytes,
                                    .window_max_bytes = settings->window_max_bytes,
                                    .address_budget_bytes = settings->address_bytes,
                                    .manual = settings->manual};
  for (int i = 0; i < fake.settings.device_count; i++) {
    struct fake_device *device = &fake.devices[i];
    if (gap__host_create(i, &params, &device->host) != 0) abort();
    device->primary.device = device->other.device = i;
    device->other.alive = true;
  }
}

void fake_cuda_fail(const char *name, unsigned code, uint64_t after, uint64_t times) {
  pthread_mutex_lock(&fake.lock);
  fake.fault.name = name;
  fake.fault.code = code;
  fake.fault.after = after;
  fake.fault.times = times;
  pthread_mutex_unlock(&fake.lock);
}

uint64_t fake_cuda_calls(const char *name) {
  uint64_t count = 0;
  for (int i = 0; i < CALLS_MAX && fake.calls[i].name; i++)
    if (!name || strcmp(fake.calls[i].name, name) == 0) count += fake.calls[i].count;
  return count;
}

uint64_t fake_cuda_wrong(void) {
  uint64_t count = fake.wrong;
  for (int i = 0; i < fake.settings.device_count; i++) count += gap__host_faults(fake.devices[i].host);
  return count;
}

struct gap__dev *fake_cuda_host(int device) {
  return fake.devices[device].host;
}
uint64_t fake_cuda_readers(void) { return fake.readers; }
int fake_cuda_retained(int device) { return fake.devices[device].retained; }

static gap__cuda_context context_for(int device, bool primary) {
  return primary ? &fake.devices[device].primary : &fake.devices[device].other;
}

void fake_cuda_push(int device, bool primary) { stack[depth++] = context_for(device, primary); }
void fake_cuda_pop(void) { depth--; }
int fake_cuda_depth(void) { return depth; }
unsigned fake_cuda_capture_mode(void) { return capture_mode; }
gap_stream fake_cuda_stream(int device, bool primary) { return number_of(make_stream(context_for(device, primary))); }

void fake_cuda_capture(int device, gap_stream stream, bool on) {
  pthread_mutex_lock(&fake.lock);
  fake.captures += on ? 1 : -1;
  pthread_mutex_unlock(&fake.lock);
  gap__host_stream_capture(fake.devices[device].host, stream, on);
}
