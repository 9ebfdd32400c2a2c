/* gapless behind torch.cuda.memory.CUDAPluggableAllocator: the door for machines without a C++ compiler, where the shim
 * that does everything (shim/torch) cannot be built.  The Python package opens it by itself; by hand it is
 *
 *     a = torch.cuda.memory.CUDAPluggableAllocator("libgapless.so", "gap_torch_alloc", "gap_torch_free")
 *     torch.cuda.memory.change_current_allocator(a)               # before CUDA starts
 *
 * and a.allocator().set_record_stream_fn(address of gap_torch_record_stream), and so on, for every function here that
 * names a setter: without them torch silently ignores record_stream, empty_cache, the memory fraction and graph pools.
 *
 * All of it works on the default heap (gap_heap_default).  A failure is logged; these functions have no way to return
 * it.  Any thread may call them at any time.  Since 0.1. */
#ifndef GAPLESS_PLUGGABLE_H
#define GAPLESS_PLUGGABLE_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gap_alloc, or gap_alloc_in where a graph pool wants the stream.  0 bytes give NULL.  On failure NULL, unless
 * gap_torch_set_throw was called: then it does not return. */
GAP_API void *gap_torch_alloc(intptr_t bytes, int device, void *stream);
/* gap_free; `bytes`, `device` and `stream` are what the allocation said, and not needed. */
GAP_API void gap_torch_free(void *memory, intptr_t bytes, int device, void *stream);

GAP_API void gap_torch_init(int device_count);                       /* set_init_fn */
GAP_API void gap_torch_reset(void);                                  /* set_reset_fn: empty_cache, every device */
GAP_API void gap_torch_memory_fraction(double fraction, int device); /* set_memory_fraction_fn */
GAP_API void *gap_torch_base_alloc(void *memory, size_t *bytes);     /* set_base_alloc_fn; bytes may be NULL */
GAP_API void gap_torch_record_stream(void *memory, void *stream);    /* set_record_stream_fn */

/* set_begin_allocate_to_pool: until the end of the pool, allocations on streams that `filter` says yes to come from the
 * pool. `filter` is a std::function<bool(cudaStream_t)> of libstdc++, as the C++ ABI passes it (by address); it is
 * copied.  The newest pool is asked first. */
GAP_API void gap_torch_begin_pool(int device, gap_pool_id pool, const void *filter);
GAP_API void gap_torch_end_pool(int device, gap_pool_id pool);     /* set_end_allocate_to_pool_fn */
GAP_API void gap_torch_release_pool(int device, gap_pool_id pool); /* set_release_pool */

/* What raises an exception where an allocation fails: c10::detail::torchCheckFail (of libc10.so) has this shape.  It is
 * called without locks and does not return.  NULL takes it away. */
typedef void (*gap_torch_throw_fn)(const char *function, const char *file, uint32_t line, const char *message);
GAP_API void gap_torch_set_throw(gap_torch_throw_fn fn);

/* ---- For the Python package ---- */

/* A gap_log_fn that writes "gapless: LINE" (with "error: " or "warning: " before it) to standard error in one write,
 * without a lock.  A callback into the interpreter would wait for its lock, inside an allocation, while the lock's
 * owner waits for the heap. */
GAP_API void gap_torch_log(void *unused, int level, const char *line);
/* From now on gap_torch_log keeps the errors and warnings of the calling thread in `text`, a line each, cut to `bytes`;
 * NULL: they go to standard error again. */
GAP_API void gap_torch_capture(char *text, size_t bytes);

/* Reads a configuration string for torch's own parsers, which refuse a whole string for one key that they do not know:
 * what it sets of torch 2.11's keys, `backend` excepted, in torch's spelling.  At most `bytes` with the closing 0 are
 * written; `needed` is the length of the whole.  *asks is 1 when the string chooses gapless (backend:gapless, or a
 * strategy's word), also where the string is wrong elsewhere.  GAP_EVALUE, GAP_EKEY: the string is refused, the text is
 * empty.  The log has what is wrong or doubtful. */
GAP_API int gap_torch_conf(const char *string, char *text, size_t bytes, size_t *needed, int *asks);

#ifdef __cplusplus
}
#endif
#endif
