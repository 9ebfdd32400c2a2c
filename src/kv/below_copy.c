/* Between the device and pinned memory: KV pages in berths lie one after the other, layer by layer. */
#include "kv/below.h"
#include "kv/leave.h"

struct kv_berth *gap__kv_berth_take(struct kv_below *b, uint32_t leave) {
  struct kv_berth *free = NULL;
  uint32_t count = 0;
  for (int i = 0; i < KV_BERTHS; i++) {
    if (b->berths[i].busy || (!b->berths[i].memory && !b->simulated)) continue;
    free = &b->berths[i];
    count++;
  }
  if (count <= leave) return NULL;
  free->busy = true;
  return free;
}

void gap__kv_berth_give(struct kv_berth *berth) {
  if (berth) berth->busy = false;
}

static uint64_t offset_of(const struct gap_kv *kv, uint32_t page) {
  uint32_t inside = page & ((1u << kv->slab_shift) - 1);
  return (page >> kv->slab_shift) * kv->slab_bytes + inside * kv->part_bytes;
}

uint32_t gap__kv_spans(const struct gap_kv *kv, uint32_t page, gap_span *out) {
  uint32_t parts = kv->slab_shift ? kv->layers : 1;
  uint64_t bytes = kv->part_bytes * kv->layers / parts;
  for (uint32_t i = 0; i < parts; i++)
    out[i] = (gap_span){kv->region.base + offset_of(kv, page) + i * kv_layer_stride(kv), bytes};
  return parts;
}

static int copy_page(struct kv_below *b, uint32_t page, unsigned char *memory, bool down) {
  gap_span spans[KV_SPANS_MOST];
  uint32_t count = gap__kv_spans(b->kv, page, spans);
  gap_addr host = (gap_addr)(uintptr_t)memory;
  int rc = 0;
  for (uint32_t i = 0; i < count && !rc; host += spans[i++].bytes)
    rc = down ? gap__dev_copy(b->kv->dev, host, spans[i].addr, spans[i].bytes, b->down)
              : gap__dev_copy(b->kv->dev, spans[i].addr, host, spans[i].bytes, b->up);
  return rc;
}

/* What has been queued ends; should the driver not even say when, nothing of it is touched any more. */
static int abandon(struct kv_below *b, struct kv_berth *berth, gap_stream stream, int rc) {
  if (gap__dev_event_record(b->kv->dev, berth->event, stream) || gap__dev_event_wait(b->kv->dev, berth->event))
    b->lost = true;
  return rc;
}

/* Behind what the cache's stream was given so far, which wrote the KV pages, or read what they were before. */
int gap__kv_berth_copy(struct kv_below *b, struct kv_cargo *cargo, bool down) {
  struct gap_kv *kv = b->kv;
  gap_stream stream = down ? b->down : b->up;
  if (b->simulated) return 0;
  if (!gap__dev_recordable(kv->dev, kv->options.stream)) return GAP_EAGAIN;
  int rc = gap__kv_order(kv, kv->options.stream, stream);
  if (rc) return rc;
  for (uint32_t i = 0; i < cargo->count && !rc; i++)
    if (!cargo->failed[i]) rc = copy_page(b, cargo->pages[i], cargo->berth->memory + i * b->page_bytes, down);
  if (!rc) rc = gap__dev_event_record(kv->dev, cargo->berth->event, stream);
  return rc ? abandon(b, cargo->berth, stream, rc) : 0;
}

/* An event that cannot be asked: what is under way is waited for, before the memory serves others. */
int gap__kv_berth_poll(struct kv_below *b, struct kv_cargo *cargo, bool down) {
  int rc = b->simulated ? 0 : gap__dev_event_query(b->kv->dev, cargo->berth->event);
  return !rc || rc == GAP_EAGAIN ? rc : abandon(b, cargo->berth, down ? b->down : b->up, rc);
}
