/* gapless: memory that several processes map.  The rules of gapless.h apply; since 0.1.
 *
 *     owner:  gap_export_layout(heap, addr, &base, &count);
 *             gap_export(heap, addr, 0, count, pieces);            descriptors, to be sent by SCM_RIGHTS
 *     other:  gap_import(heap, device, pieces, count, &mapped);    the same bytes: block = mapped + (addr - base)
 *
 * A live block never changes its memory once it was exported, whatever `convert` says.  When the
 * owner frees the block the memory may serve somebody else: owner and others agree on that moment themselves, as with
 * cudaIpc. */
#ifndef GAPLESS_SHARE_H
#define GAPLESS_SHARE_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One driver allocation as a file descriptor. */
typedef struct gap_piece {
  uint64_t bytes;
  int fd;
} gap_piece;

/* How the memory behind a live block lies: `count` pieces side by side from `base` on, which together cover the block
 * that `addr` lies in.  GAP_ENOTSUP: it is no such memory (a segment of the driver's; `base` is its start then,
 * `*count` 0, and cudaIpcGetMemHandle works); GAP_ENOTMINE, GAP_EFREED. */
GAP_API int gap_export_layout(gap_heap *heap, gap_addr addr, gap_addr *base, unsigned *count);
/* File descriptors of `count` of these pieces, from piece number `first` on; the caller closes them, and exec() does.
 * GAP_EINVAL: there are not so many; GAP_ENOTSUP: the driver made them unexportable; GAP_ESTATE: the block lies in host
 * memory (docs/overflow.md); GAP_EDEVICE: it refuses, e.g. no descriptor is left.
 * On failure none is open. */
GAP_API int gap_export(gap_heap *heap, gap_addr addr, unsigned first, unsigned count, gap_piece *out);

/* Maps pieces of another process side by side.  The descriptors may be closed afterwards.  The memory is not part of
 * any figure: its owner counts it.  GAP_EINVAL: a size that is no multiple of 2 MiB; GAP_EDEVICE: no such memory, or of
 * another card; GAP_ENOMEM: no addresses; GAP_ENOTSUP. */
GAP_API int gap_import(gap_heap *heap, int device, const gap_piece *pieces, unsigned count, gap_addr *base);
/* Takes the mapping away; no work may use it any more.  GAP_ENOTMINE: gap_import did not make it. */
GAP_API int gap_import_release(gap_heap *heap, gap_addr base);

#ifdef __cplusplus
}
#endif
#endif
