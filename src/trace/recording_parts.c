/* The longer records of a trace: header, texts, frames, stacks, annotations, settings. */
#include <string.h>

#include "gapless/gapless.h"
#include "trace/message.h"
#include "trace/recording_get.h"

enum { TICK_NS_MAX = 1000000000 };
#define ORIGIN_US_MAX ((uint64_t)1 << 60)

static int read_header(struct gap__recording *r) {
  struct gap__history *history = r->history;
  uint32_t version, settings;
  uint64_t number = gap__recording_number(r);
  if (number != GAP__RECORD_VERSION)
    return gap__message_set(r->message, GAP_EFORMAT, "a trace of version %llu, which this gapless does not know",
                            (unsigned long long)number);
  r->tick_ns = gap__recording_upto(r, TICK_NS_MAX);
  uint64_t origin_us = gap__recording_number(r);
  history->time_base_us = origin_us < ORIGIN_US_MAX ? (int64_t)origin_us : 0;
  history->process = gap__recording_number(r);
  history->by_gapless = gap__recording_number(r) & GAP__HEADER_BY_GAPLESS;
  int rc = gap__recording_text(r, &history->program);
  if (!rc) rc = gap__recording_text(r, &version);
  if (!rc) rc = gap__recording_text(r, &settings);
  if (!rc && !r->is_wrong && r->tick_ns == 0) return gap__recording_fail(r, "a header with a tick of 0 ns");
  if (rc || r->is_wrong) return rc;
  history->settings_text = strdup(r->text.at + settings);
  return history->settings_text ? 0 : gap__recording_no_room(r);
}

static int read_text(struct gap__recording *r) {
  uint32_t offset;
  int rc = gap__recording_text(r, &offset);
  uint32_t *text = GAP__RECORDING_ADD(r->texts);
  if (!text) return gap__recording_no_room(r);
  *text = offset;
  return rc;
}

/* A text that was told before; number 0, the empty one, is there from the start. */
static uint32_t told_text(struct gap__recording *r) { return r->texts.at[gap__recording_upto(r, r->texts.count - 1)]; }

static int read_frame(struct gap__recording *r) {
  struct gap__hist_frame *frame = GAP__RECORDING_ADD(r->frames);
  if (!frame) return gap__recording_no_room(r);
  frame->name = told_text(r);
  frame->filename = told_text(r);
  int64_t line = gap__recording_signed(r);
  frame->line = line < INT32_MIN || line > INT32_MAX ? 0 : (int32_t)line;
  return 0;
}

static int read_stack(struct gap__recording *r) {
  uint32_t count = gap__recording_upto(r, GAP__RECORD_STACK_MOST);
  struct gap__hist_stack *stack = GAP__RECORDING_ADD(r->stacks);
  if (!stack || !GAP__VEC_ROOM(r->stack_frames, count)) return gap__recording_no_room(r);
  *stack = (struct gap__hist_stack){r->stack_frames.count, count};
  for (uint32_t i = 0; i < count; i++) {
    uint32_t number = gap__recording_upto(r, r->frames.count);
    if (number == 0) return gap__recording_fail(r, "a stack with a frame that was not told");
    r->stack_frames.at[r->stack_frames.count++] = number - 1;
  }
  return 0;
}

static int read_annotation(struct gap__recording *r) {
  struct gap__hist_annotation *annotation = GAP__RECORDING_ADD(r->annotations);
  if (!annotation) return gap__recording_no_room(r);
  annotation->name = told_text(r);
  annotation->device = (int32_t)gap__recording_upto(r, GAP__RECORDING_DEVICES - 1);
  annotation->time_us = gap__recording_time(r, gap__recording_signed(r));
  annotation->is_start = gap__recording_upto(r, 1);
  return 0;
}

static int read_settings(struct gap__recording *r) {
  struct gap__history *history = r->history;
  struct gap__hist_settings *settings = &history->settings;
  settings->present = gap__recording_upto(r, 1);
  settings->expandable_segments = gap__recording_upto(r, 1);
  settings->max_split_size = gap__recording_signed(r);
  settings->garbage_collection_threshold = gap__recording_real(r);
  for (int i = 0; i < 16; i++) settings->roundup_power2_divisions[i] = gap__recording_number(r);
  history->memory_fraction = gap__recording_real(r);
  history->total_bytes = gap__recording_number(r);
  history->has_stats = gap__recording_upto(r, 1);
  history->stat_reserved_peak = gap__recording_number(r);
  history->stat_reserved_current = gap__recording_number(r);
  history->stat_alloc_retries = gap__recording_number(r);
  history->stat_ooms = gap__recording_number(r);
  return 0;
}

static int read_lost(struct gap__recording *r) {
  r->history->lost_events += gap__recording_number(r);
  return 0;
}

int gap__recording_read_part(struct gap__recording *r, uint64_t part) {
  bool is_header = part == GAP__PART_HEADER;
  if (is_header != (r->tick_ns == 0))
    return gap__recording_fail(r, is_header ? "a second header" : "a trace that does not begin with its header");
  switch (part) {
    case GAP__PART_HEADER: return read_header(r);
    case GAP__PART_TEXT: return read_text(r);
    case GAP__PART_FRAME: return read_frame(r);
    case GAP__PART_STACK: return read_stack(r);
    case GAP__PART_ANNOTATION: return read_annotation(r);
    case GAP__PART_SETTINGS: return read_settings(r);
    case GAP__PART_STATE: return gap__recording_read_state(r);
    case GAP__PART_STATE_END: return gap__recording_read_state_end(r);
    case GAP__PART_LOST: return read_lost(r);
    case GAP__PART_END: r->is_done = true; return 0;
    default: return 0;
  }
}
