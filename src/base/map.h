/* A hash map from one 64-bit number to another, for cold paths.
 *
 * Open addressing with linear probing, at most three quarters full, doubled when it gets fuller; removal shifts the rest of a
 * run back, so there are no tombstones and the length of a probe depends on what is in the map only.  Any key is allowed,
 * 0 too.  Not thread-safe. */
#ifndef GAP_MAP_H
#define GAP_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gap__map_slot {
  uint64_t key, value;
};

struct gap__map { /* zero-initialise it */
  struct gap__map_slot *slots;
  uint8_t *used;     /* one a slot; in the same allocation */
  size_t slot_count; /* a power of two, or 0 */
  size_t count;      /* entries */
};

void gap__map_free(struct gap__map *);
/* False, and *value untouched, when the key is absent.  `value` may be NULL. */
bool gap__map_get(const struct gap__map *, uint64_t key, uint64_t *value);
/* Adds or replaces.  GAP_ENOMETA: the map is unchanged. */
int gap__map_put(struct gap__map *, uint64_t key, uint64_t value);
bool gap__map_remove(struct gap__map *, uint64_t key, uint64_t *value);
/* Every entry once, in no order: start with *cursor = 0; false at the end.  The map must not change meanwhile. */
bool gap__map_next(const struct gap__map *, size_t *cursor, struct gap__map_slot *out);

#endif
