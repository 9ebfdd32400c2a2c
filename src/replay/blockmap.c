#include "replay/blockmap.h"

#include <stdlib.h>

#include "gapless/gapless.h"

enum { FIRST_BITS = 12 };

static int set_capacity(struct gap__blockmap *map, unsigned bits) {
  struct gap__blockmap_entry *entries = calloc((size_t)1 << bits, sizeof *entries);
  if (!entries) return GAP_ENOMETA;
  map->entries = entries;
  map->mask = ((size_t)1 << bits) - 1;
  map->shift = 64 - bits;
  return 0;
}

int gap__blockmap_init(struct gap__blockmap *map) {
  *map = (struct gap__blockmap){0}; /* may be destroyed also when this fails */
  return set_capacity(map, FIRST_BITS);
}

void gap__blockmap_destroy(struct gap__blockmap *map) {
  free(map->entries);
  map->entries = NULL;
}

int gap__blockmap_grow(struct gap__blockmap *map) {
  struct gap__blockmap old = *map;
  int rc = set_capacity(map, 64 - old.shift + 1);
  if (rc != 0) return rc;
  map->count = 0;
  for (size_t i = 0; i <= old.mask; i++)
    if (old.entries[i].key != 0) *gap__blockmap_put(map, old.entries[i].key) = old.entries[i];
  free(old.entries);
  return 0;
}

void gap__blockmap_close(struct gap__blockmap *map, size_t hole) {
  for (size_t i = (hole + 1) & map->mask; map->entries[i].key != 0; i = (i + 1) & map->mask) {
    size_t home = gap__blockmap_home(map, map->entries[i].key);
    /* An entry may move into the hole only if its home does not lie behind it. */
    if (((i - home) & map->mask) < ((i - hole) & map->mask)) continue;
    map->entries[hole] = map->entries[i];
    hole = i;
  }
  map->entries[hole].key = 0;
}
