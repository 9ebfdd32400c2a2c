#include "compare/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "explain/phrase.h"

/* Sums by a number that stands for the part. */
struct tally {
  struct gap__map index; /* number -> sum */
  struct sum {
    uint64_t number, bytes, blocks;
    uint64_t by_category[GAP__CAT_COUNT];
  } * sums;
  uint32_t count, room;
};

static int tally_add(struct tally *tally, uint64_t number, uint64_t bytes, enum gap__category category) {
  uint64_t at = tally->count;
  if (!tally->sums || !gap__map_get(&tally->index, number, &at)) {
    if (tally->count == tally->room) {
      void *grown = realloc(tally->sums, (tally->room = 2 * tally->room + 64) * sizeof *tally->sums);
      if (!grown) return GAP_ENOMETA;
      tally->sums = grown;
    }
    if (gap__map_put(&tally->index, number, at)) return GAP_ENOMETA;
    tally->sums[tally->count++] = (struct sum){.number = number};
  }
  tally->sums[at].bytes += bytes;
  tally->sums[at].blocks++;
  tally->sums[at].by_category[category] += bytes;
  return 0;
}

static void tally_free(struct tally *tally) {
  gap__map_free(&tally->index);
  free(tally->sums);
}

/* ---- what stands for a part ---------------------------------------------------------------------------------------- */

/* Streams are told apart by the order of their first use: handles differ from run to run. */
struct streams {
  struct gap__map order;
};

static int number_stream(struct streams *streams, uint64_t stream) {
  if (stream == 0 || gap__map_get(&streams->order, stream, NULL)) return 0;
  return gap__map_put(&streams->order, stream, streams->order.count + 1);
}

static int number_streams(const struct gap__subject *subject, struct streams *streams) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  int rc = 0;
  for (uint64_t i = 0; !rc && i < from->event_count; i++)
    if (from->events[i].action == GAP__ACT_ALLOC) rc = number_stream(streams, from->events[i].stream);
  for (uint64_t i = 0; !rc && i < subject->history->segment_count; i++)
    if ((uint32_t)subject->history->segments[i].device == subject->device)
      rc = number_stream(streams, subject->history->segments[i].stream);
  return rc;
}

static uint64_t stream_at(const struct gap__subject *subject, uint64_t addr) {
  for (uint64_t i = 0; i < subject->history->segment_count; i++) {
    const struct gap__hist_segment *segment = &subject->history->segments[i];
    if ((uint32_t)segment->device == subject->device && addr - segment->addr < segment->total_size)
      return segment->stream;
  }
  return 0;
}

/* A block from before the first event has the stream of the segment it lies in. */
static uint64_t stream_of(const struct gap__subject *subject, const struct streams *streams,
                          const struct gap__life *life) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  uint64_t order = 0;
  gap__map_get(&streams->order, life->before ? stream_at(subject, life->addr) : from->events[life->born].stream,
               &order);
  return order;
}

static uint64_t number_of(const struct gap__subject *subject, const struct streams *streams, enum gap__cut cut,
                          const struct gap__life *life) {
  switch (cut) {
    case GAP__CUT_SITES: return subject->sites.of_stack[life->stack];
    case GAP__CUT_CATEGORIES: return life->category;
    case GAP__CUT_STREAMS: return stream_of(subject, streams, life);
    default: return life->bytes;
  }
}

static int tally_lives(const struct gap__measure *measure, enum gap__cut cut, struct tally *tally) {
  const struct gap__subject *subject = &measure->subject;
  struct streams streams = {0};
  int rc = cut == GAP__CUT_STREAMS ? number_streams(subject, &streams) : 0;
  for (uint32_t i = 0; !rc && i < subject->lives.count; i++) {
    const struct gap__life *life = &subject->lives.at[i];
    if (!gap__life_covers(life, measure->peak_event)) continue;
    rc = tally_add(tally, number_of(subject, &streams, cut, life), life->bytes, (enum gap__category)life->category);
  }
  gap__map_free(&streams.order);
  return rc;
}

static int tally_calls(const struct gap__measure *measure, struct tally *tally) {
  const struct gap__hist_device *from = &measure->subject.history->devices[measure->subject.device];
  int rc = 0;
  for (uint32_t i = measure->first; !rc && i < measure->end; i++) {
    const struct gap__hist_event *event = &from->events[i];
    if (event->action >= GAP__ACT_SEGMENT_ALLOC && event->action <= GAP__ACT_SEGMENT_UNMAP)
      rc = tally_add(tally, event->action, event->size, GAP__CAT_UNKNOWN);
  }
  return rc;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static void name_part(const struct gap__measure *measure, enum gap__cut cut, uint64_t number, char *out) {
  switch (cut) {
    case GAP__CUT_SITES: gap__sites_name(&measure->subject.sites, (uint32_t)number, out, GAP__PART_NAME_BYTES); return;
    case GAP__CUT_CATEGORIES:
      snprintf(out, GAP__PART_NAME_BYTES, "%s", gap__category_name((enum gap__category)number));
      return;
    case GAP__CUT_STREAMS:
      if (number == 0) snprintf(out, GAP__PART_NAME_BYTES, "default stream");
      else snprintf(out, GAP__PART_NAME_BYTES, "stream %" PRIu64, number);
      return;
    case GAP__CUT_SIZES: snprintf(out, GAP__PART_NAME_BYTES, "%s (%" PRIu64 ")", GAP__SIZE(number), number); return;
    default: snprintf(out, GAP__PART_NAME_BYTES, "%s", gap__action_name((enum gap__action)number)); return;
  }
}

static uint8_t main_category(const struct sum *sum) {
  for (int i = 0; i < GAP__CAT_COUNT; i++)
    if (sum->by_category[i] > sum->bytes / 10 * 9) return (uint8_t)i;
  return GAP__CAT_UNKNOWN;
}

static int by_name(const void *left, const void *right) {
  return strcmp(((const struct gap__part *)left)->name, ((const struct gap__part *)right)->name);
}

/* Sites of different folders may have one name; they are one part then. */
static void join_equal(struct gap__parts *parts) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < parts->count; i++) {
    if (kept && strcmp(parts->at[kept - 1].name, parts->at[i].name) == 0) {
      parts->at[kept - 1].bytes += parts->at[i].bytes;
      parts->at[kept - 1].blocks += parts->at[i].blocks;
    } else {
      parts->at[kept++] = parts->at[i];
    }
  }
  parts->count = kept;
}

static int name_parts(const struct gap__measure *measure, enum gap__cut cut, const struct tally *tally,
                      struct gap__parts *parts) {
  parts->at = calloc((size_t)tally->count + 1, sizeof *parts->at);
  if (!parts->at) return GAP_ENOMETA;
  for (uint32_t i = 0; i < tally->count; i++) {
    const struct sum *sum = &tally->sums[i];
    struct gap__part *part = &parts->at[parts->count++];
    name_part(measure, cut, sum->number, part->name);
    part->bytes = sum->bytes;
    part->blocks = sum->blocks;
    part->category = main_category(sum);
  }
  qsort(parts->at, parts->count, sizeof *parts->at, by_name);
  join_equal(parts);
  return 0;
}

int gap__parts_find(const struct gap__measure *measure, enum gap__cut cut, struct gap__parts *parts) {
  struct tally tally = {0};
  int rc = 0;
  *parts = (struct gap__parts){0};
  if (cut == GAP__CUT_CALLS) rc = tally_calls(measure, &tally);
  else if (cut != GAP__CUT_SITES || measure->subject.honest.has_stacks) rc = tally_lives(measure, cut, &tally);
  if (!rc) rc = name_parts(measure, cut, &tally, parts);
  tally_free(&tally);
  return rc;
}

void gap__parts_free(struct gap__parts *parts) {
  free(parts->at);
  *parts = (struct gap__parts){0};
}
