#include "dev/soft/pinned.h"

bool gap__soft_is_pinned(const struct gap__map *pinned, uint64_t addr, uint64_t bytes) {
  struct gap__map_slot range;
  for (size_t cursor = 0; gap__map_next(pinned, &cursor, &range);) {
    uint64_t offset = addr - range.key;
    if (offset < range.value && bytes <= range.value - offset) return true;
  }
  return false;
}
