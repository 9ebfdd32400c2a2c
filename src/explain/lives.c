#include "explain/lives.h"

#include <stdlib.h>

#include "base/map.h"
#include "gapless/gapless.h"

struct finder {
  const struct gap__hist_event *events;
  struct gap__lives *lives;
  struct gap__map open; /* address -> life */
};

/* No device has more; what a contradictory file says beyond it is cut, so that sums do not overflow. */
#define BYTES_MAX ((uint64_t)16 << 40)

static struct gap__life *add(struct finder *finder, uint64_t addr, uint64_t bytes, uint32_t born) {
  struct gap__life *life = &finder->lives->at[finder->lives->count];
  *life = (struct gap__life){.addr = addr,
                             .bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX,
                             .born = born,
                             .let_go = GAP__LIFE_NEVER,
                             .gone = GAP__LIFE_NEVER,
                             .category = GAP__CAT_UNKNOWN};
  return life;
}

static int begin(struct finder *finder, uint32_t index) {
  const struct gap__hist_event *event = &finder->events[index];
  uint64_t old;
  if (gap__map_get(&finder->open, event->addr, &old))
    finder->lives->at[old].gone = index; /* a contradiction: ended here */
  struct gap__life *life = add(finder, event->addr, gap__lives_rounded(event->size), index);
  life->stack = event->stack;
  life->pool = event->pool;
  finder->lives->of_event[index] = finder->lives->count;
  return gap__map_put(&finder->open, event->addr, finder->lives->count++);
}

/* The life that a free is of; one that began before the history is made when it is first met. */
static int meet(struct finder *finder, uint32_t index, struct gap__life **out) {
  const struct gap__hist_event *event = &finder->events[index];
  uint64_t known;
  if (!gap__map_get(&finder->open, event->addr, &known)) {
    struct gap__life *life = add(finder, event->addr, gap__lives_rounded(event->size), 0);
    life->before = true;
    life->pool = event->pool;
    known = finder->lives->count++;
    if (gap__map_put(&finder->open, event->addr, known)) return GAP_ENOMETA;
  }
  finder->lives->of_event[index] = (uint32_t)known;
  *out = &finder->lives->at[known];
  return 0;
}

static int step(struct finder *finder, uint32_t index) {
  struct gap__life *life = NULL;
  uint8_t action = finder->events[index].action;
  if (action == GAP__ACT_ALLOC) return begin(finder, index);
  if (action != GAP__ACT_FREE_REQUESTED && action != GAP__ACT_FREE_COMPLETED) return 0;
  int rc = meet(finder, index, &life);
  if (rc) return rc;
  if (life->let_go == GAP__LIFE_NEVER) life->let_go = index;
  if (action == GAP__ACT_FREE_COMPLETED) {
    life->gone = index;
    gap__map_remove(&finder->open, life->addr, NULL);
  }
  return 0;
}

/* What is there at the end: exact sizes for what was met, and lives for what no event names. */
static void add_remaining(struct finder *finder, const struct gap__history *history, uint32_t device, bool wrapped) {
  for (uint64_t i = 0; i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    if ((uint32_t)segment->device != device) continue;
    for (uint32_t j = 0; j < segment->block_count; j++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + j];
      if (block->state == 0 || gap__map_get(&finder->open, block->addr, NULL) || !wrapped) continue;
      struct gap__life *life = add(finder, block->addr, block->size, 0);
      life->before = true;
      life->stack = block->stack;
      life->pool = segment->pool;
      finder->lives->count++;
    }
  }
}

static uint64_t blocks_of(const struct gap__history *history, uint32_t device) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) count += history->segments[i].block_count;
  return count;
}

int gap__lives_find(const struct gap__history *history, uint32_t device, struct gap__lives *lives) {
  const struct gap__hist_device *from = &history->devices[device];
  uint64_t room = from->event_count + blocks_of(history, device) + 1, peak_event;
  *lives = (struct gap__lives){.event_count = (uint32_t)from->event_count};
  if (room > INT32_MAX) return GAP_ELIMIT;
  lives->at = malloc(room * sizeof *lives->at);
  lives->of_event = malloc((from->event_count + 1) * sizeof *lives->of_event);
  struct finder finder = {.events = from->events, .lives = lives};
  int rc = lives->at && lives->of_event ? 0 : GAP_ENOMETA;
  for (uint32_t i = 0; !rc && i < lives->event_count; i++) {
    lives->of_event[i] = GAP__LIFE_NEVER;
    rc = step(&finder, i);
  }
  if (!rc) add_remaining(&finder, history, device, from->wrapped || from->event_count == 0);
  gap__map_free(&finder.open);
  if (rc) return rc;
  rc = gap__history_peaks(history, device, &lives->peak_bytes, &lives->peak_requested_bytes, &peak_event);
  lives->peak_event = (uint32_t)peak_event;
  return rc;
}

void gap__lives_free(struct gap__lives *lives) {
  free(lives->at);
  free(lives->of_event);
  *lives = (struct gap__lives){0};
}

int64_t gap__lives_change(const struct gap__lives *lives, const struct gap__hist_event *event, uint32_t index) {
  if (lives->of_event[index] == GAP__LIFE_NEVER) return 0;
  int64_t bytes = (int64_t)lives->at[lives->of_event[index]].bytes;
  return event->action == GAP__ACT_ALLOC ? bytes : event->action == GAP__ACT_FREE_COMPLETED ? -bytes : 0;
}

int64_t gap__lives_at_start(const struct gap__lives *lives) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < lives->count; i++) bytes += lives->at[i].before ? (int64_t)lives->at[i].bytes : 0;
  return bytes;
}
