/* gapless: blocks at given addresses.  For programs that recorded addresses and want the same ones again, as a replayed
 * CUDA graph does: PyTorch's checkpoints of private pools stand on this.  The rules of gapless.h apply; since 0.1. */
#ifndef GAPLESS_RESTORE_H
#define GAPLESS_RESTORE_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `bytes` at `addr`, which must lie in idle memory of a stream and pool: the block belongs to these again, in
 * order of that stream.  The addresses of a GAP_POOL_PRIVATE pool in use keep their memory, so what was live there once
 * can be had again as long as nobody else has it.  Makes no driver call.
 * GAP_EAGAIN: a part of [addr, addr + bytes) is live, pending, or has no memory; GAP_ENOTMINE; GAP_EINVAL: `addr` is no
 * multiple of 512 or `bytes` is 0; GAP_ENOTSUP: the strategy that owns the addresses cannot; GAP_ENOMETA,
 * GAP_EFORKED. */
GAP_API int gap_alloc_at(gap_heap *heap, gap_addr addr, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
