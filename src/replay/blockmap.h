/* Recorded address -> the block that stands for it in the replay.
 *
 * Open addressing, linear probing, at most half full, removal by shifting back (Knuth 6.4, algorithm R): no tombstones, so a
 * history of any length keeps its speed.  An address of 0 marks an empty place; recorded addresses are never 0. */
#ifndef GAP_BLOCKMAP_H
#define GAP_BLOCKMAP_H

#include <stddef.h>
#include <stdint.h>

struct gap__blockmap_entry {
  uint64_t key;    /* recorded address */
  uint64_t addr;   /* replayed address */
  uint64_t size;   /* requested bytes */
  uint64_t stream; /* the synthetic stream that still uses it after its free; 0: not freed yet */
};

struct gap__blockmap {
  struct gap__blockmap_entry *entries;
  size_t mask; /* capacity - 1 */
  size_t count;
  unsigned shift; /* 64 - log2(capacity) */
};

int gap__blockmap_init(struct gap__blockmap *); /* 0 or GAP_ENOMETA */
void gap__blockmap_destroy(struct gap__blockmap *);
int gap__blockmap_grow(struct gap__blockmap *); /* 0 or GAP_ENOMETA */
/* Closes the gap that the removal of `hole` leaves. */
void gap__blockmap_close(struct gap__blockmap *, size_t hole);

static inline size_t gap__blockmap_home(const struct gap__blockmap *map, uint64_t key) {
  return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> map->shift);
}

/* NULL when absent. Valid until the next put or take. */
static inline struct gap__blockmap_entry *gap__blockmap_find(const struct gap__blockmap *map, uint64_t key) {
  for (size_t i = gap__blockmap_home(map, key);; i = (i + 1) & map->mask) {
    struct gap__blockmap_entry *entry = &map->entries[i];
    if (entry->key == key) return entry;
    if (entry->key == 0) return NULL;
  }
}

/* A place for `key`, which is not in the map; NULL when host memory is exhausted.  The caller fills all fields but the key. */
static inline struct gap__blockmap_entry *gap__blockmap_put(struct gap__blockmap *map, uint64_t key) {
  if (map->count * 2 > map->mask && gap__blockmap_grow(map) != 0) return NULL;
  size_t i = gap__blockmap_home(map, key);
  while (map->entries[i].key != 0) i = (i + 1) & map->mask;
  map->count++;
  map->entries[i].key = key;
  return &map->entries[i];
}

static inline void gap__blockmap_take(struct gap__blockmap *map, struct gap__blockmap_entry *entry) {
  map->count--;
  gap__blockmap_close(map, (size_t)(entry - map->entries));
}

#endif
