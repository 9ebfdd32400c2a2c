/* Opening and closing what lies below the device; figures. */
#include "kv/below.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "kv/below_fetch.h"
#include "kv/hold.h"
#include "kv/worth.h"
#include "tier/lend.h"
#include "tier/pinned.h"

enum { CRATES_MOST = 1 << 22, MODEL_BYTES = 128, FETCH_MS_MOST = 60000 };

struct opening {
  struct kv_below *b;
  const gap_kv_tiers_options *o;
  char *message;
  size_t bytes;
};

static int say(const struct opening *op, int rc, const char *words) {
  if (op->bytes) snprintf(op->message, op->bytes, "%s", words);
  gap__log(GAP__LOG_ERROR, "KV tiers: %s", words);
  return rc;
}

/* ---- sizes ---- */

static uint32_t units_for(uint64_t bytes) { return (uint32_t)((bytes + GAP__UNIT_PAGE - 1) / GAP__UNIT_PAGE); }

static void choose_sizes(struct kv_below *b) {
  const struct gap_kv *kv = b->kv;
  b->page_bytes = kv->part_bytes * kv->layers;
  uint64_t fit = GAP__UNIT_PAGE / b->page_bytes;
  b->crate_pages = fit < 1 ? 1 : fit < KV_CARGO_PAGES ? (uint32_t)fit : KV_CARGO_PAGES;
  b->berth_pages = b->crate_pages > kv->options.group_count ? b->crate_pages : kv->options.group_count;
  b->berth_units = units_for(b->berth_pages * b->page_bytes);
}

static uint32_t crates_of(const struct kv_below *b, uint64_t bytes) {
  uint64_t crates = bytes / (units_for(b->crate_pages * b->page_bytes) * GAP__UNIT_PAGE);
  return (uint32_t)(crates < CRATES_MOST ? crates : CRATES_MOST);
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t host_room(const struct kv_below *b) {
  const struct gap__conf_tiers *conf = gap__tier_conf(b->tier);
  gap_tiers now = {.size = sizeof now};
  if (!conf->host && (*conf->disk || *conf->remote)) return 0;
  if (gap__tier_figures(b->tier, b->kv->options.device, &now)) return 0;
  return now.host_more_bytes;
}

static uint64_t disk_room(const struct kv_below *b) {
  const struct gap__conf_tiers *conf = gap__tier_conf(b->tier);
  struct statvfs about;
  if (!*conf->disk || conf->disk_bytes) return conf->disk_bytes;
  return statvfs(conf->disk, &about) ? 0 : (uint64_t)about.f_bavail * about.f_frsize / 5 * 4;
}

static int open_shelf(struct opening *op) {
  struct kv_below *b = op->b;
  uint64_t host = b->simulated ? op->o->host_bytes : smaller(op->o->host_bytes, host_room(b));
  uint64_t disk = b->simulated ? op->o->disk_bytes : smaller(op->o->disk_bytes, disk_room(b));
  b->most[KV_PLACE_HOST] = crates_of(b, host);
  b->most[KV_PLACE_DISK] = crates_of(b, disk);
  if (!b->most[KV_PLACE_HOST] && !b->most[KV_PLACE_DISK]) return 0;
  return gap__kv_shelf_init(&b->shelf, b->crate_pages, b->most);
}

static int open_simulated(struct opening *op) {
  struct kv_below *b = op->b;
  uint64_t pages = op->o->remote_bytes / b->page_bytes;
  uint32_t most[KV_PLACES] = {[KV_PLACE_REMOTE] = (uint32_t)(pages < CRATES_MOST ? pages : CRATES_MOST)};
  return pages ? gap__kv_shelf_init(&b->servers, 1, most) : 0;
}

/* ---- servers ---- */

/* Whose values these are: all that must be the same for a KV page to be the same. */
static void write_tag(const struct kv_below *b, const char *model, char tag[KV_TAG_BYTES]) {
  const gap_kv_options *o = &b->kv->options;
  uint32_t windows = 0;
  for (uint32_t g = 0; g < o->group_count; g++) windows = windows * 31 + b->kv->windows[g];
  snprintf(tag, KV_TAG_BYTES, "kv 1/%s/%u layers, %u heads of %u, dtype %d, %u tokens, order %d, %u groups %08" PRIx32,
           model, o->layers, o->heads, o->head_size, (int)o->dtype, o->page_tokens, (int)o->order, o->group_count,
           windows);
}

static int open_remote(struct opening *op) {
  struct kv_below *b = op->b;
  const char *servers = gap__tier_conf(b->tier)->remote;
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  char tag[KV_TAG_BYTES];
  if (op->o->remote) o = *op->o->remote;
  if (!o.servers) o.servers = servers;
  if (!op->o->model || !*o.servers) return 0;
  write_tag(b, op->o->model, tag);
  o.tag = tag;
  return gap_remote_open(&o, &b->remote, op->message, op->bytes);
}

/* ---- open ---- */

static int open_copies(struct kv_below *b) {
  struct gap__dev *dev = b->kv->dev;
  int rc = gap__dev_stream_create(dev, &b->down);
  if (!rc) rc = gap__dev_stream_create(dev, &b->up);
  for (int i = 0; i < KV_BERTHS && !rc && (b->remote || b->most[KV_PLACE_DISK]); i++) {
    rc = gap__dev_event_create(dev, b->up, &b->berths[i].event);
    if (!rc) rc = gap__tier_lend(b->tier, b->kv->options.device, b->berth_units, &b->berths[i].memory);
  }
  return rc;
}

static int open_rings(struct kv_below *b) {
  size_t bytes = b->kv->page_count * sizeof(uint32_t);
  struct kv_queue *q = &b->to_local;
  for (q->room = 64; q->room < 2 * b->kv->page_count;) q->room *= 2;
  if (b->shelf.slots && !(q->pages = gap__meta_map(q->room * sizeof(uint32_t)))) return GAP_ENOMETA;
  if ((b->remote || b->servers.slots) && !(b->to_servers.pages = gap__meta_map(bytes))) return GAP_ENOMETA;
  return 0;
}

static void open_rates(struct opening *op) {
  struct kv_below *b = op->b;
  b->rates = (gap_kv_rates){.size = sizeof b->rates, .token_ns = op->o->token_ns};
  if (op->o->rates) b->rates = *op->o->rates;
  else gap__kv_measure_local(b);
  if (!op->o->rates) gap__kv_measure_link(b);
  b->learns = !op->o->rates;
  b->measures = !op->o->rates && b->remote;
}

static int open_all(struct opening *op) {
  struct kv_below *b = op->b;
  choose_sizes(b);
  if (b->berth_units > GAP__SLAB_UNITS) return say(op, GAP_ENOTSUP, "a KV page has more than 64 MiB");
  int rc = open_shelf(op);
  if (!rc) rc = b->simulated ? open_simulated(op) : open_remote(op);
  if (!rc && !b->simulated) rc = open_copies(b);
  if (!rc) rc = open_rings(b);
  if (!rc) open_rates(op);
  return rc;
}

static int check_options(const struct opening *op, const struct gap_kv *kv) {
  const gap_kv_tiers_options *o = op->o;
  if (o->size != sizeof *o || o->fetch_ms < 1 || o->fetch_ms > FETCH_MS_MOST ||
      (o->model && strlen(o->model) > MODEL_BYTES) || (o->rates && o->rates->size != sizeof *o->rates))
    return GAP_EINVAL;
  if (!kv->digests)
    return say(op, GAP_ENOTSUP, "the cache does not share by SHA-256: names must mean the same everywhere");
  if (kv->dev->caps.stepped && !o->rates) return say(op, GAP_EINVAL, "a simulated device cannot be measured");
  return 0;
}

int gap__kv_below_open(struct gap_kv *kv, struct gap__tier *tier, const gap_kv_tiers_options *options, char *message,
                       size_t bytes) {
  char own[400] = "";
  struct opening op = {.o = options, .message = message ? message : own, .bytes = message ? bytes : sizeof own};
  if (op.bytes) op.message[0] = '\0';
  if (kv->below) return GAP_ESTATE;
  int rc = check_options(&op, kv);
  struct kv_below *b = rc ? NULL : calloc(1, sizeof *b);
  if (!b) return rc ? rc : GAP_ENOMETA;
  *b = (struct kv_below){.kv = kv, .tier = tier, .simulated = kv->dev->caps.stepped, .fetch_ms = options->fetch_ms};
  op.b = b;
  rc = open_all(&op);
  if (rc && op.bytes && !*op.message) say(&op, rc, gap_strerror(rc));
  gap__kv_below_start(b);
  gap__lock(&kv->lock);
  kv->below = b;
  gap__unlock(&kv->lock);
  if (rc) gap__kv_below_close(kv);
  return rc;
}

/* ---- close ---- */

static void close_fetches(struct kv_below *b) {
  while (b->fetches) {
    struct kv_fetch *f = b->fetches;
    b->fetches = f->next;
    if (f->state == KV_FETCH_ASKING || f->state == KV_FETCH_RUNNING) gap__kv_unhold(b->kv, &f->path);
    gap__kv_fetch_free(f);
  }
}

static void drop_sequences(struct kv_below *b) {
  for (uint32_t i = 1; i < b->kv->seqs.count; i++) {
    const struct kv_seq *s = kv_seq_at(b->kv, i);
    if (s->live && s->swapped && s->depth == KV_ON_DISK) gap__kv_drop_item(b, s->item);
  }
}

static void drop_all(struct kv_below *b) {
  drop_sequences(b);
  for (int place = 0; place < KV_PLACES && b->shelf.slots; place++)
    for (uint32_t crate; (crate = gap__kv_shelf_oldest(&b->shelf, (enum kv_place)place)) != 0;) {
      if (!b->simulated) (void)gap__tier_drop(b->tier, b->kv->options.device, kv_crate_at(&b->shelf, crate)->item);
      gap__kv_shelf_drop(&b->shelf, crate);
    }
  for (uint32_t i = 0; i < b->drop_count; i++) (void)gap__tier_drop(b->tier, b->kv->options.device, b->drops[i]);
}

static void close_copies(struct kv_below *b) {
  struct gap__dev *dev = b->kv->dev;
  for (int i = 0; i < KV_BERTHS; i++) {
    if (b->berths[i].event) gap__dev_event_destroy(dev, b->berths[i].event);
    if (b->berths[i].memory && !b->lost)
      gap__tier_take_back(b->tier, b->kv->options.device, b->berths[i].memory, b->berth_units);
  }
  if (b->up) gap__dev_stream_destroy(dev, b->up);
  if (b->down) gap__dev_stream_destroy(dev, b->down);
}

void gap__kv_below_close(struct gap_kv *kv) {
  struct kv_below *b = kv->below;
  if (!b) return;
  kv->below = gap__heap_forked(kv->heap) ? NULL : b; /* the thread is the parent's, and what it holds */
  if (!kv->below) return;
  gap__kv_below_stop(b);
  gap_remote_close(b->remote); /* what the servers were asked is no more */
  close_fetches(b);
  gap__lock(&kv->lock);
  kv->below = NULL;
  gap__unlock(&kv->lock);
  drop_all(b);
  close_copies(b);
  gap__kv_shelf_free(&b->shelf);
  gap__kv_shelf_free(&b->servers);
  gap__meta_unmap(b->to_local.pages, b->to_local.room * sizeof(uint32_t));
  gap__meta_unmap(b->to_servers.pages, kv->page_count * sizeof(uint32_t));
  free(b->drops);
  free(b);
}

/* ---- figures ---- */

int gap_kv_tell_computed(gap_kv *kv, uint64_t tokens, uint64_t ns) {
  if (!kv || !tokens || !ns) return GAP_EINVAL;
  if (!kv->below) return GAP_ESTATE;
  gap__lock(&kv->lock);
  gap_kv_rates *rates = &kv->below->rates;
  uint64_t seen = ns / tokens ? ns / tokens : 1;
  rates->token_ns = rates->token_ns ? rates->token_ns - rates->token_ns / 8 + seen / 8 : seen;
  gap__unlock(&kv->lock);
  return 0;
}

static bool look(struct kv_below *b, bool hurry, bool all) {
  gap__lock(&b->kv->lock);
  b->hurry = hurry;
  b->all = all;
  bool work = gap__kv_below_busy(b);
  gap__unlock(&b->kv->lock);
  return work;
}

static int drain(gap_kv *kv, uint32_t timeout_ms, bool all) {
  if (!kv) return GAP_EINVAL;
  struct kv_below *b = kv->below;
  if (!b) return GAP_ESTATE;
  uint64_t until = gap__kv_below_now() + timeout_ms * 1000000ull;
  bool work;
  while ((work = look(b, true, all)) && gap__kv_below_now() < until) {
    gap__kv_below_call(b);
    gap__kv_below_rest(b, until - gap__kv_below_now());
  }
  look(b, false, false);
  return work ? GAP_EAGAIN : 0;
}

int gap_kv_tiers_drain(gap_kv *kv, uint32_t timeout_ms) { return drain(kv, timeout_ms, false); }
int gap_kv_tiers_store(gap_kv *kv, uint32_t timeout_ms) { return drain(kv, timeout_ms, true); }

int gap_kv_get_tier_stats(gap_kv *kv, gap_kv_tier_stats *out) {
  if (!kv || !out || out->size != sizeof *out) return GAP_EINVAL;
  struct kv_below *b = kv->below;
  if (!b) return GAP_ESTATE;
  gap__lock(&kv->lock);
  *out = b->stats;
  out->size = sizeof *out;
  out->rates = b->rates;
  out->host_held = b->shelf.pages[KV_PLACE_HOST];
  out->disk_held = b->shelf.pages[KV_PLACE_DISK];
  out->remote_held = b->servers.pages[KV_PLACE_REMOTE];
  out->page_bytes = b->page_bytes;
  gap__unlock(&kv->lock);
  return 0;
}

gap_remote *gap_kv_get_remote(gap_kv *kv) { return kv && kv->below ? kv->below->remote : NULL; }
