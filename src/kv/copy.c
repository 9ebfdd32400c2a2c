/* Copies of KV pages: a kernel for many small pieces; else the fewest driver calls that neighbours allow. */
#include "kv/code.h"
#include "kv/table.h"

enum {
  BATCH = 256,
  PIECE_LEAST = 1 << 20
}; /* pairs that are looked through for order; bytes from which the driver's copies run at full speed */

/* How many pairs from `pairs` on are neighbours on both sides, inside one slab each; where a slab has one KV page, inside what is pinned at once. */
static uint32_t run_length(const struct gap_kv *kv, const gap_kv_entry *pairs, uint32_t count) {
  uint32_t n = 1, unit = kv->slab_shift ? 1u << kv->slab_shift : kv->pin_slabs;
  for (; n < count; n++) {
    uint32_t from = pairs[0].index + n, to = (uint32_t)pairs[0].id + n;
    if (pairs[n].index != from || (uint32_t)pairs[n].id != to) break;
    if (from % unit == 0 || to % unit == 0) break;
  }
  return n;
}

static uint64_t offset_of(const struct gap_kv *kv, uint32_t page) {
  uint32_t inside = page & ((1u << kv->slab_shift) - 1);
  return (page >> kv->slab_shift) * kv->slab_bytes + inside * kv->part_bytes;
}

static int copy_run(struct gap_kv *kv, gap_addr to, gap_addr from, uint32_t pages, gap_stream stream) {
  if (!kv->slab_shift) return gap__dev_copy(kv->dev, to, from, pages * kv->slab_bytes, stream);
  int rc = 0;
  for (uint64_t layer = 0; !rc && layer < kv->layers; layer++) {
    uint64_t at = layer * kv_layer_stride(kv);
    rc = gap__dev_copy(kv->dev, to + at, from + at, pages * kv->part_bytes, stream);
  }
  return rc;
}

static int copy_by_driver(struct gap_kv *kv, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                          gap_stream stream) {
  int rc = 0;
  for (uint32_t i = 0, n; !rc && i < count; i += n) {
    n = run_length(kv, pairs + i, count - i);
    rc = copy_run(kv, to + offset_of(kv, (uint32_t)pairs[i].id), from + offset_of(kv, pairs[i].index), n, stream);
  }
  return rc;
}

static bool is_scattered(const struct gap_kv *kv, const gap_kv_entry *pairs, uint32_t count) {
  uint64_t runs = 0;
  for (uint32_t i = 0; i < count; i += run_length(kv, pairs + i, count - i)) runs++;
  if (kv->slab_shift) runs *= kv->layers;
  return count * kv->part_bytes * kv->layers < runs * PIECE_LEAST;
}

/* Pair `n` reads or writes what an earlier one does: one launch has no order. */
static bool depends(const gap_kv_entry *pairs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (pairs[n].index == (uint32_t)pairs[i].id || (uint32_t)pairs[n].id == pairs[i].index ||
        pairs[n].id == pairs[i].id)
      return true;
  return false;
}

/* How many pairs may be copied at once. */
static uint32_t independent(const gap_kv_entry *pairs, uint32_t count) {
  uint32_t n = 1;
  while (n < count && n < BATCH && !depends(pairs, n)) n++;
  return n;
}

static int copy_by_kernel(struct gap_kv *kv, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                          gap_stream stream) {
  int rc = 0;
  for (uint32_t i = 0, n; !rc && i < count; i += n) {
    n = to == from ? independent(pairs + i, count - i) : count - i;
    rc = gap__kv_move_pages(kv, to, from, pairs + i, n, stream);
  }
  return rc;
}

int gap__kv_copy_by(struct gap_kv *kv, bool kernel, gap_addr to, gap_addr from, const gap_kv_entry *pairs,
                    uint32_t count, gap_stream stream) {
  return kernel ? copy_by_kernel(kv, to, from, pairs, count, stream)
                : copy_by_driver(kv, to, from, pairs, count, stream);
}

int gap__kv_copy(struct gap_kv *kv, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                 gap_stream stream) {
  bool kernel = kv->code.copy && is_scattered(kv, pairs, count) && (to == from || !kv->code.link_by_driver);
  int rc = gap__kv_copy_by(kv, kernel, to, from, pairs, count, stream);
  if (!rc) kv->stats.bytes_copied += count * kv->part_bytes * kv->layers;
  return rc;
}
