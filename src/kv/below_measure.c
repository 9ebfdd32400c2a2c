/* What the places give on this machine, measured when they are opened: one KV page for the latency, several at once for the rate. */
#include <string.h>

#include "kv/below.h"
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
