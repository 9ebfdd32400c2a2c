/* gapless: a GPU memory manager.  This header is the manual of the C interface; it compiles as C99 and C++11.
 *
 *     gap_heap *heap;
 *     gap_addr x;
 *     gap_heap_default(&heap);                      every device of the process, opened at its first use
 *     gap_alloc(heap, 0, stream, bytes, &x);        on device 0, in order of `stream`
 *     launch(kernel, stream, x);
 *     gap_free(heap, x);                            at once: later work of `stream` may get the memory
 *
 * Rules of all calls:
 *  - They return 0 or a negative GAP_E... code; results come last, by out-parameters, and are written only on success
 *    unless a call says otherwise.  The library never prints, exits or aborts; messages go to the log callback
 *    (gap_set_log).
 *  - Sizes are in bytes.  A size is rounded up to 512, and every address is a multiple of 512.
 *  - Any thread may call any function at any time, except where it says otherwise, and except that nobody may use a
 *    heap while or after it is destroyed.  Callbacks must not call the heap unless their description allows it.
 *  - *Stream order*: a block belongs to the stream that it was allocated for.  Freeing does not wait: the memory may be
 *    handed out again for the same stream at once, since that stream runs its work in order, and for other streams when
 *    the work queued before the free has ended.  Use of a block on another stream must be recorded (gap_record_stream).
 *  - Streams are the driver's handles as integers: 0 and 1 are the legacy default stream, 2 is the calling thread's own
 *    default stream (--default-stream per-thread).  They may be capturing a graph.
 *  - In a child after fork() the parent's heaps are not usable: frees and gap_record_stream do nothing and return 0,
 *    destroy is allowed, all else gives GAP_EFORKED.  (A child may make heaps of its own; CUDA itself does not work in
 *    the child of a process that has used it.)
 *  - `device` is 0 .. gap_device_count() - 1; any other gives GAP_EINVAL.  {0, 0} where a private pool is asked for
 *    does too.
 *
 * A struct that begins with `size` has its own size there, so that members which a newer header adds are
 * known to be absent.  Since 0.1 unless noted. */
#ifndef GAPLESS_H
#define GAPLESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GAP_BUILD)
#define GAP_API __attribute__((visibility("default")))
#else
#define GAP_API
#endif

#define GAP_VERSION_MAJOR 0
#define GAP_VERSION_MINOR 1
#define GAP_VERSION_PATCH 0

typedef uint64_t gap_addr;   /* a device address: an integer, so that host code cannot dereference it by accident */
typedef uint64_t gap_stream; /* a stream handle as the driver knows it: (gap_stream)(uintptr_t)cuda_stream */

typedef struct gap_pool_id { /* a private pool, as in PyTorch; {0, 0} is the default pool */
  uint64_t first, second;
} gap_pool_id;

typedef struct gap_heap gap_heap;

/* ---- Errors and messages ---- */

enum {
  GAP_OK = 0,
  GAP_EINVAL = -1,
  GAP_ENOMEM = -2,
  GAP_ENOMETA = -3,
  GAP_ENOTMINE = -4,
  GAP_EFREED = -5,
  GAP_ETOOBIG = -6,
  GAP_EAGAIN = -7,
  GAP_ENOTSUP = -8,
  GAP_EDEVICE = -9,
  GAP_ESTATE = -10,
  GAP_EIO = -11,
  GAP_EFORMAT = -12,
  GAP_ELIMIT = -13,
  GAP_EKEY = -14,
  GAP_EVALUE = -15,
  GAP_EMISMATCH = -16,
  GAP_EFORKED = -17
};

/* The meaning of a code in one sentence; never NULL. */
GAP_API const char *gap_strerror(int code);
/* "0.1.0": of the library, which may be newer than this header. */
GAP_API const char *gap_version(void);

/* One line of text for a person.  `level` 0 error, 1 warning, 2 information, 3 debug.  Called from the thread that met
 * the event, possibly inside an allocation: it must not call a heap.  NULL (the default) drops the lines.  One for the
 * process; so is the least important level that passes, which the configuration key `log` sets (warning). */
typedef void (*gap_log_fn)(void *arg, int level, const char *line);
GAP_API void gap_set_log(gap_log_fn fn, void *arg);

/* ---- Heaps ---- */

typedef enum gap_backend {
  GAP_BACKEND_CUDA, /* the NVIDIA driver, loaded at run time; no toolkit is needed */
  GAP_BACKEND_HOST, /* host memory that behaves like a device: tests without a GPU; addresses may be dereferenced */
  GAP_BACKEND_SIM   /* accounting only, any size: addresses are imaginary */
} gap_backend;

enum {
  GAP_HEAP_NO_ENVIRONMENT = 1, /* ignore PYTORCH_CUDA_ALLOC_CONF, GAPLESS_CONF and the like */
  /* start no thread: no pages ahead of need, nothing given back without a call, no neighbours, no answer to `gapless
   * explain PID` */
  GAP_HEAP_NO_THREAD = 2
};

typedef struct gap_heap_options {
  size_t size; /* sizeof(gap_heap_options) */
  gap_backend backend;
  unsigned flags;        /* GAP_HEAP_..., or 0 */
  int device_count;      /* host, sim: how many devices, 1 to 64 (0: 1); cuda: 0, all that the driver shows */
  uint64_t device_bytes; /* host, sim: memory of each device (0: 1 GiB, 80 GiB); cuda: 0 */
  const char *conf;      /* configuration applied over the environment's, or NULL: see gap_configure */
} gap_heap_options;
#define GAP_HEAP_OPTIONS_INIT \
  { sizeof(gap_heap_options), GAP_BACKEND_CUDA, 0, 0, 0, NULL }

/* Makes a heap over every device of a backend.  A device is opened (context, page maker) when it is first allocated
 * from, or its memory is opened to a peer; what fails then fails that call.  Until then its figures are 0.
 * GAP_EINVAL: an option out of range; GAP_ENOTSUP: no driver, or one that lacks what is needed (the log names it);
 * GAP_EDEVICE: the driver shows no device or refuses; GAP_EKEY, GAP_EVALUE: `conf`
 * (the log quotes it; a wrong variable in the environment is logged and leaves the heap with its other settings);
 * GAP_ENOMETA. */
GAP_API int gap_heap_create(const gap_heap_options *options, gap_heap **out);
/* Gives everything back to the driver.  Blocks that are still live become invalid, so their work must have ended.  NULL
 * is fine.  No other call may be under way. */
GAP_API void gap_heap_destroy(gap_heap *heap);

/* The process's own heap, made at the first call with GAP_HEAP_OPTIONS_INIT; errors as gap_heap_create, and a later
 * call tries again.  It is never destroyed by itself: at exit the driver takes its memory back, and late frees stay
 * harmless.  The library stays loaded to the end of the process, whatever dlclose is told. */
GAP_API int gap_heap_default(gap_heap **out);
/* Destroys the default heap, if there is one; the next gap_heap_default makes a new one.  As for gap_heap_destroy, no
 * other call may be under way. */
GAP_API void gap_shutdown(void);

/* Devices are 0 .. count - 1, in the order of the driver (CUDA_VISIBLE_DEVICES applies). */
GAP_API int gap_device_count(gap_heap *heap);

/* ---- Blocks ---- */

/* Allocates `bytes` on `device` in order of `stream`.  0 bytes give address 0, which may be freed.
 * GAP_ENOMEM: out of memory after every rung of the reclaim ladder, other gapless processes on the card
 * (docs/neighbours.md) and the out-of-memory callback; gap_explain says why.
 * GAP_ETOOBIG: 2^60 bytes or more.  GAP_EINVAL: no such device.  GAP_ENOTSUP, GAP_EDEVICE: the device cannot be opened,
 * or the driver fails.  GAP_ENOMETA, GAP_EFORKED.
 * On failure *out is 0 and nothing has changed.  Makes no driver call when idle memory of the stream fits. */
GAP_API int gap_alloc(gap_heap *heap, int device, gap_stream stream, uint64_t bytes, gap_addr *out);
/* The same from a private pool ({0, 0}: the default pool).  GAP_ESTATE: the pool is not in use, or it is asleep
 * (tier.h). */
GAP_API int gap_alloc_in(gap_heap *heap, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes,
                         gap_addr *out);
/* Frees a block in stream order; never waits.  Address 0 is fine.  GAP_ENOTMINE: the address is not of this heap;
 * GAP_EFREED: it is, but no live block begins there. */
GAP_API int gap_free(gap_heap *heap, gap_addr addr);
/* Frees a block whose last use was queued on `stream`, as cudaFreeAsync does: gap_record_stream, then gap_free. */
GAP_API int gap_free_on(gap_heap *heap, gap_addr addr, gap_stream stream);
/* Work queued on `stream` up to the block's free uses it too: the memory is reused only after that work has ended.
 * Errors as gap_free. */
GAP_API int gap_record_stream(gap_heap *heap, gap_addr addr, gap_stream stream);
/* Call before a stream is destroyed, when all its work is queued: its idle memory becomes anybody's when that work has
 * ended, and its handle, which the driver may give to a new stream at once, is forgotten.  Live blocks of the stream
 * stay valid and may still be freed, at any time.
 * The CUDA driver crashes when it is called with a handle that names nothing, and to learn when memory is out of use it
 * must be called with the handles of streams that used it: do not leave this out for a stream that was given to
 * gap_alloc, gap_free_on or gap_record_stream.  (A handle that names a new stream meanwhile is noticed by its id; the
 * new stream may then have been given memory that the old one still uses.)  Per-thread default streams are retired by
 * themselves when their thread ends. */
GAP_API int gap_retire_stream(gap_heap *heap, int device, gap_stream stream);

/* ---- One line: the default heap, shaped like the driver's calls ---- */

/* On the device that is current in the calling thread (device 0 where none is).  *out is NULL on failure. */
GAP_API int gap_malloc(void **out, size_t bytes, gap_stream stream);
/* gap_free_on of the default heap; NULL is fine.  GAP_ENOTMINE: there is no default heap (any more), or as gap_free. */
GAP_API int gap_mfree(void *memory, gap_stream stream);

/* ---- Pools ---- */

/* Contiguous: for registration with a network card or with NCCL, for cudaIpcGetMemHandle.  Idle memory serves this pool
 * only, and more of it lies idle. */
enum {
  GAP_POOL_PRIVATE = 0,   /* idle pages serve this pool only, until it is released */
  GAP_POOL_SHARED = 1,    /* blocks lie apart from other pools', idle pages serve everybody */
  GAP_POOL_CONTIGUOUS = 2 /* every block lies inside one driver allocation (cuMemAlloc) */
};

/* Makes a pool on `device`; its use count is 1.  `tag` names it in summaries, which have 31 bytes of it, and for
 * gap_sleep, which compares all of it (NULL or "": none).  For the memory of a CUDA graph take GAP_POOL_PRIVATE:
 * addresses and pages stay until the pool is released.  Both members of the id are above 0, so it is none of PyTorch's,
 * which have a 0.
 * GAP_EINVAL: flags that are unknown or exclude each other (these three do); GAP_ENOMETA. */
GAP_API int gap_pool_create(gap_heap *heap, int device, unsigned flags, const char *tag, gap_pool_id *out);
/* The same under an id of the caller's (PyTorch hands out its own).  A pool in use is counted once more, as by
 * gap_pool_retain; GAP_ESTATE: it has other flags. */
GAP_API int gap_pool_adopt(gap_heap *heap, int device, unsigned flags, const char *tag, gap_pool_id id);
/* The use count, as with graphs that share a pool.  At 0 the pool is released: its idle memory becomes anybody's (of a
 * contiguous pool: the driver's), its live blocks stay valid until they are freed.  GAP_ESTATE: not in use. */
GAP_API int gap_pool_retain(gap_heap *heap, int device, gap_pool_id id);
GAP_API int gap_pool_release(gap_heap *heap, int device, gap_pool_id id);

/* What PyTorch's MemPool can be asked for beside, as bits; both speak of PyTorch's segments, so they act where the
 * strategy is caching_allocator.  (With others the pages of a pool have no rest to keep, and the shim for PyTorch sees
 * to use_on_oom.) GAP_ESTATE: the pool is not in use.  GAP_EINVAL: other bits. */
enum {
  GAP_POOL_NO_SPLIT = 1,  /* a block is handed out whole */
  GAP_POOL_USE_ON_OOM = 2 /* what is idle in it serves requests of the default pool before they fail */
};
GAP_API int gap_pool_behave(gap_heap *heap, int device, gap_pool_id id, unsigned behaviour);

/* ---- Limits ---- */

/* The cap on held bytes of a device, 0: none.  It holds until the configuration asks for another one.  A cap below what
 * is held gives idle memory back at once; while live blocks keep more than the cap, nothing is taken from the driver,
 * and memory that becomes idle goes on serving requests that fit into it, until gap_trim. */
GAP_API int gap_set_cap(gap_heap *heap, int device, uint64_t bytes);
/* A second limit, as a share of the card's memory: 0 (nothing) to 1 (none).  The smaller of the two holds; each is
 * taken back by itself. */
GAP_API int gap_set_fraction(gap_heap *heap, int device, double fraction);
/* Driver-free memory that is left to other programs on the card; idle memory is given back at once where it is less,
 * and within half a second when other programs take more.  Unless set, by this call or the configuration: where there
 * is no cap 512 MiB, at most a sixteenth of the card, else 0.  As much as the card has, or more, leaves nothing:
 * requests are served from what is held and idle only.  GAP_EINVAL: UINT64_MAX. */
GAP_API int gap_set_reserve(gap_heap *heap, int device, uint64_t bytes);
/* Gives idle memory back to the driver, as empty_cache does; of one pool, or ({0, 0}) of the default pool, of shared
 * and of released ones.  A private pool in use keeps its own.  Waits only for work that still uses it.  `returned`,
 * bytes given back, may be NULL. */
GAP_API int gap_trim(gap_heap *heap, int device, gap_pool_id pool, uint64_t *returned);
/* With `convert` or `overflow` on, a safe point: by this call the program says that nothing is launched on the device
 * until it returns, by any thread; what was launched before is waited for.  The live parts of partly idle large chunks
 * move to chunks of their own, at the same addresses; their idle pages go back to the driver: `freed`, in bytes, may be
 * NULL.  Nothing of what others know is moved (docs/conversion.md).  With `overflow`, live blocks come back from host
 * memory as far as there is room, and those called cold go there where others lacked it (docs/overflow.md).  Good
 * between the steps of a training run.  GAP_ESTATE: convert:off, and no overflow. */
GAP_API int gap_defragment(gap_heap *heap, int device, uint64_t *freed);
/* How often the program uses a live block (any address inside it): GAP_HINT_COLD says rarely, e.g. the states of an
 * optimiser.  With `overflow` its memory is then the first to go to host memory, when requests find none on the device:
 * at safe points, and with convert:gated inside such a request; the address stays.  There it is until it is freed, or
 * called GAP_HINT_NONE again before a safe point.  A block without a page of 2 MiB of its own stays where it is.
 * GAP_ENOTMINE, GAP_EFREED; GAP_EINVAL: no such hint; GAP_ENOMETA. */
typedef enum gap_hint_kind { GAP_HINT_NONE, GAP_HINT_COLD } gap_hint_kind;
GAP_API int gap_hint(gap_heap *heap, gap_addr addr, gap_hint_kind hint);
/* Call before the memory behind a live block is registered with somebody who remembers the memory and not its address
 * (a network card, a driver of another device): conversion leaves it where it is, until the heap gives it back to the
 * driver.  What gap_export gives away is kept without this call.  GAP_ENOTMINE, GAP_EFREED; GAP_ESTATE: a part of it
 * lies in host memory, which nobody else can reach (docs/overflow.md), and gap_explain says so. */
GAP_API int gap_keep_memory(gap_heap *heap, gap_addr addr);
/* Lets kernels of `peer` reach the memory of `device`, present and future; opens `device`.  GAP_ENOTSUP: the hardware
 * cannot, or the backend knows no peers; GAP_EINVAL: it is the same device.  From then on conversion leaves the memory
 * of `device` where it is. */
GAP_API int gap_enable_peer(gap_heap *heap, int device, int peer);

/* ---- Configuration ---- */

/* Applies a configuration string at run time, in the grammar of PYTORCH_CUDA_ALLOC_CONF (docs/configuration.md): it
 * replaces what `options.conf` or an earlier call said; "" goes back to the environment's.  All or nothing: GAP_EVALUE
 * or, with strict:True, GAP_EKEY, with the reason in the log.  Keys that count from the start only
 * keep their value, with a warning.  Live blocks stay where they are when the strategy changes.  NULL reads the
 * environment's variables again, and leaves what was configured here above them; what is wrong in one is logged, and
 * the rest holds. */
GAP_API int gap_configure(gap_heap *heap, const char *conf);
/* The value in force of a key as text ("unlimited", "20 MiB"), cut to `bytes`.  GAP_EKEY: no such key. */
GAP_API int gap_conf_value(gap_heap *heap, const char *key, char *text, size_t bytes);

/* ---- Callbacks: one of each a heap; NULL takes it away ---- */

/* A request of `bytes` found no memory on any rung.  Return 1 when something was freed: the ladder is tried once more;
 * 0: fail.  Called in the requesting thread, without locks: it may call anything but gap_heap_destroy.  It is not
 * called again for requests that it makes of the same heap: those fail at once where memory is out. */
typedef int (*gap_oom_fn)(void *arg, int device, gap_stream stream, uint64_t bytes);
GAP_API int gap_set_oom(gap_heap *heap, gap_oom_fn fn, void *arg);

/* The names of PyTorch's memory history.  A mapping comes where memory, new or moved from other addresses, stands
 * behind a range from then on; bytes allocated and mapped less bytes freed and unmapped are the bytes held. */
typedef enum gap_event_kind {
  GAP_EVENT_ALLOC,          /* a block was handed out */
  GAP_EVENT_FREE_REQUESTED, /* the caller freed it */
  GAP_EVENT_FREE_COMPLETED, /* it is idle: at once, or when recorded streams have ended their use */
  GAP_EVENT_SEGMENT_ALLOC,  /* one driver allocation */
  GAP_EVENT_SEGMENT_FREE,
  GAP_EVENT_SEGMENT_MAP,
  GAP_EVENT_SEGMENT_UNMAP,
  GAP_EVENT_OOM /* a request failed; addr is the driver's free bytes */
} gap_event_kind;

typedef struct gap_event {
  gap_event_kind kind;
  int device;
  gap_addr addr;
  uint64_t bytes;     /* of the block after rounding, or of the mapping; OOM: asked for */
  uint64_t requested; /* before rounding; of a mapping, its bytes */
  gap_stream stream;
  gap_pool_id pool;
} gap_event;

/* Called from the thread that caused the event, inside the call and under the heap's locks: it must be quick, and must
 * not call the heap.  One event after the other, never two at once.  Events of one block come in order, and in the
 * order of other uses of its addresses: who counts along never sees an address handed out twice, or without memory.
 * Destroying a heap tells nothing. */
typedef void (*gap_event_fn)(void *arg, const gap_event *event);
/* When this has returned the former function is not called any more. */
GAP_API int gap_set_events(gap_heap *heap, gap_event_fn fn, void *arg);

/* ---- Looking ---- */

/* gap_get_usage, gap_stats, gap_stat, gap_reset_peaks and gap_walk stop the page maker until memory grows again: two
 * looks without a request between them see the same. */

typedef struct gap_usage {
  size_t size;                    /* sizeof(gap_usage) */
  uint64_t live_bytes;            /* blocks handed out, after rounding */
  uint64_t requested_bytes;       /* of live and pending blocks, before rounding */
  uint64_t pending_bytes;         /* freed, still used by other streams */
  uint64_t held_bytes;            /* taken from the driver: the cap limits this */
  uint64_t idle_returnable_bytes; /* could be given back, or serve any request */
  uint64_t idle_stuck_bytes;      /* on pages that live blocks use in part, or that a pool keeps */
  uint64_t peak_live_bytes;       /* P */
  uint64_t peak_held_bytes;
  uint64_t cap_bytes;                         /* 0: none */
  uint64_t largest_servable_bytes;            /* the largest request that could be served now without waiting */
  uint64_t card_free_bytes, card_total_bytes; /* as the driver says, all programs together */
} gap_usage;

/* GAP_EINVAL: no such device, or `out->size` unknown. */
GAP_API int gap_get_usage(gap_heap *heap, int device, gap_usage *out);

/* Every figure by name, without locks: those of torch.cuda.memory_stats ("allocated_bytes.all.current", ...) and ours
 * ("pages_stolen", "rung.steal.count", "driver.map.calls", ...; docs/statistics.md).  Ends early when `fn` returns
 * other than 0, and returns that. */
typedef int (*gap_stat_fn)(void *arg, const char *name, int64_t value);
GAP_API int gap_stats(gap_heap *heap, int device, gap_stat_fn fn, void *arg);
/* One of them.  GAP_EKEY: no such name. */
GAP_API int gap_stat(gap_heap *heap, int device, const char *name, int64_t *out);
GAP_API int gap_reset_peaks(gap_heap *heap, int device);
GAP_API int gap_reset_accumulated(gap_heap *heap, int device);

typedef enum gap_block_state {
  GAP_BLOCK_IDLE,
  GAP_BLOCK_LIVE,
  GAP_BLOCK_PENDING, /* freed, still used by another stream */
  GAP_BLOCK_HOLE     /* addresses without memory */
} gap_block_state;

typedef struct gap_block {
  gap_addr addr;
  uint64_t bytes, requested; /* requested: 0 unless live or pending */
  gap_stream stream;
  gap_pool_id pool;
  gap_block_state state;
  int is_large;     /* of PyTorch's large pool: more than 1 MiB */
  gap_addr segment; /* the driver allocation, or the contiguous mapped range, that it lies in */
  uint64_t segment_bytes;
} gap_block;

/* All blocks in order of address within a segment.  `fn` runs under the heap's locks and must not call the heap; other
 * than 0 ends the walk and is returned. */
typedef int (*gap_block_fn)(void *arg, const gap_block *block);
GAP_API int gap_walk(gap_heap *heap, int device, gap_block_fn fn, void *arg);
/* The live or pending block that `addr` lies in, anywhere; `device` may be NULL.  GAP_ENOTMINE: not of this heap;
 * GAP_EFREED: no such block there. */
GAP_API int gap_find_block(gap_heap *heap, gap_addr addr, gap_block *out, int *device);

/* Texts.  At most `bytes` with the closing 0 are written (0: nothing, `text` may be NULL); `needed` (may be NULL) is
 * the length of the whole text without it. */
/* A page for a person: live, held and idle memory, by stream and pool, the ladder, driver calls. */
GAP_API int gap_summary(gap_heap *heap, int device, char *text, size_t bytes, size_t *needed);
/* Why the last failed request of the device failed, in plain words with numbers; "" when none did. */
GAP_API int gap_explain(gap_heap *heap, int device, char *text, size_t bytes, size_t *needed);
/* Checks every invariant of the heap (milliseconds to seconds).  GAP_ESTATE: broken, the first one in `text`. */
GAP_API int gap_check(gap_heap *heap, int device, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
