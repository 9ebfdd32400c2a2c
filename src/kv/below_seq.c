/* Swapped sequences: from pinned host memory to the disk when the room for them is nearly used up, and back when they are wanted.
 *
 * The youngest falls first: it comes back last.  On its way a sequence's host KV pages are the cargo's, so that it may be closed meanwhile. */
#include <stdlib.h>

#include "kv/below.h"
#include "kv/seq.h"
#include "kv/swap.h"

enum { FALLS_MOST = 2, TIGHT_PART = 4 };
#define RETRY_NS 1000000000u

/* ---- the way ---- */

static uint64_t offset_of(const struct gap_kv *kv, uint32_t page) {
  uint32_t inside = page & ((1u << kv->slab_shift) - 1);
  return (page >> kv->slab_shift) * kv->slab_bytes + inside * kv->part_bytes;
}

/* Its KV pages in host memory, piece by piece. */
static gap_span *spans_of(const struct kv_below *b, const struct kv_cargo *cargo, uint32_t *count) {
  const struct gap_kv *kv = b->kv;
  uint32_t parts = kv->slab_shift ? kv->layers : 1;
  gap_span *spans = malloc(((size_t)cargo->host_count * parts + 1) * sizeof *spans);
  *count = 0;
  for (uint32_t i = 0; spans && i < cargo->host_count; i++)
    for (uint32_t p = 0; p < parts; p++) {
      uint64_t at = offset_of(kv, cargo->host[i] - 1) + p * kv_layer_stride(kv);
      spans[(*count)++] = (gap_span){(gap_addr)(uintptr_t)kv->host + at, b->page_bytes / parts};
    }
  return spans;
}

/* Behind the copies between host memory and the device. */
static int launch(struct kv_below *b, struct kv_cargo *cargo) {
  uint32_t count;
  int device = b->kv->options.device;
  gap_stream stream = b->kv->options.copy_stream;
  if (!gap__dev_recordable(b->kv->dev, stream)) return GAP_EAGAIN;
  gap_span *spans = spans_of(b, cargo, &count);
  int rc = !spans         ? GAP_ENOMETA
           : cargo->falls ? gap__tier_put(b->tier, device, spans, count, stream, GAP_PUT_DISK, &cargo->item)
                          : gap__tier_get(b->tier, device, cargo->item, 0, spans, count, stream);
  free(spans);
  return rc;
}

static int poll_item(struct kv_below *b, struct kv_cargo *cargo) {
  gap_item_info info = {.size = sizeof info};
  int rc = gap__tier_look(b->tier, b->kv->options.device, cargo->item, &info);
  return rc ? rc : info.busy ? GAP_EAGAIN : info.error;
}

/* ---- what became of it ---- */

/* The sequence that it was, if it is still there. */
static struct kv_seq *owner(const struct kv_below *b, const struct kv_cargo *cargo) {
  struct kv_seq *s = kv_seq_at(b->kv, cargo->seq);
  bool same = s->live && s->swapped && s->generation == cargo->generation;
  return same && s->depth == (cargo->falls ? KV_FALLING : KV_RISING) ? s : NULL;
}

static void give_host(struct kv_below *b, const struct kv_cargo *cargo) {
  for (uint32_t i = 0; i < cargo->host_count; i++) gap__kv_host_give(b->kv, cargo->host[i]);
}

/* Cached KV pages make room for sequences; where there are none it is tried again after a while. */
static void no_room(struct kv_below *b, const struct kv_cargo *cargo) {
  b->stats.not_stored += cargo->host_count;
  if (cargo->rc == GAP_ELIMIT && gap__kv_shed(b, KV_PLACE_DISK, cargo->host_count)) return;
  b->fall_ns = gap__kv_below_now() + RETRY_NS;
}

static void finish_fall(struct kv_below *b, struct kv_cargo *cargo) {
  struct kv_seq *s = owner(b, cargo);
  b->falls--;
  if (s && (cargo->rc || s->wanted)) { /* it stays, or comes back before it has gone */
    s->depth = KV_IN_HOST;
    s->wanted = false;
    gap__kv_drop_item(b, cargo->item);
    if (cargo->rc) no_room(b, cargo);
    return;
  }
  give_host(b, cargo);
  if (!s) {
    gap__kv_drop_item(b, cargo->item);
    return;
  }
  s->depth = KV_ON_DISK;
  s->item = cargo->item;
  b->stats.sequences_down++;
}

static void name_host(struct kv_below *b, const struct kv_cargo *cargo, const struct kv_seq *s) {
  uint32_t i = 0;
  for (uint32_t g = 0; g < b->kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++) kv_row(b->kv, g, cargo->seq)[c] = cargo->host[i++];
}

static void finish_rise(struct kv_below *b, struct kv_cargo *cargo) {
  struct kv_seq *s = owner(b, cargo);
  if (s && cargo->rc) {
    s->depth = KV_ON_DISK;
    s->lost = true;
    b->stats.lost += cargo->host_count;
  }
  if (!s || cargo->rc) give_host(b, cargo);
  if (!s || !cargo->rc) gap__kv_drop_item(b, cargo->item);
  if (!s || cargo->rc) return;
  name_host(b, cargo, s);
  s->depth = KV_IN_HOST;
  s->wanted = false;
  b->stats.sequences_up++;
}

static const struct kv_way falling = {launch, poll_item, finish_fall}, rising = {launch, poll_item, finish_rise};

/* ---- who ---- */

static struct kv_cargo *cargo_for(struct kv_below *b, uint32_t seq, bool falls) {
  const struct kv_seq *s = kv_seq_at(b->kv, seq);
  struct kv_cargo *cargo = gap__kv_cargo_new(falls ? &falling : &rising);
  if (!cargo) return NULL;
  uint32_t count = gap__kv_swap_need(b->kv, seq);
  cargo->host = malloc((count + 1) * sizeof *cargo->host);
  if (!cargo->host) {
    free(cargo);
    return NULL;
  }
  cargo->seq = seq;
  cargo->generation = s->generation;
  cargo->host_count = count;
  cargo->falls = falls;
  cargo->item = falls ? 0 : s->item;
  return cargo;
}

/* Somebody waits for room to come back to, or little is left for the next one. */
static bool is_tight(const struct kv_below *b) {
  const struct gap_kv *kv = b->kv;
  uint32_t room = gap__kv_host_room(kv), all = kv->host_slabs << kv->slab_shift;
  return room < all / TIGHT_PART || room < b->wanted_room;
}

static uint32_t youngest(const struct gap_kv *kv) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, i);
    if (!s->live || !s->swapped || s->depth != KV_IN_HOST || !s->columns) continue;
    if (!best || s->age > kv_seq_at(kv, best)->age) best = i;
  }
  return best;
}

/* The sequence that is to go; 0: none. */
static uint32_t next_to_fall(const struct kv_below *b) {
  const struct gap_kv *kv = b->kv;
  bool can = !b->simulated && kv->stats.sequences_swapped && b->most[KV_PLACE_DISK];
  if (b->fall_ns && gap__kv_below_now() < b->fall_ns) return 0;
  return can && is_tight(b) ? youngest(kv) : 0;
}

struct kv_cargo *gap__kv_pick_fall(struct kv_below *b) {
  struct gap_kv *kv = b->kv;
  uint32_t seq = b->falls < FALLS_MOST ? next_to_fall(b) : 0;
  struct kv_cargo *cargo = seq ? cargo_for(b, seq, true) : NULL;
  if (!cargo) return NULL;
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t i = 0;
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    for (uint32_t c = s->first[g]; c < s->columns; c++) cargo->host[i++] = kv_row(kv, g, seq)[c];
  s->depth = KV_FALLING;
  b->falls++;
  return cargo;
}

/* Of those that are wanted back the oldest. */
static uint32_t oldest_wanted(const struct gap_kv *kv) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(kv, i);
    if (!s->live || !s->swapped || s->depth != KV_ON_DISK || !s->wanted || s->lost) continue;
    if (!best || s->age < kv_seq_at(kv, best)->age) best = i;
  }
  return best;
}

struct kv_cargo *gap__kv_pick_rise(struct kv_below *b) {
  struct gap_kv *kv = b->kv;
  uint32_t seq = kv->stats.sequences_swapped ? oldest_wanted(kv) : 0;
  b->wanted_room = seq ? gap__kv_swap_need(kv, seq) : 0;
  if (!seq || gap__kv_host_ensure(kv, b->wanted_room)) return NULL;
  struct kv_cargo *cargo = cargo_for(b, seq, false);
  for (uint32_t i = 0; cargo && i < cargo->host_count; i++) cargo->host[i] = gap__kv_host_take(kv);
  if (cargo) kv_seq_at(kv, seq)->depth = KV_RISING;
  return cargo;
}

bool gap__kv_sequences_move(const struct kv_below *b) {
  return next_to_fall(b) || (b->kv->stats.sequences_swapped && oldest_wanted(b->kv));
}
