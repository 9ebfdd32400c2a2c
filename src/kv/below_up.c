/* Up: KV pages of a fetch, from the local places or from the servers, to KV pages that were free. */
#include <stdlib.h>

#include "kv/below_fetch.h"
#include "kv/hold.h"
#include "kv/pages.h"
#include "kv/prefix.h"

enum { CARGOES_A_FETCH = 8 };

/* ---- from the servers ---- */

static int launch_get(struct kv_below *b, struct kv_cargo *cargo) {
  if (b->simulated) return 0;
  for (uint32_t i = 0; i < cargo->count; i++)
    cargo->items[i] = (gap_remote_item){.key = cargo->names[i].bytes,
                                        .key_bytes = KV_NAME_BYTES,
                                        .value = cargo->berth->memory + i * b->page_bytes,
                                        .bytes = b->page_bytes};
  return gap_remote_get(b->remote, cargo->items, cargo->count, b->fetch_ms, &cargo->ticket);
}

static int poll_get(struct kv_below *b, struct kv_cargo *cargo) {
  int rc = 0;
  if (b->simulated) return 0;
  if (cargo->step == 0) {
    rc = gap_remote_poll(b->remote, cargo->ticket);
    if (rc) return rc;
    for (uint32_t i = 0; i < cargo->count; i++)
      cargo->failed[i] = cargo->items[i].outcome != GAP_REMOTE_DONE || cargo->items[i].bytes != b->page_bytes;
    cargo->step = 1;
  }
  if (cargo->step == 1) {
    rc = gap__kv_berth_copy(b, cargo, false);
    if (rc) return rc;
    cargo->step = 2;
  }
  return gap__kv_berth_poll(b, cargo, false);
}

/* ---- what has come ---- */

/* Somebody else may have computed the same meanwhile. */
static void attach(struct kv_below *b, struct kv_cargo *cargo, uint32_t i) {
  struct gap_kv *kv = b->kv;
  uint32_t page = cargo->pages[i];
  if (kv_node_pages(kv, cargo->nodes[i])[kv->pages[page].group]) return;
  kv->pages[page].on_servers = cargo->place == KV_PLACE_REMOTE;
  gap__kv_node_attach(kv, cargo->nodes[i], page);
  gap__kv_fetch_keep(kv, cargo->fetch, page);
}

static void finish(struct kv_below *b, struct kv_cargo *cargo) {
  uint64_t *const fetched[] = {&b->stats.host_fetched, &b->stats.disk_fetched, &b->stats.remote_fetched};
  uint32_t good = 0;
  bool gap = false;
  for (uint32_t i = 0; i < cargo->count; i++) {
    bool bad = cargo->rc || cargo->failed[i];
    if (!bad) attach(b, cargo, i);
    good += !bad;
    b->stats.lost += bad;
    gap |= bad && gap__kv_fetch_needs(b->kv, b->kv->pages[cargo->pages[i]].group);
  }
  *fetched[cargo->place] += good;
  gap__kv_meter(b, cargo->place, -1, good * b->page_bytes);
  gap__kv_unhold(b->kv, &cargo->hold);
  cargo->fetch->cargoes--;
  if (gap) cargo->fetch->at = cargo->fetch->to; /* what comes behind it is of no use */
}

static void finish_get(struct kv_below *b, struct kv_cargo *cargo) {
  gap__kv_berth_give(cargo->berth);
  finish(b, cargo);
}

static const struct kv_way from_servers = {launch_get, poll_get, finish_get};

/* ---- from the local places ---- */

static int begin_get(struct kv_below *b, struct kv_cargo *cargo, uint32_t i) {
  gap_span spans[KV_SPANS_MOST];
  uint32_t count = gap__kv_spans(b->kv, cargo->pages[i], spans);
  return gap__tier_get(b->tier, b->kv->options.device, cargo->stored[i], cargo->at[i] * b->page_bytes, spans, count,
                       b->kv->options.stream);
}

static int launch_raise(struct kv_below *b, struct kv_cargo *cargo) {
  if (b->simulated) return 0;
  if (!gap__dev_recordable(b->kv->dev, b->kv->options.stream)) return GAP_EAGAIN;
  for (uint32_t i = 0; i < cargo->count; i++) cargo->failed[i] = begin_get(b, cargo, i) != 0;
  return 0;
}

/* Of an item that several of the cargo come from an error counts for all of them. */
static int poll_raise(struct kv_below *b, struct kv_cargo *cargo) {
  gap_item_info info = {.size = sizeof info};
  for (; !b->simulated && cargo->step < (int)cargo->count; cargo->step++) {
    uint64_t item = cargo->stored[cargo->step];
    if (gap__tier_look(b->tier, b->kv->options.device, item, &info)) info.error = GAP_EIO, info.busy = 0;
    if (info.busy) return GAP_EAGAIN;
    cargo->failed[cargo->step] |= info.error != 0;
  }
  return 0;
}

static void finish_raise(struct kv_below *b, struct kv_cargo *cargo) {
  for (uint32_t i = 0; i < cargo->count; i++) {
    uint32_t crate = kv_found_crate(&b->shelf, cargo->found[i]);
    kv_crate_at(&b->shelf, crate)->users--;
    kv_crate_at(&b->shelf, crate)->spoilt |= cargo->failed[i];
  }
  for (uint32_t i = 0; i < cargo->count; i++) gap__kv_clear_out(b, kv_found_crate(&b->shelf, cargo->found[i]));
  finish(b, cargo);
}

static const struct kv_way from_places = {launch_raise, poll_raise, finish_raise};

/* ---- what is to come ---- */

static void add(struct kv_below *b, struct kv_cargo *cargo, uint32_t group, const struct kv_name *name,
                uint32_t found) {
  uint32_t i = cargo->count++;
  cargo->nodes[i] = cargo->fetch->path.node;
  cargo->names[i] = *name;
  cargo->pages[i] = kv_page_take_for(b->kv, group);
  cargo->found[i] = found;
  if (!found) return;
  uint32_t crate = kv_found_crate(&b->shelf, found);
  cargo->stored[i] = kv_crate_at(&b->shelf, crate)->item;
  cargo->at[i] = kv_found_at(&b->shelf, found);
}

/* The KV pages of a column that are not there; false: it ends here. */
static bool add_column(struct kv_below *b, struct kv_cargo *cargo, const unsigned char *digest, uint32_t column) {
  struct gap_kv *kv = b->kv;
  const struct kv_fetch *f = cargo->fetch;
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    if (!gap__kv_fetch_wants(kv, f, g, column) || kv_node_pages(kv, f->path.node)[g]) continue;
    struct kv_name name = gap__kv_name(digest, g);
    bool local = cargo->place != KV_PLACE_REMOTE;
    uint32_t found = local ? gap__kv_shelf_find(&b->shelf, &name) : 0;
    if (local && !found) {
      if (gap__kv_fetch_needs(kv, g)) return false; /* it went meanwhile */
      continue;
    }
    if (kv_pages_ensure(kv, 1)) {
      b->stats.no_room++;
      return false;
    }
    add(b, cargo, g, &name, found);
  }
  return true;
}

static void load(struct kv_below *b, struct kv_cargo *cargo, uint32_t most) {
  struct gap_kv *kv = b->kv;
  struct kv_fetch *f = cargo->fetch;
  while (f->at < f->to && (enum kv_place)f->places[f->at - f->from] == cargo->place &&
         cargo->count + kv->options.group_count <= most) {
    uint32_t node = gap__kv_fetch_node(kv, f, f->path.node, f->at, true);
    if (node) gap__kv_fetch_step(kv, f, node);
    if (!node || !add_column(b, cargo, f->digests + (size_t)f->at * KV_DIGEST_BYTES, f->at)) {
      f->to = f->at;
      break;
    }
    f->at++;
  }
}

static void begin(struct kv_below *b, struct kv_cargo *cargo) {
  cargo->hold = (struct kv_hold){.pages = cargo->pages, .count = cargo->count, .node = cargo->fetch->path.node};
  gap__kv_hold(b->kv, &cargo->hold);
  cargo->fetch->cargoes++;
  gap__kv_meter(b, cargo->place, 1, 0);
  for (uint32_t i = 0; i < cargo->count && cargo->place != KV_PLACE_REMOTE; i++) {
    uint32_t crate = kv_found_crate(&b->shelf, cargo->found[i]);
    kv_crate_at(&b->shelf, crate)->users++;
    gap__kv_shelf_touch(&b->shelf, crate);
  }
}

static struct kv_cargo *pick(struct kv_below *b, struct kv_fetch *f) {
  enum kv_place place = (enum kv_place)f->places[f->at - f->from];
  bool remote = place == KV_PLACE_REMOTE;
  struct kv_berth *berth = remote ? gap__kv_berth_take(b, 0) : NULL;
  struct kv_cargo *cargo = remote && !berth ? NULL : gap__kv_cargo_new(remote ? &from_servers : &from_places);
  if (cargo) {
    cargo->fetch = f;
    cargo->place = place;
    cargo->berth = berth;
    load(b, cargo, remote ? b->berth_pages : KV_CARGO_PAGES);
  }
  if (cargo && cargo->count) {
    begin(b, cargo);
    return cargo;
  }
  gap__kv_berth_give(berth);
  free(cargo);
  return NULL;
}

/* What is on the device behind a gap stays there; unless it has gone meanwhile. */
static void pass(struct kv_below *b, struct kv_fetch *f) {
  struct gap_kv *kv = b->kv;
  uint32_t node = gap__kv_fetch_node(kv, f, f->path.node, f->at, false);
  bool there = node != 0;
  for (uint32_t g = 0; there && g < kv->options.group_count; g++)
    there = kv_node_pages(kv, node)[g] || !gap__kv_fetch_needs(kv, g);
  if (!there) {
    f->to = f->at;
    return;
  }
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (kv_node_pages(kv, node)[g]) gap__kv_fetch_keep(kv, f, kv_node_pages(kv, node)[g]);
  gap__kv_fetch_step(kv, f, node);
  f->at++;
}

static struct kv_cargo *next_of(struct kv_below *b, struct kv_fetch *f) {
  if ((enum kv_place)f->places[f->at - f->from] != KV_PLACE_HERE) return pick(b, f);
  pass(b, f);
  return NULL;
}

struct kv_cargo *gap__kv_pick_up(struct kv_below *b) {
  struct kv_cargo *cargo = NULL;
  for (struct kv_fetch *f = b->fetches; f && !cargo; f = f->next) {
    while (f->state == KV_FETCH_RUNNING && f->at < f->to && f->cargoes < CARGOES_A_FETCH && !cargo) {
      uint32_t at = f->at, to = f->to;
      cargo = next_of(b, f);
      if (!cargo && f->at == at && f->to == to) break; /* no berth */
    }
    gap__kv_fetch_advance(b, f);
  }
  return cargo;
}
