/* Launching paged attention: which kernel, and into how many parts sequences are cut. */
#include "kv/attend.cu"

#include <math.h>
#include <stdio.h>

#include "gapless/kv_kernels.h"
#include "kv/code.h"
#include "kv/embed.h"

KV_EMBED(gap__kv_attend_source);

enum {
  QUAD = 16,
  GROUP_MOST = 8,     /* query heads a block */
  THREADS = 128,      /* as WARPS of the kernel */
  RING_BYTES = 16384, /* of the block, a stage */
  SPLIT_LEAST = 256,  /* tokens */
  SPLIT_MOST = 4096,  /* else one long sequence is what all others wait for */
  SPLITS_MOST = 1024,
  WAVES = 6 /* of blocks: the last one is partly empty */
};
#define LOG2_E 1.44269504088896341f

/* What is fixed when the kernel is compiled, and what follows. */
struct plan {
  uint32_t per_head, group_log, splits;
  gap_kv_shape shape;
};

static bool shape_has_kernel(const struct gap_kv *kv) {
  uint32_t head = kv->options.head_size;
  bool half = kv->options.dtype == GAP_KV_BF16 || kv->options.dtype == GAP_KV_F16;
  return half && (head == 32 || head == 64 || head == 128 || head == 256);
}

static bool numbers_fit(const struct gap_kv *kv, const gap_kv_attention *a) {
  const gap_kv_options *o = &kv->options;
  if (a->group >= o->group_count || a->layer >= kv->layers || !a->batch || a->batch > UINT16_MAX) return false;
  if (!a->query_heads || a->query_heads % o->heads || a->query_heads / o->heads > UINT16_MAX) return false;
  return a->rows ? a->rows % sizeof(int32_t) == 0 : a->batch <= kv->rows;
}

static bool addresses_fit(const gap_kv_attention *a) {
  return a->q && a->out && (a->q | a->out | a->workspace) % QUAD == 0 && a->q_batch_stride % QUAD == 0 &&
         a->q_head_stride % QUAD == 0 && a->out_batch_stride % QUAD == 0 && a->out_head_stride % QUAD == 0;
}

static uint32_t divide_up(uint64_t a, uint32_t b) { return (uint32_t)((a + b - 1) / b); }

/* Enough blocks for several waves, none for fewer than SPLIT_LEAST tokens. */
static uint32_t splits_for(const struct gap_kv *kv, const gap_kv_attention *a, uint32_t blocks, bool wide) {
  uint32_t longest = a->longest && a->longest < kv->options.tokens ? a->longest : kv->options.tokens;
  uint32_t window = a->window ? a->window : kv->windows[a->group];
  if (window && window < longest) longest = window;
  uint32_t wanted = divide_up((uint64_t)WAVES * kv->dev->caps.processors * (wide ? 2 : 4), blocks);
  uint32_t most = divide_up(longest, SPLIT_LEAST), least = divide_up(longest, SPLIT_MOST);
  uint32_t splits = wanted > most ? most : wanted < least ? least : wanted;
  return splits > SPLITS_MOST ? SPLITS_MOST : splits ? splits : 1;
}

static int make_plan(gap_kv *kv, const gap_kv_attention *a, struct plan *out) {
  if (!kv || !a || a->size != sizeof *a || !numbers_fit(kv, a)) return GAP_EINVAL;
  if (!shape_has_kernel(kv)) return GAP_ENOTSUP;
  *out = (struct plan){.per_head = a->query_heads / kv->options.heads, .shape = {.size = sizeof out->shape}};
  while (1u << out->group_log < out->per_head && 1u << out->group_log < GROUP_MOST) out->group_log++;
  uint32_t blocks = kv->options.heads * divide_up(out->per_head, 1u << out->group_log) * a->batch;
  out->splits = splits_for(kv, a, blocks, 1u << out->group_log > 4);
  return gap_kv_get_shape(kv, &out->shape);
}

static uint64_t workspace_of(const gap_kv_attention *a, const struct plan *plan) {
  if (plan->splits == 1) return 0;
  return (uint64_t)a->batch * a->query_heads * plan->splits * (plan->shape.head_size + 2) * sizeof(float);
}

int gap_kv_attention_workspace(gap_kv *kv, const gap_kv_attention *attention, uint64_t *bytes) {
  struct plan plan;
  int rc = bytes ? make_plan(kv, attention, &plan) : GAP_EINVAL;
  if (!rc) *bytes = workspace_of(attention, &plan);
  return rc;
}

/* ---- the kernels ---- */

static uint32_t shared_bytes(const struct plan *plan) {
  uint32_t group = 1u << plan->group_log, ring = (group > 4 ? 5 : 3) * RING_BYTES;
  uint32_t results = THREADS / 32 * group * (plan->shape.head_size + 2) * (uint32_t)sizeof(float);
  return ring > results ? ring : results;
}

/* A tile is what a warp reads at once: 4 loads of 16 bytes a lane. */
static bool has_small_pages(const struct plan *plan) {
  return plan->shape.page_tokens < 4 * 32 / (plan->shape.head_size / 8);
}

static int load(struct gap_kv *kv, const struct plan *plan, struct kv_attend_code *code) {
  char defines[128];
  gap__module module;
  snprintf(defines, sizeof defines, "-DHEAD=%u -DGROUP=%u -DBF16=%d -DSMALL_PAGES=%d", plan->shape.head_size,
           1u << plan->group_log, kv->options.dtype == GAP_KV_BF16, has_small_pages(plan));
  int rc = gap__kv_code_load(kv, gap__kv_attend_source, defines, &module);
  if (!rc) rc = gap__dev_module_find(kv->dev, module, "gap_kv_join", 0, &code->join);
  if (!rc) rc = gap__dev_module_find(kv->dev, module, "gap_kv_attend", shared_bytes(plan), &code->attend);
  return rc;
}

static int find_code(struct gap_kv *kv, const struct plan *plan, struct kv_attend_code *out) {
  gap__lock(&kv->lock);
  struct kv_attend_code *code = &kv->code.attend[plan->group_log];
  int rc = code->attend ? 0 : load(kv, plan, code);
  *out = *code;
  gap__unlock(&kv->lock);
  return rc;
}

static struct gap_kv_attend_args attend_args(const struct gap_kv *kv, const gap_kv_attention *a,
                                             const struct plan *plan) {
  const gap_kv_shape *s = &plan->shape;
  gap_addr k = s->first + a->layer * s->layer_stride;
  float scale = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)s->head_size);
  return (struct gap_kv_attend_args){.k = k,
                                     .v = k + s->v_offset,
                                     .page_stride = s->page_stride,
                                     .token_stride = s->token_stride,
                                     .head_stride = s->head_stride,
                                     .table = s->table + (uint64_t)a->group * s->rows * s->columns * sizeof(int32_t),
                                     .lengths = s->lengths,
                                     .rows = a->rows,
                                     .q = a->q,
                                     .out = a->out,
                                     .partial = a->workspace,
                                     .q_batch = a->q_batch_stride,
                                     .q_head = a->q_head_stride,
                                     .out_batch = a->out_batch_stride,
                                     .out_head = a->out_head_stride,
                                     .columns = s->columns,
                                     .page_shift = (unsigned)__builtin_ctz(s->page_tokens),
                                     .query_heads = a->query_heads,
                                     .heads = s->heads,
                                     .splits = plan->splits,
                                     .split_least = SPLIT_LEAST,
                                     .window = a->window ? a->window : kv->windows[a->group],
                                     .scale = scale * LOG2_E};
}

static int launch(struct gap_kv *kv, const gap_kv_attention *a, const struct plan *plan,
                  const struct kv_attend_code *code, gap_stream stream) {
  struct gap_kv_attend_args args = attend_args(kv, a, plan);
  uint32_t blocks = kv->options.heads * divide_up(plan->per_head, 1u << plan->group_log);
  struct gap__launch attend = {.function = code->attend,
                               .blocks = {blocks, plan->splits, a->batch},
                               .threads = THREADS,
                               .shared_bytes = shared_bytes(plan),
                               .argument = &args};
  struct gap__launch join = {.function = code->join,
                             .blocks = {a->query_heads, a->batch, 1},
                             .threads = plan->shape.head_size,
                             .argument = &args};
  int rc = gap__dev_launch(kv->dev, &attend, stream);
  return rc || plan->splits == 1 ? rc : gap__dev_launch(kv->dev, &join, stream);
}

int gap_kv_attend(gap_kv *kv, const gap_kv_attention *attention, gap_stream stream) {
  struct plan plan;
  struct kv_attend_code code;
  int rc = make_plan(kv, attention, &plan);
  if (rc) return rc;
  if (!addresses_fit(attention)) return GAP_EINVAL;
  uint64_t needed = workspace_of(attention, &plan);
  if (needed && (!attention->workspace || attention->workspace_bytes < needed)) return GAP_ELIMIT;
  rc = find_code(kv, &plan, &code);
  return rc ? rc : launch(kv, attention, &plan, &code, stream);
}
