/* Launching what moves bytes: scatter, gather, copies of KV pages. */
#include "kv/move.cu"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gapless/kv_kernels.h"
#include "kv/code.h"
#include "kv/embed.h"

KV_EMBED(gap__kv_move_source);

enum {
  THREADS = 256,
  QUAD = 16,
  QUADS_A_PIECE = 4 * THREADS, /* of a copy: four loads a thread */
  BLOCKS_A_PROCESSOR = 4,
  BLOCKS_TO_HOST = 64 /* enough for the link, and the processors stay free for others */
};

static int load(struct gap_kv *kv) {
  struct kv_code *code = &kv->code;
  gap__module module;
  int rc = gap__kv_code_load(kv, gap__kv_move_source, "", &module);
  if (!rc) rc = gap__dev_module_find(kv->dev, module, "gap_kv_move", 0, &code->move);
  if (!rc) rc = gap__dev_module_find(kv->dev, module, "gap_kv_copy", 0, &code->copy);
  if (rc) code->move = code->copy = 0;
  return rc;
}

void gap__kv_move_init(struct gap_kv *kv) {
  static atomic_bool said;
  if (!kv->dev->caps.arch || kv->options.flags & GAP_KV_NO_KERNELS) return;
  if (load(kv) && !atomic_exchange(&said, true))
    gap__log(GAP__LOG_WARNING, "KV cache: no kernels, KV pages are copied by the driver: %s", gap__kv_code_why(kv));
}

int gap_kv_kernels(gap_kv *kv, char *why, size_t bytes) {
  gap__module module;
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv->code.move ? 0 : gap__kv_code_load(kv, gap__kv_move_source, "", &module);
  if (!kv->code.move && bytes) snprintf(why, bytes, "%s", gap__kv_code_why(kv));
  rc = kv->code.move ? 0 : rc ? rc : GAP_ENOTSUP;
  gap__unlock(&kv->lock);
  return rc;
}

/* ---- scatter and gather ---- */

static bool stride_fits(int64_t stride) { return stride % QUAD == 0; }

static bool outside_fits(const gap_kv_tokens *t) {
  return t && t->size == sizeof *t && t->k && t->v && (t->k | t->v) % QUAD == 0 && stride_fits(t->k_token_stride) &&
         stride_fits(t->k_head_stride) && stride_fits(t->v_token_stride) && stride_fits(t->v_head_stride);
}

static bool places_fit(const struct gap_kv *kv, const gap_kv_places *p) {
  if (!p || p->size != sizeof *p) return false;
  if (p->slots) return p->slots % sizeof(int64_t) == 0;
  if (!p->row_tokens || p->tokens % p->row_tokens || p->rows % sizeof(int32_t)) return false;
  return p->rows || p->tokens / p->row_tokens <= kv->rows;
}

static struct gap_kv_move_args move_args(const gap_kv_shape *s, uint32_t group, uint32_t layer, const gap_kv_places *p,
                                         const gap_kv_tokens *t, bool into) {
  gap_addr k = s->first + layer * s->layer_stride;
  return (struct gap_kv_move_args){.k = k,
                                   .v = k + s->v_offset,
                                   .page_stride = s->page_stride,
                                   .token_stride = s->token_stride,
                                   .head_stride = s->head_stride,
                                   .other_k = t->k,
                                   .other_v = t->v,
                                   .k_token = t->k_token_stride,
                                   .k_head = t->k_head_stride,
                                   .v_token = t->v_token_stride,
                                   .v_head = t->v_head_stride,
                                   .slots = p->slots,
                                   .rows = p->rows,
                                   .table = s->table + (uint64_t)group * s->rows * s->columns * sizeof(int32_t),
                                   .lengths = s->lengths,
                                   .columns = s->columns,
                                   .row_tokens = p->row_tokens,
                                   .page_shift = (unsigned)__builtin_ctz(s->page_tokens),
                                   .tokens = p->tokens,
                                   .heads = s->heads,
                                   .head_quads = s->head_size * s->element_bytes / QUAD,
                                   .into = into};
}

static uint32_t blocks_for(const struct gap_kv *kv, uint64_t threads) {
  uint64_t blocks = (threads + THREADS - 1) / THREADS,
           most = 2 * BLOCKS_A_PROCESSOR * (uint64_t)kv->dev->caps.processors;
  return (uint32_t)(blocks < most ? blocks : most);
}

static int move(gap_kv *kv, uint32_t group, uint32_t layer, const gap_kv_places *places, const gap_kv_tokens *tokens,
                bool into, gap_stream stream) {
  gap_kv_shape shape = {.size = sizeof shape};
  int rc = gap_kv_get_shape(kv, &shape);
  if (rc || group >= shape.group_count || layer >= shape.layers_per_group) return GAP_EINVAL;
  if (!places_fit(kv, places) || !outside_fits(tokens)) return GAP_EINVAL;
  if (!kv->code.move) return GAP_ENOTSUP;
  if (!places->tokens) return 0;
  struct gap_kv_move_args args = move_args(&shape, group, layer, places, tokens, into);
  uint64_t threads = (uint64_t)args.tokens * args.heads * args.head_quads;
  struct gap__launch launch = {
      .function = kv->code.move, .blocks = {blocks_for(kv, threads), 1, 1}, .threads = THREADS, .argument = &args};
  return gap__dev_launch(kv->dev, &launch, stream);
}

int gap_kv_scatter(gap_kv *kv, uint32_t group, uint32_t layer, const gap_kv_places *places, const gap_kv_tokens *from,
                   gap_stream stream) {
  return move(kv, group, layer, places, from, true, stream);
}

int gap_kv_gather(gap_kv *kv, uint32_t group, uint32_t layer, const gap_kv_places *places, const gap_kv_tokens *to,
                  gap_stream stream) {
  return move(kv, group, layer, places, to, false, stream);
}

/* ---- copies of KV pages ---- */

static int launch_copies(struct gap_kv *kv, struct gap_kv_copy_args *args, gap_stream stream) {
  uint64_t quads = args->part_bytes / QUAD;
  args->splits = (unsigned)((quads + QUADS_A_PIECE - 1) / QUADS_A_PIECE);
  bool inside = args->to == args->from;
  uint64_t pieces = (uint64_t)args->pair_count * args->layers * args->splits;
  uint64_t most = inside ? 2 * BLOCKS_A_PROCESSOR * (uint64_t)kv->dev->caps.processors : BLOCKS_TO_HOST;
  struct gap__launch launch = {.function = kv->code.copy,
                               .blocks = {(uint32_t)(pieces < most ? pieces : most), 1, 1},
                               .threads = THREADS,
                               .argument = args};
  return gap__dev_launch(kv->dev, &launch, stream);
}

int gap__kv_move_pages(struct gap_kv *kv, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                       gap_stream stream) {
  struct gap_kv_copy_args args = {.to = to,
                                  .from = from,
                                  .slab_bytes = kv->slab_bytes,
                                  .layer_stride = kv_layer_stride(kv),
                                  .part_bytes = kv->part_bytes,
                                  .layers = kv->layers,
                                  .slab_shift = kv->slab_shift};
  int rc = kv->code.copy ? 0 : GAP_ENOTSUP;
  for (uint32_t i = 0; !rc && i < count; i += args.pair_count) {
    args.pair_count = count - i < GAP_KV_COPY_PAIRS ? count - i : GAP_KV_COPY_PAIRS;
    for (uint32_t n = 0; n < args.pair_count; n++)
      args.pairs[n][0] = pairs[i + n].index, args.pairs[n][1] = (unsigned)pairs[i + n].id;
    rc = launch_copies(kv, &args, stream);
  }
  return rc;
}
