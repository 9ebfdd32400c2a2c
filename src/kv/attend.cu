/* Paged decode attention: one new token a sequence, against K and V in KV pages; a float32 softmax in one pass (Milakov and Gimelshein 2018), split along the
 * sequence (flash decoding; Dao, Haziza, Massa, Sizov 2023).
 *
 * This file is compiled three ways: by a C compiler for the launcher (the struct only), by NVRTC for the card, and by a C compiler for tests without one
 * (GAP_KV_KERNELS, tests/kernels).  The shape is fixed when it is compiled:
 *   HEAD         numbers of a head: 32, 64, 128 or 256
 *   GROUP        query heads that a block takes, of those that read one KV head: 1, 2, 4 or 8; they share one pass over K and V
 *   BF16         1: bfloat16, 0: float16
 *   SMALL_PAGES  1: a tile of tokens may reach over several KV pages
 *
 * A warp reads a tile of K and V: each lane has 16 bytes (8 numbers) of a token, LANES of them a whole head, so a load brings STEP tokens and SLOTS loads a tile.
 * STAGES tiles are on their way at once, by asynchronous copies into places that only this lane reads: no barrier is needed.  Sums over a head are folded: in each step a
 * lane gives away half of the values that it has and gets the other half of those it keeps, so that 16 values over 16 lanes take 15 exchanges, not 64, and each lane ends
 * with one score of its own to exponentiate.
 *
 * Arithmetic, for 4 query heads of 128 numbers: 1,024 multiply-adds a token and KV head, whose K and V are 512 bytes: 2 a byte.  At 4 TB/s that is a quarter
 * of an H200's 33 T multiply-adds a second, and the whole loop, 500 instructions for 4 KiB, half of what it can issue: memory is the limit, no tensor cores are needed. */

/* Strides are in bytes. */
struct gap_kv_attend_args {
  unsigned long long k, v;           /* of KV page 0 */
  unsigned long long page_stride, token_stride, head_stride;
  unsigned long long table, lengths; /* int [rows][columns]; int [rows] */
  unsigned long long rows;           /* int [batch]: which row each sequence has; 0: row i */
  unsigned long long q, out;
  unsigned long long partial;        /* float [batch][query_heads][splits][HEAD + 2]: sums, the greatest score, the sum of weights */
  long long q_batch, q_head, out_batch, out_head;
  unsigned columns, page_shift, query_heads, heads; /* heads: of K and V */
  unsigned splits;                                  /* at most, of a sequence */
  unsigned split_least;                             /* tokens of one */
  unsigned window;                                  /* tokens that are seen; 0: all */
  float scale;                                      /* of scores, by the logarithm of e to base 2 */
};

#ifdef GAP_KV_KERNELS

enum {
  WARPS = 4,
  LANES = HEAD / 8,
  STEP = 32 / LANES,
  SLOTS = 4,
  TILE = STEP * SLOTS,
  STAGES = GROUP > 4 ? 5 : 3, /* with few registers left two blocks fit where else four do */
  VALUES = SLOTS * GROUP,                         /* scores that a lane has a part of, before folding */
  KEEP = VALUES > LANES ? VALUES / LANES : 1,     /* after it */
  SHARE = LANES > VALUES ? LANES / VALUES : 1,    /* lanes with the same score after it */
  IDS = SMALL_PAGES ? SLOTS : 1,
  STAGE_BYTES = 2 * SLOTS * 32 * 16,
  RESULT = GROUP * (HEAD + 2)                     /* floats of a warp */
};

/* The tokens of one block, and the shape of the split. */
struct part {
  int row, length, first; /* first: that is seen */
  int begin, end;         /* of this split; begin is at the start of a tile */
  int splits;             /* that have something to do */
};

DEVICE float number_of(unsigned half) {
#if BF16
  return as_float(half << 16);
#else
  return half_to_float(half);
#endif
}

/* The halves of a word; the upper one of bfloat16 needs no shift. */
DEVICE float low(unsigned word) { return number_of(word & 0xffffu); }
DEVICE float high(unsigned word) {
#if BF16
  return as_float(word & 0xffff0000u);
#else
  return number_of(word >> 16);
#endif
}

DEVICE unsigned half_of(float x) {
#if BF16
  unsigned bits = as_bits(x);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#else
  return float_to_half(x);
#endif
}

DEVICE void unpack(const struct quad *from, float to[8]) {
  to[0] = low(from->x), to[1] = high(from->x), to[2] = low(from->y), to[3] = high(from->y);
  to[4] = low(from->z), to[5] = high(from->z), to[6] = low(from->w), to[7] = high(from->w);
}

DEVICE struct part part_of(const struct gap_kv_attend_args *a, int batch, int split) {
  struct part p;
  p.row = a->rows ? ((const int *)a->rows)[batch] : batch;
  p.length = ((const int *)a->lengths)[p.row];
  p.first = a->window && p.length > (int)a->window ? p.length - (int)a->window : 0;
  int from = p.first / TILE * TILE, most = (int)a->splits;
  int tokens = (p.length - from + most - 1) / most;
  if (tokens < (int)a->split_least) tokens = (int)a->split_least;
  tokens = (tokens + TILE * WARPS - 1) / (TILE * WARPS) * (TILE * WARPS);
  p.splits = (p.length - from + tokens - 1) / tokens;
  p.begin = from + split * tokens;
  p.end = p.begin + tokens < p.length ? p.begin + tokens : p.length;
  return p;
}

/* ---- A warp's loads ---- */

struct reader {
  const int *table; /* the row */
  const char *k, *v;
  char *ring;       /* this lane's */
  unsigned long long page_stride, token_stride;
  int page_shift, last; /* last token */
  int token;            /* of this lane in the tile that is loaded next, slot 0 */
  int id[IDS];          /* its KV pages, looked up one tile ahead */
};

DEVICE void look_up(struct reader *r) {
  UNROLL
  for (int i = 0; i < IDS; i++) {
    int token = r->token + i * STEP;
    r->id[i] = r->table[(token < r->last ? token : r->last) >> r->page_shift];
  }
}

/* Tokens from the end on read as zeros: what lies there may be no number. */
DEVICE void load_tile(struct reader *r, int stage) {
  char *to = r->ring + stage * STAGE_BYTES;
  int mask = (1 << r->page_shift) - 1;
  UNROLL
  for (int slot = 0; slot < SLOTS; slot++) {
    int token = r->token + slot * STEP, there = token <= r->last;
    unsigned long long at = (unsigned long long)r->id[SMALL_PAGES ? slot : 0] * r->page_stride + (token & mask) * r->token_stride;
    copy_async(to + slot * 512, r->k + at, there);
    copy_async(to + (SLOTS + slot) * 512, r->v + at, there);
  }
  r->token += WARPS * TILE;
  look_up(r);
}

/* ---- A warp's arithmetic ---- */

struct state {
  float q[GROUP][8];   /* scaled */
  float sum[GROUP][8]; /* weights times V, of this lane's tokens and numbers */
  float most[KEEP];    /* greatest score so far, of the query heads of this lane's scores; the same in all lanes with these */
  float total[KEEP];   /* of weights, of this lane's scores */
};

/* Score number i (slot * GROUP + query) is in lane i / KEEP * SHARE of each LANES, at i % KEEP. */
DEVICE void fold(float values[VALUES], int lane) {
  int count = VALUES;
  UNROLL
  for (int offset = LANES / 2; offset > 0; offset /= 2) {
    if (count > 1) {
      count /= 2;
      UNROLL
      for (int i = 0; i < VALUES / 2; i++) {
        if (i >= count) continue;
        float mine = lane & offset ? values[i + count] : values[i], other = lane & offset ? values[i] : values[i + count];
        values[i] = mine + exchange_xor(other, offset);
      }
    } else {
      values[0] += exchange_xor(values[0], offset);
    }
  }
}

DEVICE void score_tile(const struct state *s, const char *stage, int lane, float values[VALUES]) {
  UNROLL
  for (int slot = 0; slot < SLOTS; slot++) {
    float k[8];
    unpack((const struct quad *)(stage + slot * 512), k);
    UNROLL
    for (int g = 0; g < GROUP; g++) {
      float dot = 0;
      UNROLL
      for (int i = 0; i < 8; i++) dot += s->q[g][i] * k[i];
      values[slot * GROUP + g] = dot;
    }
  }
  fold(values, lane);
}

/* Which token of the tile a lane's score belongs to. */
DEVICE int token_of(int lane, int i) { return ((lane % LANES) / SHARE * KEEP + i) / GROUP * STEP + lane / LANES; }

/* Scores become weights; the factor by which older sums shrink is 1 in most tiles. */
DEVICE void weigh(struct state *s, float values[VALUES], int lane, int tile, int first, int end) {
  float factor[KEEP];
  int grown = 0;
  UNROLL
  for (int i = 0; i < KEEP; i++) {
    int token = tile + token_of(lane, i);
    if (token < first || token >= end) values[i] = MINUS_INFINITY;
    float most = values[i];
    UNROLL
    for (int offset = 16; offset >= GROUP * SHARE / KEEP; offset /= 2) {
      float other = exchange_xor(most, offset);
      most = other > most ? other : most;
    }
    most = s->most[i] > most ? s->most[i] : most;
    factor[i] = power_of_two(s->most[i] - most);
    grown |= most > s->most[i];
    s->most[i] = most;
    values[i] = power_of_two(values[i] - most);
    s->total[i] = s->total[i] * factor[i] + values[i];
  }
  if (!any(grown)) return;
  UNROLL
  for (int g = 0; g < GROUP; g++) {
    float shrink = exchange(factor[g % KEEP], g / KEEP * SHARE);
    UNROLL
    for (int i = 0; i < 8; i++) s->sum[g][i] *= shrink;
  }
}

DEVICE void add_tile(struct state *s, const char *stage, int lane, const float weights[VALUES]) {
  int base = lane & ~(LANES - 1);
  UNROLL
  for (int slot = 0; slot < SLOTS; slot++) {
    float v[8];
    unpack((const struct quad *)(stage + (SLOTS + slot) * 512), v);
    UNROLL
    for (int g = 0; g < GROUP; g++) {
      float weight = exchange(weights[(slot * GROUP + g) % KEEP], base + (slot * GROUP + g) / KEEP * SHARE);
      UNROLL
      for (int i = 0; i < 8; i++) s->sum[g][i] += weight * v[i];
    }
  }
}

DEVICE void start_state(struct state *s, const struct gap_kv_attend_args *a, int batch, int query, int end, int lane) {
  UNROLL
  for (int i = 0; i < KEEP; i++) s->most[i] = MINUS_INFINITY, s->total[i] = 0;
  UNROLL
  for (int g = 0; g < GROUP; g++) {
    UNROLL
    for (int i = 0; i < 8; i++) s->q[g][i] = s->sum[g][i] = 0;
    if (query + g >= end) continue;
    const char *from = (const char *)a->q + batch * a->q_batch + (query + g) * a->q_head;
    unpack((const struct quad *)(from + lane % LANES * 16), s->q[g]);
    UNROLL
    for (int i = 0; i < 8; i++) s->q[g][i] *= a->scale;
  }
}

/* ---- Results: of lanes, of warps, of splits ---- */

/* What the lanes of a warp have becomes one sum; float [GROUP][HEAD + 2] */
DEVICE void leave_result(const struct state *s, float *to, int lane) {
  float total[KEEP];
  UNROLL
  for (int i = 0; i < KEEP; i++) {
    total[i] = s->total[i];
    UNROLL
    for (int offset = 16; offset >= GROUP * SHARE / KEEP; offset /= 2) total[i] += exchange_xor(total[i], offset);
  }
  UNROLL
  for (int g = 0; g < GROUP; g++) {
    float most = exchange(s->most[g % KEEP], g / KEEP * SHARE), all = exchange(total[g % KEEP], g / KEEP * SHARE);
    UNROLL
    for (int i = 0; i < 8; i++) {
      float sum = s->sum[g][i];
      UNROLL
      for (int offset = LANES; offset < 32; offset *= 2) sum += exchange_xor(sum, offset);
      if (lane < LANES) to[g * (HEAD + 2) + lane * 8 + i] = sum;
    }
    if (lane == 0) to[g * (HEAD + 2) + HEAD] = most, to[g * (HEAD + 2) + HEAD + 1] = all;
  }
}

/* One number of a query head, over `count` results that are `stride` floats apart; the greatest score and the sum of weights beside it. */
DEVICE float join(const float *from, int count, long long stride, int i, float *most, float *total) {
  float sum = 0;
  *most = MINUS_INFINITY, *total = 0;
  for (int n = 0; n < count; n++) *most = from[n * stride + HEAD] > *most ? from[n * stride + HEAD] : *most;
  for (int n = 0; n < count; n++) {
    float factor = from[n * stride + HEAD] == MINUS_INFINITY ? 0.0f : power_of_two(from[n * stride + HEAD] - *most);
    sum += factor * from[n * stride + i];
    *total += factor * from[n * stride + HEAD + 1];
  }
  return sum;
}

DEVICE float *partial_at(const struct gap_kv_attend_args *a, int batch, int query, int split) {
  return (float *)a->partial + (((long long)batch * a->query_heads + query) * a->splits + split) * (HEAD + 2);
}

DEVICE void write_out(const struct gap_kv_attend_args *a, int batch, int query, int i, float x) {
  ((unsigned short *)((char *)a->out + batch * a->out_batch + query * a->out_head))[i] = (unsigned short)half_of(x);
}

/* By all threads: the warps' results become the split's; whole where there is but one. */
DEVICE void join_warps(const struct gap_kv_attend_args *a, const struct part *p, const float *results, int batch, int split, int query, int end) {
  for (int at = THREAD; at < GROUP * HEAD; at += 32 * WARPS) {
    int g = at / HEAD, i = at % HEAD;
    float most, total, sum = join(results + g * (HEAD + 2), WARPS, RESULT, i, &most, &total);
    if (query + g >= end) continue;
    if (p->splits == 1) {
      write_out(a, batch, query + g, i, sum / total);
      continue;
    }
    float *to = partial_at(a, batch, query + g, split);
    to[i] = sum;
    if (i == 0) to[HEAD] = most, to[HEAD + 1] = total;
  }
}

/* A block: one KV head and up to GROUP of its query heads (x), a split (y), a sequence (z). */
KERNEL(32 * WARPS, GROUP > 4 ? 2 : 4) GAP_KV_NAME(gap_kv_attend)(const struct gap_kv_attend_args a) {
  int per_head = (int)(a.query_heads / a.heads), blocks = (per_head + GROUP - 1) / GROUP;
  int head = BLOCK(x) / blocks, query = head * per_head + BLOCK(x) % blocks * GROUP, end = (head + 1) * per_head;
  int split = BLOCK(y), batch = BLOCK(z), lane = THREAD % 32, warp = THREAD / 32;
  struct part p = part_of(&a, batch, split);
  if (p.length == 0 && split == 0)
    for (int at = THREAD; at < GROUP * HEAD; at += 32 * WARPS)
      if (query + at / HEAD < end) write_out(&a, batch, query + at / HEAD, at % HEAD, 0);
  if (split >= p.splits) return;
  char *ring = shared_memory() + warp * STAGES * STAGE_BYTES;
  unsigned long long inside = (unsigned long long)head * a.head_stride + lane % LANES * 16;
  struct reader r = {(const int *)a.table + (long long)p.row * a.columns,
                     (const char *)a.k + inside,
                     (const char *)a.v + inside,
                     ring + lane * 16,
                     a.page_stride,
                     a.token_stride,
                     (int)a.page_shift,
                     p.end - 1,
                     p.begin + warp * TILE + lane / LANES,
                     {0}};
  struct state s;
  look_up(&r);
  start_state(&s, &a, batch, query, end, lane);
  for (int i = 0; i < STAGES - 1; i++) {
    if (p.begin + (i * WARPS + warp) * TILE < p.end) load_tile(&r, i);
    close_copies();
  }
  int stage = 0;
  for (int tile = p.begin + warp * TILE; tile < p.end; tile += WARPS * TILE) {
    if (tile + (STAGES - 1) * WARPS * TILE < p.end) load_tile(&r, stage ? stage - 1 : STAGES - 1);
    close_copies();
    await_copies(STAGES - 1);
    const char *here = ring + stage * STAGE_BYTES + lane * 16;
    float values[VALUES];
    score_tile(&s, here, lane, values);
    weigh(&s, values, lane, tile, p.first, p.end);
    add_tile(&s, here, lane, values);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    sync_warp();
  }
  await_copies(0);
  sync_block();
  float *results = (float *)shared_memory();
  leave_result(&s, results + warp * RESULT, lane);
  sync_block();
  join_warps(&a, &p, results, batch, split, query, end);
}

/* A block: a query head (x) of a sequence (y) that was split. */
KERNEL(HEAD, 1) GAP_KV_NAME(gap_kv_join)(const struct gap_kv_attend_args a) {
  struct part p = part_of(&a, BLOCK(y), 0);
  if (p.splits < 2) return;
  float most, total, sum = join(partial_at(&a, BLOCK(y), BLOCK(x), 0), p.splits, HEAD + 2, THREAD, &most, &total);
  write_out(&a, BLOCK(y), BLOCK(x), THREAD, sum / total);
}

#endif
