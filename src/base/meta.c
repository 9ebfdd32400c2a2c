#include "base/meta.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/room.h"
#include "gapless/gapless.h"

/* Where address space is limited, one array takes a 64th of what is left, but room for some records always. */
enum { MARGIN_SHARE = 16, ROOM_SHARE = 64, COUNT_LEAST = 1 << 10 };

static size_t page_round(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void *gap__meta_map(size_t bytes) {
  void *p = mmap(NULL, page_round(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void gap__meta_unmap(void *p, size_t bytes) {
  if (p) munmap(p, page_round(bytes));
}

static size_t slab_bytes(uint32_t record_bytes, uint32_t count_max) {
  return (size_t)record_bytes * ((size_t)count_max + count_max / MARGIN_SHARE);
}

int gap__slab_init(struct gap__slab *slab, uint32_t record_bytes, uint32_t count_max) {
  *slab = (struct gap__slab){.record_bytes = record_bytes, .count_max = count_max, .count = 1};
  slab->base = gap__meta_map(slab_bytes(record_bytes, count_max));
  return slab->base ? 0 : GAP_ENOMETA;
}

uint32_t gap__meta_fitting(uint32_t record_bytes, uint32_t count_max) {
  uint64_t room = gap__room_memory();
  if (room == GAP__ROOM_UNLIMITED) return count_max;
  uint64_t count = room / ROOM_SHARE / record_bytes;
  if (count < COUNT_LEAST) count = COUNT_LEAST;
  return count < count_max ? (uint32_t)count : count_max;
}

int gap__slab_init_fitting(struct gap__slab *slab, uint32_t record_bytes, uint32_t count_max) {
  uint32_t count = gap__meta_fitting(record_bytes, count_max);
  int rc = gap__slab_init(slab, record_bytes, count);
  for (; rc && count > COUNT_LEAST; rc = gap__slab_init(slab, record_bytes, count)) count /= 2;
  return rc;
}

void gap__slab_destroy(struct gap__slab *slab) {
  gap__meta_unmap(slab->base, slab_bytes(slab->record_bytes, slab->count_max));
  *slab = (struct gap__slab){0};
}

uint32_t gap__slab_take_slow(struct gap__slab *slab) {
  if (slab->count >= slab->count_max) return 0;
  slab->in_use++;
  return slab->count++;
}

bool gap__slab_assure(struct gap__slab *slab, uint32_t count) {
  uint32_t free = 0;
  for (uint32_t i = slab->free_head; i && free < count; i = *(uint32_t *)gap__slab_at(slab, i)) free++;
  for (; free < count; free++) {
    if (slab->count >= slab->count_max + slab->count_max / MARGIN_SHARE) return false;
    uint32_t fresh = slab->count++;
    *(uint32_t *)gap__slab_at(slab, fresh) = slab->free_head;
    slab->free_head = fresh;
  }
  return true;
}
