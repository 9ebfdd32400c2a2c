#include "dev/soft/stream.h"

#include <stdatomic.h>

#define FIRST_HANDLE ((gap_stream)0x50F7 << 48) /* no address, so no driver's handle */

int gap__soft_stream_create(struct gap__dev *dev, gap_stream *out) {
  static _Atomic uint64_t made;
  (void)dev;
  *out = FIRST_HANDLE + atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
  return 0;
}

int gap__soft_stream_destroy(struct gap__dev *dev, gap_stream stream) {
  (void)dev;
  return stream >= FIRST_HANDLE ? 0 : GAP_EINVAL;
}
