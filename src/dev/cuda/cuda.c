#include "dev/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "dev/cuda/state.h"

static void destroy(struct gap__dev *dev) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_close_peers(cuda);
  if (cuda->context) (void)CUDA_CALL(cuda, cuDevicePrimaryCtxRelease, cuda->device);
  free(cuda);
}

static uint64_t now_ns(struct gap__dev *dev) {
  struct timespec now;
  (void)dev;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct gap__dev_ops all_ops = {
    .name = "cuda",
    .destroy = destroy,
    .reserve = gap__cuda_reserve,
    .unreserve = gap__cuda_unreserve,
    .chunk_create = gap__cuda_chunk_create,
    .chunk_release = gap__cuda_chunk_release,
    .map = gap__cuda_map,
    .set_access = gap__cuda_set_access,
    .set_read_access = gap__cuda_set_read_access,
    .unmap = gap__cuda_unmap,
    .segment_alloc = gap__cuda_segment_alloc,
    .segment_free = gap__cuda_segment_free,
    .event_create = gap__cuda_event_create,
    .event_destroy = gap__cuda_event_destroy,
    .event_record = gap__cuda_event_record,
    .event_query = gap__cuda_event_query,
    .event_wait = gap__cuda_event_wait,
    .stream_wait = gap__cuda_stream_wait,
    .stream_create = gap__cuda_stream_create,
    .stream_destroy = gap__cuda_stream_destroy,
    .stream_id = gap__cuda_stream_id,
    .stream_capturing = gap__cuda_stream_capturing,
    .stream_front = gap__cuda_stream_front,
    .node_before = gap__cuda_node_before,
    .copy = gap__cuda_copy,
    .write_value = gap__cuda_write_value,
    .wait_value = gap__cuda_wait_value,
    .stream_blocking = gap__cuda_stream_blocking,
    .gate = gap__cuda_gate,
    .value_await = gap__cuda_value_await,
    .module_load = gap__cuda_module_load,
    .module_unload = gap__cuda_module_unload,
    .module_find = gap__cuda_module_find,
    .launch = gap__cuda_launch,
    .pin = gap__cuda_pin,
    .unpin = gap__cuda_unpin,
    .mem_info = gap__cuda_mem_info,
    .now_ns = now_ns,
    .peer_enable = gap__cuda_peer_enable,
    .peer_disable = gap__cuda_peer_disable,
    .chunk_export = gap__cuda_chunk_export,
    .chunk_import = gap__cuda_chunk_import,
    .last_error = gap__cuda_last_error,
};

static int open_driver(struct cuda *cuda, const char *library) {
  struct gap__text missing = {0};
  int rc = gap__cuda_driver_open(library, &cuda->driver, &missing);
  snprintf(cuda->info.missing, sizeof cuda->info.missing, "%s", gap__text_str(&missing));
  gap__text_free(&missing);
  cuda->info.driver_version = cuda->driver.version;
  return rc;
}

static int find_device(struct cuda *cuda) {
  struct gap__cuda_info *info = &cuda->info;
  size_t total = 0;
  int rc = CUDA_CALL(cuda, cuDeviceGet, &cuda->device, cuda->dev.ordinal);
  if (rc == 0) rc = CUDA_CALL(cuda, cuDeviceGetName, info->name, sizeof info->name, cuda->device);
  if (rc == 0) rc = CUDA_CALL(cuda, cuDeviceTotalMem, &total, cuda->device);
  if (rc != 0) return rc;
  unsigned major = GAP__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
           minor = GAP__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
  (void)CUDA_CALL(cuda, cuDeviceGetAttribute, &info->capability_major, major, cuda->device);
  (void)CUDA_CALL(cuda, cuDeviceGetAttribute, &info->capability_minor, minor, cuda->device);
  (void)CUDA_CALL(cuda, cuDeviceGetAttribute, &info->processors, GAP__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                  cuda->device);
  struct gap__cuda_uuid uuid = {{0}};
  if (cuda->driver.cuDeviceGetUuid) (void)CUDA_CALL(cuda, cuDeviceGetUuid, &uuid, cuda->device);
  memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
  cuda->dev.caps.total_bytes = total;
  return 0;
}

static int open_context(struct cuda *cuda) {
  gap__cuda_context context;
  int rc = CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &context, cuda->device);
  if (rc == 0) cuda->context = context;
  return rc;
}

static void publish(struct cuda *cuda) {
  const struct gap__cuda_info *info = &cuda->info;
  struct gap__dev_caps *caps = &cuda->dev.caps;
  caps->granularity_bytes = GAP__PAGE;
  caps->vmm = info->vmm;
  caps->host_chunks = info->host_chunks;
  caps->exportable = info->exportable;
  caps->rdma = info->rdma;
  caps->wait_values = info->wait_values;
  memcpy(caps->uuid, info->uuid, sizeof caps->uuid);
  caps->gates = info->gates;
  caps->arch = gap__cuda_has_code(cuda) ? (uint32_t)(10 * info->capability_major + info->capability_minor) : 0;
  caps->processors = (uint32_t)info->processors;
  caps->toolkit_major = (uint32_t)info->driver_version / 1000;
}

static int open_device(struct cuda *cuda, const struct gap__cuda_params *params) {
  int rc = open_driver(cuda, params->driver);
  if (rc != 0) return rc;
  rc = find_device(cuda);
  if (rc == 0) rc = open_context(cuda);
  if (rc == 0) rc = gap__cuda_probe(cuda, params);
  if (rc == 0) publish(cuda);
  if (rc == 0) return 0;
  char why[256];
  gap__cuda_last_error(&cuda->dev, why, sizeof why);
  gap__log(GAP__LOG_WARNING, "CUDA device %d cannot be opened: %s", cuda->dev.ordinal, why);
  return GAP_EDEVICE;
}

int gap__cuda_create(int ordinal, const struct gap__cuda_params *params, struct gap__dev **out) {
  static const struct gap__cuda_params defaults;
  struct cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda) return GAP_ENOMETA;
  cuda->ops = all_ops;
  cuda->dev.ops = &cuda->ops;
  cuda->dev.ordinal = ordinal;
  int rc = open_device(cuda, params ? params : &defaults);
  if (rc == 0) *out = &cuda->dev;
  else destroy(&cuda->dev);
  return rc;
}

int gap__cuda_device_count(const struct gap__cuda_params *params, int *out) {
  struct gap__cuda_driver driver = {0};
  struct gap__text missing = {0};
  int rc = gap__cuda_driver_open(params ? params->driver : NULL, &driver, &missing);
  gap__text_free(&missing);
  if (rc != 0) return rc;
  return driver.cuDeviceGetCount(out) == GAP__CUDA_SUCCESS ? 0 : GAP_EDEVICE;
}

int gap__cuda_current_device(struct gap__dev *dev) {
  gap__cuda_device device;
  return cuda_of(dev)->driver.cuCtxGetDevice(&device) == GAP__CUDA_SUCCESS ? device : 0;
}

int gap__cuda_current_ordinal(const struct gap__cuda_params *params) {
  struct gap__cuda_driver driver = {0};
  struct gap__text missing = {0};
  gap__cuda_device device;
  int rc = gap__cuda_driver_open(params ? params->driver : NULL, &driver, &missing);
  gap__text_free(&missing);
  return rc == 0 && driver.cuCtxGetDevice(&device) == GAP__CUDA_SUCCESS ? device : 0;
}

const struct gap__cuda_info *gap__cuda_info(struct gap__dev *dev) {
  return dev->ops->destroy == destroy ? &cuda_of(dev)->info : NULL;
}
