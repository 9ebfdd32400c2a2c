/* Addresses, chunks, mappings and segments of the cuda backend: the driver keeps the books.  It clears what it was to fill in when it
 * fails; the seam leaves it alone. */
#include "dev/cuda/state.h"

int gap__cuda_reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_addr addr;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuMemAddressReserve, &addr, bytes, align, 0, 0);
  if (rc == 0) *out = addr;
  return rc;
}

int gap__cuda_unreserve(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemAddressFree, addr, bytes);
}

int gap__cuda_chunk_create(struct gap__dev *dev, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  struct cuda *cuda = cuda_of(dev);
  if (place == GAP__PLACE_HOST && !dev->caps.host_chunks) return GAP_ENOTSUP;
  gap__cuda_handle chunk;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuMemCreate, &chunk, bytes, &cuda->place[place], 0);
  if (rc == 0) *out = chunk;
  return rc;
}

int gap__cuda_chunk_release(struct gap__dev *dev, gap__chunk chunk) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemRelease, chunk);
}

int gap__cuda_map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk chunk) {
  struct cuda *cuda = cuda_of(dev);
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuMemMap, addr, bytes, 0, chunk, 0);
  return rc == GAP_ENOTSUP ? GAP_EINVAL : rc; /* what is not supported is a part of a chunk */
}

/* The owner first, then every peer that was enabled: one call for all. */
static size_t list_readers(struct cuda *cuda, unsigned flags, struct gap__cuda_access out[1 + GAP__CUDA_PEERS_MAX]) {
  size_t count = 1;
  out[0].location.id = cuda->dev.ordinal;
  for (uint64_t peers = atomic_load(&cuda->peers); peers; peers &= peers - 1)
    out[count++].location.id = __builtin_ctzll(peers);
  for (size_t i = 0; i < count; i++) {
    out[i].location.type = GAP__CU_MEM_LOCATION_TYPE_DEVICE;
    out[i].flags = flags;
  }
  return count;
}

static int open_to_all(struct gap__dev *dev, gap_addr addr, uint64_t bytes, unsigned flags) {
  struct cuda *cuda = cuda_of(dev);
  struct gap__cuda_access readers[1 + GAP__CUDA_PEERS_MAX];
  size_t count = list_readers(cuda, flags, readers);
  RETURN_CALL(cuda, cuMemSetAccess, addr, bytes, readers, count);
}

int gap__cuda_set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  return open_to_all(dev, addr, bytes, GAP__CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* A driver that knows no such mappings of the card's memory says that the flag is wrong. */
int gap__cuda_set_read_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  int rc = open_to_all(dev, addr, bytes, GAP__CU_MEM_ACCESS_FLAGS_PROT_READ);
  return rc == GAP_EINVAL ? GAP_ENOTSUP : rc;
}

int gap__cuda_unmap(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemUnmap, addr, bytes);
}

int gap__cuda_segment_alloc(struct gap__dev *dev, uint64_t bytes, gap_addr *out) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_addr addr;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuMemAlloc, &addr, bytes);
  if (rc == 0) *out = addr;
  return rc;
}

int gap__cuda_segment_free(struct gap__dev *dev, gap_addr addr) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemFree, addr);
}

int gap__cuda_pin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemHostRegister, memory, bytes, GAP__CU_MEMHOSTREGISTER_PORTABLE);
}

int gap__cuda_unpin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct cuda *cuda = cuda_of(dev);
  (void)bytes; /* the driver knows */
  RETURN_CALL(cuda, cuMemHostUnregister, memory);
}

int gap__cuda_mem_info(struct gap__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuMemGetInfo, free_bytes, total_bytes);
}
