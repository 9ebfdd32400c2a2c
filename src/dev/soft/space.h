/* The address space as a driver keeps it: which windows are reserved, and which mapping lies behind each page.
 * Shared by the backends that have no driver to ask (sim, host).
 *
 * A two-level table names the record behind every 2 MiB page of a 48-bit space: one load to find it, one store a page to
 * change it, and it can be walked in address order.  Windows are few and lie in a sorted array.  Not thread-safe. */
#ifndef GAP_SPACE_H
#define GAP_SPACE_H

#include "dev/dev.h"

#define GAP__SPACE_END ((gap_addr)1 << 48)

struct gap__window {
  gap_addr addr;
  uint64_t bytes;
  uint64_t mapped_bytes; /* inside it; kept by put and clear */
};

struct gap__space {
  uint32_t **leaves;
  struct gap__window *windows; /* by address, disjoint */
  size_t window_count, window_max;
  uint64_t reserved_bytes; /* sum over windows */
};

int gap__space_init(struct gap__space *); /* 0 or GAP_ENOMETA */
void gap__space_destroy(struct gap__space *);

/* The record behind an address, 0 for none. */
uint32_t gap__space_at(const struct gap__space *, gap_addr);
/* The first page of [addr, addr+bytes) that has a record, or 0. */
gap_addr gap__space_first(const struct gap__space *, gap_addr, uint64_t bytes);
/* Names `record` behind every page of an empty range. 0 or GAP_ENOMETA. */
int gap__space_put(struct gap__space *, gap_addr, uint64_t bytes, uint32_t record);
void gap__space_clear(struct gap__space *, gap_addr, uint64_t bytes);

/* The window that holds the whole range, or NULL. */
struct gap__window *gap__space_window(const struct gap__space *, gap_addr, uint64_t bytes);
/* The range must not touch another window. 0 or GAP_ENOMETA. */
int gap__space_reserve(struct gap__space *, gap_addr, uint64_t bytes);
/* GAP_EINVAL when it is not exactly a window, or something is mapped in it. */
int gap__space_unreserve(struct gap__space *, gap_addr, uint64_t bytes);
/* The lowest address from `first` where an aligned window fits below `end`, or 0. */
gap_addr gap__space_find(const struct gap__space *, gap_addr first, gap_addr end, uint64_t bytes, uint64_t align);

/* What names a stream: 0 and 1 are one stream, and 2 is the calling thread's own. */
uint64_t gap__space_stream_key(gap_stream);
/* Whether [addr, addr+bytes) is a non-empty run of whole pages inside the space. */
bool gap__space_is_range(gap_addr, uint64_t bytes);

#endif
