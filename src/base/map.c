#include "base/map.h"

#include <stdlib.h>

#include "base/mix.h"
#include "gapless/gapless.h"

/* Handles and page addresses differ in few bits, all of which must count. */
static size_t home_slot(const struct gap__map *map, uint64_t key) {
  return (size_t)gap__mix64(key) & (map->slot_count - 1);
}

/* The slot of `key`, or the free one where it belongs.  There is always a free slot. */
static size_t find_slot(const struct gap__map *map, uint64_t key) {
  size_t at = home_slot(map, key);
  while (map->used[at] && map->slots[at].key != key) at = (at + 1) & (map->slot_count - 1);
  return at;
}

static int grow(struct gap__map *map) {
  struct gap__map bigger = {.slot_count = map->slot_count ? map->slot_count * 2 : 16, .count = map->count};
  bigger.slots = calloc(bigger.slot_count, sizeof *bigger.slots + 1);
  if (!bigger.slots) return GAP_ENOMETA;
  bigger.used = (uint8_t *)(bigger.slots + bigger.slot_count);
  struct gap__map_slot entry;
  for (size_t cursor = 0; gap__map_next(map, &cursor, &entry);) {
    size_t at = find_slot(&bigger, entry.key);
    bigger.slots[at] = entry;
    bigger.used[at] = 1;
  }
  free(map->slots);
  *map = bigger;
  return 0;
}

void gap__map_free(struct gap__map *map) {
  free(map->slots);
  *map = (struct gap__map){0};
}

bool gap__map_get(const struct gap__map *map, uint64_t key, uint64_t *value) {
  if (map->count == 0) return false;
  size_t at = find_slot(map, key);
  if (map->used[at] && value) *value = map->slots[at].value;
  return map->used[at];
}

int gap__map_put(struct gap__map *map, uint64_t key, uint64_t value) {
  if (map->count * 4 >= map->slot_count * 3) {
    int rc = grow(map);
    if (rc != 0) return rc;
  }
  size_t at = find_slot(map, key);
  map->count += !map->used[at];
  map->used[at] = 1;
  map->slots[at] = (struct gap__map_slot){key, value};
  return 0;
}

/* Closes the gap at `hole`: an entry moves back when its home is not between the gap and itself (Knuth 6.4, algorithm R). */
static void close_gap(struct gap__map *map, size_t hole) {
  size_t mask = map->slot_count - 1;
  for (size_t at = (hole + 1) & mask; map->used[at]; at = (at + 1) & mask) {
    size_t home = home_slot(map, map->slots[at].key);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    map->slots[hole] = map->slots[at];
    hole = at;
  }
  map->used[hole] = 0;
}

bool gap__map_remove(struct gap__map *map, uint64_t key, uint64_t *value) {
  if (map->count == 0) return false;
  size_t at = find_slot(map, key);
  if (!map->used[at]) return false;
  if (value) *value = map->slots[at].value;
  close_gap(map, at);
  map->count--;
  return true;
}

bool gap__map_next(const struct gap__map *map, size_t *cursor, struct gap__map_slot *out) {
  for (; *cursor < map->slot_count; ++*cursor) {
    if (!map->used[*cursor]) continue;
    *out = map->slots[(*cursor)++];
    return true;
  }
  return false;
}
