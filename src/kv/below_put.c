/* To the servers: KV pages that were offered, from the device through a berth. */
#include <stdlib.h>
#include <string.h>

#include "kv/below.h"
#include "kv/hold.h"
#include "kv/pages.h"
#include "kv/prefix.h"

enum { PUT_MS = 5000, ABOUT_MS = 50 };

struct kv_name gap__kv_name(const unsigned char *digest, uint32_t group) {
  struct kv_name name;
  memcpy(name.bytes, digest, KV_DIGEST_BYTES);
  name.bytes[KV_DIGEST_BYTES] = (unsigned char)group;
  return name;
}

/* ---- the way ---- */

static int launch(struct kv_below *b, struct kv_cargo *cargo) { return gap__kv_berth_copy(b, cargo, true); }

static int begin_put(struct kv_below *b, struct kv_cargo *cargo) {
  for (uint32_t i = 0; i < cargo->count; i++)
    cargo->items[i] = (gap_remote_item){.key = cargo->names[i].bytes,
                                        .key_bytes = KV_NAME_BYTES,
                                        .value = cargo->berth->memory + i * b->page_bytes,
                                        .bytes = b->page_bytes};
  return gap_remote_put(b->remote, cargo->items, cargo->count, PUT_MS, &cargo->ticket);
}

static int poll_put(struct kv_below *b, struct kv_cargo *cargo) {
  int rc = 0;
  if (cargo->step == 0) {
    rc = gap__kv_berth_poll(b, cargo, true);
    if (!rc && b->ending) rc = GAP_ESTATE;
    if (!rc && !b->simulated) rc = begin_put(b, cargo);
    if (rc) return rc; /* GAP_EAGAIN of the store, too: its queue is full */
    cargo->step = 1;
  }
  return b->simulated ? 0 : gap_remote_poll(b->remote, cargo->ticket);
}

/* The servers of a simulated device hold so much, and forget what was used least of late. */
static void simulate(struct kv_below *b, const struct kv_cargo *cargo) {
  for (uint32_t i = 0; i < cargo->count; i++) {
    if (b->servers.count[KV_PLACE_REMOTE] >= b->servers.most[KV_PLACE_REMOTE])
      gap__kv_shelf_drop(&b->servers, gap__kv_shelf_oldest(&b->servers, KV_PLACE_REMOTE));
    gap__kv_shelf_add(&b->servers, KV_PLACE_REMOTE, 0, &cargo->names[i], 1);
  }
}

static void finish(struct kv_below *b, struct kv_cargo *cargo) {
  for (uint32_t i = 0; i < cargo->count; i++) {
    bool done = !cargo->rc && (b->simulated || cargo->items[i].outcome == GAP_REMOTE_DONE);
    b->stats.remote_stored += done;
    b->stats.put_failed += !done;
  }
  if (b->simulated) simulate(b, cargo);
  gap__kv_berth_give(cargo->berth);
  gap__kv_read_end(b->kv, &cargo->hold);
  b->puts--;
}

static const struct kv_way way = {launch, poll_put, finish};

/* ---- what is to go ---- */

bool gap__kv_ring_put(struct kv_below *b, struct kv_ring *ring, uint32_t page) {
  if (!ring->pages || ring->count == b->kv->page_count) return false;
  if (!ring->count) ring->since_ns = gap__kv_below_now();
  ring->pages[(ring->from + ring->count++) % b->kv->page_count] = page;
  return true;
}

void gap__kv_below_offered(struct kv_below *b, uint32_t page) {
  if (b->to_servers.pages && !gap__kv_ring_put(b, &b->to_servers, page)) b->stats.not_stored++;
}

/* Is a crate full, or has what there is waited long enough? */
bool gap__kv_ring_ready(const struct kv_below *b, const struct kv_ring *ring) {
  if (!ring->count) return false;
  return ring->count >= b->crate_pages || b->hurry || gap__kv_below_now() - ring->since_ns > ABOUT_MS * 1000000ull;
}

uint32_t gap__kv_ring_take(struct kv_below *b, struct kv_ring *ring) {
  uint32_t page = ring->pages[ring->from];
  ring->from = (ring->from + 1) % b->kv->page_count;
  ring->count--;
  ring->since_ns = gap__kv_below_now();
  return page;
}

/* It may have become another one since it was put there. */
static bool is_offered(const struct gap_kv *kv, uint32_t page) {
  bool alive = kv->state[page] == KV_USED || kv->state[page] == KV_CACHED;
  return alive && kv->pages[page].node && kv_node_at(kv, kv->pages[page].node)->hashed;
}

void gap__kv_cargo_add(struct kv_below *b, struct kv_cargo *cargo, uint32_t page) {
  struct gap_kv *kv = b->kv;
  cargo->names[cargo->count] = gap__kv_name(kv_digest_at(kv, kv->pages[page].node), kv->pages[page].group);
  cargo->pages[cargo->count++] = page;
}

struct kv_cargo *gap__kv_cargo_new(const struct kv_way *ways) {
  struct kv_cargo *cargo = calloc(1, sizeof *cargo);
  if (cargo) cargo->way = ways;
  return cargo;
}

static void fill(struct kv_below *b, struct kv_cargo *cargo) {
  while (cargo->count < b->crate_pages && b->to_servers.count) {
    uint32_t page = gap__kv_ring_take(b, &b->to_servers);
    if (!is_offered(b->kv, page) || b->kv->pages[page].on_servers) continue;
    b->kv->pages[page].on_servers = true;
    gap__kv_cargo_add(b, cargo, page);
  }
}

struct kv_cargo *gap__kv_pick_put(struct kv_below *b) {
  if (!gap__kv_ring_ready(b, &b->to_servers) || b->puts >= KV_BERTHS_FOR_PUTS) return NULL;
  struct kv_berth *berth = gap__kv_berth_take(b, KV_BERTHS - KV_BERTHS_FOR_PUTS);
  struct kv_cargo *cargo = berth ? gap__kv_cargo_new(&way) : NULL;
  if (cargo) fill(b, cargo);
  if (!cargo || !cargo->count) {
    gap__kv_berth_give(berth);
    free(cargo);
    return NULL;
  }
  cargo->berth = berth;
  cargo->hold = (struct kv_hold){.pages = cargo->pages, .count = cargo->count};
  gap__kv_read_begin(b->kv, &cargo->hold);
  b->puts++;
  return cargo;
}
