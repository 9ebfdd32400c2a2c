/* What lies below the device, by name: KV pages in *crates*, crates in places, each place's in order of their last use.
 *
 * A crate is what is stored as one: as many KV pages as fill 2 MiB, or one that is larger.  Nothing here moves a byte.
 *
 *     a name is found in one crate at most;  count of a place = crates in its list <= most
 *
 * Under the cache's lock. */
#ifndef GAP_KV_SHELF_H
#define GAP_KV_SHELF_H

#include "base/meta.h"

enum kv_place { KV_PLACE_HOST, KV_PLACE_DISK, KV_PLACE_REMOTE, KV_PLACES, KV_PLACE_NONE = KV_PLACES, KV_PLACE_HERE };
enum { KV_NAME_BYTES = 33 }; /* digest of the chain, group */

struct kv_name {
  unsigned char bytes[KV_NAME_BYTES];
};

struct kv_crate {
  uint32_t prev, next; /* first: of a free record it is the slab's link */
  uint64_t item;       /* of tier/item.h */
  uint32_t users;      /* copies under way: it may not go */
  uint16_t count;      /* names */
  uint8_t place;
  bool spoilt; /* an error was seen: it goes when nobody uses it */
};

struct kv_shelf {
  struct gap__slab crates; /* the first KV_PLACES are the lists' ends: next is the least recently used */
  struct kv_name *names;   /* crate_pages each */
  uint32_t *slots;         /* open addressing; what is found, 0: empty */
  uint32_t slot_mask, crate_pages, records;
  uint32_t most[KV_PLACES], count[KV_PLACES]; /* crates */
  uint64_t pages[KV_PLACES];
};

int gap__kv_shelf_init(struct kv_shelf *, uint32_t crate_pages, const uint32_t most[KV_PLACES]);
void gap__kv_shelf_free(struct kv_shelf *);

static inline struct kv_crate *kv_crate_at(const struct kv_shelf *s, uint32_t crate) {
  return gap__slab_at(&s->crates, crate);
}
/* What is found: a KV page's crate, and which of it. */
static inline uint32_t kv_found_crate(const struct kv_shelf *s, uint32_t found) { return found / s->crate_pages; }
static inline uint32_t kv_found_at(const struct kv_shelf *s, uint32_t found) { return found % s->crate_pages; }

uint32_t gap__kv_shelf_find(const struct kv_shelf *, const struct kv_name *); /* 0: nowhere */
/* A crate with names that are nowhere yet, or are found there still; the place has room.  0: no memory for the record. */
uint32_t gap__kv_shelf_add(struct kv_shelf *, enum kv_place, uint64_t item, const struct kv_name *, uint32_t count);
void gap__kv_shelf_touch(struct kv_shelf *, uint32_t crate);
void gap__kv_shelf_move(struct kv_shelf *, uint32_t crate, enum kv_place);
void gap__kv_shelf_drop(struct kv_shelf *, uint32_t crate);
uint32_t gap__kv_shelf_oldest(const struct kv_shelf *, enum kv_place); /* that nobody uses; 0: none */

#endif
