/* Bytes in and out of KV pages: new K and V to their places, K and V of a sequence side by side, whole KV pages from place to place.  Compiled as attend.cu is. */

/* K and V of tokens: lines of `heads` heads.  Strides are in bytes. */
struct gap_kv_move_args {
  unsigned long long k, v;                   /* of KV page 0 */
  unsigned long long page_stride, token_stride, head_stride;
  unsigned long long other_k, other_v;       /* outside the cache: token i */
  long long k_token, k_head, v_token, v_head;
  unsigned long long slots;                  /* long [tokens]: id * page_tokens + token in the KV page, or negative: nothing is moved; 0: */
  unsigned long long rows;                   /* int [tokens / row_tokens], or 0: row i; their last row_tokens tokens, */
  unsigned long long table, lengths;
  unsigned columns, row_tokens;
  unsigned page_shift, tokens, heads, head_quads; /* 16 bytes each */
  unsigned into;                             /* 1: into the cache, 0: out of it */
};

/* KV pages, each in `layers` parts. */
enum { GAP_KV_COPY_PAIRS = 440 };
struct gap_kv_copy_args {
  unsigned long long to, from; /* of KV page 0 */
  unsigned long long slab_bytes, layer_stride, part_bytes;
  unsigned layers, slab_shift, pair_count, splits; /* splits: of a part */
  unsigned pairs[GAP_KV_COPY_PAIRS][2];            /* from, to; the whole struct is an argument: it needs no memory that outlives the launch */
};

#ifdef GAP_KV_KERNELS

DEVICE long long slot_of(const struct gap_kv_move_args *a, int token) {
  if (a->slots) return ((const long long *)a->slots)[token];
  int i = token / (int)a->row_tokens, row = a->rows ? ((const int *)a->rows)[i] : i;
  int at = ((const int *)a->lengths)[row] - (int)a->row_tokens + token % (int)a->row_tokens;
  if (at < 0) return -1;
  long long id = ((const int *)a->table)[(long long)row * a->columns + (at >> a->page_shift)];
  return (id << a->page_shift) + (at & ((1 << a->page_shift) - 1));
}

/* A thread a quad of K and the same of V; neighbours in neighbouring bytes. */
KERNEL(256, 1) GAP_KV_NAME(gap_kv_move)(const struct gap_kv_move_args a) {
  long long quads = (long long)a.heads * a.head_quads, all = quads * a.tokens;
  for (long long n = (long long)BLOCK(x) * 256 + THREAD; n < all; n += (long long)BLOCKS(x) * 256) {
    long long token = n / quads, head = n % quads / a.head_quads, byte = n % a.head_quads * 16;
    long long slot = slot_of(&a, (int)token);
    if (slot < 0) continue;
    unsigned long long at = (unsigned long long)(slot >> a.page_shift) * a.page_stride +
                            (unsigned long long)(slot & ((1 << a.page_shift) - 1)) * a.token_stride + head * a.head_stride + byte;
    struct quad *in_k = (struct quad *)(a.k + at), *in_v = (struct quad *)(a.v + at);
    struct quad *out_k = (struct quad *)(a.other_k + token * a.k_token + head * a.k_head + byte);
    struct quad *out_v = (struct quad *)(a.other_v + token * a.v_token + head * a.v_head + byte);
    if (a.into) *in_k = *out_k, *in_v = *out_v;
    else *out_k = *in_k, *out_v = *in_v;
  }
}

DEVICE unsigned long long offset_of(const struct gap_kv_copy_args *a, unsigned page) {
  return (page >> a->slab_shift) * a->slab_bytes + (page & ((1u << a->slab_shift) - 1)) * a->part_bytes;
}

/* Pieces of parts, one block after the other; four loads are under way before the first store. */
KERNEL(256, 1) GAP_KV_NAME(gap_kv_copy)(const struct gap_kv_copy_args a) {
  unsigned long long quads = a.part_bytes / 16, each = (quads + a.splits - 1) / a.splits;
  unsigned pieces = a.pair_count * a.layers * a.splits;
  for (unsigned n = (unsigned)BLOCK(x); n < pieces; n += (unsigned)BLOCKS(x)) {
    const unsigned *pair = a.pairs[n / a.splits / a.layers];
    unsigned long long layer = n / a.splits % a.layers * a.layer_stride, begin = n % a.splits * each;
    const struct quad *from = (const struct quad *)(a.from + offset_of(&a, pair[0]) + layer);
    struct quad *to = (struct quad *)(a.to + offset_of(&a, pair[1]) + layer);
    unsigned long long end = begin + each < quads ? begin + each : quads;
    for (unsigned long long i = begin + (unsigned)THREAD; i < end; i += 4 * 256) {
      struct quad taken[4];
      UNROLL
      for (int m = 0; m < 4; m++)
        if (i + m * 256 < end) taken[m] = from[i + m * 256];
      UNROLL
      for (int m = 0; m < 4; m++)
        if (i + m * 256 < end) to[i + m * 256] = taken[m];
    }
  }
}

#endif
