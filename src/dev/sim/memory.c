/* Addresses, chunks and mappings of the simulated card. */
#include "dev/sim/state.h"

/* Imaginary windows lie in [1 TiB, 112 TiB); segments above them. */
#define WINDOWS_FIRST ((gap_addr)1 << 40)
#define WINDOWS_END ((gap_addr)0x700000000000)

#define RESERVE_US 2.4       /* whatever the size */
#define FAILED_CREATE_US 58. /* measured */
#define PIN_US_PER_MIB 298.  /* creating 1 GiB of pinned host memory takes 305 ms */

static struct sim_chunk *chunk_at(struct sim *sim, uint32_t index) { return gap__slab_at(&sim->chunks, index); }
static struct sim_mapping *mapping_at(struct sim *sim, uint32_t index) { return gap__slab_at(&sim->mappings, index); }

static double pin_cost(uint64_t bytes) { return PIN_US_PER_MIB * (double)bytes / (1 << 20); }

/* One address never names two cards: 8 begin 8 TiB apart, further ones 1 TiB behind these. */
static gap_addr first_window(const struct sim *sim) {
  gap_addr ordinal = (gap_addr)sim->dev.ordinal;
  return WINDOWS_FIRST + ((ordinal & 7) << 43) + ((ordinal >> 3 & 7) << 40);
}

/* Recorded segments may lie where windows would: those are stepped over. */
static gap_addr find_window(struct sim *sim, uint64_t bytes, uint64_t align) {
  gap_addr first = first_window(sim);
  gap_addr addr = gap__space_find(&sim->space, first, WINDOWS_END, bytes, align), taken;
  while (addr && (taken = gap__space_first(&sim->space, addr, bytes)) != 0) {
    gap_addr after = taken + mapping_at(sim, gap__space_at(&sim->space, taken))->bytes;
    addr = gap__space_find(&sim->space, after, WINDOWS_END, bytes, align);
  }
  return addr;
}

static int reserve_locked(struct sim *sim, uint64_t bytes, uint64_t align, gap_addr *out) {
  gap__sim_charge(sim, RESERVE_US);
  if (sim->params.window_max_bytes && bytes > sim->params.window_max_bytes) return GAP_ENOTSUP;
  uint64_t budget = sim->params.address_budget_bytes, reserved = sim->space.reserved_bytes;
  if (budget && (reserved > budget || bytes > budget - reserved)) return GAP_ENOMEM;
  gap_addr addr = find_window(sim, bytes, align);
  if (addr == 0) return GAP_ENOMEM;
  int rc = gap__space_reserve(&sim->space, addr, bytes);
  if (rc == 0) *out = addr;
  return rc;
}

int gap__sim_reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  struct sim *sim = sim_of(dev);
  if (bytes == 0 || bytes % GAP__PAGE || align < GAP__PAGE || (align & (align - 1)) || align >= GAP__SPACE_END)
    return GAP_EINVAL;
  gap__lock(&sim->lock);
  int rc = reserve_locked(sim, bytes, align, out);
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_unreserve(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  gap__sim_charge(sim, RESERVE_US);
  int rc = gap__space_unreserve(&sim->space, addr, bytes);
  gap__unlock(&sim->lock);
  return rc;
}

uint64_t gap__sim_free_bytes(const struct sim *sim) {
  uint64_t total = sim->params.total_bytes, taken;
  if (__builtin_add_overflow(sim->params.context_bytes + sim->used_bytes, sim->neighbour_bytes, &taken)) return 0;
  return taken < total ? total - taken : 0;
}

bool gap__sim_fits(struct sim *sim, uint64_t bytes) {
  if (bytes <= gap__sim_free_bytes(sim)) return true;
  gap__sim_charge(sim, FAILED_CREATE_US);
  return false;
}

static int create_locked(struct sim *sim, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  bool on_card = place == GAP__PLACE_DEVICE;
  if (on_card && !gap__sim_fits(sim, bytes)) return GAP_ENOMEM;
  uint32_t index = gap__slab_take(&sim->chunks);
  if (index == 0) return GAP_ENOMETA;
  struct sim_chunk *chunk = chunk_at(sim, index);
  *chunk = (struct sim_chunk){.generation = chunk->generation, .bytes = bytes, .place = place};
  *(on_card ? &sim->used_bytes : &sim->host_bytes) += bytes;
  gap__sim_charge(sim, on_card ? gap__sim_cost(&sim->params.prices->create, bytes) : pin_cost(bytes));
  *out = (uint64_t)chunk->generation << 32 | index;
  return 0;
}

int gap__sim_chunk_create(struct gap__dev *dev, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  struct sim *sim = sim_of(dev);
  if (bytes == 0 || bytes % GAP__PAGE || (place != GAP__PLACE_DEVICE && place != GAP__PLACE_HOST)) return GAP_EINVAL;
  gap__lock(&sim->lock);
  int rc = create_locked(sim, bytes, place, out);
  gap__unlock(&sim->lock);
  return rc;
}

/* A chunk that its owner still holds; NULL for any other handle. */
static struct sim_chunk *find_chunk(struct sim *sim, gap__chunk handle) {
  uint32_t index = (uint32_t)handle;
  if (index == 0 || index >= sim->chunks.count) return NULL;
  struct sim_chunk *chunk = chunk_at(sim, index);
  return chunk->generation == handle >> 32 && !chunk->released ? chunk : NULL;
}

static void give_chunk(struct sim *sim, struct sim_chunk *chunk, uint32_t index) {
  *(chunk->place == GAP__PLACE_DEVICE ? &sim->used_bytes : &sim->host_bytes) -= chunk->bytes;
  chunk->generation++;
  gap__slab_give(&sim->chunks, index);
}

int gap__sim_chunk_release(struct gap__dev *dev, gap__chunk handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  struct sim_chunk *chunk = find_chunk(sim, handle);
  if (chunk) {
    gap__sim_charge(sim, gap__sim_cost(&sim->params.prices->release, chunk->bytes));
    chunk->released = true;
    if (chunk->mapping_count == 0) give_chunk(sim, chunk, (uint32_t)handle);
  }
  gap__unlock(&sim->lock);
  return chunk ? 0 : GAP_EINVAL;
}

static int map_locked(struct sim *sim, gap_addr addr, uint64_t bytes, gap__chunk handle) {
  struct sim_chunk *chunk = find_chunk(sim, handle);
  if (!chunk || chunk->bytes != bytes || !gap__space_is_range(addr, bytes)) return GAP_EINVAL;
  if (!gap__space_window(&sim->space, addr, bytes) || gap__space_first(&sim->space, addr, bytes)) return GAP_EINVAL;
  uint32_t index = gap__slab_take(&sim->mappings);
  if (index == 0) return GAP_ENOMETA;
  *mapping_at(sim, index) = (struct sim_mapping){.chunk = (uint32_t)handle, .addr = addr, .bytes = bytes};
  int rc = gap__space_put(&sim->space, addr, bytes, index);
  if (rc != 0) {
    gap__slab_give(&sim->mappings, index);
    return rc;
  }
  chunk->mapping_count++;
  gap__sim_charge(sim, gap__sim_cost(&sim->params.prices->map, bytes));
  return 0;
}

int gap__sim_map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = map_locked(sim, addr, bytes, handle);
  gap__unlock(&sim->lock);
  return rc;
}

/* The next whole mapping of a chunk inside [addr, end), or NULL. */
static struct sim_mapping *whole_mapping(struct sim *sim, gap_addr addr, gap_addr end) {
  uint32_t index = gap__space_at(&sim->space, addr);
  struct sim_mapping *mapping = index ? mapping_at(sim, index) : NULL;
  bool whole = mapping && mapping->chunk && mapping->addr == addr && mapping->bytes <= end - addr;
  return whole ? mapping : NULL;
}

static int set_access_locked(struct sim *sim, gap_addr addr, gap_addr end) {
  for (gap_addr at = addr; at < end;) { /* all or nothing, as the driver does */
    struct sim_mapping *mapping = whole_mapping(sim, at, end);
    if (!mapping) return GAP_EINVAL;
    at += mapping->bytes;
  }
  double us = 0;
  for (gap_addr at = addr; at < end;) {
    struct sim_mapping *mapping = whole_mapping(sim, at, end);
    mapping->accessible = true;
    us += gap__sim_cost(&sim->params.prices->access, mapping->bytes);
    at += mapping->bytes;
  }
  gap__sim_charge(sim, us);
  return 0;
}

int gap__sim_set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  if (!gap__space_is_range(addr, bytes)) return GAP_EINVAL;
  gap__lock(&sim->lock);
  int rc = set_access_locked(sim, addr, addr + bytes);
  gap__unlock(&sim->lock);
  return rc;
}

static int unmap_locked(struct sim *sim, gap_addr addr, uint64_t bytes) {
  struct sim_mapping *mapping = whole_mapping(sim, addr, addr + bytes);
  if (!mapping || mapping->bytes != bytes) return GAP_EINVAL;
  struct sim_chunk *chunk = chunk_at(sim, mapping->chunk);
  if (--chunk->mapping_count == 0 && chunk->released) give_chunk(sim, chunk, mapping->chunk);
  uint32_t index = gap__space_at(&sim->space, addr);
  gap__space_clear(&sim->space, addr, bytes);
  gap__slab_give(&sim->mappings, index);
  gap__sim_charge(sim, gap__sim_cost(&sim->params.prices->unmap, bytes));
  return 0;
}

int gap__sim_unmap(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  if (!gap__space_is_range(addr, bytes)) return GAP_EINVAL;
  gap__lock(&sim->lock);
  int rc = unmap_locked(sim, addr, bytes);
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_pin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  if (!memory || bytes == 0) return GAP_EINVAL;
  gap__lock(&sim->lock);
  bool again = gap__map_get(&sim->pinned, (uintptr_t)memory, NULL);
  int rc = again ? GAP_EINVAL : gap__map_put(&sim->pinned, (uintptr_t)memory, bytes);
  if (rc == 0) gap__sim_charge(sim, pin_cost(bytes));
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_unpin(struct gap__dev *dev, void *memory, uint64_t bytes) {
  struct sim *sim = sim_of(dev);
  uint64_t pinned = 0;
  gap__lock(&sim->lock);
  bool known = gap__map_get(&sim->pinned, (uintptr_t)memory, &pinned) && pinned == bytes;
  if (known) gap__map_remove(&sim->pinned, (uintptr_t)memory, NULL);
  gap__unlock(&sim->lock);
  return known ? 0 : GAP_EINVAL;
}

int gap__sim_mem_info(struct gap__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  *free_bytes = gap__sim_free_bytes(sim);
  *total_bytes = sim->params.total_bytes;
  gap__unlock(&sim->lock);
  return 0;
}
