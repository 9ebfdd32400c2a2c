/* Host memory for the allocator's own records: out of band, never a header in device memory.
 *
 * Address space is reserved once (mmap, no swap reserved) and touched as it fills, so arrays never move and an index stays
 * valid for good. */
#ifndef GAP_META_H
#define GAP_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed pages, or NULL.  `bytes` is rounded up to the host's page size. */
void *gap__meta_map(size_t bytes);
void gap__meta_unmap(void *, size_t bytes);

/* A slab of equal records named by 32-bit indices; index 0 is never handed out, so 0 means none.  Freed records are
 * reused last in, first out (they are warm); the first 4 bytes of a free record hold the link.  Not thread-safe. */
struct gap__slab {
  unsigned char *base;
  uint32_t record_bytes;
  uint32_t count_max; /* records that may be taken; beyond them lies a margin of a sixteenth */
  uint32_t count;     /* records ever handed out, 1 for the unused first */
  uint32_t free_head;
  uint32_t in_use;
};

int gap__slab_init(struct gap__slab *, uint32_t record_bytes, uint32_t count_max); /* 0 or GAP_ENOMETA */
/* As many of `count_max` records as a fair part of the address space holds that this process may still take, and as the
 * host grants: all of them where nothing limits it. */
int gap__slab_init_fitting(struct gap__slab *, uint32_t record_bytes, uint32_t count_max);
uint32_t gap__meta_fitting(uint32_t record_bytes, uint32_t count_max);
void gap__slab_destroy(struct gap__slab *);
/* 0 when the slab is full or the host has no memory.  The record's bytes are not cleared when it is reused. */
uint32_t gap__slab_take_slow(struct gap__slab *);
/* Makes sure that the next `count` takes succeed, from the margin if need be: for undoing what failed, which must not fail
 * itself.  False: the margin is used up. */
bool gap__slab_assure(struct gap__slab *, uint32_t count);

static inline void *gap__slab_at(const struct gap__slab *slab, uint32_t index) {
  return slab->base + (size_t)index * slab->record_bytes;
}
static inline uint32_t gap__slab_take(struct gap__slab *slab) {
  uint32_t index = slab->free_head;
  if (__builtin_expect(index == 0, 0)) return gap__slab_take_slow(slab);
  slab->free_head = *(uint32_t *)gap__slab_at(slab, index);
  slab->in_use++;
  return index;
}
static inline void gap__slab_give(struct gap__slab *slab, uint32_t index) {
  *(uint32_t *)gap__slab_at(slab, index) = slab->free_head;
  slab->free_head = index;
  slab->in_use--;
}
/* Host bytes in use: what was ever touched. */
static inline uint64_t gap__slab_bytes(const struct gap__slab *slab) {
  return (uint64_t)slab->count * slab->record_bytes;
}

#endif
