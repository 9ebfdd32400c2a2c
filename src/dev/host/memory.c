/* Addresses, chunks, mappings and segments of the host backend. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "dev/host/state.h"

static void *pointer(gap_addr addr) { return (void *)(uintptr_t)addr; }

/* Pages are handed out in rising order at first, so that a fresh chunk is one run and one mmap. */
int gap__host_pages_init(struct host *host) {
  uint32_t count = (uint32_t)(host->params.total_bytes / GAP__PAGE);
  for (unsigned place = 0; place < 2; place++) {
    struct host_pages *pages = &host->pages[place];
    pages->free = malloc(count * sizeof *pages->free);
    if (!pages->free) return GAP_ENOMETA;
    for (uint32_t i = 0; i < count; i++) pages->free[i] = count * (place + 1) - 1 - i;
    pages->count = count;
  }
  return 0;
}

/* An aligned run of addresses without memory, or 0. */
static gap_addr take_addresses(uint64_t bytes, uint64_t align) {
  uint64_t wanted;
  if (__builtin_add_overflow(bytes, align, &wanted)) return 0;
  void *got = mmap(NULL, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return 0;
  gap_addr start = (uintptr_t)got, addr = (start + align - 1) & ~(align - 1);
  if (addr > start) munmap(got, addr - start);
  munmap(pointer(addr + bytes), start + wanted - (addr + bytes));
  return addr;
}

static bool forget_memory(gap_addr addr, uint64_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(pointer(addr), bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

static int reserve_window(struct host *host, uint64_t bytes, uint64_t align, gap_addr *out) {
  gap_addr addr = take_addresses(bytes, align);
  if (addr == 0) return GAP_ENOMEM;
  int rc = addr + bytes <= GAP__SPACE_END ? gap__space_reserve(&host->space, addr, bytes) : GAP_ENOMEM;
  if (rc == 0) *out = addr;
  else munmap(pointer(addr), bytes);
  return rc;
}

static int reserve_locked(struct host *host, uint64_t bytes, uint64_t align, gap_addr *out) {
  if (bytes == 0 || bytes % GAP__PAGE || align < GAP__PAGE || (align & (align - 1))) return gap__host_misuse(host);
  uint64_t most = host->params.window_max_bytes, budget = host->params.address_budget_bytes;
  if (most && bytes > most) return GAP_ENOTSUP;
  if (budget && bytes > budget - host->window_bytes) return GAP_ENOMEM;
  int rc = reserve_window(host, bytes, align, out);
  if (rc == 0) host->window_bytes += bytes;
  return rc;
}

int gap__host_reserve(struct gap__dev *dev, uint64_t bytes, uint64_t align, gap_addr *out) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = reserve_locked(host, bytes, align, out);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_unreserve(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = gap__space_unreserve(&host->space, addr, bytes);
  if (rc != 0) {
    gap__host_misuse(host);
  } else {
    munmap(pointer(addr), bytes);
    host->window_bytes -= bytes;
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

/* Room on the device for a chunk: other processes may have it. */
static int take_room(struct host *host, uint64_t bytes, enum gap__place place) {
  if (bytes / GAP__PAGE > host->pages[place].count) return GAP_ENOMEM;
  if (place != GAP__PLACE_DEVICE) return 0;
  int rc = host->card ? gap__card_take(host->card, bytes) : 0;
  if (rc == 0) host->used_bytes += bytes;
  return rc;
}

static void give_room(struct host *host, uint64_t bytes, enum gap__place place) {
  if (place != GAP__PLACE_DEVICE) return;
  host->used_bytes -= bytes;
  if (host->card) gap__card_give(host->card, bytes);
}

/* A new chunk record with its pages; its index, or 0 with *rc. */
static uint32_t make_chunk(struct host *host, uint64_t bytes, enum gap__place place, int *rc) {
  struct host_pages *pool = &host->pages[place];
  uint64_t count = bytes / GAP__PAGE;
  if ((*rc = take_room(host, bytes, place)) != 0) return 0;
  *rc = GAP_ENOMETA;
  uint32_t *pages = malloc(count * sizeof *pages), index = pages ? gap__slab_take(&host->chunks) : 0;
  if (index == 0) {
    free(pages);
    give_room(host, bytes, place);
    return 0;
  }
  for (uint64_t i = 0; i < count; i++) pages[i] = pool->free[--pool->count];
  struct host_chunk *chunk = gap__slab_at(&host->chunks, index);
  *chunk = (struct host_chunk){.generation = chunk->generation, .bytes = bytes, .pages = pages, .place = place};
  *rc = 0;
  return index;
}

/* The number of pages from `first` on that lie side by side in the memfd. */
static uint64_t run_length(const struct host_chunk *chunk, uint64_t first) {
  uint64_t count = chunk->bytes / GAP__PAGE, length = 1;
  while (first + length < count && chunk->pages[first + length] == chunk->pages[first] + length) length++;
  return length;
}

/* Its pages are punched out of the memfd: whoever gets them next reads zeros, never another owner's bytes. */
static void give_chunk(struct host *host, uint32_t index) {
  struct host_chunk *chunk = gap__slab_at(&host->chunks, index);
  struct host_pages *pool = &host->pages[chunk->place];
  uint64_t count = chunk->bytes / GAP__PAGE;
  for (uint64_t first = 0, length; first < count; first += length) {
    length = run_length(chunk, first);
    off_t offset = (off_t)(chunk->pages[first] * GAP__PAGE), bytes = (off_t)(length * GAP__PAGE);
    if (fallocate(host->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) != 0) host->faults++;
  }
  for (uint64_t i = count; i-- > 0;) pool->free[pool->count++] = chunk->pages[i];
  give_room(host, chunk->bytes, chunk->place);
  free(chunk->pages);
  chunk->pages = NULL;
  chunk->released = true;
  chunk->generation++;
  gap__slab_give(&host->chunks, index);
}

int gap__host_chunk_create(struct gap__dev *dev, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  struct host *host = host_of(dev);
  int rc;
  pthread_mutex_lock(&host->lock);
  if (bytes == 0 || bytes % GAP__PAGE || (place != GAP__PLACE_DEVICE && place != GAP__PLACE_HOST)) {
    rc = gap__host_misuse(host);
  } else {
    uint32_t index = make_chunk(host, bytes, place, &rc);
    if (index) *out = (uint64_t)((struct host_chunk *)gap__slab_at(&host->chunks, index))->generation << 32 | index;
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static struct host_chunk *find_chunk(struct host *host, gap__chunk handle) {
  uint32_t index = (uint32_t)handle;
  if (index == 0 || index >= host->chunks.count) return NULL;
  struct host_chunk *chunk = gap__slab_at(&host->chunks, index);
  return chunk->generation == handle >> 32 && !chunk->released ? chunk : NULL;
}

int gap__host_chunk_release(struct gap__dev *dev, gap__chunk handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_chunk *chunk = find_chunk(host, handle);
  int rc = chunk ? 0 : gap__host_misuse(host);
  if (chunk) {
    chunk->released = true;
    if (chunk->mapping_count == 0) give_chunk(host, (uint32_t)handle);
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

/* Puts a chunk's pages behind addresses, without access yet. */
static bool map_pages(struct host *host, const struct host_chunk *chunk, gap_addr addr) {
  uint64_t count = chunk->bytes / GAP__PAGE;
  for (uint64_t first = 0, length; first < count; first += length) {
    length = run_length(chunk, first);
    off_t offset = (off_t)(chunk->pages[first] * GAP__PAGE);
    void *at = pointer(addr + first * GAP__PAGE);
    if (mmap(at, length * GAP__PAGE, PROT_NONE, MAP_SHARED | MAP_FIXED, host->fd, offset) == MAP_FAILED) return false;
  }
  return true;
}

static int add_mapping(struct host *host, gap_addr addr, uint32_t chunk_index, bool is_segment) {
  struct host_chunk *chunk = gap__slab_at(&host->chunks, chunk_index);
  uint32_t index = gap__slab_take(&host->mappings);
  if (index == 0) return GAP_ENOMETA;
  *(struct host_mapping *)gap__slab_at(&host->mappings, index) = (struct host_mapping){
      .chunk = chunk_index, .addr = addr, .bytes = chunk->bytes, .born = ++host->sequence, .is_segment = is_segment};
  int rc = map_pages(host, chunk, addr) ? gap__space_put(&host->space, addr, chunk->bytes, index) : GAP_EDEVICE;
  if (rc == 0) {
    chunk->mapping_count++;
  } else {
    forget_memory(addr, chunk->bytes);
    gap__slab_give(&host->mappings, index);
  }
  return rc;
}

int gap__host_map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_chunk *chunk = find_chunk(host, handle);
  bool valid = chunk && chunk->bytes == bytes && gap__space_is_range(addr, bytes) &&
               gap__space_window(&host->space, addr, bytes) && !gap__space_first(&host->space, addr, bytes);
  int rc = valid ? add_mapping(host, addr, (uint32_t)handle, false) : gap__host_misuse(host);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static int allow(struct host_mapping *mapping, int access) {
  if (mprotect(pointer(mapping->addr), mapping->bytes, access) != 0) return GAP_EDEVICE;
  mapping->accessible = true;
  return 0;
}

static struct host_mapping *whole_mapping(struct host *host, gap_addr addr, gap_addr end) {
  struct host_mapping *mapping = gap__host_mapping_at(host, addr);
  bool whole = mapping && !mapping->is_segment && mapping->addr == addr && mapping->bytes <= end - addr;
  return whole ? mapping : NULL;
}

static int set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes, int access) {
  struct host *host = host_of(dev);
  struct host_mapping *mapping;
  pthread_mutex_lock(&host->lock);
  int rc = gap__space_is_range(addr, bytes) ? 0 : gap__host_misuse(host);
  gap_addr end = addr + bytes;
  for (gap_addr at = addr; rc == 0 && at < end; at += mapping->bytes) { /* all or nothing, as the driver does */
    mapping = whole_mapping(host, at, end);
    if (!mapping) {
      rc = gap__host_misuse(host);
      break;
    }
  }
  for (gap_addr at = addr; rc == 0 && at < end; at += mapping->bytes) {
    mapping = whole_mapping(host, at, end);
    rc = allow(mapping, access);
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_set_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  return set_access(dev, addr, bytes, PROT_READ | PROT_WRITE);
}

int gap__host_set_read_access(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  return set_access(dev, addr, bytes, PROT_READ);
}

static int drop_mapping(struct host *host, struct host_mapping *mapping) {
  uint32_t index = gap__space_at(&host->space, mapping->addr), chunk_index = mapping->chunk;
  struct host_chunk *chunk = gap__slab_at(&host->chunks, chunk_index);
  if (mapping->uses) host->faults++; /* queued work still uses it */
  if (!forget_memory(mapping->addr, mapping->bytes)) return GAP_EDEVICE;
  gap__space_clear(&host->space, mapping->addr, mapping->bytes);
  gap__slab_give(&host->mappings, index);
  if (--chunk->mapping_count == 0 && chunk->released) give_chunk(host, chunk_index);
  return 0;
}

int gap__host_unmap(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  bool valid = gap__space_is_range(addr, bytes);
  struct host_mapping *mapping = valid ? whole_mapping(host, addr, addr + bytes) : NULL;
  int rc = mapping && mapping->bytes == bytes ? drop_mapping(host, mapping) : gap__host_misuse(host);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static int alloc_locked(struct host *host, uint64_t bytes, gap_addr *out) {
  int rc;
  uint32_t index = make_chunk(host, bytes, GAP__PLACE_DEVICE, &rc);
  if (index == 0) return rc;
  struct host_chunk *chunk = gap__slab_at(&host->chunks, index);
  gap_addr addr = 0;
  rc = reserve_window(host, bytes, GAP__PAGE, &addr);
  if (rc == 0) rc = add_mapping(host, addr, index, true);
  if (rc == 0) rc = allow(gap__host_mapping_at(host, addr), PROT_READ | PROT_WRITE);
  chunk->released = true; /* goes with its only mapping */
  if (rc == 0) {
    *out = addr;
    return 0;
  }
  struct host_mapping *mapping = addr ? gap__host_mapping_at(host, addr) : NULL;
  if (mapping) drop_mapping(host, mapping);
  else give_chunk(host, index);
  if (addr && gap__space_unreserve(&host->space, addr, bytes) == 0) munmap(pointer(addr), bytes);
  return rc;
}

int gap__host_segment_alloc(struct gap__dev *dev, uint64_t bytes, gap_addr *out) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc;
  if (bytes == 0) rc = gap__host_misuse(host);
  else if (bytes > host->params.total_bytes) rc = GAP_ENOMEM;
  else rc = alloc_locked(host, (bytes + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE, out);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static struct host_mapping *find_segment(struct host *host, gap_addr addr) {
  struct host_mapping *mapping = gap__host_mapping_at(host, addr);
  return mapping && mapping->is_segment && mapping->addr == addr ? mapping : NULL;
}

static int free_locked(struct host *host, gap_addr addr) {
  if (!find_segment(host, addr)) return gap__host_misuse(host);
  gap__host_drain(host);
  struct host_mapping *segment = find_segment(host, addr); /* the lock was given up: another thread may have freed it */
  if (!segment) return gap__host_misuse(host);
  uint64_t bytes = segment->bytes;
  int rc = drop_mapping(host, segment);
  if (rc == 0) rc = gap__space_unreserve(&host->space, addr, bytes);
  if (rc == 0) munmap(pointer(addr), bytes);
  return rc;
}

int gap__host_segment_free(struct gap__dev *dev, gap_addr addr) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = free_locked(host, addr);
  pthread_mutex_unlock(&host->lock);
  return rc;
}
