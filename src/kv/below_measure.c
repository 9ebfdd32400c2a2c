/* What the places give on this machine, measured when they are opened: one KV page for the latency, several at once for the rate. */
#include <string.h>

#include "kv/below.h"
#include "kv/leave.h"
#include "kv/swap.h"
#include "kv/table.h"
#include "kv/worth.h"

enum { AT_ONCE = 8, TRIES = 3 };

/* From the time that one took, and the time that AT_ONCE took together. */
static gap_kv_rate rate_of(uint64_t bytes, uint64_t one_ns, uint64_t all_ns) {
  uint64_t more_ns = all_ns > one_ns ? all_ns - one_ns : 1;
  gap_kv_rate rate = {.bytes_s = (uint64_t)((double)(bytes * (AT_ONCE - 1)) / (double)more_ns * 1e9)};
  uint64_t slowest = (uint64_t)((double)bytes / (double)(one_ns ? one_ns : 1) * 1e9);
  if (rate.bytes_s < slowest) rate.bytes_s = slowest;
  if (!rate.bytes_s) rate.bytes_s = 1;
  uint64_t moving = (uint64_t)((double)bytes / (double)rate.bytes_s * 1e9);
  rate.latency_ns = one_ns > moving ? one_ns - moving : 0;
  return rate;
}

/* ---- host memory, disk ---- */

static int bring(struct kv_below *b, gap_item item, const gap_span *spans, uint32_t count, int times, uint64_t *ns) {
  int device = b->kv->options.device, rc = 0;
  uint64_t began = gap__kv_below_now();
  for (int i = 0; i < times && !rc; i++)
    rc = gap__tier_get(b->tier, device, item, 0, spans, count, b->kv->options.stream);
  int ended = gap__tier_wait(b->tier, device, item);
  *ns = gap__kv_below_now() - began;
  return rc ? rc : ended;
}

/* The null page goes down and comes up as it was. */
static gap_kv_rate measure(struct kv_below *b, unsigned flags) {
  int device = b->kv->options.device;
  gap_span spans[KV_SPANS_MOST];
  uint32_t count = gap__kv_spans(b->kv, 0, spans);
  uint64_t ns, one = UINT64_MAX, all = UINT64_MAX;
  gap_item item;
  if (gap__tier_put(b->tier, device, spans, count, b->kv->options.stream, flags, &item)) return (gap_kv_rate){0, 0};
  int rc = gap__tier_wait(b->tier, device, item);
  for (int i = 0; i < TRIES && !rc; i++) {
    rc = bring(b, item, spans, count, 1, &ns);
    if (ns < one) one = ns;
    if (!rc) rc = bring(b, item, spans, count, AT_ONCE, &ns);
    if (ns < all) all = ns;
  }
  (void)gap__tier_drop(b->tier, device, item);
  return rc ? (gap_kv_rate){0, 0} : rate_of(b->page_bytes, one, all);
}

void gap__kv_measure_local(struct kv_below *b) {
  if (b->most[KV_PLACE_HOST]) b->rates.host = measure(b, GAP_PUT_HOST);
  if (b->most[KV_PLACE_DISK]) b->rates.disk = measure(b, GAP_PUT_DISK);
}

/* ---- by a kernel, or by the copy engine ---- */

/* The null page to one of the host, several times at once. */
static int copy_many(struct kv_below *b, bool kernel, uint32_t host_page, gap__event event, uint64_t *ns) {
  struct gap_kv *kv = b->kv;
  gap_kv_entry pairs[AT_ONCE];
  for (int i = 0; i < AT_ONCE; i++) pairs[i] = (gap_kv_entry){0, (int32_t)host_page - 1};
  uint64_t began = gap__kv_below_now();
  int rc = gap__kv_copy_by(kv, kernel, (gap_addr)(uintptr_t)kv->host, kv->region.base, pairs, AT_ONCE,
                           kv->options.copy_stream);
  int ended = gap__dev_event_record(kv->dev, event, kv->options.copy_stream);
  if (!ended) ended = gap__dev_event_wait(kv->dev, event);
  *ns = gap__kv_below_now() - began;
  return rc ? rc : ended;
}

static uint64_t rate_by(struct kv_below *b, bool kernel, uint32_t host_page, gap__event event) {
  uint64_t best = UINT64_MAX, ns;
  for (int i = 0; i < TRIES; i++) {
    if (copy_many(b, kernel, host_page, event, &ns)) return 0;
    if (ns < best) best = ns;
  }
  return (uint64_t)((double)(AT_ONCE * b->page_bytes) / (double)(best ? best : 1) * 1e9);
}

/* Pieces of a KV page that are neighbours are the copy engine's, whatever a kernel reaches. */
static void measure_link(struct kv_below *b, uint32_t host_page) {
  struct gap_kv *kv = b->kv;
  gap__event event;
  if (gap__kv_order(kv, kv->options.stream, kv->options.copy_stream)) return;
  if (gap__dev_event_create(kv->dev, kv->options.copy_stream, &event)) return;
  b->stats.engine_bytes_s = rate_by(b, false, host_page, event);
  if (kv->code.copy) b->stats.kernel_bytes_s = rate_by(b, true, host_page, event);
  gap__dev_event_destroy(kv->dev, event);
  kv->code.link_by_driver = b->stats.kernel_bytes_s && b->stats.engine_bytes_s > b->stats.kernel_bytes_s;
}

void gap__kv_measure_link(struct kv_below *b) {
  struct gap_kv *kv = b->kv;
  gap__lock(&kv->lock);
  uint32_t host_page = kv->host_slabs && !gap__kv_host_ensure(kv, 1) ? gap__kv_host_take(kv) : 0;
  gap__unlock(&kv->lock);
  if (!host_page) return;
  measure_link(b, host_page);
  gap__lock(&kv->lock);
  gap__kv_host_give(kv, host_page);
  gap__unlock(&kv->lock);
}

/* ---- servers ---- */

typedef int begin_fn(gap_remote *, gap_remote_item *, uint32_t, uint32_t, gap_remote_ticket *);

static bool ask(struct kv_below *b, begin_fn *begin, uint32_t count, uint64_t *ns) {
  static const char keys[AT_ONCE][8] = {"probe 0", "probe 1", "probe 2", "probe 3",
                                        "probe 4", "probe 5", "probe 6", "probe 7"};
  gap_remote_item items[AT_ONCE];
  gap_remote_ticket ticket;
  uint64_t began = gap__kv_below_now();
  for (uint32_t i = 0; i < count; i++)
    items[i] = (gap_remote_item){.key = keys[i],
                                 .key_bytes = sizeof keys[i] - 1,
                                 .value = b->berths[i % KV_BERTHS].memory,
                                 .bytes = b->page_bytes};
  if (begin(b->remote, items, count, b->fetch_ms, &ticket)) return false;
  while (gap_remote_wait(b->remote, ticket, b->fetch_ms) == GAP_EAGAIN) continue;
  *ns = gap__kv_below_now() - began;
  return gap_remote_prefix(items, count) == count;
}

/* Servers that are away give nothing, until something is found on them. */
void gap__kv_measure_remote(struct kv_below *b) {
  uint64_t ns = 0, one = UINT64_MAX, all = UINT64_MAX; /* the quickest: a busy machine makes slower, not faster */
  for (int i = 0; i < KV_BERTHS; i++) memset(b->berths[i].memory, 0, b->page_bytes); /* nothing of anybody's */
  bool done = ask(b, gap_remote_put, AT_ONCE, &ns);
  for (int i = 0; i < TRIES && done; i++) {
    done = ask(b, gap_remote_get, 1, &ns);
    if (ns < one) one = ns;
    done = done && ask(b, gap_remote_get, AT_ONCE, &ns);
    if (ns < all) all = ns;
  }
  gap__lock(&b->kv->lock);
  if (done) b->rates.remote = rate_of(b->page_bytes, one, all);
  gap__unlock(&b->kv->lock);
}
