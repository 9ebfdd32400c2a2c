/* What this card and this driver can do, found by doing it.
 *
 * A page is created with every flag that is wanted, and mapped; while that fails, one flag after another is given up: RDMA first, since
 * fewer need it, then export.  When even a plain page fails there is no virtual memory management.  A card that is full at
 * the moment proves nothing: then the driver's attributes are believed. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "dev/cuda/state.h"

static bool attribute(struct cuda *cuda, unsigned which, int *out) {
  *out = 0;
  return cuda->driver.cuDeviceGetAttribute(out, which, cuda->device) == GAP__CUDA_SUCCESS;
}

static bool claims(struct cuda *cuda, unsigned which) {
  int value;
  return attribute(cuda, which, &value) && value != 0;
}

static struct gap__cuda_prop make_prop(unsigned location, int id, bool exportable, bool rdma) {
  struct gap__cuda_prop prop = {.type = GAP__CU_MEM_ALLOCATION_TYPE_PINNED, .location = {location, id}};
  prop.requestedHandleTypes = exportable ? GAP__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
  prop.allocFlags.gpuDirectRDMACapable = rdma;
  return prop;
}

/* Adds to the reasons why something was given up. */
static void give_up(struct cuda *cuda, const char *what, int rc) {
  char *text = cuda->info.fallback, why[128] = "";
  size_t length = strlen(text), room = sizeof cuda->info.fallback - length;
  if (rc) gap__cuda_last_error(&cuda->dev, why, sizeof why);
  snprintf(text + length, room, "%s%s%s%s", length ? "; " : "", what, rc ? ": " : "", why);
}

static int map_and_unmap(struct cuda *cuda, gap__chunk page) {
  struct gap__dev *dev = &cuda->dev;
  gap_addr addr;
  int rc = gap__cuda_reserve(dev, GAP__PAGE, GAP__PAGE, &addr);
  if (rc != 0) return rc;
  rc = gap__cuda_map(dev, addr, GAP__PAGE, page);
  if (rc == 0) {
    rc = gap__cuda_set_access(dev, addr, GAP__PAGE);
    int unmapped = gap__cuda_unmap(dev, addr, GAP__PAGE);
    if (rc == 0) rc = unmapped;
  }
  int freed = gap__cuda_unreserve(dev, addr, GAP__PAGE);
  return rc ? rc : freed;
}

static int try_page(struct cuda *cuda, enum gap__place place) {
  gap__chunk page;
  int rc = gap__cuda_chunk_create(&cuda->dev, GAP__PAGE, place, &page);
  if (rc != 0) return rc;
  rc = map_and_unmap(cuda, page);
  int released = gap__cuda_chunk_release(&cuda->dev, page);
  return rc ? rc : released;
}

static int try_flags(struct cuda *cuda, bool exportable, bool rdma) {
  cuda->place[GAP__PLACE_DEVICE] = make_prop(GAP__CU_MEM_LOCATION_TYPE_DEVICE, cuda->dev.ordinal, exportable, rdma);
  cuda->info.exportable = exportable;
  cuda->info.rdma = rdma;
  int rc = try_page(cuda, GAP__PLACE_DEVICE);
  return rc == GAP_ENOMEM ? 0 : rc;
}

static bool probe_pages(struct cuda *cuda, bool want_rdma) {
  bool rdma = want_rdma && claims(cuda, GAP__CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  bool exportable = claims(cuda, GAP__CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) &&
                    cuda->driver.cuMemExportToShareableHandle && cuda->driver.cuMemImportFromShareableHandle;
  int rc = try_flags(cuda, exportable, rdma);
  if (rc != 0 && rdma) {
    give_up(cuda, "no page that a network card may reach", rc);
    rc = try_flags(cuda, exportable, false);
  }
  if (rc != 0 && exportable) {
    give_up(cuda, "no page that can be exported", rc);
    rc = try_flags(cuda, false, false);
  }
  if (rc != 0) give_up(cuda, "no page can be mapped", rc);
  return rc == 0;
}

static bool granularity_fits(struct cuda *cuda) {
  struct gap__cuda_prop plain = make_prop(GAP__CU_MEM_LOCATION_TYPE_DEVICE, cuda->dev.ordinal, false, false);
  size_t bytes = 0;
  int rc = CUDA_CALL(cuda, cuMemGetAllocationGranularity, &bytes, &plain, GAP__CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  cuda->info.granularity_bytes = bytes;
  if (rc != 0) give_up(cuda, "the driver does not tell its granularity", rc);
  else if (bytes != GAP__PAGE) give_up(cuda, "the driver's granularity is not 2 MiB", 0);
  return rc == 0 && bytes == GAP__PAGE;
}

static bool probe_vmm(struct cuda *cuda, const struct gap__cuda_params *wanted) {
  if (wanted->no_vmm) give_up(cuda, "switched off", 0);
  else if (!gap__cuda_driver_has(&cuda->driver, GAP__CUDA_VMM)) give_up(cuda, "entry points are missing", 0);
  else if (!claims(cuda, GAP__CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    give_up(cuda, "the device has no virtual memory management", 0);
  else return granularity_fits(cuda) && probe_pages(cuda, wanted->rdma);
  return false;
}

static bool probe_host_chunks(struct cuda *cuda) {
  int node;
  if (!claims(cuda, GAP__CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return false;
  if (!attribute(cuda, GAP__CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, &node) || node < 0) node = 0;
  cuda->place[GAP__PLACE_HOST] = make_prop(GAP__CU_MEM_LOCATION_TYPE_HOST_NUMA, node, false, false);
  cuda->dev.caps.host_chunks = true; /* so that it can be tried */
  int rc = try_page(cuda, GAP__PLACE_HOST);
  if (rc != 0) give_up(cuda, "no host page can be mapped", rc);
  return rc == 0;
}

/* A value is written and waited for on a stream of our own: what is there already never blocks. */
static int try_values(struct cuda *cuda, gap_stream stream, gap_addr word) {
  struct gap__dev *dev = &cuda->dev;
  gap__event end;
  int rc = gap__cuda_event_create(dev, stream, &end);
  if (rc != 0) return rc;
  rc = gap__cuda_write_value(dev, stream, word, 7);
  if (rc == 0) rc = gap__cuda_wait_value(dev, stream, word, 7);
  if (rc == 0 && cuda->info.gates) cuda->info.gates = gap__cuda_gate(dev, stream, word, word, 8) == 0;
  if (rc == 0) rc = gap__cuda_event_record(dev, end, stream);
  if (rc == 0) rc = gap__cuda_event_wait(dev, end);
  (void)gap__cuda_event_destroy(dev, end);
  return rc;
}

static bool probe_values(struct cuda *cuda) {
  struct gap__dev *dev = &cuda->dev;
  gap_stream stream;
  gap_addr word;
  if (!cuda->driver.cuStreamWaitValue32 || !cuda->driver.cuStreamWriteValue32) return false;
  cuda->info.gates = cuda->driver.cuStreamBatchMemOp != NULL;
  int rc = gap__cuda_segment_alloc(dev, sizeof(uint32_t), &word);
  if (rc == GAP_ENOMEM) return true;
  if (rc == 0) {
    rc = gap__cuda_stream_create(dev, &stream);
    if (rc == 0) {
      rc = try_values(cuda, stream, word);
      (void)gap__cuda_stream_destroy(dev, stream);
    }
    (void)gap__cuda_segment_free(dev, word);
  }
  if (rc != 0) give_up(cuda, "no waiting for values", rc);
  cuda->info.gates &= rc == 0;
  return rc == 0;
}

static void drop_vmm(struct gap__dev_ops *ops) {
  ops->reserve = NULL;
  ops->unreserve = NULL;
  ops->chunk_create = NULL;
  ops->chunk_release = NULL;
  ops->map = NULL;
  ops->set_access = NULL;
  ops->set_read_access = NULL;
  ops->unmap = NULL;
}

static void drop_what_fails(struct cuda *cuda) {
  struct gap__dev_ops *ops = &cuda->ops;
  if (!cuda->info.vmm) drop_vmm(ops);
  if (!cuda->info.exportable) ops->chunk_export = NULL;
  if (!cuda->info.vmm || !cuda->driver.cuMemImportFromShareableHandle) ops->chunk_import = NULL;
  if (!cuda->info.gates) ops->gate = NULL;
  if (!cuda->info.gates) ops->value_await = NULL;
  if (!cuda->info.wait_values) ops->write_value = NULL;
  if (!cuda->info.wait_values) ops->wait_value = NULL;
  if (!gap__cuda_has_code(cuda)) ops->module_load = NULL;
}

int gap__cuda_probe(struct cuda *cuda, const struct gap__cuda_params *wanted) {
  struct gap__cuda_info *info = &cuda->info;
  info->vmm = probe_vmm(cuda, wanted);
  if (!info->vmm) info->exportable = info->rdma = false;
  info->host_chunks = info->vmm && probe_host_chunks(cuda);
  info->wait_values = probe_values(cuda);
  info->stream_ids = cuda->driver.cuStreamGetId != NULL;
  drop_what_fails(cuda);
  if (!info->vmm)
    gap__log(GAP__LOG_WARNING, "device %d (%s): memory comes in segments by cuMemAlloc: %s", cuda->dev.ordinal,
             info->name, info->fallback);
  return atomic_load(&cuda->lost) ? GAP_EDEVICE : 0;
}
