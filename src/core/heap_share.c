/* Memory that several processes map: what stands behind a block of ours, and what others gave us.
 *
 * An import is a window of addresses of its own with the other process's chunks side by side in it.  It belongs to no
 * strategy and to no figure: its owner counts the memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/heap_share.h"

#include "core/heap_state.h"

struct heap_import {
  struct heap_import *next;
  struct gap__dev *dev;
  gap_addr base;
  uint64_t bytes; /* of the window */
  unsigned count; /* chunks mapped, side by side from `base` on */
  struct heap_piece {
    gap__chunk chunk;
    gap_addr at;
    uint64_t bytes;
  } pieces[];
};

/* ---- export ---- */

static int pieces_on(struct gap__device *dev, gap_addr addr, gap__piece_fn *visit, void *arg) {
  int rc = GAP_ENOTMINE;
  for (int s = 0; s < GAP__STRATEGY_COUNT && rc == GAP_ENOTMINE; s++) {
    struct gap__policy_state *state = atomic_load_explicit(&dev->state[s], memory_order_acquire);
    if (state && gap__heap_policy(s)->pieces) rc = gap__heap_policy(s)->pieces(state, addr, visit, arg);
  }
  return rc;
}

static int pieces_of(gap_heap *heap, gap_addr addr, gap__piece_fn *visit, void *arg) {
  if (heap->forked) return GAP_EFORKED;
  int rc = GAP_ENOTMINE;
  for (int i = 0; i < heap->device_count && rc == GAP_ENOTMINE; i++)
    rc = pieces_on(&heap->devices[i].base, addr, visit, arg);
  return rc;
}

struct layout {
  gap_addr base;
  unsigned count;
};

static int measure(void *arg, struct gap__dev *dev, gap_addr at, gap__chunk chunk, uint64_t bytes) {
  (void)dev, (void)chunk, (void)bytes;
  struct layout *layout = arg;
  if (layout->count++ == 0) layout->base = at;
  return 0;
}

int gap__heap_export_layout(gap_heap *heap, gap_addr addr, gap_addr *base, unsigned *count) {
  struct layout layout = {0};
  struct gap__block_info block;
  int rc = pieces_of(heap, addr, measure, &layout);
  if (rc == GAP_ENOTMINE && !(rc = gap__heap_find(heap, addr, &block, NULL))) { /* of a strategy with segments */
    layout.base = block.segment;
    rc = GAP_ENOTSUP;
  }
  *base = layout.base;
  *count = layout.count;
  return rc;
}

struct export_call {
  unsigned at, first, end; /* pieces */
  gap_piece *out;
};

static int export_one(void *arg, struct gap__dev *dev, gap_addr at, gap__chunk chunk, uint64_t bytes) {
  (void)at;
  struct export_call *call = arg;
  unsigned index = call->at++;
  if (index < call->first || index >= call->end) return 0;
  gap_piece *piece = &call->out[index - call->first];
  piece->bytes = bytes;
  int rc = gap__dev_chunk_export(dev, chunk, &piece->fd);
  if (rc) call->at--;
  else (void)fcntl(piece->fd, F_SETFD, FD_CLOEXEC);
  return rc;
}

int gap__heap_export(gap_heap *heap, gap_addr addr, unsigned first, unsigned count, gap_piece *out) {
  if (count > UINT32_MAX - first) return GAP_EINVAL;
  struct export_call call = {.first = first, .end = first + count, .out = out};
  int rc = gap__heap_keep(heap, addr); /* first, so that no other memory is there when it is exported */
  if (!rc) rc = pieces_of(heap, addr, export_one, &call);
  if (!rc && call.at < call.end) rc = GAP_EINVAL;
  unsigned open = call.at < call.end ? call.at : call.end;
  for (unsigned i = first; rc && i < open; i++) close(out[i - first].fd);
  return rc;
}

/* ---- import ---- */

static void undo(struct heap_import *import) {
  for (unsigned i = 0; i < import->count; i++) {
    gap__dev_unmap(import->dev, import->pieces[i].at, import->pieces[i].bytes);
    gap__dev_chunk_release(import->dev, import->pieces[i].chunk);
  }
  gap__dev_unreserve(import->dev, import->base, import->bytes);
  free(import);
}

static int add_piece(struct heap_import *import, gap_addr at, const gap_piece *from) {
  struct heap_piece *piece = &import->pieces[import->count];
  piece->at = at;
  piece->bytes = from->bytes;
  int rc = gap__dev_chunk_import(import->dev, from->fd, &piece->chunk);
  if (rc) return rc;
  rc = gap__dev_map(import->dev, at, piece->bytes, piece->chunk);
  if (rc) gap__dev_chunk_release(import->dev, piece->chunk);
  else import->count++;
  return rc;
}

static int fill(struct heap_import *import, const gap_piece *pieces, unsigned count) {
  gap_addr at = import->base;
  int rc = 0;
  for (unsigned i = 0; i < count && !rc; i++) {
    rc = add_piece(import, at, &pieces[i]);
    at += pieces[i].bytes;
  }
  return rc ? rc : gap__dev_set_access(import->dev, import->base, import->bytes);
}

static int make_import(struct gap__dev *dev, const gap_piece *pieces, unsigned count, struct heap_import **out) {
  uint64_t bytes = 0;
  for (unsigned i = 0; i < count; i++) {
    if (!pieces[i].bytes || pieces[i].bytes % GAP__PAGE || pieces[i].bytes >= GAP__LARGEST_REQUEST - bytes)
      return GAP_EINVAL;
    bytes += pieces[i].bytes;
  }
  struct heap_import *import = calloc(1, sizeof *import + count * sizeof import->pieces[0]);
  if (!import) return GAP_ENOMETA;
  import->dev = dev;
  import->bytes = bytes;
  int rc = gap__dev_reserve(dev, bytes, GAP__PAGE, &import->base);
  if (rc) {
    free(import);
    return rc;
  }
  rc = fill(import, pieces, count);
  if (rc) undo(import);
  else *out = import;
  return rc;
}

int gap__heap_import(gap_heap *heap, int device, const gap_piece *pieces, unsigned count, gap_addr *base) {
  struct heap_device *at = heap_device_at(heap, device);
  if (!at || !count) return GAP_EINVAL;
  if (heap->forked) return GAP_EFORKED;
  struct heap_import *import;
  gap__lock(&heap->lock);
  int rc = gap__heap_open_device(heap, device);
  if (!rc) rc = make_import(at->base.dev, pieces, count, &import);
  if (!rc) {
    import->next = heap->imports;
    heap->imports = import;
    *base = import->base;
  }
  gap__unlock(&heap->lock);
  if (!rc) gap__heap_tell_opened(heap, device);
  return rc;
}

int gap__heap_import_release(gap_heap *heap, gap_addr base) {
  if (heap->forked) return 0;
  int rc = GAP_ENOTMINE;
  gap__lock(&heap->lock);
  for (struct heap_import **at = &heap->imports; *at && rc; at = &(*at)->next) {
    struct heap_import *import = *at;
    if (import->base != base) continue;
    *at = import->next;
    undo(import);
    rc = 0;
    break;
  }
  gap__unlock(&heap->lock);
  return rc;
}

/* The device has let a peer in: what it has mapped of others is opened too. */
int gap__heap_imports_renew(gap_heap *heap, int device) {
  const struct gap__dev *dev = heap->devices[device].base.dev;
  int rc = 0;
  for (struct heap_import *import = heap->imports; import && !rc; import = import->next)
    if (import->dev == dev) rc = gap__dev_set_access(import->dev, import->base, import->bytes);
  return rc;
}

/* In a forked child only the records go: the mappings are the parent's. */
void gap__heap_imports_free(gap_heap *heap) {
  for (struct heap_import *import; (import = heap->imports);) {
    heap->imports = import->next;
    if (heap->forked) free(import);
    else undo(import);
  }
}
