/* gapless in the shape of CuPy's CFunctionAllocator (CuPy 9 and newer), without Python between the two:
 *
 *     gap_cupy with = {heap, current_stream};
 *     cupy.cuda.CFunctionAllocator(address of `with`, address of gap_cupy_alloc, address of gap_cupy_free, owner)
 *
 * The Python package does so by itself (gapless.cupy).  As with CuPy's own pool, memory belongs to the stream that is
 * current at its allocation, and use on another stream must have ended (or be waited for) when it is freed.  Any thread
 * may call these functions at any time; current_stream is called as CuPy does it, with Python's lock held.  Since
 * 0.1. */
#ifndef GAPLESS_CUPY_H
#define GAPLESS_CUPY_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_cupy {
  gap_heap *heap;
  intptr_t (*current_stream)(void); /* of the calling thread, a driver handle */
} gap_cupy;

/* 0 bytes give NULL.  NULL on failure: gap_explain says why. */
GAP_API void *gap_cupy_alloc(void *cupy, size_t bytes, int device);
/* A failure is logged: CuPy has no way to hear of it. */
GAP_API void gap_cupy_free(void *cupy, void *memory, int device);

#ifdef __cplusplus
}
#endif

#endif
