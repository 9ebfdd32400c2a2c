/* A machine without a card, for the tests that launch no kernel: preloaded, it stands in for the few calls of the CUDA runtime
 * that torch makes to start and to allocate, and gives the process a default heap on host memory.
 *
 * What another process maps is a copy here (host memory of the `host` backend has no descriptors): the transport is
 * the real one, and the bytes are those of the moment of the export. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gapless/share.h"

#define PAGE ((uint64_t)1 << 21)
#define CARD_BYTES ((uint64_t)1 << 30)

/* NOCARD_DEVICES: how many there are; 1 when it is not set. */
static int device_count(void) {
  const char *text = getenv("NOCARD_DEVICES");
  return text ? atoi(text) : 1;
}

static _Thread_local int current_device;

/* ---- the heap ---- */

int gap_heap_default(gap_heap **out) {
  static gap_heap *heap;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  options.backend = GAP_BACKEND_HOST;
  options.device_count = device_count();
  options.device_bytes = CARD_BYTES;
  int rc = heap ? 0 : gap_heap_create(&options, &heap);
  *out = heap;
  return rc;
}

int gap_export_layout(gap_heap *heap, gap_addr addr, gap_addr *base, unsigned *count) {
  gap_block block;
  int rc = gap_find_block(heap, addr, &block, NULL);
  if (rc) return rc;
  *base = block.addr & ~(PAGE - 1);
  *count = (unsigned)((block.addr + block.bytes - *base + PAGE - 1) / PAGE);
  return 0;
}

int gap_export(gap_heap *heap, gap_addr addr, unsigned first, unsigned count, gap_piece *out) {
  gap_addr base;
  unsigned all;
  if (gap_export_layout(heap, addr, &base, &all) || first + count > all) return GAP_EINVAL;
  for (unsigned i = 0; i < count; i++) {
    out[i].bytes = PAGE;
    out[i].fd = memfd_create("piece", MFD_CLOEXEC);
    if (out[i].fd < 0 || write(out[i].fd, (void *)(base + (first + i) * PAGE), PAGE) != (ssize_t)PAGE)
      return GAP_EDEVICE;
  }
  return 0;
}

int gap_import(gap_heap *heap, int device, const gap_piece *pieces, unsigned count, gap_addr *base) {
  (void)heap, (void)device;
  char *at = mmap(NULL, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *base = (gap_addr)at;
  for (unsigned i = 0; i < count; i++)
    if (mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pieces[i].fd, 0) == MAP_FAILED)
      return GAP_EDEVICE;
  return 0;
}

int gap_import_release(gap_heap *heap, gap_addr base) { return heap && base ? 0 : GAP_ENOTMINE; }

/* ---- the runtime ---- */

#define FINE(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#define GIVES(name, type, value, ...) \
  cudaError_t name(type *out, ##__VA_ARGS__) { \
    *out = (type)(value); \
    return cudaSuccess; \
  }

GIVES(cudaGetDevice, int, current_device)
GIVES(cudaGetDeviceCount, int, device_count())
GIVES(cudaDriverGetVersion, int, CUDART_VERSION)
GIVES(cudaRuntimeGetVersion, int, CUDART_VERSION)
FINE(cudaDeviceSynchronize, void)
FINE(cudaGetLastError, void)
FINE(cudaPeekAtLastError, void)
FINE(cudaStreamSynchronize, cudaStream_t stream)
FINE(cudaStreamQuery, cudaStream_t stream)
FINE(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
FINE(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *mode)
GIVES(cudaEventCreateWithFlags, cudaEvent_t, 1, unsigned flags)
FINE(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
FINE(cudaEventQuery, cudaEvent_t event)
FINE(cudaEventSynchronize, cudaEvent_t event)
FINE(cudaEventDestroy, cudaEvent_t event)
FINE(cudaIpcGetEventHandle, cudaIpcEventHandle_t *handle, cudaEvent_t event)
GIVES(cudaIpcOpenEventHandle, cudaEvent_t, 1, cudaIpcEventHandle_t handle)
FINE(cudaFree, void *memory)

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  (void)stream;
  *out = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = CARD_BYTES / 2;
  *total = CARD_BYTES;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  (void)device;
  memset(out, 0, sizeof *out);
  strcpy(out->name, "no card");
  out->totalGlobalMem = CARD_BYTES;
  out->major = 9;
  out->multiProcessorCount = 1;
  out->warpSize = 32;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
  (void)device;
  snprintf(out, (size_t)bytes, "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  static uintptr_t last = 4096;
  (void)flags, (void)priority;
  *out = (cudaStream_t)(last += 64);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
  *out = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
  return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, bytes);
  return cudaSuccess;
}
