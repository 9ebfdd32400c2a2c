/* What an allocator held at a moment of a history: segments and the live blocks in them.
 *
 * The file has the end exactly, so the picture starts there and events are undone, last to first.  Blocks that were freed meanwhile come
 * back in their 512-byte-rounded size; a native block may have been up to 1 MiB larger. */
#ifndef GAP_EXPLAIN_PICTURE_H
#define GAP_EXPLAIN_PICTURE_H

#include "base/tree.h"
#include "explain/lives.h"

struct gap__picture_segment {
  uint64_t addr, bytes, stream;
  uint64_t live; /* bytes of blocks in it, pending ones included */
  uint16_t pool;
  bool is_large, is_expandable, is_paged; /* as in a history */
};

struct gap__picture_block {
  struct gap__tree_node node; /* major: the address; tag: 1 pending */
  uint64_t bytes;
  uint32_t stack;
};

struct gap__picture {
  const struct gap__history *history;
  uint32_t device;
  struct gap__picture_segment *segments; /* by address */
  uint32_t segment_count, segment_room;
  struct gap__slab slab; /* of gap__picture_block */
  struct gap__tree blocks;
  uint64_t held, live, pending; /* live includes pending */
};

/* As the file ends.  0 or GAP_ENOMETA. */
int gap__picture_begin(const struct gap__history *, uint32_t device, struct gap__picture *);
/* Undoes one event of the device; `lives` gives back the stacks.  What contradicts the picture changes nothing.  0 or GAP_ENOMETA. */
int gap__picture_undo(struct gap__picture *, const struct gap__lives *, uint32_t event);
void gap__picture_end(struct gap__picture *);

/* The segment that an address lies in, or NULL. */
struct gap__picture_segment *gap__picture_segment_of(const struct gap__picture *, uint64_t addr);
/* A piece of a segment in which nothing lives; `after` the address where to go on, the segment's own to begin.  False at its end. */
bool gap__picture_next_gap(const struct gap__picture *, const struct gap__picture_segment *, uint64_t *after,
                           uint64_t *addr, uint64_t *bytes);
static inline struct gap__picture_block *gap__picture_block_at(const struct gap__picture *picture, uint32_t index) {
  return gap__slab_at(&picture->slab, index);
}

#endif
