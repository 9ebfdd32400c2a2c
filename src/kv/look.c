/* What a cache holds, and for what. */
#include "kv/ceiling.h"
#include "kv/leave.h"
#include "kv/prefix.h"
#include "kv/seq.h"

struct waste {
  uint64_t tail, window, entries; /* bytes; bytes; table entries */
};

/* Each user of a KV page answers for its part of the unfilled end. */
static void add_waste(const struct gap_kv *kv, uint32_t index, struct waste *w) {
  const struct kv_seq *s = kv_seq_at(kv, index);
  uint64_t token_bytes = kv->part_bytes * kv->layers >> kv->token_shift;
  uint64_t unfilled = ((uint64_t)s->columns << kv->token_shift) - s->length;
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t window = kv->windows[g], out = window && s->length > window ? s->length - window : 0;
    uint32_t gone = s->first[g] << kv->token_shift;
    w->entries += s->columns - s->first[g];
    if (out > gone) w->window += (out - gone) * token_bytes;
    if (unfilled) w->tail += unfilled * token_bytes / kv->pages[kv_row(kv, g, index)[s->columns - 1]].refs;
  }
}

static struct waste waste_of_all(const struct gap_kv *kv) {
  struct waste w = {0};
  for (uint32_t i = 1; i < kv->seqs.count; i++)
    if (kv_seq_at(kv, i)->live && !kv_seq_at(kv, i)->swapped) add_waste(kv, i, &w);
  return w;
}

static void reckon(const struct gap_kv *kv, gap_kv_stats *out) {
  struct waste w = waste_of_all(kv);
  uint64_t page = kv->part_bytes * kv->layers, slabs = kv->slab_count - kv->bare_memory.count;
  uint64_t spare = (uint64_t)kv->spare.count << kv->slab_shift;
  uint64_t in_use = (slabs << kv->slab_shift) - kv->free.count - kv->cached - kv->bare_pages - 1;
  uint64_t leaving = w.entries >= in_use                      ? 0
                     : in_use - w.entries < kv->leaving_pages ? in_use - w.entries
                                                              : kv->leaving_pages;
  uint64_t alive = (in_use - leaving) * page;
  out->bytes_held = slabs * kv->slab_bytes + kv->tables_bytes;
  out->bytes_tail = w.tail;
  out->bytes_window = w.window;
  out->bytes_live_tokens = alive > w.tail + w.window ? alive - w.tail - w.window : 0;
  out->bytes_cached = kv->cached * page;
  out->bytes_free = (kv->free.count - spare) * page;
  out->bytes_spare = spare * page;
  out->bytes_leaving = leaving * page;
  out->bytes_bare = kv->bare_pages * page;
  out->bytes_tables = kv->tables_bytes + page;
  out->bytes_shared = w.entries + leaving > in_use ? (w.entries + leaving - in_use) * page : 0;
  out->bytes_host = kv->host_slabs_pinned * kv->slab_bytes;
  out->kv_pages = kv_capacity(kv) - 1;
  out->kv_pages_free = kv_free_pages(kv);
  out->kv_pages_cached = kv->cached;
  out->kv_pages_pinned = kv->cached - kv->cached_listed;
  out->slabs = slabs;
  out->nodes = kv->nodes.in_use;
}

static uint64_t ceiling(const struct gap_kv *kv) {
  if (!kv_shares(kv) || kv->options.flags & GAP_KV_NO_CEILING) return 0;
  double different = gap__kv_ceiling_count(kv->ceiling), asked = (double)kv->stats.kv_pages_asked;
  return different < asked ? (uint64_t)(asked - different) : 0;
}

int gap_kv_get_stats(gap_kv *kv, gap_kv_stats *out) {
  if (!kv || !out || out->size != sizeof *out) return GAP_EINVAL;
  gap__lock(&kv->lock);
  gap__kv_leaving_poll(kv);
  *out = kv->stats;
  out->size = sizeof *out;
  reckon(kv, out);
  out->kv_pages_ceiling = ceiling(kv);
  gap__unlock(&kv->lock);
  return 0;
}

static void count_group(const struct gap_kv *kv, const struct kv_seq *s, const uint32_t *row, uint32_t group,
                        gap_kv_about *out) {
  for (uint32_t c = s->first[group]; c < s->columns; c++) {
    bool next =
        c > s->first[group] && row[c] == row[c - 1] + 1 && (!kv->slab_shift || row[c] & ((1u << kv->slab_shift) - 1));
    out->kv_pages++;
    out->runs += !next;
    out->shared_kv_pages += !s->swapped && kv->pages[row[c]].refs > 1;
  }
}

int gap_kv_get_about(gap_kv *kv, gap_kv_seq seq, gap_kv_about *out) {
  uint32_t index;
  if (!kv || !out || out->size != sizeof *out) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) {
    const struct kv_seq *s = kv_seq_at(kv, index);
    *out = (gap_kv_about){.size = sizeof *out, .row = index - 1, .tokens = s->length, .swapped = s->swapped};
    for (uint32_t g = 0; g < kv->options.group_count; g++) count_group(kv, s, kv_row(kv, g, index), g, out);
  }
  gap__unlock(&kv->lock);
  return rc;
}
