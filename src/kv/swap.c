#include "kv/swap.h"

#include <stdlib.h>

#include "kv/below.h"
#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"
#include "kv/table.h"

#define PIN_BYTES ((uint64_t)64 << 20) /* pinned at once */

/* ---- host memory: addresses for all of it, pinned as it is needed ---- */

static uint64_t host_bytes(const struct gap_kv *kv) { return kv->host_slabs * kv->slab_bytes; }
static uint64_t pin_bytes(const struct gap_kv *kv) { return kv->pin_slabs * kv->slab_bytes; }

int gap__kv_host_init(struct gap_kv *kv) {
  kv->pin_slabs = kv->slab_bytes < PIN_BYTES ? (uint32_t)(PIN_BYTES / kv->slab_bytes) : 1;
  uint64_t slabs = kv->options.host_bytes / pin_bytes(kv) * kv->pin_slabs;
  if (!slabs && kv->options.host_bytes >= kv->slab_bytes)
    kv->pin_slabs = (uint32_t)(slabs = kv->options.host_bytes / kv->slab_bytes);
  if (slabs << kv->slab_shift > KV_BITS_MOST) slabs = (KV_BITS_MOST >> kv->slab_shift) / kv->pin_slabs * kv->pin_slabs;
  kv->host_slabs = (uint32_t)slabs;
  if (!slabs) return 0;
  kv->host = gap__meta_map(host_bytes(kv));
  return kv->host ? gap__kv_bits_init(&kv->host_free, (uint32_t)slabs << kv->slab_shift) : GAP_ENOMETA;
}

void gap__kv_host_free(struct gap_kv *kv) {
  if (!kv->host) return;
  if (kv->stages[0].event && gap__dev_event_record(kv->dev, kv->stages[0].event, kv->options.stream) == 0)
    gap__dev_event_wait(kv->dev, kv->stages[0].event); /* copies may be queued still */
  for (uint32_t i = 0; i < kv->host_slabs_pinned; i += kv->pin_slabs)
    gap__dev_unpin(kv->dev, kv->host + i * kv->slab_bytes, pin_bytes(kv));
  gap__meta_unmap(kv->host, host_bytes(kv));
  gap__kv_bits_free(&kv->host_free);
}

int gap__kv_host_ensure(struct gap_kv *kv, uint32_t need) {
  while (kv->host_free.count < need) {
    uint32_t at = kv->host_slabs_pinned;
    if (at == kv->host_slabs || gap__dev_pin(kv->dev, kv->host + at * kv->slab_bytes, pin_bytes(kv))) return GAP_ENOMEM;
    gap__kv_bits_add_range(&kv->host_free, at << kv->slab_shift, kv->pin_slabs << kv->slab_shift);
    kv->host_slabs_pinned += kv->pin_slabs;
  }
  return 0;
}

/* Rows of swapped sequences name host KV pages, counted from 1: 0 is none here too. */
uint32_t gap__kv_host_take(struct gap_kv *kv) {
  uint32_t page = kv_bits_first(&kv->host_free);
  kv_bits_remove(&kv->host_free, page);
  return page + 1;
}
void gap__kv_host_give(struct gap_kv *kv, uint32_t page) { kv_bits_add(&kv->host_free, page - 1); }

uint32_t gap__kv_host_room(const struct gap_kv *kv) {
  return kv->host_free.count + ((kv->host_slabs - kv->host_slabs_pinned) << kv->slab_shift);
}

/* On its way its host KV pages belong to who carries it. */
void gap__kv_host_drop(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++) {
      if (s->depth == KV_IN_HOST) gap__kv_host_give(kv, kv_row(kv, g, seq)[c]);
      kv_row(kv, g, seq)[c] = 0;
    }
  if (s->depth == KV_ON_DISK) gap__kv_drop_item(kv->below, s->item);
  s->depth = KV_IN_HOST;
  s->wanted = s->lost = false;
  s->swapped = false;
  s->columns = 0;
  kv->stats.sequences_swapped--;
}

/* ---- out ---- */

static uint32_t pages_of(const struct gap_kv *kv, uint32_t seq) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t count = 0;
  for (uint32_t g = 0; g < kv->options.group_count; g++) count += s->columns - s->first[g];
  return count;
}

/* Pairs (KV page, host KV page) in the order of the table, so that neighbours stay neighbours. */
static uint32_t pair_all(struct gap_kv *kv, uint32_t seq, gap_kv_entry *pairs) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t count = 0;
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++)
      pairs[count++] = (gap_kv_entry){kv_row(kv, g, seq)[c], (int32_t)(gap__kv_host_take(kv) - 1)};
  return count;
}

static void unpair(struct gap_kv *kv, const gap_kv_entry *pairs, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) gap__kv_host_give(kv, (uint32_t)pairs[i].id + 1);
}

static void name_host_pages(struct gap_kv *kv, uint32_t seq, const gap_kv_entry *pairs) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++) kv_row(kv, g, seq)[c] = (uint32_t)(pairs++)->id + 1;
}

static int copy_out(struct gap_kv *kv, const gap_kv_entry *pairs, uint32_t count) {
  int rc = gap__kv_copies_queue(kv);
  if (!rc) rc = gap__kv_order(kv, kv->options.stream, kv->options.copy_stream);
  return rc ? rc
            : gap__kv_copy(kv, (gap_addr)(uintptr_t)kv->host, kv->region.base, pairs, count, kv->options.copy_stream);
}

static void leave_device(struct gap_kv *kv, uint32_t seq, const gap_kv_entry *pairs, uint32_t count,
                         struct kv_leaving *leaving) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t columns = s->columns, first[GAP_KV_GROUPS_MAX];
  for (uint32_t g = 0; g < kv->options.group_count; g++) first[g] = s->first[g];
  gap__kv_leave_collect(kv, seq, leaving);
  gap__kv_row_clear(kv, seq, 0);
  s->columns = columns;
  for (uint32_t g = 0; g < kv->options.group_count; g++) s->first[g] = first[g];
  name_host_pages(kv, seq, pairs);
  s->swapped = true;
  kv->lengths[seq - 1] = 0;
  kv->lengths_dirty = true;
  kv->stats.sequences_swapped++;
  kv->stats.swapped_out += count;
  gap__kv_leave(kv, leaving);
}

int gap__kv_swap_out(struct gap_kv *kv, uint32_t seq) {
  struct kv_leaving leaving;
  if (kv_seq_at(kv, seq)->swapped) return GAP_ESTATE;
  uint32_t count = pages_of(kv, seq);
  int rc = gap__kv_host_ensure(kv, count);
  gap_kv_entry *pairs = rc ? NULL : malloc((count + 1) * sizeof *pairs);
  if (!pairs) return rc ? rc : GAP_ENOMETA;
  gap__kv_seq_offer(kv, seq);
  pair_all(kv, seq, pairs);
  rc = copy_out(kv, pairs, count);
  if (!rc) rc = gap__kv_leave_prepare(kv, count, kv->options.copy_stream, &leaving);
  if (rc) unpair(kv, pairs, count);
  else leave_device(kv, seq, pairs, count, &leaving);
  free(pairs);
  return rc;
}

/* ---- in ---- */

uint32_t gap__kv_swap_need(const struct gap_kv *kv, uint32_t seq) { return pages_of(kv, seq); }

/* The nodes of its full KV pages by column: what of them is cached is shared. */
static void find_path(struct gap_kv *kv, const struct kv_seq *s) {
  for (uint32_t node = s->node, c = s->node_pages; c > 0; node = kv_node_at(kv, node)->parent) kv->path[--c] = node;
}

/* What each entry of the table is to become: a KV page that is cached, or a fresh one that the host's is copied to.  How many are. */
static uint32_t plan_return(struct gap_kv *kv, uint32_t seq, uint32_t *becomes, gap_kv_entry *pairs) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t count = 0;
  find_path(kv, s);
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++, becomes++) {
      *becomes = c < s->node_pages ? kv_node_pages(kv, kv->path[c])[g] : 0;
      if (*becomes) continue;
      *becomes = kv_page_take_for(kv, g);
      pairs[count++] = (gap_kv_entry){kv_row(kv, g, seq)[c] - 1, (int32_t)*becomes};
    }
  return count;
}

/* The device works in this order: what used these KV pages, the copies, the next step. */
static int copy_in(struct gap_kv *kv, const gap_kv_entry *pairs, uint32_t count) {
  gap_stream steps = kv->options.stream, copies = kv->options.copy_stream;
  int rc = gap__kv_copies_queue(kv);
  if (!rc) rc = gap__kv_order(kv, steps, copies);
  if (!rc) rc = gap__kv_copy(kv, kv->region.base, (gap_addr)(uintptr_t)kv->host, pairs, count, copies);
  return rc ? rc : gap__kv_order(kv, copies, steps);
}

/* Host KV pages are free at once: who writes there next does it later on the same stream. */
static void take_back(struct gap_kv *kv, uint32_t seq, const uint32_t *becomes) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    for (uint32_t c = s->first[g]; c < s->columns; c++, becomes++) {
      uint32_t *entry = &kv_row(kv, g, seq)[c];
      gap__kv_host_give(kv, *entry);
      *entry = *becomes;
    }
    kv_mark(kv, g, seq, s->first[g], s->columns);
  }
  s->swapped = false;
  kv->lengths[seq - 1] = (int32_t)s->length;
  kv->lengths_dirty = true;
  kv->stats.sequences_swapped--;
}

/* `becomes` has room for `need` entries, as `pairs`. */
static int swap_in(struct gap_kv *kv, uint32_t seq, uint32_t need, uint32_t *becomes, gap_kv_entry *pairs) {
  int rc = kv_pages_ensure(kv, need);
  if (rc) return rc;
  uint32_t fresh = plan_return(kv, seq, becomes, pairs);
  rc = copy_in(kv, pairs, fresh);
  if (rc) {
    for (uint32_t i = 0; i < fresh; i++) kv_page_drop(kv, (uint32_t)pairs[i].id);
    return rc;
  }
  for (uint32_t i = 0, next = 0; i < need; i++) /* fresh ones have their first reference */
    if (next < fresh && becomes[i] == (uint32_t)pairs[next].id) next++;
    else kv_page_share(kv, becomes[i]);
  take_back(kv, seq, becomes);
  kv->stats.swapped_in += fresh;
  kv->stats.swap_shared += need - fresh;
  return 0;
}

int gap__kv_swap_in(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  if (!s->swapped) return GAP_ESTATE;
  if (s->depth != KV_IN_HOST) {
    s->wanted = true;
    return s->lost ? GAP_EIO : GAP_EAGAIN;
  }
  uint32_t need = gap__kv_swap_need(kv, seq);
  uint32_t *becomes = malloc((need + 1) * sizeof *becomes);
  gap_kv_entry *pairs = malloc((need + 1) * sizeof *pairs);
  int rc = becomes && pairs ? swap_in(kv, seq, need, becomes, pairs) : GAP_ENOMETA;
  free(becomes);
  free(pairs);
  return rc;
}

int gap__kv_swap_forget(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  s->dropped = s->columns;
  gap__kv_host_drop(kv, seq);
  return gap__kv_truncate(kv, seq, 0);
}

/* ---- by name ---- */

static int by_name(gap_kv *kv, gap_kv_seq seq, int (*call)(struct gap_kv *, uint32_t)) {
  uint32_t index;
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) rc = call(kv, index);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}

int gap_kv_swap_out(gap_kv *kv, gap_kv_seq seq) { return by_name(kv, seq, gap__kv_swap_out); }
int gap_kv_swap_in(gap_kv *kv, gap_kv_seq seq) { return by_name(kv, seq, gap__kv_swap_in); }
