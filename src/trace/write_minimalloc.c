/* MiniMalloc's CSV form, of one device: a block a line.  Time is the number of the event; a block lives from its alloc to its free_completed,
 * one that is there before the first event from 0, one that stays to the end.  Sizes are rounded up to 512. */
#include <stdlib.h>

#include "base/map.h"
#include "gapless/gapless.h"
#include "trace/formats.h"

struct blocks {
  struct gap__writing *writing;
  const struct gap__hist_device *device;
  struct gap__map live; /* address -> event of its alloc */
  uint64_t count;
};

static void put_block(struct blocks *blocks, uint64_t lower, uint64_t upper, uint64_t size) {
  uint64_t rounded = size ? (size + 511) & ~(uint64_t)511 : 512;
  if (lower >= upper) return;
  gap__output_print(blocks->writing->out, "%llu,%llu,%llu,%llu\n", (unsigned long long)blocks->count++,
                    (unsigned long long)lower, (unsigned long long)upper, (unsigned long long)rounded);
}

static int put_event(struct blocks *blocks, uint64_t index) {
  const struct gap__hist_event *event = &blocks->device->events[index];
  uint64_t born = 0;
  if (event->action == GAP__ACT_ALLOC) return gap__map_put(&blocks->live, event->addr, index);
  if (event->action != GAP__ACT_FREE_COMPLETED) return 0;
  bool known = gap__map_remove(&blocks->live, event->addr, &born);
  put_block(blocks, born, index, known ? blocks->device->events[born].size : event->size);
  return 0;
}

static int by_number(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

/* Those that stay, in the order of their births: a map has none. */
static int put_rest(struct blocks *blocks) {
  uint64_t *born = malloc((blocks->live.count + 1) * sizeof *born), count = 0;
  struct gap__map_slot slot;
  if (!born) return GAP_ENOMETA;
  for (size_t cursor = 0; gap__map_next(&blocks->live, &cursor, &slot);) born[count++] = slot.value;
  qsort(born, count, sizeof *born, by_number);
  for (uint64_t i = 0; i < count; i++)
    put_block(blocks, born[i], blocks->device->event_count, blocks->device->events[born[i]].size);
  free(born);
  return 0;
}

int gap__write_minimalloc(struct gap__writing *writing) {
  struct blocks blocks = {.writing = writing, .device = &writing->history->devices[writing->device]};
  int rc = 0;
  gap__output_print(writing->out, "id,lower,upper,size\n");
  for (uint64_t i = 0; !rc && i < blocks.device->event_count; i++) {
    rc = put_event(&blocks, i);
    gap__writing_step(writing);
  }
  if (!rc) rc = put_rest(&blocks);
  gap__map_free(&blocks.live);
  return rc;
}
