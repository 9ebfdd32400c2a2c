#include "trace/vec.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Large arrays are filled from front to back: huge pages save thousands of page faults. */
static void advise(void *at, size_t bytes) {
  uintptr_t first = ((uintptr_t)at + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)at + bytes) & ~(uintptr_t)4095;
  if (bytes >= (size_t)4 << 20) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

void *gap__vec_grow(void *at, uint32_t count, uint32_t *capacity, size_t more, size_t item_bytes) {
  size_t wanted = count + more, doubled = *capacity ? 2 * (size_t)*capacity : 64;
  if (more > GAP__VEC_MAX || wanted > GAP__VEC_MAX) return at;
  if (wanted < doubled) wanted = doubled < GAP__VEC_MAX ? doubled : GAP__VEC_MAX;
  void *grown = realloc(at, wanted * item_bytes);
  if (!grown) return at;
  advise(grown, wanted * item_bytes);
  *capacity = (uint32_t)wanted;
  return grown;
}

void *gap__vec_trim(void *at, uint32_t count, size_t item_bytes) {
  void *trimmed = at ? realloc(at, (count ? count : 1) * item_bytes) : NULL;
  return trimmed ? trimmed : at;
}
