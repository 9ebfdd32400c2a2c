/* Memory that others may reach: other devices of this process, and other processes. */
#include "dev/cuda/state.h"

static int ask_peer(struct cuda *cuda, gap__cuda_device peer) {
  int can = 0;
  if (!cuda->driver.cuDeviceCanAccessPeer || !cuda->driver.cuCtxEnablePeerAccess) return GAP_ENOTSUP;
  int rc = CUDA_CALL(cuda, cuDeviceCanAccessPeer, &can, peer, cuda->device);
  return rc == 0 && !can ? GAP_ENOTSUP : rc;
}

/* Segments, which have no access list: the peer's context is let into ours. */
static int open_segments(struct cuda *cuda, gap__cuda_context peer) {
  struct gap__cuda_scope scope;
  int rc = gap__cuda_enter(cuda, peer, &scope);
  if (rc != 0) return rc;
  gap__cuda_result result = cuda->driver.cuCtxEnablePeerAccess(cuda->context, 0);
  bool was_open = result == GAP__CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED; /* the program did it */
  rc = gap__cuda_check(cuda, "cuCtxEnablePeerAccess", was_open ? GAP__CUDA_SUCCESS : result);
  gap__cuda_leave(cuda, &scope);
  return rc;
}

/* Lets the peer's context into ours; the context stays retained until we are destroyed, since the access hangs on it. */
static int open_peer(struct cuda *cuda, int ordinal) {
  gap__cuda_device peer;
  gap__cuda_context context;
  int rc = CUDA_CALL(cuda, cuDeviceGet, &peer, ordinal);
  if (rc == 0) rc = ask_peer(cuda, peer);
  if (rc == 0) rc = CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &context, peer);
  if (rc != 0) return rc;
  rc = open_segments(cuda, context);
  uint64_t bit = (uint64_t)1 << ordinal;
  bool again = rc == 0 && atomic_fetch_or(&cuda->opened, bit) & bit; /* two threads at once */
  if (rc != 0 || again) (void)CUDA_CALL(cuda, cuDevicePrimaryCtxRelease, peer);
  return rc;
}

int gap__cuda_peer_enable(struct gap__dev *dev, int ordinal) {
  struct cuda *cuda = cuda_of(dev);
  if (ordinal < 0 || ordinal >= GAP__CUDA_PEERS_MAX || ordinal == dev->ordinal) return GAP_EINVAL;
  uint64_t bit = (uint64_t)1 << ordinal;
  int rc = atomic_load(&cuda->opened) & bit ? 0 : open_peer(cuda, ordinal);
  if (rc == 0) atomic_fetch_or(&cuda->peers, bit);
  return rc;
}

int gap__cuda_peer_disable(struct gap__dev *dev, int ordinal) {
  struct cuda *cuda = cuda_of(dev);
  if (ordinal < 0 || ordinal >= GAP__CUDA_PEERS_MAX) return GAP_EINVAL;
  uint64_t bit = (uint64_t)1 << ordinal;
  return atomic_fetch_and(&cuda->peers, ~bit) & bit ? 0 : GAP_EINVAL;
}

void gap__cuda_close_peers(struct cuda *cuda) {
  for (uint64_t opened = atomic_load(&cuda->opened); opened; opened &= opened - 1)
    (void)CUDA_CALL(cuda, cuDevicePrimaryCtxRelease, __builtin_ctzll(opened)); /* a device is its ordinal */
}

int gap__cuda_chunk_export(struct gap__dev *dev, gap__chunk chunk, int *out) {
  struct cuda *cuda = cuda_of(dev);
  int rc, fd;
  CALL_IN_CONTEXT(rc, cuda, cuMemExportToShareableHandle, &fd, chunk, GAP__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (rc == 0) *out = fd;
  return rc;
}

int gap__cuda_chunk_import(struct gap__dev *dev, int fd, gap__chunk *out) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_handle chunk;
  void *handle = (void *)(intptr_t)fd;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuMemImportFromShareableHandle, &chunk, handle,
                  GAP__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (rc == 0) *out = chunk;
  return rc;
}
