/* To host memory: KV pages that nobody uses, as crates, in the order in which they came out of use, which is nearly
 * that of their eviction; no more than are to be evicted soon, so that host memory has little that the device has, too.
 * To the disk: crates that were used least of late, through a berth. */
#include <stdlib.h>

#include "kv/below.h"
#include "kv/hold.h"
#include "kv/pages.h"
#include "kv/prefix.h"

#define NO_TURN UINT32_MAX
enum { STORES_MOST = 8, SINKS_MOST = 2, RETRY_S = 10, RESERVE_PART = 4 };

static bool has(const struct kv_below *b, enum kv_place place) { return b->shelf.slots && b->shelf.most[place]; }

/* ---- what goes ---- */

void gap__kv_drop_item(struct kv_below *b, uint64_t item) {
  if (b->simulated || !item) return;
  if (b->drop_count == b->drop_room) {
    uint32_t room = b->drop_room ? 2 * b->drop_room : 64;
    uint64_t *grown = realloc(b->drops, room * sizeof *grown);
    if (!grown) return; /* it stays where it is until the heap ends */
    b->drops = grown;
    b->drop_room = room;
  }
  b->drops[b->drop_count++] = item;
}

static void throw_away(struct kv_below *b, uint32_t crate) {
  struct kv_crate *c = kv_crate_at(&b->shelf, crate);
  gap__kv_drop_item(b, c->item);
  c->spoilt = false; /* of a free record nothing is asked any more */
  gap__kv_shelf_drop(&b->shelf, crate);
}

void gap__kv_clear_out(struct kv_below *b, uint32_t crate) {
  const struct kv_crate *c = kv_crate_at(&b->shelf, crate);
  if (c->spoilt && !c->users) throw_away(b, crate);
}

/* ---- to host memory ---- */

static int launch_store(struct kv_below *b, struct kv_cargo *cargo) {
  gap_span *spans = malloc((size_t)cargo->count * KV_SPANS_MOST * sizeof *spans);
  uint32_t count = 0;
  if (!spans) return GAP_ENOMETA;
  for (uint32_t i = 0; i < cargo->count; i++) count += gap__kv_spans(b->kv, cargo->pages[i], spans + count);
  bool host = cargo->place == KV_PLACE_HOST;
  int rc = b->simulated ? 0
           : gap__dev_recordable(b->kv->dev, b->kv->options.stream)
               ? gap__tier_put(b->tier, b->kv->options.device, spans, count, b->kv->options.stream,
                               host ? GAP_PUT_HOST : GAP_PUT_DISK, &cargo->item)
               : GAP_EAGAIN;
  free(spans);
  return rc;
}

static int poll_item(struct kv_below *b, struct kv_cargo *cargo) {
  gap_item_info info = {.size = sizeof info};
  if (b->simulated) return 0;
  int rc = gap__tier_look(b->tier, b->kv->options.device, cargo->item, &info);
  return rc ? rc : info.busy ? GAP_EAGAIN : info.error;
}

/* The budget has less than was thought: with that much the place makes do for a while. */
static void lower(struct kv_below *b, enum kv_place place) {
  b->shelf.most[place] = b->shelf.count[place] ? b->shelf.count[place] : 1;
  b->retry_ns = gap__kv_below_now() + RETRY_S * 1000000000ull;
}

/* Nothing goes there for a while; what is there can come up. */
static void rest(struct kv_below *b, enum kv_place place) {
  b->shelf.most[place] = 0;
  b->retry_ns = gap__kv_below_now() + RETRY_S * 1000000000ull;
}

static void finish_store(struct kv_below *b, struct kv_cargo *cargo) {
  uint64_t *stored = cargo->place == KV_PLACE_HOST ? &b->stats.host_stored : &b->stats.disk_stored;
  b->stores--;
  bool added = !cargo->rc && gap__kv_shelf_add(&b->shelf, cargo->place, cargo->item, cargo->names, cargo->count);
  if (added) *stored += cargo->count;
  else b->stats.not_stored += cargo->count;
  if (!added) gap__kv_drop_item(b, cargo->item);
  if (cargo->rc == GAP_ELIMIT) lower(b, cargo->place);
  gap__kv_read_end(b->kv, &cargo->hold);
}

static const struct kv_way to_place = {launch_store, poll_item, finish_store};

/* ---- what is to go ---- */

static void take_first(struct kv_below *b) {
  struct kv_queue *q = &b->to_local;
  uint32_t turn = q->first++, page = q->pages[turn & (q->room - 1)];
  if (b->kv->pages[page].turn == turn) gap__kv_below_uncached(b, page);
}

/* Once in 2^32 times nothing of what waits goes down. */
static void restart(struct kv_below *b) {
  struct kv_queue *q = &b->to_local;
  for (; q->first != q->last; q->first++) {
    uint32_t page = q->pages[q->first & (q->room - 1)];
    if (b->kv->pages[page].turn == q->first) gap__kv_below_uncached(b, page);
  }
  q->first = q->last = 1;
}

void gap__kv_below_cached(struct kv_below *b, uint32_t page) {
  struct kv_queue *q = &b->to_local;
  struct kv_page *p = &b->kv->pages[page];
  if (!q->pages) return;
  if (!kv_node_at(b->kv, p->node)->hashed) { /* the end of a sequence: it has no name below */
    p->turn = NO_TURN;
    q->nameless++;
    return;
  }
  if (q->last - q->first == q->room) take_first(b); /* there are twice as many places as KV pages: mostly a void one */
  if (!q->last || q->last == NO_TURN) restart(b);   /* 0 is no turn, either */
  p->turn = q->last;
  q->pages[q->last++ & (q->room - 1)] = page;
  q->count++;
}

bool gap__kv_below_uncached(struct kv_below *b, uint32_t page) {
  struct kv_page *p = &b->kv->pages[page];
  bool waits = p->turn != 0;
  if (p->turn == NO_TURN) b->to_local.nameless--;
  else b->to_local.count -= waits;
  p->turn = 0;
  return waits;
}

/* The next one; 0: none. */
static uint32_t next_page(struct kv_below *b) {
  struct kv_queue *q = &b->to_local;
  for (; q->first != q->last; q->first++) {
    uint32_t page = q->pages[q->first & (q->room - 1)];
    if (b->kv->pages[page].turn == q->first) return page;
  }
  return 0;
}

/* A part of the KV pages is free, or has a copy below: so much may be wanted at once without a loss. */
bool gap__kv_store_due(const struct kv_below *b) {
  const struct gap_kv *kv = b->kv;
  uint64_t ready = (uint64_t)kv_free_pages(kv) + kv->cached_listed, reserve = kv_capacity(kv) / RESERVE_PART;
  return b->to_local.count && (b->all || ready < reserve + b->to_local.count + b->to_local.nameless);
}

static void fill(struct kv_below *b, struct kv_cargo *cargo) {
  uint32_t page;
  while (cargo->count < b->crate_pages && (page = next_page(b)) != 0) {
    struct kv_name name = gap__kv_name(kv_digest_at(b->kv, b->kv->pages[page].node), b->kv->pages[page].group);
    uint32_t found = gap__kv_shelf_find(&b->shelf, &name);
    gap__kv_below_uncached(b, page);
    if (found) gap__kv_shelf_touch(&b->shelf, kv_found_crate(&b->shelf, found));
    else gap__kv_cargo_add(b, cargo, page);
  }
}

/* Room for one more crate: where there is no place below, the oldest goes. */
static bool make_room(struct kv_below *b, enum kv_place place, uint32_t coming) {
  struct kv_shelf *s = &b->shelf;
  while (s->count[place] + coming >= s->most[place]) {
    uint32_t oldest = gap__kv_shelf_oldest(s, place);
    if (!oldest) return false;
    b->stats.dropped += kv_crate_at(s, oldest)->count;
    throw_away(b, oldest);
  }
  return true;
}

bool gap__kv_shed(struct kv_below *b, enum kv_place place, uint32_t pages) {
  uint32_t shed = 0, oldest = 0;
  while (shed < pages && b->shelf.slots && (oldest = gap__kv_shelf_oldest(&b->shelf, place)) != 0) {
    shed += kv_crate_at(&b->shelf, oldest)->count;
    throw_away(b, oldest);
  }
  b->stats.dropped += shed;
  return shed != 0;
}

static void retry(struct kv_below *b) {
  if (!b->retry_ns || gap__kv_below_now() < b->retry_ns) return;
  b->retry_ns = 0;
  for (int place = 0; place < KV_PLACES; place++) b->shelf.most[place] = b->most[place];
}

struct kv_cargo *gap__kv_pick_store(struct kv_below *b) {
  retry(b);
  enum kv_place place = b->most[KV_PLACE_HOST] ? KV_PLACE_HOST : KV_PLACE_DISK;
  if (!b->shelf.slots || !gap__kv_store_due(b) || b->stores >= STORES_MOST) return NULL;
  bool sinks = place == KV_PLACE_HOST && has(b, KV_PLACE_DISK);
  if (sinks ? b->shelf.count[place] + b->stores >= b->shelf.most[place] : !make_room(b, place, b->stores)) return NULL;
  struct kv_cargo *cargo = gap__kv_cargo_new(&to_place);
  if (cargo) fill(b, cargo);
  if (!cargo || !cargo->count) {
    free(cargo);
    return NULL;
  }
  cargo->place = place;
  cargo->hold = (struct kv_hold){.pages = cargo->pages, .count = cargo->count};
  gap__kv_read_begin(b->kv, &cargo->hold);
  b->stores++;
  return cargo;
}

/* ---- to the disk ---- */

static gap_span berth_span(const struct kv_below *b, const struct kv_cargo *cargo) {
  return (gap_span){(gap_addr)(uintptr_t)cargo->berth->memory, cargo->count * b->page_bytes};
}

static int launch_sink(struct kv_below *b, struct kv_cargo *cargo) {
  gap_span span = berth_span(b, cargo);
  if (b->simulated) return 0;
  if (!gap__dev_recordable(b->kv->dev, b->kv->options.stream)) return GAP_EAGAIN;
  return gap__tier_get(b->tier, b->kv->options.device, cargo->stored[0], 0, &span, 1, b->kv->options.stream);
}

static int poll_sink(struct kv_below *b, struct kv_cargo *cargo) {
  gap_item_info info = {.size = sizeof info};
  if (b->simulated) return 0;
  if (cargo->step == 0) {
    gap_span span = berth_span(b, cargo);
    int rc = gap__tier_look(b->tier, b->kv->options.device, cargo->stored[0], &info);
    if (rc || info.busy || info.error) return rc ? rc : info.busy ? GAP_EAGAIN : info.error;
    rc = gap__tier_put(b->tier, b->kv->options.device, &span, 1, b->down, GAP_PUT_DISK, &cargo->item);
    if (rc) return rc;
    cargo->step = 1;
  }
  return poll_item(b, cargo);
}

static void finish_sink(struct kv_below *b, struct kv_cargo *cargo) {
  struct kv_crate *crate = kv_crate_at(&b->shelf, cargo->crate);
  b->sinks--;
  crate->users--;
  gap__kv_berth_give(cargo->berth);
  bool unreadable = cargo->rc == GAP_EIO && !cargo->step;
  if (cargo->rc == GAP_ELIMIT) lower(b, KV_PLACE_DISK);
  else if (cargo->rc && !unreadable) rest(b, KV_PLACE_DISK); /* else host memory would wait for it for ever */
  if (cargo->rc || crate->users) { /* somebody brings it up: then it is not the oldest any more */
    crate->spoilt |= unreadable;
    gap__kv_drop_item(b, cargo->item);
    gap__kv_clear_out(b, cargo->crate);
    return;
  }
  gap__kv_drop_item(b, crate->item);
  crate->item = cargo->item;
  b->stats.disk_stored += crate->count;
  gap__kv_shelf_move(&b->shelf, cargo->crate, KV_PLACE_DISK);
}

static const struct kv_way to_disk = {launch_sink, poll_sink, finish_sink};

/* Ahead of need: as many crates as are stored at once stay free. */
static bool is_tight(const struct kv_below *b) {
  uint32_t most = b->shelf.most[KV_PLACE_HOST], spare = most > 4 * STORES_MOST ? STORES_MOST : 1;
  return b->shelf.count[KV_PLACE_HOST] + b->stores + spare > most + b->sinks;
}

struct kv_cargo *gap__kv_pick_sink(struct kv_below *b) {
  if (!has(b, KV_PLACE_HOST) || !has(b, KV_PLACE_DISK) || !is_tight(b) || b->sinks >= SINKS_MOST) return NULL;
  uint32_t crate = gap__kv_shelf_oldest(&b->shelf, KV_PLACE_HOST);
  struct kv_berth *berth = crate && make_room(b, KV_PLACE_DISK, b->sinks) ? gap__kv_berth_take(b, 1) : NULL;
  struct kv_cargo *cargo = berth ? gap__kv_cargo_new(&to_disk) : NULL;
  if (!cargo) {
    gap__kv_berth_give(berth);
    return NULL;
  }
  cargo->berth = berth;
  cargo->crate = crate;
  cargo->count = kv_crate_at(&b->shelf, crate)->count;
  cargo->stored[0] = kv_crate_at(&b->shelf, crate)->item;
  kv_crate_at(&b->shelf, crate)->users++;
  b->sinks++;
  return cargo;
}
