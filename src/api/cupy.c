/* The functions behind CuPy's CFunctionAllocator: see gapless/cupy.h. */
#include "gapless/cupy.h"

#include "base/log.h"

void *gap_cupy_alloc(void *cupy, size_t bytes, int device) {
  const gap_cupy *with = cupy;
  gap_addr addr = 0;
  if (bytes && gap_alloc(with->heap, device, (gap_stream)with->current_stream(), bytes, &addr)) return NULL;
  return (void *)(uintptr_t)addr;
}

void gap_cupy_free(void *cupy, void *memory, int device) {
  const gap_cupy *with = cupy;
  (void)device;
  int rc = memory ? gap_free(with->heap, (gap_addr)(uintptr_t)memory) : 0;
  if (rc) gap__log(GAP__LOG_ERROR, "CuPy: free of %p: %s", memory, gap_strerror(rc));
}
