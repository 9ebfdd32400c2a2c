/* gapless: kernels over the KV cache: new K and V to their KV pages and out of them, and attention of a decode step.
 * The rules of kv.h apply.  Since 0.1.
 *
 *     gap_kv_append(kv, requests, n);                      a place for each sequence's new token
 *     gap_kv_flush(kv);
 *     for each layer:
 *       gap_kv_scatter(kv, 0, layer, &places, &new_kv, stream);
 *       gap_kv_attend(kv, &attention, stream);
 *
 * They are CUDA C that NVIDIA's run-time compiler (NVRTC) makes code of when it is first wanted, 0.3 s each, kept on
 * disk for the next process.  It comes with PyTorch's and CuPy's wheels and with the toolkit; GAPLESS_NVRTC names
 * another file.  Without it, or on a device that runs no kernels, these calls give GAP_ENOTSUP (gap_kv_kernels says
 * why), and the cache's own copies are the driver's.
 *
 * Everything is queued on `stream`, which is in order with the cache's, and reads tables, lengths and rows when it
 * runs: a captured graph stays valid while sequences come, grow and go.  Addresses are the device's, strides in bytes;
 * data, and strides of K, V, queries and results, are multiples of 16.  Errors besides those named: GAP_EINVAL;
 * GAP_EDEVICE: the driver refuses. */
#ifndef GAPLESS_KV_KERNELS_H
#define GAPLESS_KV_KERNELS_H

#include "gapless/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0: scatter and gather are there, and the cache copies KV pages by kernels.  GAP_ENOTSUP: no, for the reason in `why`,
 * cut to `bytes` (0: it is not wanted). */
GAP_API int gap_kv_kernels(gap_kv *kv, char *why, size_t bytes);

/* Which tokens.  Either slots as gap_kv_slots gives them, one a token, negative: none; or, with `slots` 0, the last
 * `row_tokens` tokens of each row, in order: token i is of the row rows[i / row_tokens].  Tokens that a row does not
 * have, or has without a place, are left out. */
typedef struct gap_kv_places {
  size_t size;         /* sizeof(gap_kv_places) */
  uint32_t tokens;     /* in all; a multiple of row_tokens where there are rows */
  gap_addr slots;      /* int64 [tokens] */
  gap_addr rows;       /* int32 [tokens / row_tokens]; 0: row i */
  uint32_t row_tokens; /* 1 in a decode step */
} gap_kv_places;

/* K and V of tokens outside the cache, numbers of a head side by side. */
typedef struct gap_kv_tokens {
  size_t size; /* sizeof(gap_kv_tokens) */
  gap_addr k, v;
  int64_t k_token_stride, k_head_stride, v_token_stride, v_head_stride;
} gap_kv_tokens;

/* `layer` counts within the group.  Scatter: K and V of these tokens go into the cache; gather: out of it. */
GAP_API int gap_kv_scatter(gap_kv *kv, uint32_t group, uint32_t layer, const gap_kv_places *places,
                           const gap_kv_tokens *from, gap_stream stream);
GAP_API int gap_kv_gather(gap_kv *kv, uint32_t group, uint32_t layer, const gap_kv_places *places,
                          const gap_kv_tokens *to, gap_stream stream);

/* One query token a sequence, the last one, over all tokens of its row that it sees: softmax(q k^T scale) v, in
 * float32, with K and V as bfloat16 or float16 of 32, 64, 128 or 256 numbers a head.  Query heads are a multiple of KV
 * heads; head h reads KV head h / (query_heads / heads).  A row of length 0 gives zeros. */
typedef struct gap_kv_attention {
  size_t size; /* sizeof(gap_kv_attention) */
  uint32_t group, layer;
  uint32_t batch; /* sequences, 1 to 65,535 */
  uint32_t query_heads;
  gap_addr rows;   /* int32 [batch]; 0: row i */
  gap_addr q, out; /* the cache's dtype; numbers of a head side by side */
  int64_t q_batch_stride, q_head_stride, out_batch_stride, out_head_stride;
  float scale;        /* 0: 1 / sqrt(head_size) */
  uint32_t window;    /* tokens that are seen, the query's included; 0: the group's */
  uint32_t longest;   /* no row is longer: it decides how finely sequences are cut; 0: `tokens` of the cache */
  gap_addr workspace; /* for what the parts of a sequence have in common; unused again when the kernels have run */
  uint64_t workspace_bytes;
} gap_kv_attention;
/* How much workspace the same call needs; 0: none.  GAP_ENOTSUP: the shape has no kernel. */
GAP_API int gap_kv_attention_workspace(gap_kv *kv, const gap_kv_attention *attention, uint64_t *bytes);
/* GAP_ENOTSUP: no kernels, or not for this shape; the first call for a number of query heads a KV head compiles: not
 * while a graph is captured.  GAP_ELIMIT: too little workspace. */
GAP_API int gap_kv_attend(gap_kv *kv, const gap_kv_attention *attention, gap_stream stream);

#ifdef __cplusplus
}
#endif
#endif
