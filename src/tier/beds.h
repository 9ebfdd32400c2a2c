/* The chunks that one call puts to sleep or wakes, in order of their addresses, and the pieces to carry for them. */
#ifndef GAP_TIER_BEDS_H
#define GAP_TIER_BEDS_H

#include "core/heap_sleep.h"
#include "core/sleep.h"
#include "tier/image.h"

struct tier_bed {
  struct gap__bed is;
  gap_pool_id pool;
  uint32_t left; /* falling: pieces that are not carried yet */
  bool saved;    /* falling: a copy is kept, and good */
  bool fell, rose;
};

struct tier_beds {
  struct gap__policy_state *state;
  struct tier_bed *beds;
  uint32_t count, room;
  uint64_t kept_pages; /* of chunks that cannot sleep */
  bool failed;         /* no memory for a record */
};

struct tier_pieces {
  struct gap__piece *pieces;
  uint32_t count, room;
};

/* Adds the chunks of a pool that are asleep, or those that are not; of [from, to) only. */
int gap__beds_collect(struct tier_beds *, gap_pool_id, bool asleep, gap_addr from, gap_addr to);
void gap__beds_sort(struct tier_beds *);
void gap__beds_free(struct tier_beds *);
struct tier_bed *gap__beds_at(const struct tier_beds *, gap_addr); /* the one that the address lies in */
uint64_t gap__beds_pages(const struct tier_beds *, bool empty_only);
bool gap__bed_lives(const struct gap__bed *, gap_addr, uint64_t bytes); /* does anything live there? */

int gap__pieces_add(struct tier_pieces *, const struct gap__piece *);

#endif
