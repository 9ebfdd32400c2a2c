#include "base/meta.h"

#include <sys/mman.h>
#include <unistd.h>

#include "gapless/gapless.h"

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

int gap__slab_init(struct gap__slab *slab, uint32_t record_bytes, uint32_t count_max) {
  *slab = (struct gap__slab){.record_bytes = record_bytes, .count_max = count_max, .count = 1};
  slab->base = gap__meta_map((size_t)record_bytes * count_max);
  return slab->base ? 0 : GAP_ENOMETA;
}

void gap__slab_destroy(struct gap__slab *slab) {
  gap__meta_unmap(slab->base, (size_t)slab->record_bytes * slab->count_max);
  *slab = (struct gap__slab){0};
}

uint32_t gap__slab_take_slow(struct gap__slab *slab) {
  if (slab->count == slab->count_max) return 0;
  slab->in_use++;
  return slab->count++;
}
