/* Growing arrays: GAP__VEC(type) declares one, all zero is empty.  Grown with realloc, which moves large ones by
 * remapping pages, so the peak is not twice the size. */
#ifndef GAP_TRACE_VEC_H
#define GAP_TRACE_VEC_H

#include <stddef.h>
#include <stdint.h>

/* No array of a reader grows beyond this many items: a small compressed file cannot ask for all memory. */
#define GAP__VEC_MAX ((uint32_t)1 << 27)

#define GAP__VEC(type) \
  struct { \
    type *at; \
    uint32_t count, capacity; \
  }

/* True when `n` more items fit, after growing if need be. */
#define GAP__VEC_ROOM(vec, n) \
  (__builtin_expect((vec).capacity - (vec).count >= (n), 1) || \
   ((vec).at = gap__vec_grow((vec).at, (vec).count, &(vec).capacity, (n), sizeof *(vec).at), \
    (vec).capacity - (vec).count >= (n)))

/* Returns the array, at its new place or, when the limit or the host's memory is reached, as it was. */
void *gap__vec_grow(void *at, uint32_t count, uint32_t *capacity, size_t more, size_t item_bytes);

/* Gives back what lies beyond the last item; the array may move. */
void *gap__vec_trim(void *at, uint32_t count, size_t item_bytes);

#endif
