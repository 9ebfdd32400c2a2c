/* gapless: the paged KV cache.  This header is its manual; the rules of gapless.h apply.  Since 0.1.
 *
 *     gap_kv_options o = GAP_KV_OPTIONS_INIT;                  the model: 32 layers, 8 KV heads of 128 bf16 numbers
 *     o.layers = 32, o.heads = 8, o.head_size = 128;
 *     o.stream = stream, o.bytes = 60ull << 30, o.sharing = GAP_KV_SHARING_FAST;
 *     gap_kv_create(heap, &o, &kv);
 *     gap_kv_open(kv, &prompt, &seq, &hit);                    `hit` tokens of the prompt are there already
 *     gap_kv_append(kv, &request, 1);                          places for the others: all of them, or none
 *     gap_kv_flush(kv);                                        page copies and table entries, in order of `stream`
 *     launch(kernel, stream, table, lengths, k, v);            gap_kv_get_shape says where they are
 *     gap_kv_close(kv, seq, stream);
 *
 * Words.  A *KV page* holds K and V of `page_tokens` tokens, for all layers of one group (the driver's 2 MiB are a
 * *page*).  A sequence has, for each group, a row of KV page numbers: the *block table* of PagedAttention (Kwon et al.,
 * SOSP 2023).  A *slab* is the run of KV pages that share whole pages of device memory: it is what is taken from the
 * heap and given back to it.
 *
 * Numbers of KV pages are what kernels read.  KV page `id` of layer `l` (counted within its group) begins at
 *     first + l * layer_stride + id * page_stride;    K first, V `v_offset` bytes later
 * and K or V of (token t, head h) at t * token_stride + h * head_stride from there.  Numbers may have gaps: they run up
 * to `ids_end`.  KV page 0 is the null page: it belongs to nobody, always has memory, and stands in every unused table
 * entry.  Memory stays at its addresses for as long as the cache lives, whatever the cache grows or shrinks to, so
 * captured graphs stay valid.
 *
 * Stream order.  Steps run on `options.stream`.  A KV page that was freed may be written by the next step of that
 * stream at once.  Work on other streams is named in gap_kv_close, and waited for by events, never by the host.
 * gap_kv_append says that a step will compute these tokens; what it fills is offered to other sequences once the
 * sequence is named again in gap_kv_append, gap_kv_truncate, gap_kv_fork, gap_kv_swap_out or gap_kv_close.  If the step
 * did not run, truncate to the former length first.
 *
 * Threads.  Any thread may call anything but gap_kv_destroy at any time; calls of one cache run one after the other.
 * Errors.  Besides those named: GAP_EINVAL for NULL, a `size` that is unknown, or a number out of range; GAP_EFREED:
 * the sequence was closed; GAP_ENOMETA; GAP_EFORKED.  A call that fails has changed nothing, and the number of free KV
 * pages is what it was. */
#ifndef GAPLESS_KV_H
#define GAPLESS_KV_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_kv gap_kv;
typedef uint64_t gap_kv_seq; /* a sequence; 0 is none.  Never given out twice within 2^32 closings of one row */

/* ---- The cache ---- */

typedef enum gap_kv_dtype { GAP_KV_BF16, GAP_KV_F16, GAP_KV_F32, GAP_KV_F8_E4M3, GAP_KV_F8_E5M2 } gap_kv_dtype;
/* The order inside K (and V) of a KV page: [token][head][number], or [head][token][number]. */
typedef enum gap_kv_order { GAP_KV_NHD, GAP_KV_HND } gap_kv_order;
/* Where the layers of a KV page lie.  Per layer: each layer's KV pages fill whole pages of their own, as long as that
 * takes no more than 2^16 of them; best for attention.  Block major: all layers of a KV page side by side, as few KV
 * pages a slab as fill whole pages; best for copies to the host. */
typedef enum gap_kv_layout { GAP_KV_PER_LAYER, GAP_KV_BLOCK_MAJOR } gap_kv_layout;
/* Who may share: nobody; who has the same tokens, which are compared, found by a keyed 64-bit hash; or who has the same
 * chain of SHA-256 digests. */
typedef enum gap_kv_sharing { GAP_KV_SHARING_OFF, GAP_KV_SHARING_FAST, GAP_KV_SHARING_SHA256 } gap_kv_sharing;

enum { GAP_KV_GROUPS_MAX = 8, GAP_KV_PRIORITY_DEFAULT = 3, GAP_KV_PRIORITY_MAX = 7 };
enum {
  GAP_KV_NO_PARTIAL = 1, /* share whole KV pages only */
  GAP_KV_NO_MERGE = 2,   /* two KV pages that turn out to be equal stay two */
  GAP_KV_NO_CEILING = 4, /* do not count how much an endless cache would have hit */
  GAP_KV_NO_KERNELS = 8  /* copy KV pages by the driver; see kv_kernels.h */
};

/* Monotonic milliseconds, for times to live. */
typedef uint64_t (*gap_kv_now_fn)(void *arg);

typedef struct gap_kv_options {
  size_t size; /* sizeof(gap_kv_options) */
  int device;
  gap_stream stream;      /* the steps run on it; it must outlive the cache */
  gap_stream copy_stream; /* swapped KV pages are copied on it; may be `stream` */
  uint32_t layers;        /* 1 to 1,024; a multiple of group_count */
  uint32_t heads;         /* KV heads, 1 to 1,024 */
  uint32_t head_size;     /* numbers, 1 to 4,096; a head has a multiple of 16 bytes */
  gap_kv_dtype dtype;
  uint32_t page_tokens; /* 1 to 1,024, a power of two */
  gap_kv_order order;
  gap_kv_layout layout;
  /* 1 to GAP_KV_GROUPS_MAX groups of layers, each with table rows of its own; they share KV pages */
  uint32_t group_count;
  /* one a group: tokens that a token sees, itself included; 0: all.  KV pages that have left the window are freed.
   * NULL: all 0 */
  const uint32_t *windows;
  uint32_t sequences; /* rows of a table, 1 to 65,536 */
  uint32_t tokens;    /* most of one sequence, 1 to 2^27 */
  /* most device memory for KV pages: whole slabs of it are used, at least two; less by gap_kv_resize */
  uint64_t bytes;
  uint64_t host_bytes; /* most pinned host memory for swapped sequences; taken as it is needed */
  gap_kv_sharing sharing;
  unsigned flags;       /* GAP_KV_NO_... */
  uint32_t pin_percent; /* of the KV pages may be pinned, 0 to 100 */
  uint64_t seed;        /* of the keyed hash; 0: from the system */
  gap_kv_now_fn now;    /* NULL: the device's clock */
  void *now_arg;
} gap_kv_options;
#define GAP_KV_OPTIONS_INIT \
  { \
    sizeof(gap_kv_options), 0, 0, 0, 0, 0, 0, GAP_KV_BF16, 16, GAP_KV_NHD, GAP_KV_PER_LAYER, 1, NULL, 256, 131072, 0, \
        0, GAP_KV_SHARING_OFF, 0, 50, 0, NULL, NULL \
  }

/* GAP_EINVAL: an option out of range, shapes that do not divide (the log says which).  GAP_ELIMIT: numbers of KV pages
 * would not fit into 31 bits.  GAP_ENOTSUP: the device maps no pages.  GAP_ENOMEM: no addresses, or no memory for the
 * null page and the tables.  The heap must outlive the cache. */
GAP_API int gap_kv_create(gap_heap *heap, const gap_kv_options *options, gap_kv **out);
/* Gives everything back in order of `stream`; sequences become invalid.  NULL is fine.  No other call may be under
 * way. */
GAP_API void gap_kv_destroy(gap_kv *kv);

typedef struct gap_kv_shape {
  size_t size; /* sizeof(gap_kv_shape) */
  uint32_t layers_per_group, heads, head_size, element_bytes, page_tokens, group_count;
  gap_addr first;                                                          /* K of layer 0, KV page 0 */
  uint64_t v_offset, layer_stride, page_stride, token_stride, head_stride; /* bytes */
  uint64_t kv_page_bytes;                                                  /* of all layers of a group */
  uint64_t slab_bytes;
  uint32_t slab_kv_pages;
  uint32_t kv_pages; /* capacity, without the null page */
  int32_t ids_end;   /* every number is below */
  uint32_t rows, columns;
  gap_addr table;   /* int32 [group_count][rows][columns] in device memory */
  gap_addr lengths; /* int32 [rows], tokens; 0 where nobody is */
  /* K of KV page `id` is KV block id * flex_scale of a flat tensor of one layer, V the same of one that begins
   * v_offset bytes later */
  uint32_t flex_scale;
} gap_kv_shape;
GAP_API int gap_kv_get_shape(gap_kv *kv, gap_kv_shape *out);

/* ---- Sequences ---- */

typedef struct gap_kv_prompt {
  size_t size;           /* sizeof(gap_kv_prompt) */
  uint64_t tenant;       /* sequences of different tenants share nothing */
  uint64_t session;      /* 0: none; see gap_kv_end_session */
  const int32_t *tokens; /* NULL: nothing is looked up */
  uint32_t count;        /* of them may be shared: leave out the last, if the step is to yield its logits */
} gap_kv_prompt;

/* Begins a sequence with the longest prefix of the prompt that is cached: *hit tokens, its length from now on.
 * `prompt` and `hit` may be NULL.  GAP_ELIMIT: all rows are in use, or the prompt is longer than a sequence may be. */
GAP_API int gap_kv_open(gap_kv *kv, const gap_kv_prompt *prompt, gap_kv_seq *out, uint32_t *hit);

typedef struct gap_kv_request {
  gap_kv_seq seq;
  uint32_t tokens; /* to be added, 0 or more */
  /* the tokens themselves; NULL: unknown, and nothing of the sequence is offered to others from here on */
  const int32_t *ids;
  int outcome; /* of gap_kv_step */
} gap_kv_request;

/* Finds places for the tokens of `count` different sequences: all or none.  A KV page that others use too, or that was
 * offered with tokens where new ones go, is copied first (gap_kv_flush does it): copy on write.  Unused cached KV pages
 * are evicted where no others are left.  GAP_ENOMEM: not enough; GAP_EAGAIN: not yet, but what closed and swapped
 * sequences give back will do; GAP_ELIMIT: a sequence would be too long; GAP_ESTATE: one is swapped out; GAP_EINVAL:
 * one is named twice. */
GAP_API int gap_kv_append(gap_kv *kv, const gap_kv_request *requests, uint32_t count);
/* A second sequence with the same tokens, sharing all KV pages.  Time grows with their number (1 ns each).  GAP_ELIMIT:
 * no row; GAP_ESTATE: it is swapped out. */
GAP_API int gap_kv_fork(gap_kv *kv, gap_kv_seq seq, gap_kv_seq *out);
/* Keeps the first `tokens`.  GAP_EINVAL: there are fewer; GAP_ESTATE: it is swapped out, or a window has left behind
 * what would be needed. */
GAP_API int gap_kv_truncate(gap_kv *kv, gap_kv_seq seq, uint32_t tokens);
/* Ends a sequence; its last use was queued on `stream`.  Where that is another one than the cache's, its row and KV
 * pages are reused when the work queued there so far has ended. */
GAP_API int gap_kv_close(gap_kv *kv, gap_kv_seq seq, gap_stream stream);

typedef struct gap_kv_about {
  size_t size;                        /* sizeof(gap_kv_about) */
  uint32_t row;                       /* of the tables */
  uint32_t tokens;                    /* its length */
  uint32_t kv_pages, shared_kv_pages; /* in all groups; those that others use too */
  uint32_t runs;                      /* stretches of KV pages that are neighbours in memory */
  int swapped;
} gap_kv_about;
GAP_API int gap_kv_get_about(gap_kv *kv, gap_kv_seq seq, gap_kv_about *out);

/* ---- Tables ---- */

/* What must be done before the next step, all of it queued on `stream`: copies on write, then changed table entries and
 * lengths from a pinned buffer.  Nothing is queued where nothing has changed.  GAP_EDEVICE: the driver refused; call
 * again. */
GAP_API int gap_kv_flush(gap_kv *kv);

typedef struct gap_kv_entry {
  uint32_t index; /* into the table, counted over all groups */
  int32_t id;
} gap_kv_entry;
typedef struct gap_kv_delta {
  size_t size;                 /* sizeof(gap_kv_delta) */
  const gap_kv_entry *entries; /* pinned */
  uint32_t entry_count;
  const int32_t *lengths; /* pinned; of the rows 0 .. row_count - 1 */
  uint32_t row_count;
  const gap_kv_entry *copies; /* KV page `index` is to be copied to KV page `id`, in this order, before anything else */
  uint32_t copy_count;
  int more; /* there was no room for all: apply these and call again */
} gap_kv_delta;
/* The same for who applies it with a kernel of his own (a captured graph): instead of gap_kv_flush.  The buffers stay
 * as they are until the call after the next one; work that reads them must be queued on `stream` before that. */
GAP_API int gap_kv_take_delta(gap_kv *kv, gap_kv_delta *out);

/* Derived tables on the host, of the sequences in this order.  Each returns GAP_ELIMIT, and the room needed in *needed,
 * where `room` entries do not suffice.  FlashInfer: indptr[count + 1], indices, last_page_len[count] (0 for an empty
 * sequence); in a group with a window only what is left of it. */
GAP_API int gap_kv_csr(gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, int32_t *indptr,
                       int32_t *indices, uint32_t room, int32_t *last_page_len, uint32_t *needed);
/* vLLM: slots of the tokens [from, from + count) of a sequence: id * page_tokens + token in the KV page; -1 where a
 * window has passed. */
GAP_API int gap_kv_slots(gap_kv *kv, uint32_t group, gap_kv_seq seq, uint32_t from, uint32_t count, int64_t *out);
/* flex_attention: kv_num_blocks[count] and kv_indices[count][columns] in units of flex blocks
 * (gap_kv_shape.flex_scale); the rest of a row is 0. */
GAP_API int gap_kv_flex(gap_kv *kv, uint32_t group, const gap_kv_seq *seqs, uint32_t count, uint32_t columns,
                        int32_t *kv_num_blocks, int32_t *kv_indices);

/* ---- Bare KV pages: for who keeps tables of his own ---- */

/* `count` KV pages, or none.  They are never moved.  Errors as gap_kv_append. */
GAP_API int gap_kv_get_pages(gap_kv *kv, uint32_t count, int32_t *ids);
/* Frees them in order of `stream`.  GAP_ENOTMINE: not a number of this cache; GAP_EFREED: one was not got here, or is
 * named twice; then none is freed. */
GAP_API int gap_kv_free_pages(gap_kv *kv, uint32_t count, const int32_t *ids);

/* ---- What stays cached ---- */

/* KV pages that nobody uses stay until their memory is wanted: the lowest priority first, in it the least recently
 * used, and of a sequence its end before its beginning. */
typedef struct gap_kv_retention {
  size_t size;       /* sizeof(gap_kv_retention) */
  uint32_t tokens;   /* the first so many of the sequence, rounded up to whole KV pages as far as offered */
  uint32_t priority; /* 0: goes first .. GAP_KV_PRIORITY_MAX.  A KV page keeps the highest that is asked for it */
  uint64_t ttl_ms;   /* for so long, then GAP_KV_PRIORITY_DEFAULT; 0: for ever */
  int pin;           /* 1: never evicted until -1 is asked for; 0: as it is.  Counted: as often as pinned */
} gap_kv_retention;
/* GAP_ELIMIT: more than pin_percent would be pinned. */
GAP_API int gap_kv_retain(gap_kv *kv, gap_kv_seq seq, const gap_kv_retention *retention);
/* A session has ended: what its sequences left goes first from now on, whatever its priority was; pinned KV pages
 * stay. */
GAP_API int gap_kv_end_session(gap_kv *kv, uint64_t session);
/* Evicts every unused KV page that is not pinned, e.g. after the model's weights have changed. */
GAP_API int gap_kv_forget(gap_kv *kv);

/* ---- Under pressure ---- */

/* Copies the sequence to pinned host memory on `copy_stream`; its KV pages are free when that is done.  Its row is
 * kept.  GAP_ENOMEM: host_bytes are used up, or the host pins no more; GAP_ESTATE: it is swapped out. */
GAP_API int gap_kv_swap_out(gap_kv *kv, gap_kv_seq seq);
/* Brings it back before the next step of `stream`.  What of it is still cached is shared, not copied.  GAP_ENOMEM,
 * GAP_EAGAIN as gap_kv_append; GAP_ESTATE: it is not swapped out.  With kv_tiers.h GAP_EAGAIN, too, while it comes from
 * the disk, and GAP_EIO: it cannot be read there, close it (gap_kv_step truncates it to nothing). */
GAP_API int gap_kv_swap_in(gap_kv *kv, gap_kv_seq seq);

/* outcome: GRANTED: its tokens have places.  PREEMPTED: it was swapped out, or, where the host has no room, truncated
 * to nothing (its length tells).  WAITING: nothing was done; it is resident or swapped out as before. */
enum { GAP_KV_GRANTED, GAP_KV_PREEMPTED, GAP_KV_WAITING };
/* A step of continuous batching.  The oldest sequences are served first (gap_kv_open and gap_kv_fork give the age); who
 * finds no place has the youngest of the named ones preempted; who is swapped out comes back when all of it, its new
 * tokens and a KV page for each one that runs have room, and nobody older waits.  So the oldest gets on in every step
 * but those that wait for copies, and nobody is preempted twice without a grant between.  A request that the whole
 * cache could not hold is GAP_ENOMEM, and none is granted. */
GAP_API int gap_kv_step(gap_kv *kv, gap_kv_request *requests, uint32_t count);

typedef struct gap_kv_compaction {
  size_t size;                                        /* sizeof(gap_kv_compaction) */
  uint64_t bytes_most;                                /* in: to be copied, 0: no limit */
  uint64_t bytes_moved;                               /* out, as all that follow */
  uint64_t slabs_before, slabs_after, pages_returned; /* pages of 2 MiB, to the heap */
  double run_before, run_after;                       /* mean length of runs, in KV pages */
} gap_kv_compaction;
/* Moves live and cached KV pages so that slabs empty, the emptiest first, and gives all empty slabs back to the heap.
 * Queued on `stream`, the tables with it (gap_kv_flush is part of it).  GAP_ESTATE: bare KV pages are in the way of
 * every slab. */
GAP_API int gap_kv_compact(gap_kv *kv, gap_kv_compaction *compaction);
/* Gives all empty slabs back at once; by themselves they go when they have stayed empty from one gap_kv_flush to the
 * next, but for a few.  `pages`, of 2 MiB, may be NULL. */
GAP_API int gap_kv_trim(gap_kv *kv, uint64_t *pages);

/* The size at run time.  From now on `bytes` of device memory at most are for KV pages: whole slabs, at least two, no
 * more than `options.bytes`.  Growing takes nothing until it is needed.  Shrinking evicts unused KV pages, the first to
 * go first, moves used ones as gap_kv_compact does, and gives slabs back to the heap; addresses stay as they are, so
 * captured graphs stay valid.  GAP_EINVAL: out of range; GAP_ENOMEM: what is in use, pinned or leaving needs more: the
 * limit holds all the same, for what is asked for from now on.  Besides, the cache gives unused KV pages back by
 * itself, slab by slab and without moving any, when the heap has no memory for others. */
GAP_API int gap_kv_resize(gap_kv *kv, uint64_t bytes);

/* ---- Looking ---- */

/* clang-format off */
#define GAP_KV_STATS(X) \
  X(bytes_held)           /* device memory: slabs, tables */ \
  X(bytes_live_tokens)    /* of tokens in sequences, each KV page once */ \
  X(bytes_tail)           /* held: the unfilled ends of KV pages in use */ \
  X(bytes_window)         /* held: tokens in use that have left the window */ \
  X(bytes_cached)         /* held: KV pages that nobody uses but that may be hit */ \
  X(bytes_free)           /* held: free KV pages of slabs in use */ \
  X(bytes_spare)          /* held: empty slabs */ \
  X(bytes_leaving)        /* held: of sequences that were closed or swapped out under other streams' use */ \
  X(bytes_bare)           /* held: bare KV pages */ \
  X(bytes_tables)         /* held: tables, lengths, the null page */ \
  X(bytes_shared)         /* saved: KV pages in use, counted once less than they are used */ \
  X(bytes_host)           /* pinned for swapped sequences */ \
  X(kv_pages) X(kv_pages_free) X(kv_pages_cached) X(kv_pages_pinned) /* free: to be had without eviction, if the heap gives memory */ \
  X(sequences) X(sequences_peak) X(sequences_swapped) \
  X(slabs) X(slabs_peak) X(slab_commits) X(slab_refusals) X(slab_releases) \
  X(tokens_asked) X(tokens_hit) X(tokens_hit_partial) /* of prompts */ \
  X(kv_pages_asked) X(kv_pages_ceiling) /* whole KV pages of prompts; hits of an endless cache, within a percent */ \
  X(nodes) X(offered) X(merged) X(evicted) X(expired) X(copied_on_write) X(forks) X(requests_refused) X(preempted) \
  X(swapped_out) X(swapped_in) X(swap_shared) /* KV pages; shared: found cached on the way back */ \
  X(bytes_copied) X(table_entries) X(flushes) X(compactions) X(bytes_compacted)
/* clang-format on */

typedef struct gap_kv_stats {
  size_t size; /* sizeof(gap_kv_stats) */
#define X(name) uint64_t name;
  GAP_KV_STATS(X)
#undef X
} gap_kv_stats;
GAP_API int gap_kv_get_stats(gap_kv *kv, gap_kv_stats *out);
/* Checks every invariant (milliseconds).  GAP_ESTATE: broken, the first one in `text`. */
GAP_API int gap_kv_check(gap_kv *kv, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
