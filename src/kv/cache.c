/* Making and destroying a cache; the ends of sequences. */
#include <stdlib.h>
#include <sys/random.h>

#include "kv/below.h"
#include "kv/code.h"
#include "kv/elastic.h"
#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"
#include "kv/shape.h"
#include "kv/swap.h"
#include "kv/table.h"

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next_key(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) | 1;
}

static void choose_keys(struct gap_kv *kv) {
  uint64_t seed = kv->options.seed;
  if (!seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
    seed = gap__dev_now_ns(kv->dev) ^ (uint64_t)(uintptr_t)kv;
  for (int i = 0; i < 4; i++) kv->keys[i] = next_key(&seed);
}

static int open_memory(struct gap_kv *kv) {
  const gap_kv_options *o = &kv->options;
  int rc = gap__heap_region_open(kv->heap, o->device, o->stream, "kv", kv->slab_count * kv->slab_bytes, &kv->region);
  if (!rc) kv->dev = gap__heap_dev(kv->heap, o->device);
  if (!rc) rc = gap__kv_pages_init(kv);
  if (!rc) rc = gap__kv_pages_ensure_slow(kv, 1);
  if (rc) return rc;
  kv->state[kv_page_take(kv)] = KV_BARE; /* the null page */
  return 0;
}

static int open_records(struct gap_kv *kv) {
  int rc = gap__slab_init(&kv->seqs, sizeof(struct kv_seq), kv->rows + 1);
  if (!rc) rc = gap__kv_table_init(kv);
  if (!rc) rc = gap__kv_prefix_init(kv);
  if (!rc) rc = gap__kv_host_init(kv);
  kv->path = gap__meta_map((kv->columns + 1ull) * sizeof *kv->path);
  return rc ? rc : kv->path ? 0 : GAP_ENOMETA;
}

int gap_kv_create(gap_heap *heap, const gap_kv_options *options, gap_kv **out) {
  if (!heap || !options || !out || options->size != sizeof *options) return GAP_EINVAL;
  struct gap_kv *kv = calloc(1, sizeof *kv);
  if (!kv) return GAP_ENOMETA;
  kv->heap = heap;
  kv->options = *options;
  for (uint32_t g = 0; options->windows && g < options->group_count && g < GAP_KV_GROUPS_MAX; g++)
    kv->windows[g] = options->windows[g];
  kv->options.windows = NULL; /* the caller's */
  int rc = gap__kv_shape_init(kv);
  if (!rc) rc = open_memory(kv);
  if (!rc) choose_keys(kv);
  if (!rc) gap__kv_move_init(kv);
  if (!rc) rc = open_records(kv);
  if (rc) {
    gap_kv_destroy(kv);
    return rc;
  }
  gap__kv_elastic_init(kv);
  *out = kv;
  return 0;
}

void gap_kv_destroy(gap_kv *kv) {
  if (!kv) return;
  gap__kv_elastic_free(kv);
  gap__kv_below_close(kv);
  if (kv->dev) {
    gap__kv_leaving_finish(kv);
    gap__kv_order(kv, kv->options.copy_stream, kv->options.stream);
    gap__kv_host_free(kv);
    gap__kv_table_free(kv);
    gap__kv_code_free(kv);
    gap__kv_prefix_free(kv);
    gap__kv_pages_free(kv);
  }
  gap__meta_unmap(kv->path, (kv->columns + 1ull) * sizeof *kv->path);
  if (kv->seqs.base) gap__slab_destroy(&kv->seqs);
  gap__heap_region_close(&kv->region);
  free(kv->leaving);
  free(kv->timers);
  free(kv);
}

/* ---- close ---- */

static int close_seq(struct gap_kv *kv, uint32_t seq, gap_stream stream) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  struct kv_leaving leaving;
  int rc = gap__kv_leave_prepare(kv, s->columns * kv->options.group_count, stream, &leaving);
  if (rc) return rc;
  gap__kv_seq_offer(kv, seq);
  if (s->swapped) gap__kv_host_drop(kv, seq);
  else gap__kv_seq_offer_tail(kv, seq);
  gap__kv_leave_collect(kv, seq, &leaving);
  gap__kv_seq_move(kv, seq, 0, 0);
  s->live = false;
  s->leaving = true;
  leaving.seq = seq;
  gap__kv_leave(kv, &leaving);
  return 0;
}

int gap_kv_close(gap_kv *kv, gap_kv_seq seq, gap_stream stream) {
  uint32_t index;
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) rc = close_seq(kv, index, stream);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}
