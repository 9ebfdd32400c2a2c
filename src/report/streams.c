#include "report/streams.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "gapless/gapless.h"

/* ---- the stream of a life ------------------------------------------------------------------------------------------ */

struct ranges { /* segments at the end, by address: for blocks that no event names */
  const struct gap__hist_segment **at;
  size_t count;
};

static int by_address(const void *left, const void *right) {
  const struct gap__hist_segment *a = *(const struct gap__hist_segment *const *)left;
  const struct gap__hist_segment *b = *(const struct gap__hist_segment *const *)right;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int list_ranges(const struct gap__subject *subject, struct ranges *ranges) {
  const struct gap__history *history = subject->history;
  *ranges = (struct ranges){.at = malloc((history->segment_count + 1) * sizeof *ranges->at)};
  if (!ranges->at) return GAP_ENOMETA;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == subject->device) ranges->at[ranges->count++] = &history->segments[i];
  qsort(ranges->at, ranges->count, sizeof *ranges->at, by_address);
  return 0;
}

static uint64_t stream_at(const struct ranges *ranges, uint64_t addr) {
  size_t low = 0, high = ranges->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges->at[middle]->addr <= addr) low = middle + 1;
    else high = middle;
  }
  return low ? ranges->at[low - 1]->stream : 0;
}

static uint64_t stream_of(const struct gap__subject *subject, const struct ranges *ranges,
                          const struct gap__life *life) {
  const struct gap__hist_event *events = subject->history->devices[subject->device].events;
  if (!life->before) return events[life->born].stream;
  return life->let_go != GAP__LIFE_NEVER ? events[life->let_go].stream : stream_at(ranges, life->addr);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

static int number(struct gap__streams *streams, uint64_t stream, uint32_t *out) {
  uint64_t known = streams->count;
  int rc = 0;
  if (!gap__map_get(&streams->numbers, stream, &known)) {
    rc = gap__map_put(&streams->numbers, stream, known);
    streams->count++;
  }
  *out = (uint32_t)known;
  return rc;
}

static int number_lives(const struct gap__subject *subject, struct gap__streams *streams) {
  struct ranges ranges;
  uint32_t ignored;
  int rc = list_ranges(subject, &ranges);
  for (uint32_t i = 0; !rc && i < subject->lives.count; i++)
    rc = number(streams, stream_of(subject, &ranges, &subject->lives.at[i]), &streams->of_life[i]);
  for (size_t i = 0; !rc && i < ranges.count; i++) rc = number(streams, ranges.at[i]->stream, &ignored); /* idle ones */
  free(ranges.at);
  return rc;
}

/* ---- which are listed ---------------------------------------------------------------------------------------------- */

struct rank {
  uint64_t at_peak, in_all; /* bytes */
  uint64_t id;
  uint32_t number;
};

static int by_rank(const void *left, const void *right) {
  const struct rank *a = left, *b = right;
  if (a->at_peak != b->at_peak) return a->at_peak > b->at_peak ? -1 : 1;
  if (a->in_all != b->in_all) return a->in_all > b->in_all ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static void weigh(const struct gap__subject *subject, const struct gap__streams *streams, struct rank *ranks) {
  struct gap__map_slot slot;
  for (size_t cursor = 0; gap__map_next(&streams->numbers, &cursor, &slot);)
    ranks[slot.value] = (struct rank){.id = slot.key, .number = (uint32_t)slot.value};
  for (uint32_t i = 0; i < subject->lives.count; i++) {
    const struct gap__life *life = &subject->lives.at[i];
    struct rank *rank = &ranks[streams->of_life[i]];
    rank->in_all += life->bytes;
    if (gap__life_covers(life, subject->lives.peak_event)) rank->at_peak += life->bytes;
  }
}

static void list(struct gap__streams *streams, const struct rank *ranks) {
  bool fits = streams->count <= GAP__STREAMS_LISTED;
  uint32_t whole = fits ? streams->count : GAP__STREAMS_LISTED - 1;
  for (uint32_t i = 0; i < streams->count; i++) {
    streams->place[ranks[i].number] = (uint8_t)(i < whole ? i : whole);
    if (i < whole) streams->listed[i] = ranks[i].id;
  }
  streams->listed_count = fits ? whole : whole + 1;
  streams->others = streams->count - whole;
}

static int choose(const struct gap__subject *subject, struct gap__streams *streams) {
  struct rank *ranks = calloc((size_t)streams->count + 1, sizeof *ranks);
  streams->place = calloc((size_t)streams->count + 1, 1);
  int rc = ranks && streams->place ? 0 : GAP_ENOMETA;
  if (!rc) {
    weigh(subject, streams, ranks);
    qsort(ranks, streams->count, sizeof *ranks, by_rank);
    list(streams, ranks);
  }
  free(ranks);
  return rc;
}

int gap__streams_find(const struct gap__subject *subject, struct gap__streams *streams) {
  *streams = (struct gap__streams){.of_life = malloc(((size_t)subject->lives.count + 1) * sizeof *streams->of_life)};
  int rc = streams->of_life ? number_lives(subject, streams) : GAP_ENOMETA;
  return rc ? rc : choose(subject, streams);
}

void gap__streams_free(struct gap__streams *streams) {
  gap__map_free(&streams->numbers);
  free(streams->of_life);
  free(streams->place);
  *streams = (struct gap__streams){0};
}

uint32_t gap__streams_place(const struct gap__streams *streams, uint64_t stream) {
  uint64_t known;
  if (gap__map_get(&streams->numbers, stream, &known)) return streams->place[known];
  return streams->listed_count ? streams->listed_count - 1 : 0;
}

static void emit_one(uint64_t id, struct gap__emit *emit) {
  char name[40];
  if (id) snprintf(name, sizeof name, "stream 0x%" PRIx64, id);
  else snprintf(name, sizeof name, "default stream");
  gap__emit_begin(emit, '{');
  gap__emit_name(emit, "id");
  gap__emit_address(emit, id);
  GAP__EMIT(emit, text, "name", name);
  gap__emit_end(emit, '}');
}

void gap__streams_emit(const struct gap__streams *streams, struct gap__emit *emit) {
  uint32_t whole = streams->others ? streams->listed_count - 1 : streams->listed_count;
  char name[40];
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < whole; i++) emit_one(streams->listed[i], emit);
  if (streams->others) {
    snprintf(name, sizeof name, "%" PRIu32 " other streams", streams->others);
    gap__emit_begin(emit, '{');
    gap__emit_name(emit, "id");
    gap__emit_null(emit);
    GAP__EMIT(emit, text, "name", name);
    gap__emit_end(emit, '}');
  }
  gap__emit_end(emit, ']');
}
