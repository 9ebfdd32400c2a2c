/* Usage, walk, texts. */
#include <string.h>

#include "api/client.h"
#include "base/text.h"

/* ---- usage ---- */

static void fill_usage(const struct gap__stats *s, gap_usage *out) {
  const int all = GAP__KIND_ALL;
  *out = (gap_usage){.size = sizeof *out,
                     .live_bytes = (uint64_t)s->allocated_bytes[all].current,
                     .requested_bytes = (uint64_t)s->requested_bytes[all].current,
                     .pending_bytes = (uint64_t)(s->active_bytes[all].current - s->allocated_bytes[all].current),
                     .held_bytes = (uint64_t)s->reserved_bytes[all].current,
                     .idle_returnable_bytes = (uint64_t)s->idle_returnable_bytes,
                     .idle_stuck_bytes = (uint64_t)s->idle_stuck_bytes,
                     .peak_live_bytes = (uint64_t)s->live_bytes_peak,
                     .peak_held_bytes = (uint64_t)s->reserved_bytes[all].peak,
                     .cap_bytes = (uint64_t)s->cap_bytes,
                     .largest_servable_bytes = (uint64_t)s->largest_servable_bytes};
}

int gap_get_usage(gap_heap *heap, int device, gap_usage *out) {
  if (out->size != sizeof *out) return GAP_EINVAL;
  struct gap__stats stats;
  gap__heap_rest(heap, device);
  int rc = gap__heap_stats(heap, device, &stats);
  if (rc) return rc;
  gap_usage usage;
  fill_usage(&stats, &usage);
  struct gap__dev *dev = gap__heap_dev(heap, device);
  if (dev) rc = gap__dev_mem_info(dev, &usage.card_free_bytes, &usage.card_total_bytes);
  if (!rc) *out = usage;
  return rc;
}

/* ---- blocks ---- */

_Static_assert((int)GAP_BLOCK_IDLE == (int)GAP__BLOCK_IDLE && (int)GAP_BLOCK_LIVE == (int)GAP__BLOCK_LIVE &&
                   (int)GAP_BLOCK_PENDING == (int)GAP__BLOCK_PENDING && (int)GAP_BLOCK_HOLE == (int)GAP__BLOCK_HOLE,
               "the states of the header are the core's");

static void show(const struct gap__block_info *info, gap_block *out) {
  *out = (gap_block){.addr = info->addr,
                     .bytes = info->bytes,
                     .requested = info->requested,
                     .stream = info->stream,
                     .pool = info->pool,
                     .state = (gap_block_state)info->state,
                     .is_large = info->is_large,
                     .segment = info->segment,
                     .segment_bytes = info->segment_bytes};
}

struct visitor {
  gap_block_fn fn;
  void *arg;
};

static int visit(void *arg, const struct gap__block_info *info) {
  const struct visitor *visitor = arg;
  gap_block block;
  show(info, &block);
  return visitor->fn(visitor->arg, &block);
}

int gap_walk(gap_heap *heap, int device, gap_block_fn fn, void *arg) {
  struct visitor visitor = {fn, arg};
  gap__heap_rest(heap, device);
  return gap__heap_walk(heap, device, visit, &visitor);
}

int gap_find_block(gap_heap *heap, gap_addr addr, gap_block *out, int *device) {
  struct gap__block_info info;
  int rc = gap__heap_find(heap, addr, &info, device);
  if (!rc) show(&info, out);
  return rc;
}

/* ---- texts ---- */

int gap__text_out(struct gap__text *from, int rc, char *text, size_t bytes, size_t *needed) {
  if (!rc && from->failed) rc = GAP_ENOMETA;
  if (!rc) {
    size_t length = from->length < bytes ? from->length : bytes ? bytes - 1 : 0;
    if (bytes) {
      memcpy(text, gap__text_str(from), length);
      text[length] = '\0';
    }
    if (needed) *needed = from->length;
  }
  gap__text_free(from);
  return rc;
}

int gap_summary(gap_heap *heap, int device, char *text, size_t bytes, size_t *needed) {
  struct gap__text whole = {0};
  return gap__text_out(&whole, gap__heap_summary(heap, device, &whole), text, bytes, needed);
}

int gap_explain(gap_heap *heap, int device, char *text, size_t bytes, size_t *needed) {
  struct gap__text whole = {0};
  char reason[1024];
  int rc = gap__heap_diagnosis(heap, device, reason, sizeof reason);
  if (!rc) gap__text_add(&whole, "%s", reason);
  return gap__text_out(&whole, rc, text, bytes, needed);
}

int gap_check(gap_heap *heap, int device, char *text, size_t bytes) {
  return gap__heap_check(heap, device, text, bytes);
}
