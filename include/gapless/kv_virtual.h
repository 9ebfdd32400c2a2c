/* gapless: contiguous ranges of addresses with memory behind them on demand, for kernels that know no tables (SDPA).
 * The rules of gapless.h apply.  Since 0.1.
 *
 *     gap_kv_virtual_options o = GAP_KV_VIRTUAL_OPTIONS_INIT;     a range for K and one for V of each of 32 layers, tokens first: [tokens][batch][heads][size]
 *     o.stream = stream, o.ranges = 64, o.range_bytes = most_tokens * token_bytes;
 *     gap_kv_virtual_create(heap, &o, &v);
 *     gap_kv_virtual_grow(v, 0, 64, tokens * token_bytes);        before each step: memory behind that much of all of them
 *     ... the step, on tensors over gap_kv_virtual_about.base + range * stride: they only get longer, nothing is ever copied ...
 *
 * The addresses of all ranges are reserved once.  Memory comes from the heap in pages of 2 MiB as a range grows, and a
 * thread maps the next pages before they are asked for, so that a step finds them there; what a range gives up serves
 * anybody else.  With GAP_KV_VIRTUAL_SHARING the pages of a common prefix stand behind several ranges at once.
 *
 * Stream order, as everywhere: what is given up may be in use by work that was queued on `stream` before.
 * Threads: any thread may call anything but gap_kv_virtual_destroy at any time; calls on one object run one after the
 * other. */
#ifndef GAPLESS_KV_VIRTUAL_H
#define GAPLESS_KV_VIRTUAL_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_kv_virtual gap_kv_virtual;

enum {
  GAP_KV_VIRTUAL_SHARING = 1,  /* gap_kv_virtual_share works; a page costs two mappings instead of one */
  GAP_KV_VIRTUAL_NO_THREAD = 2 /* nothing is mapped ahead of need */
};

typedef struct gap_kv_virtual_options {
  size_t size; /* sizeof(gap_kv_virtual_options) */
  int device;
  gap_stream stream;
  uint32_t ranges;      /* 1 to 65,536 */
  uint64_t range_bytes; /* most of one, rounded up to 2 MiB; all together less than 1 TiB */
  uint64_t ahead_bytes; /* mapped beyond what was asked for, rounded up to 2 MiB */
  unsigned flags;       /* GAP_KV_VIRTUAL_... */
} gap_kv_virtual_options;
#define GAP_KV_VIRTUAL_OPTIONS_INIT \
  { sizeof(gap_kv_virtual_options), 0, 0, 1, 0, (uint64_t)2 << 20, 0 }

/* GAP_EINVAL: an option out of range; GAP_ENOTSUP: the device maps no pages; GAP_ENOMEM: no addresses; GAP_ENOMETA.
 * The heap must outlive it. */
GAP_API int gap_kv_virtual_create(gap_heap *heap, const gap_kv_virtual_options *options, gap_kv_virtual **out);
/* Waits for what is queued on `stream`, and gives everything back.  NULL is fine. */
GAP_API void gap_kv_virtual_destroy(gap_kv_virtual *v);

/* Memory behind the first `bytes` of `count` ranges from `first` on; a range that has more keeps it.  Where the thread
 * has been there already, no driver call is made.  GAP_ENOMEM: the heap has no more (what was mapped meanwhile stays);
 * GAP_EAGAIN: not yet, work on other streams still uses the memory; GAP_EDEVICE. */
GAP_API int gap_kv_virtual_grow(gap_kv_virtual *v, uint32_t first, uint32_t count, uint64_t bytes);
/* Ranges give up all memory beyond whole pages of `bytes`, in order of `stream`.  A page that was shared and of which a
 * part is kept stays shared: write behind it only after gap_kv_virtual_shrink to a multiple of 2 MiB. */
GAP_API int gap_kv_virtual_shrink(gap_kv_virtual *v, uint32_t first, uint32_t count, uint64_t bytes);
/* Behind each of `count` ranges from `to` on, which have no memory, comes what is behind the first `bytes` of the one
 * `from` + i: whole pages are the same memory, which both sides only read from now on (the new mapping refuses writes
 * where the driver can); the rest is a page of its own, copied on `stream`.  GAP_ENOTSUP: without
 * GAP_KV_VIRTUAL_SHARING; GAP_ESTATE: a range has memory already, or its source less; GAP_ENOMEM, GAP_EAGAIN: as
 * gap_kv_virtual_grow, and nothing is shared. */
GAP_API int gap_kv_virtual_share(gap_kv_virtual *v, uint32_t to, uint32_t from, uint32_t count, uint64_t bytes);

typedef struct gap_kv_virtual_about {
  size_t size;           /* sizeof(gap_kv_virtual_about) */
  gap_addr base;         /* of range 0 */
  uint64_t stride;       /* from range to range */
  uint64_t bytes_held;   /* memory behind ranges, each page once */
  uint64_t bytes_shared; /* saved by sharing */
  uint64_t pages_ahead;  /* that the thread had mapped when they were asked for */
  uint64_t pages_late;   /* that a call had to map */
} gap_kv_virtual_about;
GAP_API int gap_kv_virtual_get_about(gap_kv_virtual *v, gap_kv_virtual_about *out);

#ifdef __cplusplus
}
#endif
#endif
