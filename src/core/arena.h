/* Arenas: ranges of addresses cut into blocks, and the few ways a block changes. All under the lane lock, and under the
 * device lock too where a hole is touched. */
#ifndef GAP_ARENA_H
#define GAP_ARENA_H

#include "core/bin.h"
#include "core/state.h"

void gap__arena_init(struct gap__arena *, struct gap__lane *, uint8_t kind);

/* Which of torch's two kinds the figures count an arena for. */
static inline int gap__arena_figure(const struct gap__arena *arena) {
  return arena->kind == GAP__ARENA_SMALL ? GAP__KIND_SMALL : GAP__KIND_LARGE;
}

/* Adds a range of at least `units` addresses, one hole, at the arena's disposal; under the device lock, takes no lane lock
 * but expects the caller to hold it.  GAP_ENOMEM when the driver has no window, GAP_ENOMETA. */
int gap__arena_add_range(struct gap__arena *, uint64_t units);

/* Gives the addresses of a range back; nothing is mapped in it any more. Only when the heap ends. */
void gap__range_destroy(struct gap__policy_state *, struct gap__range *);

/* The range of an address, or NULL: not ours.  Needs no lock. */
static inline struct gap__range *gap__range_of(const struct gap__policy_state *s, gap_addr addr) {
  if (addr >> GAP__ADDRESS_BITS) return NULL;
  uint16_t index = __atomic_load_n(&s->range_of[addr >> GAP__WINDOW_SHIFT], __ATOMIC_ACQUIRE);
  if (!index) return NULL;
  struct gap__range *range = &s->ranges[index];
  return addr - range->base < (uint64_t)range->pages << GAP__PAGE_SHIFT ? range : NULL;
}

/* The block that starts at `unit`, or 0. */
static inline uint32_t gap__block_starting(const struct gap__range *range, uint32_t unit) {
  const struct gap__lane *lane = range->arena->lane;
  uint32_t i = range->first[unit >> range->granule_shift];
  while (i && gap__block(lane, i)->off < unit) i = gap__block(lane, i)->next;
  return i && gap__block(lane, i)->off == unit ? i : 0;
}
/* The block that covers `unit`. */
uint32_t gap__block_covering(const struct gap__range *, uint32_t unit);

/* Takes an idle block or a hole out of its bin or list; its state becomes RESERVED. */
void gap__block_detach(struct gap__arena *, uint32_t block);
/* Makes a detached block idle (GAP__HOLLOW: pages of it may be bare), or a hole: merges it with equal neighbours and files it. Returns the
 * merged block. */
uint32_t gap__block_attach(struct gap__arena *, uint32_t block, enum gap__state);
/* Cuts a detached block so that [off, off + len) is a block of its own; what is left over is attached in `rest`.
 * 0: no host memory for the records (nothing changed). */
uint32_t gap__block_isolate(struct gap__arena *, uint32_t block, uint32_t off, uint32_t len, enum gap__state rest);
/* Cuts a detached block after `units`; returns the high part, detached too. 0: no host memory. */
uint32_t gap__block_cut(struct gap__arena *, uint32_t block, uint32_t units);
/* Joins a detached block with its next neighbour, detached too. */
void gap__block_absorb_next(struct gap__arena *, uint32_t block);

/* Turns whole pages of an idle block into a hole: their chunks are about to serve elsewhere. GAP_ENOMETA. */
int gap__arena_withdraw(struct gap__arena *, uint32_t block, uint32_t page, uint32_t pages);

/* The opposite: part of a hole, whose pages have their chunk still, is idle again. */
void gap__arena_return(struct gap__range *, uint32_t page, uint32_t pages);

/* The hot block becomes idle like any other. */
void gap__arena_cool(struct gap__arena *);
/* Returns every cached block to the bins, but for those of trays in use. */
void gap__arena_flush(struct gap__arena *);

/* Serves `units` from an idle block: best fit. 0: nothing fits, or what fits best is bare.  The block is RESERVED. */
uint32_t gap__arena_fit(struct gap__arena *, uint32_t units, bool aligned);
/* The same where that was bare: the best of those that are not.  Looks at every idle block. */
uint32_t gap__arena_fit_mapped(struct gap__arena *, uint32_t units, bool aligned);

_Static_assert(sizeof(struct gap__range) == 64, "the hot path finds a range by a shift");

/* Marks the pages of [off, off + len) as used up to the lane's open epoch. */
static inline void gap__range_stamp(struct gap__range *range, uint32_t off, uint32_t len, uint32_t epoch) {
  uint32_t first = off >> GAP__PAGE_UNIT_SHIFT, last = (off + len - 1) >> GAP__PAGE_UNIT_SHIFT;
  range->stamp[first] = range->stamp[last] = epoch; /* most blocks touch no other: no loop, no branch to guess */
  if (__builtin_expect(last > first + 1, 0))
    for (uint32_t page = first + 1; page < last; page++) range->stamp[page] = epoch;
}

#endif
