#include "kv/shelf.h"

#include <string.h>

#include "gapless/gapless.h"

/* ---- memory ---- */

static uint32_t sentinel(enum kv_place place) { return (uint32_t)place + 1; }

static void empty_lists(struct kv_shelf *s) {
  for (int place = 0; place < KV_PLACES; place++) {
    uint32_t end = gap__slab_take(&s->crates);
    struct kv_crate *list = kv_crate_at(s, end);
    list->prev = list->next = end;
  }
}

int gap__kv_shelf_init(struct kv_shelf *s, uint32_t crate_pages, const uint32_t most[KV_PLACES]) {
  uint64_t crates = KV_PLACES, slots = 64;
  for (int place = 0; place < KV_PLACES; place++) crates += s->most[place] = most[place];
  if (crates > UINT32_MAX / 4 / crate_pages) return GAP_ELIMIT;
  if (gap__slab_init(&s->crates, sizeof(struct kv_crate), (uint32_t)crates)) return GAP_ENOMETA;
  s->crate_pages = crate_pages;
  s->records = (uint32_t)(crates + crates / 16 + 2); /* of the slab, its margin included */
  while (slots < 2ull * s->records * crate_pages) slots *= 2;
  s->slot_mask = (uint32_t)(slots - 1);
  s->slots = gap__meta_map(slots * sizeof *s->slots);
  s->names = gap__meta_map((size_t)s->records * crate_pages * sizeof *s->names);
  if (!s->slots || !s->names) return GAP_ENOMETA;
  empty_lists(s);
  return 0;
}

void gap__kv_shelf_free(struct kv_shelf *s) {
  gap__meta_unmap(s->slots, ((size_t)s->slot_mask + 1) * sizeof *s->slots);
  gap__meta_unmap(s->names, (size_t)s->records * s->crate_pages * sizeof *s->names);
  if (s->crates.base) gap__slab_destroy(&s->crates);
}

/* ---- names ---- */

/* Digests are as good as any hash. */
static uint32_t home_of(const struct kv_shelf *s, const struct kv_name *name) {
  uint32_t low;
  memcpy(&low, name->bytes, sizeof low);
  return (low ^ name->bytes[KV_NAME_BYTES - 1] * 0x9e3779b9u) & s->slot_mask;
}

static bool is_same(const struct kv_name *a, const struct kv_name *b) {
  return memcmp(a->bytes, b->bytes, KV_NAME_BYTES) == 0;
}

uint32_t gap__kv_shelf_find(const struct kv_shelf *s, const struct kv_name *name) {
  for (uint32_t at = home_of(s, name); s->slots[at]; at = (at + 1) & s->slot_mask)
    if (is_same(&s->names[s->slots[at]], name)) return s->slots[at];
  return 0;
}

static void enter(struct kv_shelf *s, uint32_t found) {
  uint32_t at = home_of(s, &s->names[found]);
  while (s->slots[at]) at = (at + 1) & s->slot_mask;
  s->slots[at] = found;
}

/* Shifts the rest of the run back: no tombstones. */
static void take_out(struct kv_shelf *s, uint32_t found) {
  uint32_t at = home_of(s, &s->names[found]);
  while (s->slots[at] && s->slots[at] != found) at = (at + 1) & s->slot_mask;
  if (!s->slots[at]) return; /* the name is found elsewhere */
  for (uint32_t next = (at + 1) & s->slot_mask; s->slots[next]; next = (next + 1) & s->slot_mask) {
    uint32_t home = home_of(s, &s->names[s->slots[next]]);
    if (((next - home) & s->slot_mask) < ((next - at) & s->slot_mask)) continue;
    s->slots[at] = s->slots[next];
    at = next;
  }
  s->slots[at] = 0;
}

/* ---- lists ---- */

static void unlist(struct kv_shelf *s, uint32_t crate) {
  struct kv_crate *c = kv_crate_at(s, crate);
  kv_crate_at(s, c->prev)->next = c->next;
  kv_crate_at(s, c->next)->prev = c->prev;
  s->count[c->place]--;
  s->pages[c->place] -= c->count;
}

static void list(struct kv_shelf *s, uint32_t crate, enum kv_place place) {
  struct kv_crate *c = kv_crate_at(s, crate), *end = kv_crate_at(s, sentinel(place));
  c->place = (uint8_t)place;
  c->next = sentinel(place);
  c->prev = end->prev;
  kv_crate_at(s, c->prev)->next = crate;
  end->prev = crate;
  s->count[place]++;
  s->pages[place] += c->count;
}

uint32_t gap__kv_shelf_add(struct kv_shelf *s, enum kv_place place, uint64_t item, const struct kv_name *names,
                           uint32_t count) {
  uint32_t crate = gap__slab_take(&s->crates);
  if (!crate) return 0;
  *kv_crate_at(s, crate) = (struct kv_crate){.item = item, .count = (uint16_t)count};
  for (uint32_t i = 0; i < count; i++) {
    uint32_t found = crate * s->crate_pages + i;
    bool known = gap__kv_shelf_find(s, &names[i]) != 0;
    s->names[found] = names[i];
    if (!known) enter(s, found);
  }
  list(s, crate, place);
  return crate;
}

void gap__kv_shelf_move(struct kv_shelf *s, uint32_t crate, enum kv_place place) {
  unlist(s, crate);
  list(s, crate, place);
}

void gap__kv_shelf_touch(struct kv_shelf *s, uint32_t crate) {
  gap__kv_shelf_move(s, crate, (enum kv_place)kv_crate_at(s, crate)->place);
}

void gap__kv_shelf_drop(struct kv_shelf *s, uint32_t crate) {
  unlist(s, crate);
  for (uint32_t i = 0; i < kv_crate_at(s, crate)->count; i++) take_out(s, crate * s->crate_pages + i);
  gap__slab_give(&s->crates, crate);
}

uint32_t gap__kv_shelf_oldest(const struct kv_shelf *s, enum kv_place place) {
  uint32_t end = sentinel(place), crate = kv_crate_at(s, end)->next;
  while (crate != end && kv_crate_at(s, crate)->users) crate = kv_crate_at(s, crate)->next;
  return crate == end ? 0 : crate;
}
