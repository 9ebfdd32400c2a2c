#include "kv/shape.h"

#include "base/log.h"

enum {
  LAYERS_MOST = 1024,
  HEADS_MOST = 1024,
  HEAD_MOST = 4096,
  PAGE_TOKENS_MOST = 1024,
  ROWS_MOST = 65536,
  HEAD_ALIGN = 16,
  SLAB_PAGES_MOST = 1 << 16
};
#define TOKENS_MOST ((uint32_t)1 << 27)
#define REGION_MOST (((uint64_t)1 << 40) - GAP__PAGE)

static uint32_t element_bytes(gap_kv_dtype dtype) {
  static const uint8_t bytes[] = {
      [GAP_KV_BF16] = 2, [GAP_KV_F16] = 2, [GAP_KV_F32] = 4, [GAP_KV_F8_E4M3] = 1, [GAP_KV_F8_E5M2] = 1};
  return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* ---- what may be asked ---- */

static bool within(const char *name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return true;
  gap__log(GAP__LOG_ERROR, "KV cache: %s is %llu; %llu to %llu are possible", name, (unsigned long long)value,
           (unsigned long long)least, (unsigned long long)most);
  return false;
}

static bool wrong(const char *what) {
  gap__log(GAP__LOG_ERROR, "KV cache: %s", what);
  return false;
}

static bool numbers_fit(const gap_kv_options *o) {
  return within("layers", o->layers, 1, LAYERS_MOST) && within("heads", o->heads, 1, HEADS_MOST) &&
         within("head_size", o->head_size, 1, HEAD_MOST) &&
         within("page_tokens", o->page_tokens, 1, PAGE_TOKENS_MOST) &&
         within("group_count", o->group_count, 1, GAP_KV_GROUPS_MAX) &&
         within("sequences", o->sequences, 1, ROWS_MOST) && within("tokens", o->tokens, 1, TOKENS_MOST) &&
         within("pin_percent", o->pin_percent, 0, 100) && within("bytes", o->bytes, 1, REGION_MOST);
}

static bool choices_fit(const gap_kv_options *o) {
  if (!element_bytes(o->dtype)) return wrong("the dtype is unknown");
  if (o->order != GAP_KV_NHD && o->order != GAP_KV_HND) return wrong("the order is unknown");
  if (o->layout != GAP_KV_PER_LAYER && o->layout != GAP_KV_BLOCK_MAJOR) return wrong("the layout is unknown");
  if ((unsigned)o->sharing > GAP_KV_SHARING_SHA256) return wrong("the sharing is unknown");
  if (o->flags & ~(unsigned)(GAP_KV_NO_PARTIAL | GAP_KV_NO_MERGE | GAP_KV_NO_CEILING | GAP_KV_NO_KERNELS))
    return wrong("a flag is unknown");
  return true;
}

static bool divides(const gap_kv_options *o) {
  if (o->page_tokens & (o->page_tokens - 1)) return wrong("page_tokens is no power of two");
  if (o->layers % o->group_count) return wrong("the layers do not divide into groups of one size");
  if (o->head_size * element_bytes(o->dtype) % HEAD_ALIGN) return wrong("a head is no multiple of 16 bytes");
  return true;
}

/* ---- the shape ---- */

static uint64_t pages_a_slab(const struct gap_kv *kv, uint32_t shift) {
  return ((kv->part_bytes * kv->layers) << shift) >> GAP__PAGE_SHIFT;
}

/* The fewest KV pages of which `bytes` each fill whole pages. */
static uint32_t shift_for(uint64_t bytes) {
  uint32_t shift = 0;
  while ((bytes << shift) % GAP__PAGE) shift++;
  return shift;
}

static void choose_slabs(struct gap_kv *kv) {
  kv->slab_shift = kv->options.layout == GAP_KV_PER_LAYER ? shift_for(kv->part_bytes) : 32;
  if (kv->slab_shift == 32 || pages_a_slab(kv, kv->slab_shift) > SLAB_PAGES_MOST)
    kv->slab_shift = shift_for(kv->part_bytes * kv->layers);
  kv->slab_bytes = (kv->part_bytes * kv->layers) << kv->slab_shift;
  kv->id_slab = kv->slab_shift ? kv->layers << kv->slab_shift : 1; /* a slab of one: numbers need no gaps */
  kv->id_slab_inverse = UINT64_MAX / kv->id_slab + 1;              /* of 1: not used */
}

static int count_slabs(struct gap_kv *kv) {
  uint64_t slabs = kv->options.bytes / kv->slab_bytes;
  if (slabs < 2) return wrong("bytes hold fewer than two slabs") ? 0 : GAP_EINVAL;
  if (slabs * kv->id_slab > INT32_MAX || slabs << kv->slab_shift > KV_BITS_MOST) {
    wrong("there would be too many KV pages: larger ones are needed");
    return GAP_ELIMIT;
  }
  kv->slab_count = kv->slab_limit = (uint32_t)slabs;
  kv->page_count = (uint32_t)slabs << kv->slab_shift;
  return 0;
}

int gap__kv_shape_init(struct gap_kv *kv) {
  const gap_kv_options *o = &kv->options;
  if (!numbers_fit(o) || !choices_fit(o) || !divides(o)) return GAP_EINVAL;
  kv->layers = o->layers / o->group_count;
  kv->token_shift = (uint32_t)__builtin_ctz(o->page_tokens);
  kv->rows = o->sequences;
  kv->columns = kv_columns(kv, o->tokens);
  kv->part_bytes = 2ull * o->page_tokens * o->heads * o->head_size * element_bytes(o->dtype);
  if (o->group_count * (uint64_t)kv->rows * kv->columns > INT32_MAX) {
    wrong("the tables would have 2^31 entries or more: fewer or shorter sequences are possible");
    return GAP_ELIMIT;
  }
  choose_slabs(kv);
  return count_slabs(kv);
}

/* ---- as the program sees it ---- */

int gap_kv_get_shape(gap_kv *kv, gap_kv_shape *out) {
  if (!kv || !out || out->size != sizeof *out) return GAP_EINVAL;
  const gap_kv_options *o = &kv->options;
  uint32_t element = element_bytes(o->dtype), head = o->head_size * element;
  bool by_head = o->order == GAP_KV_HND, single = kv->slab_shift == 0;
  *out = (gap_kv_shape){.size = sizeof *out,
                        .layers_per_group = kv->layers,
                        .heads = o->heads,
                        .head_size = o->head_size,
                        .element_bytes = element,
                        .page_tokens = o->page_tokens,
                        .group_count = o->group_count,
                        .first = kv->region.base,
                        .v_offset = kv->part_bytes / 2,
                        .layer_stride = kv_layer_stride(kv),
                        .page_stride = single ? kv->slab_bytes : kv->part_bytes,
                        .token_stride = by_head ? head : (uint64_t)head * o->heads,
                        .head_stride = by_head ? (uint64_t)head * o->page_tokens : head,
                        .kv_page_bytes = kv->part_bytes * kv->layers,
                        .slab_bytes = kv->slab_bytes,
                        .slab_kv_pages = 1u << kv->slab_shift,
                        .kv_pages = kv->page_count - 1,
                        .ids_end = kv_id(kv, kv->page_count - 1) + 1,
                        .rows = kv->rows,
                        .columns = kv->columns,
                        .table = kv->tables,
                        .lengths = kv->tables + kv->tables_bytes - kv->rows * sizeof(int32_t),
                        .flex_scale = (single ? kv->layers : 1) * 2 * (by_head ? o->heads : 1)};
  return 0;
}
