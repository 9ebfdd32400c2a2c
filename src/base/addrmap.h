/* Address -> record index: open addressing with linear probing and no tombstones, at most half full.
 *
 * Addresses are multiples of 512, so the low 9 bits are dropped before hashing.  The table doubles as it fills and never
 * shrinks.  Not thread-safe. */
#ifndef GAP_ADDRMAP_H
#define GAP_ADDRMAP_H

#include <stdint.h>

struct gap__addrmap_slot {
  uint64_t addr;
  uint32_t value; /* 0: the slot is empty */
};

struct gap__addrmap {
  struct gap__addrmap_slot *slots;
  uint32_t bits; /* log2 of the number of slots */
  uint32_t count;
};

int gap__addrmap_init(struct gap__addrmap *); /* 0 or GAP_ENOMETA */
void gap__addrmap_destroy(struct gap__addrmap *);
/* Makes room for one more entry. 0 or GAP_ENOMETA. */
int gap__addrmap_reserve(struct gap__addrmap *);
/* Room must have been reserved, the address must not be there, value != 0. */
void gap__addrmap_put(struct gap__addrmap *, uint64_t addr, uint32_t value);
void gap__addrmap_remove(struct gap__addrmap *, uint64_t addr); /* must be there */

static inline uint32_t gap__addrmap_home(const struct gap__addrmap *map, uint64_t addr) {
  return (uint32_t)(((addr >> 9) * 0x9E3779B97F4A7C15u) >> (64 - map->bits));
}
/* The value, or 0. */
static inline uint32_t gap__addrmap_get(const struct gap__addrmap *map, uint64_t addr) {
  uint32_t mask = (1u << map->bits) - 1;
  for (uint32_t at = gap__addrmap_home(map, addr);; at = (at + 1) & mask) {
    const struct gap__addrmap_slot *slot = &map->slots[at];
    if (slot->addr == addr || !slot->value) return slot->value;
  }
}
static inline uint64_t gap__addrmap_bytes(const struct gap__addrmap *map) { return sizeof *map->slots << map->bits; }

#endif
