#include "base/addrmap.h"

#include "base/meta.h"
#include "gapless/gapless.h"

enum { BITS_FIRST = 10, BITS_MAX = 31 };

static int make(struct gap__addrmap *map, uint32_t bits) {
  if (bits > BITS_MAX) return GAP_ENOMETA;
  *map = (struct gap__addrmap){.bits = bits, .slots = gap__meta_map(sizeof *map->slots << bits)};
  return map->slots ? 0 : GAP_ENOMETA;
}

int gap__addrmap_init(struct gap__addrmap *map) { return make(map, BITS_FIRST); }

void gap__addrmap_destroy(struct gap__addrmap *map) {
  if (map->slots) gap__meta_unmap(map->slots, gap__addrmap_bytes(map));
  *map = (struct gap__addrmap){0};
}

int gap__addrmap_reserve(struct gap__addrmap *map) {
  if (map->count < 1u << (map->bits - 1)) return 0;
  struct gap__addrmap bigger;
  int rc = make(&bigger, map->bits + 1);
  if (rc) return rc;
  for (uint32_t i = 0; i < 1u << map->bits; i++) {
    if (map->slots[i].value) gap__addrmap_put(&bigger, map->slots[i].addr, map->slots[i].value);
  }
  gap__addrmap_destroy(map);
  *map = bigger;
  return 0;
}

void gap__addrmap_put(struct gap__addrmap *map, uint64_t addr, uint32_t value) {
  uint32_t mask = (1u << map->bits) - 1, at = gap__addrmap_home(map, addr);
  while (map->slots[at].value) at = (at + 1) & mask;
  map->slots[at] = (struct gap__addrmap_slot){addr, value};
  map->count++;
}

/* Closes the gap: each later entry of the cluster moves down unless that would put it before its home. */
void gap__addrmap_remove(struct gap__addrmap *map, uint64_t addr) {
  uint32_t mask = (1u << map->bits) - 1, hole = gap__addrmap_home(map, addr);
  while (map->slots[hole].addr != addr || !map->slots[hole].value) hole = (hole + 1) & mask;
  for (uint32_t at = (hole + 1) & mask; map->slots[at].value; at = (at + 1) & mask) {
    uint32_t home = gap__addrmap_home(map, map->slots[at].addr);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    map->slots[hole] = map->slots[at];
    hole = at;
  }
  map->slots[hole] = (struct gap__addrmap_slot){0, 0};
  map->count--;
}
