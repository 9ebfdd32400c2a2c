#include "tier/image.h"

#include <stdlib.h>
#include <string.h>

void gap__piece_give(const struct gap__image *image, const struct gap__piece *piece) {
  if (piece->host) gap__pinned_give(image->pinned, piece->host, piece->units);
  else if (piece->far) gap__far_give(image->far, piece->far);
  else gap__disk_give(image->disk, piece->disk, piece->units);
}

void gap__image_free(struct gap__image *image) {
  for (uint32_t i = 0; i < image->count; i++) gap__piece_give(image, &image->pieces[i]);
  free(image->pieces);
  image->pieces = NULL;
  image->count = image->room = 0;
}

static int by_address(const void *a, const void *b) {
  const struct gap__piece *x = a, *y = b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

int gap__image_reserve(struct gap__image *image, uint32_t count) {
  uint32_t room = image->count + image->promised + count;
  if (room > image->room) {
    room += image->room / 2;
    struct gap__piece *more = realloc(image->pieces, room * sizeof *more);
    if (!more) return GAP_ENOMETA;
    image->pieces = more;
    image->room = room;
  }
  image->promised += count;
  return 0;
}

void gap__image_unreserve(struct gap__image *image, uint32_t count) { image->promised -= count; }

void gap__image_add(struct gap__image *image, const struct gap__piece *pieces, uint32_t count) {
  if (!count) return;
  memcpy(image->pieces + image->count, pieces, count * sizeof *pieces);
  image->count += count;
  image->promised -= count;
  qsort(image->pieces, image->count, sizeof *image->pieces, by_address);
}

/* The first piece that begins at `addr` or behind it. */
static uint32_t lower_bound(const struct gap__image *image, gap_addr addr) {
  uint32_t low = 0, high = image->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (image->pieces[middle].addr < addr) low = middle + 1;
    else high = middle;
  }
  return low;
}

uint32_t gap__image_find(const struct gap__image *image, gap_addr addr, uint64_t bytes, uint32_t *count) {
  uint32_t first = lower_bound(image, addr);
  *count = lower_bound(image, addr + bytes) - first;
  return first;
}

bool gap__image_covers(const struct gap__image *image, gap_addr addr, const uint64_t *pages, uint32_t count) {
  uint32_t pieces, first = gap__image_find(image, addr, count * GAP__PAGE, &pieces), i = first;
  const struct gap__piece *last = pieces ? &image->pieces[first + pieces - 1] : NULL;
  if (last && last->addr + gap__piece_bytes(last) > addr + count * GAP__PAGE) return false;
  for (uint32_t page = 0; page < count; page++) {
    gap_addr at = addr + page * GAP__PAGE;
    if (!(pages[page / 64] >> page % 64 & 1)) continue;
    while (i < first + pieces && image->pieces[i].addr + gap__piece_bytes(&image->pieces[i]) <= at) i++;
    if (i == first + pieces || image->pieces[i].addr > at) return false;
  }
  return true;
}

void gap__image_drop(struct gap__image *image, gap_addr addr, uint64_t bytes) {
  uint32_t count, first = gap__image_find(image, addr, bytes, &count);
  if (!count) return;
  for (uint32_t i = first; i < first + count; i++) gap__piece_give(image, &image->pieces[i]);
  memmove(image->pieces + first, image->pieces + first + count, (image->count - first - count) * sizeof *image->pieces);
  image->count -= count;
}
