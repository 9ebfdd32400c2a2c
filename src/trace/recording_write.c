/* A history as a trace: texts, frames and stacks first, then the events device by device, the segments last. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "gapless/gapless.h"
#include "trace/recording.h"

#define TICK_NS 1000 /* histories count in microseconds */

struct author {
  const struct gap__history *history;
  struct gap__record_writer *writer;
  struct gap__map texts; /* offset -> number; the empty text is not in it: 0 */
};

static const char *text_at(const struct author *author, uint32_t offset) { return author->history->text + offset; }

static int number_text(struct author *author, uint32_t offset) {
  if (text_at(author, offset)[0] == '\0' || gap__map_get(&author->texts, offset, NULL)) return 0;
  int rc = gap__map_put(&author->texts, offset, author->texts.count + 1);
  return rc ? rc : gap__record_text(author->writer, text_at(author, offset));
}

static uint32_t text_number(const struct author *author, uint32_t offset) {
  uint64_t number = 0;
  gap__map_get(&author->texts, offset, &number);
  return (uint32_t)number;
}

static int write_frames(struct author *author) {
  const struct gap__history *history = author->history;
  int rc = 0;
  for (uint32_t i = 0; !rc && i < history->frame_count; i++) {
    const struct gap__hist_frame *frame = &history->frames[i];
    rc = number_text(author, frame->name);
    if (!rc) rc = number_text(author, frame->filename);
    struct gap__record_frame told = {text_number(author, frame->name), text_number(author, frame->filename),
                                     frame->line};
    if (!rc) rc = gap__record_frame(author->writer, &told);
  }
  return rc;
}

/* Frames are numbered from 1 in a trace, from 0 in a history. */
static int write_stack(struct author *author, const struct gap__hist_stack *stack) {
  uint32_t frames[GAP__RECORD_STACK_MOST], count = stack->count;
  if (count > GAP__RECORD_STACK_MOST) count = GAP__RECORD_STACK_MOST;
  for (uint32_t i = 0; i < count; i++) frames[i] = author->history->stack_frames[stack->first + i] + 1;
  return gap__record_stack(author->writer, frames, count);
}

static int write_annotation(struct author *author, const struct gap__hist_annotation *annotation) {
  int rc = number_text(author, annotation->name);
  return rc ? rc
            : gap__record_annotation(author->writer, text_number(author, annotation->name),
                                     (uint32_t)annotation->device, annotation->time_us, annotation->is_start);
}

static int write_settings(struct author *author) {
  const struct gap__history *history = author->history;
  const struct gap__hist_settings *from = &history->settings;
  struct gap__record_settings settings = {.present = from->present,
                                          .expandable_segments = from->expandable_segments,
                                          .max_split_size = from->max_split_size,
                                          .garbage_collection_threshold = from->garbage_collection_threshold,
                                          .memory_fraction = history->memory_fraction,
                                          .total_bytes = history->total_bytes,
                                          .has_stats = history->has_stats,
                                          .reserved_peak = history->stat_reserved_peak,
                                          .reserved_current = history->stat_reserved_current,
                                          .alloc_retries = history->stat_alloc_retries,
                                          .ooms = history->stat_ooms};
  memcpy(settings.roundup_power2_divisions, from->roundup_power2_divisions, sizeof from->roundup_power2_divisions);
  return gap__record_settings(author->writer, &settings);
}

/* ---- events and segments ---- */

static gap_pool_id pool_of(const struct author *author, uint16_t index) {
  const uint64_t *id = author->history->pools[index].id;
  return (gap_pool_id){id[0], id[1]};
}

/* What a block of this size takes, so that sizes are short; a size at the end of all numbers as it is. */
static uint64_t rounded(const struct gap__hist_event *event) {
  bool of_block = event->action <= GAP__ACT_FREE_COMPLETED;
  return of_block && event->size < UINT64_MAX - 511 ? (event->size + 511) / 512 * 512 : event->size;
}

static int write_events(struct author *author, uint32_t device) {
  const struct gap__hist_device *from = &author->history->devices[device];
  int rc = 0;
  for (uint64_t i = 0; !rc && i < from->event_count; i++) {
    const struct gap__hist_event *event = &from->events[i];
    rc = gap__record_event(author->writer, &(struct gap__record_event){.kind = (enum gap__record_kind)event->action,
                                                                       .device = device,
                                                                       .addr = event->addr,
                                                                       .bytes = rounded(event),
                                                                       .requested = event->size,
                                                                       .stream = event->stream,
                                                                       .pool = pool_of(author, event->pool),
                                                                       .tick = event->time_us,
                                                                       .stack = event->stack});
  }
  return rc;
}

static enum gap__segment_kind kind_of(const struct gap__hist_segment *segment) {
  if (segment->is_paged) return GAP__SEGMENT_PAGES;
  return segment->is_expandable ? GAP__SEGMENT_EXPANDABLE : GAP__SEGMENT_NATIVE;
}

/* Sums that the blocks do not add up to are said. */
static void compare_sums(const struct gap__history *history, const struct gap__hist_segment *from,
                         struct gap__record_segment *to) {
  uint64_t allocated = 0, active = 0, requested = 0;
  for (uint32_t i = 0; i < from->block_count; i++) {
    const struct gap__hist_block *block = &history->blocks[from->block_first + i];
    allocated += block->state == 1 ? block->size : 0;
    active += block->state ? block->size : 0;
    requested += block->state ? block->requested : 0;
  }
  to->has_sums = allocated != from->allocated_size || active != from->active_size || requested != from->requested_size;
  to->allocated = from->allocated_size;
  to->active = from->active_size;
  to->requested = from->requested_size;
}

static int write_segment(struct author *author, const struct gap__hist_segment *from) {
  struct gap__record_segment segment = {.kind = kind_of(from),
                                        .is_large = from->is_large,
                                        .addr = from->addr,
                                        .bytes = from->total_size,
                                        .stream = from->stream,
                                        .pool = pool_of(author, from->pool)};
  compare_sums(author->history, from, &segment);
  int rc = gap__record_segment(author->writer, &segment);
  for (uint32_t i = 0; !rc && i < from->block_count; i++) {
    const struct gap__hist_block *block = &author->history->blocks[from->block_first + i];
    struct gap__record_block told = {block->state, block->addr, block->size, block->requested, block->stack};
    rc = gap__record_block(author->writer, &told);
  }
  return rc;
}

static int write_state(struct author *author, uint32_t device) {
  const struct gap__history *history = author->history;
  const struct gap__hist_facts *facts = &history->devices[device].facts;
  struct gap__record_facts told = {0};
  int rc = gap__record_state(author->writer, 0, device);
  for (uint64_t i = 0; !rc && i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device) rc = write_segment(author, &history->segments[i]);
#define X(name) told.name = facts->name;
  GAP__RECORD_FACTS(X)
#undef X
  return rc ? rc
            : gap__record_state_end(author->writer, facts->present ? &told : NULL, text_at(author, facts->refusal));
}

/* ---- the whole ---- */

static int write_all(struct author *author) {
  const struct gap__history *history = author->history;
  int rc = write_settings(author);
  if (!rc) rc = write_frames(author);
  for (uint32_t i = 1; !rc && i < history->stack_count; i++) rc = write_stack(author, &history->stacks[i]);
  for (uint32_t i = 0; !rc && i < history->annotation_count; i++)
    rc = write_annotation(author, &history->annotations[i]);
  for (uint32_t i = 0; !rc && i < history->device_count; i++) rc = write_events(author, i);
  for (uint32_t i = 0; !rc && i < history->device_count; i++) rc = write_state(author, i);
  if (!rc && history->lost_events) rc = gap__record_lost(author->writer, history->lost_events);
  return rc;
}

int gap__history_record(const struct gap__history *history, gap__record_sink *sink, void *arg) {
  struct author author = {.history = history, .writer = malloc(sizeof *author.writer)};
  if (!author.writer) return GAP_ENOMETA;
  const struct gap__record_header header = {
      .tick_ns = TICK_NS,
      .origin_us = history->time_base_us > 0 ? (uint64_t)history->time_base_us : 0,
      .process = history->process,
      .by_gapless = history->by_gapless,
      .program = text_at(&author, history->program),
      .version = gap_version(),
      .settings = history->settings_text};
  int rc = gap__record_begin(author.writer, sink, arg, &header);
  if (!rc) rc = write_all(&author);
  if (!rc) rc = gap__record_end(author.writer);
  gap__map_free(&author.texts);
  free(author.writer);
  return rc;
}
