/* Segments of the simulated card: address and memory in one call, as cudaMalloc gives them. */
#include "dev/sim/state.h"

/* Own addresses rise from the beginning of a part and begin again at its end; recorded ones may lie anywhere. */
#define SEGMENTS_FIRST ((gap_addr)0x700000000000)
#define SEGMENTS_END ((gap_addr)0x7fff00000000)
#define PART_BYTES ((SEGMENTS_END - SEGMENTS_FIRST) / 64)

struct part {
  gap_addr first, end;
};
static const struct part everywhere = {SEGMENTS_FIRST, SEGMENTS_END};

/* Each of 64 cards has a part of its own, so that one address never names two; a card that is larger has all of them. */
static struct part part_of(const struct sim *sim) {
  if (sim->params.total_bytes > PART_BYTES) return everywhere;
  gap_addr first = SEGMENTS_FIRST + ((gap_addr)sim->dev.ordinal & 63) * PART_BYTES;
  return (struct part){first, first + PART_BYTES};
}

static struct sim_mapping *mapping_at(struct sim *sim, uint32_t index) { return gap__slab_at(&sim->mappings, index); }

/* The first free place of the part, or 0. */
static gap_addr find_place(struct sim *sim, struct part part, uint64_t bytes) {
  for (gap_addr addr = part.first; addr < part.end && bytes <= part.end - addr;) {
    gap_addr taken = gap__space_first(&sim->space, addr, bytes);
    if (taken == 0) return addr;
    addr = taken + mapping_at(sim, gap__space_at(&sim->space, taken))->bytes;
  }
  return 0;
}

static bool is_free(struct sim *sim, gap_addr addr, uint64_t bytes) {
  if (!gap__space_is_range(addr, bytes) || gap__space_first(&sim->space, addr, bytes)) return false;
  return gap__space_find(&sim->space, addr, addr + bytes, bytes, GAP__PAGE) == addr; /* in no window either */
}

/* Behind the last one, else anywhere in the card's part, else anywhere. */
static gap_addr find_own_place(struct sim *sim, uint64_t bytes) {
  struct part part = part_of(sim), rest = {sim->segment_cursor ? sim->segment_cursor : part.first, part.end};
  gap_addr addr = find_place(sim, rest, bytes);
  if (addr == 0) addr = find_place(sim, part, bytes);
  return addr ? addr : find_place(sim, everywhere, bytes);
}

static int choose_place(struct sim *sim, uint64_t bytes, gap_addr *out) {
  gap_addr fed = sim->segment_next;
  sim->segment_next = 0;
  if (fed && !is_free(sim, fed, bytes)) return GAP_EINVAL;
  gap_addr addr = fed ? fed : find_own_place(sim, bytes);
  if (addr == 0) return GAP_ENOMEM;
  if (!fed) sim->segment_cursor = addr + bytes;
  *out = addr;
  return 0;
}

static int alloc_locked(struct sim *sim, uint64_t bytes, gap_addr *out) {
  if (!gap__sim_fits(sim, bytes)) return GAP_ENOMEM;
  gap_addr addr;
  int rc = choose_place(sim, bytes, &addr);
  if (rc != 0) return rc;
  uint32_t index = gap__slab_take(&sim->mappings);
  if (index == 0) return GAP_ENOMETA;
  *mapping_at(sim, index) = (struct sim_mapping){.addr = addr, .bytes = bytes, .accessible = true};
  rc = gap__space_put(&sim->space, addr, bytes, index);
  if (rc != 0) {
    gap__slab_give(&sim->mappings, index);
    return rc;
  }
  sim->used_bytes += bytes;
  gap__sim_charge(sim, gap__sim_cost(&sim->params.prices->segment_alloc, bytes));
  *out = addr;
  return 0;
}

int gap__sim_segment_alloc(struct gap__dev *dev, uint64_t bytes, gap_addr *out) {
  struct sim *sim = sim_of(dev);
  if (bytes == 0) return GAP_EINVAL;
  if (bytes > GAP__SPACE_END) return GAP_ENOMEM;
  gap__lock(&sim->lock);
  int rc = alloc_locked(sim, (bytes + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE, out);
  gap__unlock(&sim->lock);
  return rc;
}

static int free_locked(struct sim *sim, gap_addr addr) {
  uint32_t index = gap__space_at(&sim->space, addr);
  struct sim_mapping *segment = index ? mapping_at(sim, index) : NULL;
  if (!segment || segment->chunk || segment->addr != addr) return GAP_EINVAL;
  gap__sim_drain(sim);
  gap__sim_charge(sim, gap__sim_cost(&sim->params.prices->segment_free, segment->bytes));
  sim->used_bytes -= segment->bytes;
  gap__space_clear(&sim->space, addr, segment->bytes);
  gap__slab_give(&sim->mappings, index);
  return 0;
}

int gap__sim_segment_free(struct gap__dev *dev, gap_addr addr) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = free_locked(sim, addr);
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_next_segment(struct gap__dev *dev, gap_addr addr) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  bool usable = is_free(sim, addr, GAP__PAGE); /* the size is known, and checked, when the segment is asked for */
  if (usable) sim->segment_next = addr;
  gap__unlock(&sim->lock);
  return usable ? 0 : GAP_EINVAL;
}
