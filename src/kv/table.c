#include "kv/table.h"

#include <stdlib.h>
#include <string.h>

#include "kv/pages.h"

#define STAGE_LEAST ((size_t)256 << 10)

static size_t row_bytes(const struct gap_kv *kv) { return (size_t)kv->columns * sizeof(int32_t); }
static size_t host_table_bytes(const struct gap_kv *kv) { return kv->rows * (size_t)kv->columns * sizeof(uint32_t); }
static size_t lengths_bytes(const struct gap_kv *kv) { return kv->rows * sizeof(int32_t); }
static gap_addr lengths_addr(const struct gap_kv *kv) { return kv->tables + kv->tables_bytes - lengths_bytes(kv); }

/* ---- life ---- */

static int make_host_side(struct gap_kv *kv) {
  uint32_t groups = kv->options.group_count;
  bool failed = false;
  for (uint32_t g = 0; g < groups; g++) {
    kv->table[g] = gap__meta_map(host_table_bytes(kv));
    kv->dirty[g] = gap__meta_map(kv->rows * sizeof(struct kv_dirty));
    failed |= !kv->table[g] || !kv->dirty[g];
  }
  kv->dirty_rows = gap__meta_map(groups * (size_t)kv->rows * sizeof *kv->dirty_rows);
  kv->lengths = gap__meta_map(lengths_bytes(kv));
  kv->tails = gap__meta_map(kv->rows * (size_t)kv->options.page_tokens * sizeof *kv->tails);
  return failed || !kv->dirty_rows || !kv->lengths || !kv->tails ? GAP_ENOMETA : 0;
}

static int make_stages(struct gap_kv *kv) {
  size_t entries = kv->rows * (size_t)kv->options.group_count * 4 * sizeof(gap_kv_entry);
  kv->stage_bytes = (lengths_bytes(kv) + (entries > STAGE_LEAST ? entries : STAGE_LEAST) + 4095) & ~(size_t)4095;
  int rc = 0;
  for (int i = 0; !rc && i < KV_STAGES; i++) {
    struct kv_stage *stage = &kv->stages[i];
    unsigned char *memory = gap__meta_map(kv->stage_bytes);
    rc = memory ? gap__dev_pin(kv->dev, memory, kv->stage_bytes) : GAP_ENOMETA;
    if (rc) gap__meta_unmap(memory, kv->stage_bytes);
    else stage->memory = memory;
    if (!rc) rc = gap__dev_event_create(kv->dev, kv->options.stream, &stage->event);
  }
  return rc;
}

/* The null page everywhere. */
static int zero_tables(struct gap_kv *kv) {
  int rc = 0;
  for (uint64_t done = 0, part; !rc && done < kv->tables_bytes; done += part) {
    part = kv->tables_bytes - done < kv->stage_bytes ? kv->tables_bytes - done : kv->stage_bytes;
    rc = gap__dev_copy(kv->dev, kv->tables + done, (gap_addr)(uintptr_t)kv->stages[0].memory, part, kv->options.stream);
  }
  if (!rc) rc = gap__dev_event_record(kv->dev, kv->stages[0].event, kv->options.stream);
  kv->stages[0].busy = true;
  return rc;
}

int gap__kv_table_init(struct gap_kv *kv) {
  kv->tables_bytes = kv->options.group_count * (uint64_t)kv->rows * row_bytes(kv) + lengths_bytes(kv);
  int rc = make_host_side(kv);
  if (!rc) rc = make_stages(kv);
  if (!rc)
    rc = gap__heap_alloc_default(kv->heap, kv->options.device, kv->options.stream, kv->tables_bytes, &kv->tables);
  return rc ? rc : zero_tables(kv);
}

void gap__kv_table_free(struct gap_kv *kv) {
  for (int i = 0; i < KV_STAGES; i++) {
    struct kv_stage *stage = &kv->stages[i];
    if (stage->event) {
      gap__dev_event_record(kv->dev, stage->event, kv->options.stream); /* copies from it may be queued */
      gap__dev_event_wait(kv->dev, stage->event);
      gap__dev_event_destroy(kv->dev, stage->event);
    }
    if (stage->memory) gap__dev_unpin(kv->dev, stage->memory, kv->stage_bytes);
    gap__meta_unmap(stage->memory, kv->stage_bytes);
  }
  gap__heap_free(kv->heap, kv->tables);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    gap__meta_unmap(kv->table[g], host_table_bytes(kv));
    gap__meta_unmap(kv->dirty[g], kv->rows * sizeof(struct kv_dirty));
  }
  gap__meta_unmap(kv->dirty_rows, kv->options.group_count * (size_t)kv->rows * sizeof *kv->dirty_rows);
  gap__meta_unmap(kv->lengths, lengths_bytes(kv));
  gap__meta_unmap(kv->tails, kv->rows * (size_t)kv->options.page_tokens * sizeof *kv->tails);
  free(kv->copies);
}

/* ---- changes ---- */

void gap__kv_row_clear(struct gap_kv *kv, uint32_t seq, uint32_t from) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    if (from >= s->columns) continue;
    memset(kv_row(kv, g, seq) + from, 0, (s->columns - from) * sizeof(uint32_t));
    kv_mark(kv, g, seq, from, s->columns);
    if (s->first[g] > from) s->first[g] = from;
  }
  if (s->columns > from) s->columns = from;
}

int gap__kv_copies_room(struct gap_kv *kv, uint32_t count) {
  uint32_t room = kv->copy_room ? kv->copy_room : 64;
  if (kv->copy_count + count <= kv->copy_room) return 0;
  while (room < kv->copy_count + count) room *= 2;
  gap_kv_entry *grown = realloc(kv->copies, room * sizeof *grown);
  if (!grown) return GAP_ENOMETA;
  kv->copies = grown;
  kv->copy_room = room;
  return 0;
}

int gap__kv_copies_queue(struct gap_kv *kv) {
  int rc = gap__kv_copy(kv, kv->region.base, kv->region.base, kv->copies, kv->copy_count, kv->options.stream);
  if (!rc) kv->copy_count = 0;
  return rc;
}

/* ---- to the device ---- */

/* The next part of the pinned buffer.  What reads the last one has been queued by now. */
static int next_stage(struct gap_kv *kv, struct kv_stage **out) {
  struct kv_stage *last = &kv->stages[kv->stage];
  int rc = gap__dev_event_record(kv->dev, last->event, kv->options.stream);
  if (rc) return rc;
  last->busy = true;
  uint32_t next = (kv->stage + 1) % KV_STAGES;
  struct kv_stage *stage = &kv->stages[next];
  if (stage->busy) rc = gap__dev_event_wait(kv->dev, stage->event);
  if (rc) return rc;
  stage->busy = false;
  kv->stage = next;
  *out = stage;
  return 0;
}

/* What a column is to the device: of a swapped sequence nothing. */
static int32_t id_at(const struct gap_kv *kv, uint32_t group, uint32_t seq, uint32_t column) {
  return kv_seq_at(kv, seq)->swapped ? 0 : kv_id(kv, kv_row(kv, group, seq)[column]);
}

/* As much of a changed row as there is room for. */
static int flush_row(struct gap_kv *kv, uint32_t at, struct kv_stage *stage, size_t *used, size_t room) {
  uint32_t group = at / kv->rows, seq = at % kv->rows + 1;
  struct kv_dirty *d = &kv->dirty[group][seq - 1];
  uint32_t count = d->to - d->from, most = (uint32_t)((room - *used) / sizeof(int32_t));
  if (count > most) count = most;
  int32_t *values = (int32_t *)(void *)(stage->memory + *used);
  for (uint32_t i = 0; i < count; i++) values[i] = id_at(kv, group, seq, d->from + i);
  gap_addr to = kv->tables + ((uint64_t)at * kv->columns + d->from) * sizeof(int32_t);
  int rc =
      count ? gap__dev_copy(kv->dev, to, (gap_addr)(uintptr_t)values, count * sizeof(int32_t), kv->options.stream) : 0;
  if (rc) return rc;
  *used += count * sizeof(int32_t);
  d->from += count;
  kv->stats.table_entries += count;
  return 0;
}

static int flush_rows(struct gap_kv *kv, struct kv_stage *stage, size_t *used, size_t room) {
  int rc = 0;
  while (!rc && kv->dirty_count && *used + sizeof(int32_t) <= room) {
    uint32_t at = kv->dirty_rows[kv->dirty_count - 1];
    const struct kv_dirty *d = &kv->dirty[at / kv->rows][at % kv->rows];
    rc = flush_row(kv, at, stage, used, room);
    if (d->from >= d->to) kv->dirty_count--;
  }
  return rc;
}

static int flush_lengths(struct gap_kv *kv, const struct kv_stage *stage) {
  size_t bytes = kv->row_end * sizeof(int32_t);
  if (!kv->lengths_dirty || !bytes) return 0;
  memcpy(stage->memory, kv->lengths, bytes);
  int rc = gap__dev_copy(kv->dev, lengths_addr(kv), (gap_addr)(uintptr_t)stage->memory, bytes, kv->options.stream);
  if (!rc) kv->lengths_dirty = false;
  return rc;
}

int gap__kv_flush(struct gap_kv *kv) {
  int rc = gap__kv_copies_queue(kv);
  while (!rc && (kv->dirty_count || kv->lengths_dirty)) {
    struct kv_stage *stage;
    size_t used = lengths_bytes(kv);
    rc = next_stage(kv, &stage);
    if (!rc) rc = flush_lengths(kv, stage);
    if (!rc) rc = flush_rows(kv, stage, &used, kv->stage_bytes);
    kv->stats.flushes += !rc;
  }
  return rc;
}

int gap_kv_flush(gap_kv *kv) {
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = gap__kv_flush(kv);
  if (!rc) gap__kv_settle_slow(kv);
  gap__unlock(&kv->lock);
  return rc;
}

/* ---- to a kernel of the program's own ---- */

static void write_copies(struct gap_kv *kv, gap_kv_delta *out, gap_kv_entry *room, uint32_t most) {
  uint32_t count = kv->copy_count < most ? kv->copy_count : most;
  for (uint32_t i = 0; i < count; i++)
    room[i] = (gap_kv_entry){(uint32_t)kv_id(kv, kv->copies[i].index), kv_id(kv, (uint32_t)kv->copies[i].id)};
  memmove(kv->copies, kv->copies + count, (kv->copy_count - count) * sizeof *kv->copies);
  kv->copy_count -= count;
  out->copies = room;
  out->copy_count = count;
}

static uint32_t write_entries(struct gap_kv *kv, gap_kv_entry *room, uint32_t most) {
  uint32_t count = 0;
  while (kv->dirty_count && count < most) {
    uint32_t at = kv->dirty_rows[kv->dirty_count - 1], group = at / kv->rows, seq = at % kv->rows + 1;
    struct kv_dirty *d = &kv->dirty[group][seq - 1];
    for (; d->from < d->to && count < most; d->from++)
      room[count++] = (gap_kv_entry){at * kv->columns + d->from, id_at(kv, group, seq, d->from)};
    if (d->from >= d->to) kv->dirty_count--;
  }
  kv->stats.table_entries += count;
  return count;
}

static int take_delta(struct gap_kv *kv, gap_kv_delta *out) {
  struct kv_stage *stage;
  int rc = next_stage(kv, &stage);
  if (rc) return rc;
  gap_kv_entry *entries = (gap_kv_entry *)(void *)(stage->memory + lengths_bytes(kv));
  uint32_t room = (uint32_t)((kv->stage_bytes - lengths_bytes(kv)) / sizeof *entries);
  memcpy(stage->memory, kv->lengths, kv->row_end * sizeof(int32_t));
  write_copies(kv, out, entries, room / 2);
  out->entries = entries + out->copy_count;
  out->entry_count = kv->copy_count ? 0 : write_entries(kv, entries + out->copy_count, room - out->copy_count);
  out->lengths = (const int32_t *)(const void *)stage->memory;
  out->row_count = kv->row_end;
  out->more = kv->copy_count || kv->dirty_count;
  kv->lengths_dirty = false;
  kv->stats.flushes++;
  return 0;
}

int gap_kv_take_delta(gap_kv *kv, gap_kv_delta *out) {
  if (!kv || !out || out->size != sizeof *out) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = take_delta(kv, out);
  if (!rc) gap__kv_settle_slow(kv);
  gap__unlock(&kv->lock);
  return rc;
}
