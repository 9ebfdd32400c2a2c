/* The KV cache's kernels, from the call to the bytes: the library on a driver without a card, which runs the kernels'
 * own source compiled for the processor.  What they compute is compared with float64 over fresh random numbers; KV
 * pages hold NaNs wherever no token was written. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gapless/kv_kernels.h"
#include "gapless/kv_tiers.h"
#include "gapless/kv_virtual.h"
#include "kernels/cpu.h"
#include "kernels/find.h"
#include "kv/nvrtc.h"
#include "support/fake_driver.h"
#include "support/kv_try.h"

enum { ROWS = 4, LENGTH_MOST = 900 };

struct fixture {
  gap_heap *heap;
  gap_kv *kv;
  gap_stream stream;
};

/* ---- random numbers (splitmix64) ---- */

static uint64_t seed;
static uint64_t next_random(void) {
  uint64_t z = seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint32_t below(uint32_t n) { return (uint32_t)(next_random() % n); }
static float uniform(void) { return (float)(next_random() >> 40) / (float)(1 << 23) - 1.0f; }
/* Some are large: weights of a softmax are far apart. */
static float number(void) { return uniform() * (below(16) ? 1.0f : 6.0f); }

/* ---- numbers of 16 bits ---- */

static double wide(bool bf16, uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return bf16 ? (double)x : (double)cpu_half_to_float(half);
}

static uint16_t narrow(bool bf16, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bf16 ? (uint16_t)(bits >> 16) : (uint16_t)cpu_float_to_half(x);
}

/* ---- a cache on the driver ---- */

static struct fixture open_with(gap_kv_options o) {
  struct fixture f = {0};
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  fake_cuda_reset(&(struct fake_cuda_settings){.total_bytes = 256 * MIB});
  fake_cuda_kernels(kernels_find);
  options.conf = "reserve:0";
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  assert_int_equal(gap_heap_create(&options, &f.heap), 0);
  f.stream = o.stream = fake_cuda_stream(0, true);
  o.copy_stream = fake_cuda_stream(0, true);
  f.kv = kv_try_open(f.heap, &o);
  return f;
}

static void close_all(struct fixture *f) {
  kv_try_check(f->kv);
  gap_kv_destroy(f->kv);
  api_close(f->heap);
  assert_int_equal(fake_cuda_wrong(), 0);
  assert_int_equal(kernels_broken(), 0);
}

static void *block(struct fixture *f, size_t bytes, gap_addr *addr) {
  *addr = api_get(f->heap, f->stream, bytes);
  return (void *)(uintptr_t)*addr;
}

/* ---- attention ---- */

struct shape {
  uint32_t head, heads, per_head, page_tokens, window;
  bool bf16;
  gap_kv_order order;
  gap_kv_layout layout;
  uint32_t length; /* of the longest; 0: random */
};

/* What a test knows of a cache: all K and V. */
struct world {
  struct fixture f;
  struct shape s;
  uint32_t length[ROWS];
  gap_kv_seq seq[ROWS];
  uint16_t *k[ROWS], *v[ROWS]; /* [token][head][number] */
};

static gap_kv_options options_of(const struct shape *s) {
  gap_kv_options o = GAP_KV_OPTIONS_INIT;
  o.layers = 2, o.heads = s->heads, o.head_size = s->head, o.page_tokens = s->page_tokens;
  o.dtype = s->bf16 ? GAP_KV_BF16 : GAP_KV_F16, o.order = s->order, o.layout = s->layout;
  o.sequences = ROWS + 2, o.tokens = 2048, o.bytes = 160 * MIB;
  return o;
}

static void poison(struct world *w, gap_kv_seq seq, uint32_t tokens) {
  gap_kv_shape s = kv_try_shape(w->f.kv);
  for (uint32_t t = 0; t < tokens; t += s.page_tokens) {
    int64_t slot;
    assert_int_equal(gap_kv_slots(w->f.kv, 0, seq, t, 1, &slot), 0);
    for (uint32_t layer = 0; layer < s.layers_per_group; layer++)
      memset((void *)(uintptr_t)(s.first + layer * s.layer_stride + (uint64_t)(slot / s.page_tokens) * s.page_stride),
             0xff, 2 * s.v_offset);
  }
}

static void append(struct world *w, int i, uint32_t tokens) {
  gap_kv_request request = {.seq = w->seq[i], .tokens = tokens};
  assert_int_equal(gap_kv_append(w->f.kv, &request, 1), 0);
}

/* The last `tokens` tokens of a row, by their slots or by the row. */
static void scatter(struct world *w, int i, uint32_t from, uint32_t tokens, bool by_slots) {
  struct fixture *f = &w->f;
  uint32_t numbers = w->s.heads * w->s.head;
  gap_addr k, v, slots = 0, rows = 0;
  size_t bytes = (size_t)tokens * numbers * 2;
  memcpy(block(f, bytes, &k), w->k[i] + (size_t)from * numbers, bytes);
  memcpy(block(f, bytes, &v), w->v[i] + (size_t)from * numbers, bytes);
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_get_about(f->kv, w->seq[i], &about), 0);
  if (by_slots) assert_int_equal(gap_kv_slots(f->kv, 0, w->seq[i], from, tokens, block(f, 8ull * tokens, &slots)), 0);
  else *(int32_t *)block(f, 4, &rows) = (int32_t)about.row;
  gap_kv_places places = {.size = sizeof places, .tokens = tokens, .slots = slots, .rows = rows, .row_tokens = tokens};
  int64_t head = 2 * w->s.head, token = head * w->s.heads;
  gap_kv_tokens source = {sizeof source, k, v, token, head, token, head};
  assert_int_equal(gap_kv_scatter(f->kv, 0, 1, &places, &source, f->stream), 0);
  for (int n = 0; n < 4; n++) gap_free(f->heap, ((gap_addr[]){k, v, slots, rows})[n]);
}

static void fill_row(struct world *w, int i) {
  size_t numbers = (size_t)w->length[i] * w->s.heads * w->s.head;
  w->k[i] = malloc(2 * numbers + 2), w->v[i] = malloc(2 * numbers + 2);
  for (size_t n = 0; n < numbers; n++)
    w->k[i][n] = narrow(w->s.bf16, number()), w->v[i][n] = narrow(w->s.bf16, number());
}

/* Rows grow in turns, so that their KV pages lie in each other's way; some are there and gone. */
static void grow_rows(struct world *w) {
  uint32_t done[ROWS] = {0};
  gap_kv_seq gone;
  for (int i = 0; i < ROWS; i++) assert_int_equal(gap_kv_open(w->f.kv, NULL, &w->seq[i], NULL), 0);
  assert_int_equal(gap_kv_open(w->f.kv, NULL, &gone, NULL), 0);
  assert_int_equal(gap_kv_append(w->f.kv, &(gap_kv_request){.seq = gone, .tokens = 33}, 1), 0);
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < ROWS; i++) {
      uint32_t left = w->length[i] - done[i], now = left < 200 ? left : 1 + below(200);
      if (!now) continue;
      append(w, i, now);
      done[i] += now;
      more = true;
    }
  }
  assert_int_equal(gap_kv_close(w->f.kv, gone, w->f.stream), 0);
  assert_int_equal(gap_kv_flush(w->f.kv), 0);
}

static struct world make_world(struct shape s) {
  struct world w = {.f = open_with(options_of(&s)), .s = s};
  for (int i = 0; i < ROWS; i++) w.length[i] = below(s.length ? s.length : LENGTH_MOST) + 1;
  w.length[0] = 1, w.length[1] = s.page_tokens * 3, w.length[2] = s.length ? s.length : LENGTH_MOST;
  grow_rows(&w);
  for (int i = 0; i < ROWS; i++) {
    fill_row(&w, i);
    poison(&w, w.seq[i], w.length[i]);
  }
  for (int i = 0; i < ROWS; i++) scatter(&w, i, 0, w.length[i], i % 2);
  return w;
}

static void drop_world(struct world *w) {
  for (int i = 0; i < ROWS; i++) free(w->k[i]), free(w->v[i]);
  close_all(&w->f);
}

/* One query head over one row, in float64. */
static void reference(const struct world *w, int i, uint32_t query, const uint16_t *q, double scale, double *out) {
  const struct shape *s = &w->s;
  uint32_t kv_head = query / s->per_head, length = w->length[i],
           first = s->window && length > s->window ? length - s->window : 0;
  double *score = malloc(sizeof(double) * length), most = -INFINITY, total = 0;
  for (uint32_t t = first; t < length; t++) {
    const uint16_t *k = w->k[i] + ((size_t)t * s->heads + kv_head) * s->head;
    score[t] = 0;
    for (uint32_t n = 0; n < s->head; n++) score[t] += wide(s->bf16, q[n]) * wide(s->bf16, k[n]) * scale;
    most = fmax(most, score[t]);
  }
  for (uint32_t n = 0; n < s->head; n++) out[n] = 0;
  for (uint32_t t = first; t < length; t++) {
    double weight = exp(score[t] - most);
    const uint16_t *v = w->v[i] + ((size_t)t * s->heads + kv_head) * s->head;
    total += weight;
    for (uint32_t n = 0; n < s->head; n++) out[n] += weight * wide(s->bf16, v[n]);
  }
  for (uint32_t n = 0; n < s->head; n++) out[n] /= total;
  free(score);
}

/* The kernel's result is float32 rounded to 16 bits. */
static void compare(const struct world *w, int i, uint32_t query, const uint16_t *q, const uint16_t *got,
                    double scale) {
  double expected[256], unit = w->s.bf16 ? 1.0 / 256 : 1.0 / 2048;
  reference(w, i, query, q, scale, expected);
  for (uint32_t n = 0; n < w->s.head; n++) {
    double x = wide(w->s.bf16, got[n]);
    if (!(fabs(x - expected[n]) <= unit * fabs(expected[n]) + 2e-4))
      fail_msg("row %d of %u tokens, head %u, number %u: %g instead of %g", i, w->length[i], query, n, x, expected[n]);
  }
}

/* All rows in an order of their own, with room between the queries. */
static void attend(struct world *w, uint32_t longest) {
  struct fixture *f = &w->f;
  uint32_t query_heads = w->s.heads * w->s.per_head, line = query_heads * w->s.head + 8;
  gap_addr q_at, out_at, rows_at, workspace = 0;
  uint16_t *q = block(f, 2ull * ROWS * line, &q_at), *out = block(f, 2ull * ROWS * line, &out_at);
  int32_t *rows = block(f, 4 * ROWS, &rows_at);
  for (uint32_t n = 0; n < ROWS * line; n++) q[n] = narrow(w->s.bf16, number()), out[n] = 0xffff;
  for (int i = 0; i < ROWS; i++) {
    gap_kv_about about = {.size = sizeof about};
    assert_int_equal(gap_kv_get_about(f->kv, w->seq[(i + 2) % ROWS], &about), 0);
    rows[i] = (int32_t)about.row;
  }
  gap_kv_attention a = {.size = sizeof a,
                        .layer = 1,
                        .batch = ROWS,
                        .query_heads = query_heads,
                        .rows = rows_at,
                        .q = q_at,
                        .out = out_at,
                        .q_batch_stride = 2 * line,
                        .q_head_stride = 2 * w->s.head,
                        .out_batch_stride = 2 * line,
                        .out_head_stride = 2 * w->s.head,
                        .window = w->s.window,
                        .longest = longest};
  uint64_t needed = 7;
  assert_int_equal(gap_kv_attention_workspace(f->kv, &a, &needed), 0);
  if (needed) {
    assert_int_equal(gap_kv_attend(f->kv, &a, f->stream), GAP_ELIMIT);
    memset(block(f, needed, &workspace), 0xff, needed);
    a.workspace = workspace, a.workspace_bytes = needed;
  }
  assert_int_equal(gap_kv_attend(f->kv, &a, f->stream), 0);
  for (int i = 0; i < ROWS; i++)
    for (uint32_t h = 0; h < query_heads; h++)
      compare(w, (i + 2) % ROWS, h, q + (size_t)i * line + h * w->s.head, out + (size_t)i * line + h * w->s.head,
              1 / sqrt(w->s.head));
  for (int i = 0; i < ROWS; i++)
    for (uint32_t n = query_heads * w->s.head; n < line; n++) assert_int_equal(out[(size_t)i * line + n], 0xffff);
  for (int n = 0; n < 4; n++) gap_free(f->heap, ((gap_addr[]){q_at, out_at, rows_at, workspace})[n]);
}

static void try_shape(struct shape s) {
  struct world w = make_world(s);
  attend(&w, 0);
  attend(&w, 200);                 /* one part a sequence, whatever its length */
  for (int i = 0; i < ROWS; i++) { /* a decode step */
    append(&w, i, 1);
    w.length[i]++;
    free(w.k[i]), free(w.v[i]);
    fill_row(&w, i);
  }
  assert_int_equal(gap_kv_flush(w.f.kv), 0);
  for (int i = 0; i < ROWS; i++) scatter(&w, i, 0, w.length[i], i % 2 == 0);
  attend(&w, w.length[2]);
  drop_world(&w);
}

static void attention_equals_float64(void **state) {
  (void)state;
  try_shape((struct shape){.head = 128, .heads = 2, .per_head = 4, .page_tokens = 16, .bf16 = true});
  try_shape(
      (struct shape){.head = 128, .heads = 3, .per_head = 1, .page_tokens = 32, .bf16 = true, .order = GAP_KV_HND});
  try_shape((struct shape){.head = 64, .heads = 2, .per_head = 4, .page_tokens = 128, .layout = GAP_KV_BLOCK_MAJOR});
  try_shape((struct shape){.head = 256, .heads = 1, .per_head = 2, .page_tokens = 16, .bf16 = true});
  try_shape((struct shape){.head = 32, .heads = 2, .per_head = 1, .page_tokens = 64, .order = GAP_KV_HND});
}

/* Groups that fill no block, that need several, KV pages smaller than a tile. */
static void odd_groups_and_small_pages(void **state) {
  (void)state;
  try_shape((struct shape){.head = 128, .heads = 2, .per_head = 7, .page_tokens = 16, .length = 300});
  try_shape((struct shape){.head = 128, .heads = 2, .per_head = 3, .page_tokens = 8, .bf16 = true, .length = 500});
  try_shape((struct shape){.head = 64, .heads = 1, .per_head = 20, .page_tokens = 16, .bf16 = true, .length = 300});
  try_shape((struct shape){.head = 256, .heads = 1, .per_head = 8, .page_tokens = 16, .length = 300});
  try_shape((struct shape){.head = 64, .heads = 2, .per_head = 2, .page_tokens = 2, .bf16 = true, .length = 300});
  try_shape((struct shape){.head = 32, .heads = 2, .per_head = 4, .page_tokens = 4, .bf16 = true, .length = 300});
}

static void windows_hide_what_is_older(void **state) {
  (void)state;
  try_shape((struct shape){.head = 128, .heads = 2, .per_head = 4, .page_tokens = 16, .bf16 = true, .window = 77});
  try_shape((struct shape){.head = 64, .heads = 2, .per_head = 4, .page_tokens = 16, .window = 1});
  try_shape((struct shape){.head = 64, .heads = 1, .per_head = 2, .page_tokens = 2, .bf16 = true, .window = 700});
}

/* ---- gather ---- */

static void what_was_scattered_is_gathered(void **state) {
  (void)state;
  struct world w =
      make_world((struct shape){.head = 64, .heads = 2, .per_head = 4, .page_tokens = 16, .order = GAP_KV_HND});
  struct fixture *f = &w.f;
  uint32_t tokens = w.length[2], numbers = w.s.heads * w.s.head;
  gap_addr k_at, v_at, slots_at;
  uint16_t *k = block(f, 2ull * tokens * numbers, &k_at), *v = block(f, 2ull * tokens * numbers, &v_at);
  int64_t *slots = block(f, 8ull * tokens, &slots_at);
  assert_int_equal(gap_kv_slots(f->kv, 0, w.seq[2], 0, tokens, slots), 0);
  slots[tokens / 2] = -1; /* left out */
  memset(k, 0xee, 2ull * tokens * numbers), memset(v, 0xee, 2ull * tokens * numbers);
  /* head by head outside */
  int64_t token = 2 * w.s.head, head = token * tokens;
  gap_kv_tokens to = {sizeof to, k_at, v_at, token, head, token, head};
  gap_kv_places places = {.size = sizeof places, .tokens = tokens, .slots = slots_at};
  assert_int_equal(gap_kv_gather(f->kv, 0, 1, &places, &to, f->stream), 0);
  for (uint32_t t = 0; t < tokens; t++)
    for (uint32_t n = 0; n < numbers; n++) {
      size_t at = (n / w.s.head * tokens + t) * w.s.head + n % w.s.head, from = (size_t)t * numbers + n;
      assert_int_equal(k[at], t == tokens / 2 ? 0xeeee : w.k[2][from]);
      assert_int_equal(v[at], t == tokens / 2 ? 0xeeee : w.v[2][from]);
    }
  /* More tokens than a row has: those that are missing are left out. */
  places = (gap_kv_places){.size = sizeof places, .tokens = ROWS * 40, .row_tokens = 40};
  to = (gap_kv_tokens){sizeof to, k_at, v_at, 2 * numbers, 2 * w.s.head, 2 * numbers, 2 * w.s.head};
  memset(k, 0xee, 2ull * tokens * numbers);
  assert_int_equal(gap_kv_gather(f->kv, 0, 1, &places, &to, f->stream), 0);
  for (uint32_t i = 0; i < ROWS; i++)
    for (uint32_t t = 0; t < 40; t++) {
      int from = (int)w.length[i] - 40 + (int)t;
      assert_int_equal(k[(i * 40 + t) * numbers], from < 0 ? 0xeeee : w.k[i][(size_t)from * numbers]);
    }
  for (int n = 0; n < 3; n++) gap_free(f->heap, ((gap_addr[]){k_at, v_at, slots_at})[n]);
  drop_world(&w);
}

/* ---- copies of KV pages ---- */

static void fill_tokens(int32_t *tokens, uint32_t count, int32_t from) {
  for (uint32_t i = 0; i < count; i++) tokens[i] = from + (int32_t)i;
}

/* Copy on write, swap and compaction, by kernels or by the driver: the bytes are the same. */
static void copies_move_bytes(gap_kv_layout layout, unsigned flags) {
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.heads = 8, o.head_size = 64, o.host_bytes = 32 * MIB, o.layout = layout, o.flags = flags;
  struct fixture f = open_with(o);
  struct kv_try *t = calloc(13, sizeof *t);
  int32_t tokens[400];
  for (int i = 0; i < 12; i++) {
    fill_tokens(tokens, 400, 1000 * i);
    kv_try_begin(f.kv, &t[i], 0, NULL, 0, 0);
    kv_try_learn(&t[i], tokens, 50 + 29 * (uint32_t)i);
    assert_int_equal(kv_try_append(f.kv, &t[i]), 0);
  }
  t[12] = t[11];
  assert_int_equal(gap_kv_fork(f.kv, t[11].seq, &t[12].seq), 0);
  kv_try_learn(&t[12], (int32_t[]){7, 8, 9}, 3);
  assert_int_equal(kv_try_append(f.kv, &t[12]), 0);
  assert_true(kv_try_stats(f.kv).copied_on_write > 0);
  for (int i = 0; i < 6; i++) assert_int_equal(gap_kv_swap_out(f.kv, t[i].seq), 0);
  for (int i = 6; i < 9; i++) assert_int_equal(gap_kv_close(f.kv, t[i].seq, f.stream), 0);
  assert_int_equal(gap_kv_forget(f.kv), 0);
  for (int i = 5; i >= 0; i--) assert_int_equal(gap_kv_swap_in(f.kv, t[i].seq), 0);
  gap_kv_compaction c = {.size = sizeof c};
  assert_int_equal(gap_kv_compact(f.kv, &c), 0);
  for (int i = 0; i < 13; i++)
    if (i < 6 || i > 8) kv_try_verify(f.kv, &t[i]);
  bool kernels = layout == GAP_KV_PER_LAYER && !(flags & GAP_KV_NO_KERNELS);
  assert_true(kernels ? fake_cuda_calls("cuLaunchKernel") > 7 : flags ? fake_cuda_calls("cuLaunchKernel") == 0 : true);
  close_all(&f);
  free(t);
}

static void copies_by_kernels(void **state) {
  (void)state;
  copies_move_bytes(GAP_KV_PER_LAYER, 0);
  copies_move_bytes(GAP_KV_PER_LAYER, GAP_KV_NO_KERNELS);
  copies_move_bytes(GAP_KV_BLOCK_MAJOR, 0);
  copies_move_bytes(GAP_KV_BLOCK_MAJOR, GAP_KV_NO_KERNELS);
}

/* Tiers measure both ways to the host; swapped sequences go by the faster one, and are what they were. */
static void the_faster_way_to_the_host(void **state) {
  (void)state;
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.heads = 8, o.head_size = 64, o.host_bytes = 32 * MIB, o.sharing = GAP_KV_SHARING_SHA256;
  struct fixture f = open_with(o);
  gap_kv_tiers_options tiers = GAP_KV_TIERS_OPTIONS_INIT;
  gap_kv_tier_stats s = {.size = sizeof s};
  struct kv_try *t = calloc(1, sizeof *t);
  int32_t tokens[300];
  assert_int_equal(gap_kv_tiers_open(f.kv, &tiers, NULL, 0), 0);
  assert_int_equal(gap_kv_get_tier_stats(f.kv, &s), 0);
  assert_true(s.kernel_bytes_s > 0 && s.engine_bytes_s > 0);
  fill_tokens(tokens, 300, 1);
  kv_try_begin(f.kv, t, 0, NULL, 0, 0);
  kv_try_learn(t, tokens, 300);
  assert_int_equal(kv_try_append(f.kv, t), 0);
  assert_int_equal(gap_kv_swap_out(f.kv, t->seq), 0);
  assert_int_equal(gap_kv_forget(f.kv), 0);
  assert_int_equal(gap_kv_swap_in(f.kv, t->seq), 0);
  assert_int_equal(gap_kv_flush(f.kv), 0);
  kv_try_verify(f.kv, t);
  close_all(&f);
  free(t);
}

/* A copy of a copy: the first must be done before the second. */
static void copies_keep_their_order(void **state) {
  (void)state;
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.sharing = GAP_KV_SHARING_OFF;
  struct fixture f = open_with(o);
  struct kv_try t[4];
  int32_t tokens[20];
  fill_tokens(tokens, 20, 5);
  kv_try_begin(f.kv, &t[0], 0, NULL, 0, 0);
  kv_try_learn(&t[0], tokens, 20);
  assert_int_equal(kv_try_append(f.kv, &t[0]), 0);
  for (int i = 1; i < 4;
       i++) { /* each is forked from the one before and gets a token, all before the copies are queued */
    t[i] = t[i - 1];
    assert_int_equal(gap_kv_fork(f.kv, t[i - 1].seq, &t[i].seq), 0);
    int32_t one = 100 + i;
    kv_try_learn(&t[i], &one, 1);
    gap_kv_request request = {.seq = t[i].seq, .tokens = 1};
    assert_int_equal(gap_kv_append(f.kv, &request, 1), 0);
  }
  for (int i = 3; i > 0; i--) { /* the tokens that each shares with the one before */
    t[i].computed = t[i].count = 20;
    assert_int_equal(gap_kv_flush(f.kv), 0);
    assert_int_equal(gap_kv_truncate(f.kv, t[i].seq, 20), 0);
  }
  assert_int_equal(gap_kv_flush(f.kv), 0);
  for (int i = 0; i < 4; i++) kv_try_verify(f.kv, &t[i]);
  assert_int_equal(fake_cuda_calls("cuLaunchKernel"), 3); /* one a copy */
  close_all(&f);
}

/* ---- compiling, once ---- */

static int compiled(void) {
  int (*count)(void);
  void *symbol = dlsym(dlopen(GAP_TEST_FAKE_NVRTC, RTLD_NOW), "fake_nvrtc_compiled");
  memcpy(&count, &symbol, sizeof count);
  return count();
}

static char cache_folder[] = P_tmpdir "/gapless-cubins.XXXXXX";

static int open_and_close(void) {
  int before = compiled();
  struct fixture f = open_with(kv_try_options(16, 48 * MIB));
  assert_int_equal(gap_kv_kernels(f.kv, NULL, 0), 0);
  close_all(&f);
  return compiled() - before;
}

static void to_each_file(const char *words) {
  char command[400];
  snprintf(command, sizeof command, "cd %s/kernels && for f in *.cubin; do %s; done", cache_folder, words);
  assert_int_equal(system(command), 0);
}

static void code_is_kept_on_disk(void **state) {
  (void)state;
  struct stat found;
  char path[300];
  assert_non_null(mkdtemp(cache_folder));
  setenv("GAPLESS_CACHE", cache_folder, 1);
  assert_int_equal(open_and_close(), 1);
  assert_int_equal(open_and_close(), 0);
  snprintf(path, sizeof path, "%s/kernels", cache_folder);
  assert_int_equal(stat(path, &found), 0);
  assert_int_equal(found.st_mode & 0777, 0700);
  static const char *const spoilt[] = {"printf X | dd of=$f bs=1 seek=80 conv=notrunc 2>/dev/null", /* damaged */
                                       "truncate -s 70 $f", "chmod 0666 $f", /* others could have written it */
                                       "mv $f $f.good && ln -s $f.good $f" /* the right code, but by a link */};
  for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
    to_each_file(spoilt[i]);
    assert_int_equal(open_and_close(), 1);
    assert_int_equal(open_and_close(), 0);
  }
  setenv("FAKE_NVRTC_VERSION", "12", 1);
  assert_int_equal(open_and_close(), 1); /* another compiler, other code */
  unsetenv("FAKE_NVRTC_VERSION");
  chmod(cache_folder, 0777); /* others could put code there */
  assert_int_equal(open_and_close(), 1);
  assert_int_equal(open_and_close(), 1);
  chmod(cache_folder, 0700);
  assert_int_equal(open_and_close(), 0);
  snprintf(path, sizeof path, "rm -r %s", cache_folder);
  assert_int_equal(system(path), 0);
  setenv("GAPLESS_CACHE", "/proc/nothing", 1); /* nowhere to keep it */
  assert_int_equal(open_and_close(), 1);
}

/* Why there are none is said, and copies go on without. */
static void without(const char *variable, const char *value, const char *words) {
  char why[300] = "", *was = getenv(variable) ? strdup(getenv(variable)) : NULL;
  setenv(variable, value, 1);
  struct fixture f = open_with(kv_try_options(16, 48 * MIB));
  assert_int_equal(gap_kv_kernels(f.kv, why, sizeof why), GAP_ENOTSUP);
  if (!strstr(why, words)) fail_msg("'%s' does not say '%s'", why, words);
  gap_kv_places places = {.size = sizeof places, .tokens = 1, .row_tokens = 1};
  gap_kv_tokens tokens = {sizeof tokens, 4096, 4096, 16, 16, 16, 16};
  assert_int_equal(gap_kv_scatter(f.kv, 0, 0, &places, &tokens, f.stream), GAP_ENOTSUP);
  close_all(&f);
  if (was) setenv(variable, was, 1);
  else unsetenv(variable);
  free(was);
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  struct api_log log;
  api_listen(&log);
  without("GAPLESS_NVRTC", "/nowhere/libnvrtc.so.13", "no NVRTC was found at /nowhere/libnvrtc.so.13");
  without("GAPLESS_NVRTC", "/nowhere/libnvrtc.so.13", "no NVRTC was found");
  without("FAKE_NVRTC_VERSION", "14", "newer than the driver");
  without("FAKE_NVRTC_REFUSES", "1", "as it was told");
  gap_set_log(NULL, NULL);
  assert_int_equal(log.count, 1); /* one line a process */
  assert_non_null(strstr(log.lines, "copied by the driver"));
  copies_move_bytes(GAP_KV_PER_LAYER, 0);
}

/* ---- where the compiler is found ---- */

static char wheels[] = P_tmpdir "/gapless-wheels.XXXXXX";

static void make_parents(const char *path) {
  char part[400];
  snprintf(part, sizeof part, "%s", path);
  for (char *at = part + sizeof wheels; (at = strchr(at, '/')); *at++ = '/') *at = 0, (void)mkdir(part, 0700);
}

/* A library of its own in a wheel's folder. */
static void put_library(const char *rest, char path[400]) {
  char command[900];
  snprintf(path, 400, "%s/%s", wheels, rest);
  make_parents(path);
  snprintf(command, sizeof command, "cp %s %s", GAP_TEST_FAKE_NVRTC, path);
  assert_int_equal(system(command), 0);
}

static void expect_compiler(const char *path) {
  struct kv_nvrtc nvrtc;
  struct gap__text why = {0};
  Dl_info found;
  void *symbol;
  int rc = gap__kv_nvrtc_open(13, &nvrtc, &why);
  if (rc) fail_msg("%s: %s", path, gap__text_str(&why));
  memcpy(&symbol, &nvrtc.compile, sizeof symbol);
  assert_true(dladdr(symbol, &found) != 0);
  char *resolved = realpath(found.dli_fname, NULL);
  assert_string_equal(resolved, path);
  free(resolved);
  gap__text_free(&why);
}

/* Beside whatever library of a Python package is loaded: NVIDIA's own wheels, which both bring along, PyTorch's, CuPy's; then a toolkit. */
static void wheels_bring_the_compiler(void **state) {
  static const char *const places[] = {"site-packages/cupy/.data/lib/libnvrtc.so.12",
                                       "site-packages/torch/lib/libnvrtc-0a1b2c3d.so.13",
                                       "site-packages/nvidia/cu13/lib/libnvrtc.so.13"};
  char path[400];
  (void)state;
  unsetenv("GAPLESS_NVRTC");
  assert_non_null(mkdtemp(wheels));
  put_library("toolkit/lib64/libnvrtc.so.13", path);
  char toolkit[400];
  snprintf(toolkit, sizeof toolkit, "%s/toolkit", wheels);
  setenv("CUDA_HOME", toolkit, 1);
  expect_compiler(path);
  put_library("site-packages/package/loaded.so", path);
  assert_non_null(dlopen(path, RTLD_NOW | RTLD_LOCAL));
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) { /* each goes before the one that was there */
    put_library(places[i], path);
    expect_compiler(path);
  }
  unsetenv("CUDA_HOME");
  setenv("GAPLESS_NVRTC", GAP_TEST_FAKE_NVRTC, 1);
  char command[500];
  snprintf(command, sizeof command, "rm -r %s", wheels);
  assert_int_equal(system(command), 0);
}

/* ---- ranges, on the driver ---- */

static void ranges_share_on_the_driver(void **state) {
  (void)state;
  struct fixture f = open_with(kv_try_options(16, 48 * MIB));
  gap_kv_virtual_options o = GAP_KV_VIRTUAL_OPTIONS_INIT;
  gap_kv_virtual *v;
  gap_kv_virtual_about about = {.size = sizeof about};
  uint64_t page = 2 * MIB, prefix = page + 4096;
  o.stream = f.stream, o.ranges = 3, o.range_bytes = 4 * page, o.flags = GAP_KV_VIRTUAL_SHARING;
  assert_int_equal(gap_kv_virtual_create(f.heap, &o, &v), 0);
  assert_int_equal(gap_kv_virtual_get_about(v, &about), 0);
  assert_int_equal(gap_kv_virtual_grow(v, 0, 1, 2 * page), 0);
  memset((void *)(uintptr_t)about.base, 0x5a, 2 * page);
  for (uint32_t i = 1; i < 3; i++) {
    assert_int_equal(gap_kv_virtual_share(v, i, 0, 1, prefix), 0);
    const unsigned char *at = (void *)(uintptr_t)(about.base + i * about.stride);
    for (uint64_t b = 0; b < prefix; b += 64) assert_int_equal(at[b], 0x5a);
  }
  assert_int_equal(gap_kv_virtual_get_about(v, &about), 0);
  assert_int_equal(about.bytes_shared, 2 * page);
  assert_int_equal(gap_kv_virtual_shrink(v, 0, 3, 0), 0);
  gap_kv_virtual_destroy(v);
  close_all(&f);
}

/* ---- errors ---- */

static void wrong_calls_are_refused(void **state) {
  (void)state;
  struct world w =
      make_world((struct shape){.head = 64, .heads = 2, .per_head = 2, .page_tokens = 2, .bf16 = true, .length = 9});
  gap_kv *kv = w.f.kv;
  gap_addr at;
  memset(block(&w.f, 65536, &at), 0, 65536);
  const gap_kv_attention good = {.size = sizeof good,
                                 .batch = 1,
                                 .query_heads = 4,
                                 .q = at,
                                 .out = at + 32768,
                                 .q_head_stride = 128,
                                 .out_head_stride = 128,
                                 .longest = 100};
  gap_kv_attention a = good;
  assert_int_equal(gap_kv_attend(kv, &a, w.f.stream), 0);
#define REFUSED(member, value) \
  (a = good, a.member = (value), assert_int_equal(gap_kv_attend(kv, &a, w.f.stream), GAP_EINVAL))
  REFUSED(size, 3);
  REFUSED(layer, 2);
  REFUSED(group, 1);
  REFUSED(batch, 0);
  REFUSED(batch, ROWS + 3);
  REFUSED(query_heads, 3);
  REFUSED(query_heads, 0);
  REFUSED(q, at + 8);
  REFUSED(out, 0);
  REFUSED(q_head_stride, 24);
  REFUSED(rows, at + 2);
#undef REFUSED
  assert_int_equal(gap_kv_attend(NULL, &good, 0), GAP_EINVAL);
  assert_int_equal(gap_kv_attend(kv, NULL, 0), GAP_EINVAL);
  assert_int_equal(gap_kv_kernels(NULL, NULL, 0), GAP_EINVAL);
  gap_kv_places places = {.size = sizeof places, .tokens = 5, .row_tokens = 2};
  gap_kv_tokens tokens = {sizeof tokens, at, at, 128, 128, 128, 128};
  assert_int_equal(gap_kv_gather(kv, 0, 0, &places, &tokens, w.f.stream), GAP_EINVAL); /* not whole rows */
  places.tokens = 2, tokens.k = at + 8;
  assert_int_equal(gap_kv_gather(kv, 0, 0, &places, &tokens, w.f.stream), GAP_EINVAL);
  tokens.k = at;
  assert_int_equal(gap_kv_gather(kv, 0, 2, &places, &tokens, w.f.stream), GAP_EINVAL);
  assert_int_equal(gap_kv_gather(kv, 0, 0, &places, &tokens, w.f.stream), 0);
  fake_cuda_fail("cuLaunchKernel", 719, 0, 1);
  assert_int_equal(gap_kv_gather(kv, 0, 0, &places, &tokens, w.f.stream), GAP_EDEVICE);
  gap_free(w.f.heap, at);
  drop_world(&w);
}

/* Numbers that attention has no kernel for; the empty row. */
static void other_shapes(void **state) {
  (void)state;
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  struct fixture f = open_with(o);
  gap_addr at;
  uint16_t *bytes = block(&f, 8192, &at);
  gap_kv_attention a = {.size = sizeof a, .batch = 1, .query_heads = 2, .q = at, .out = at + 4096};
  assert_int_equal(gap_kv_attend(f.kv, &a, f.stream), GAP_ENOTSUP);
  close_all(&(struct fixture){f.heap, f.kv, f.stream});
  o.head_size = 64, o.heads = 1, o.dtype = GAP_KV_F16;
  f = open_with(o);
  bytes = block(&f, 8192, &at);
  memset(bytes, 0xff, 8192);
  memset(bytes, 0, 1024);
  a = (gap_kv_attention){.size = sizeof a,
                         .batch = 1,
                         .query_heads = 4,
                         .q = at,
                         .out = at + 4096,
                         .q_head_stride = 128,
                         .out_head_stride = 128,
                         .longest = 100};
  assert_int_equal(gap_kv_attend(f.kv, &a, f.stream), 0); /* row 0 is nobody's: its length is 0 */
  for (int i = 0; i < 4 * 64; i++) assert_int_equal(bytes[2048 + i], 0);
  gap_free(f.heap, at);
  close_all(&f);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_equals_float64),   cmocka_unit_test(odd_groups_and_small_pages),
      cmocka_unit_test(windows_hide_what_is_older), cmocka_unit_test(what_was_scattered_is_gathered),
      cmocka_unit_test(copies_by_kernels),          cmocka_unit_test(the_faster_way_to_the_host),
      cmocka_unit_test(copies_keep_their_order),    cmocka_unit_test(ranges_share_on_the_driver),
      cmocka_unit_test(wrong_calls_are_refused),    cmocka_unit_test(other_shapes),
      cmocka_unit_test(what_is_missing_is_named),   cmocka_unit_test(code_is_kept_on_disk),
      cmocka_unit_test(wheels_bring_the_compiler)};
  (void)argc;
  fake_driver_find(argv);
  setenv("GAPLESS_NVRTC", GAP_TEST_FAKE_NVRTC, 1);
  setenv("GAPLESS_CACHE", "/proc/nothing", 1);
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = 1;
  if (getenv("GAP_SEED")) seed = strtoull(getenv("GAP_SEED"), NULL, 0);
  printf("GAP_SEED=%llu\n", (unsigned long long)seed);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  fake_driver_forget();
  return failed;
}
