#include "trace/recording.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "record/crc.h"
#include "trace/message.h"
#include "trace/recording_get.h"

bool gap__recording_is(const struct gap__input *input) {
  return input->end - input->next >= GAP__RECORD_MAGIC_BYTES &&
         memcmp(input->next, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES) == 0;
}

/* ---- records ------------------------------------------------------------------------------------------------------- */

static int keep_event(struct gap__recording *r, const struct gap__hist_event *event) {
  struct gap__recording_device *device = gap__recording_device(r, r->device);
  struct gap__hist_event *kept = device ? GAP__RECORDING_ADD(device->events) : NULL;
  if (!kept) return gap__recording_no_room(r);
  *kept = *event;
  if (event->action != GAP__ACT_SNAPSHOT) device->is_whole = false;
  return 0;
}

static int read_event(struct gap__recording *r, unsigned tag) {
  unsigned more = tag & GAP__EVENT_MORE ? gap__recording_byte(r) : 0;
  struct gap__hist_event event = {.action = tag & 0x0F};
  int rc = 0;
  r->is_wrong |= __builtin_add_overflow(r->tick, gap__recording_signed(r), &r->tick);
  event.time_us = gap__recording_time(r, r->tick);
  event.addr = gap__recording_addr(r);
  event.size = gap__recording_size(r);
  if (tag & GAP__EVENT_STREAM) r->stream = gap__recording_number(r);
  if (tag & GAP__EVENT_SLACK) event.size -= gap__recording_number(r);
  if (tag & GAP__EVENT_STACK) event.stack = gap__recording_stack(r);
  if (more & GAP__EVENT_POOL) rc = gap__recording_pool(r);
  if (more & GAP__EVENT_DEVICE) r->device = gap__recording_upto(r, GAP__RECORDING_DEVICES - 1);
  event.stream = r->stream;
  event.pool = r->pool;
  return rc || r->is_wrong ? rc : keep_event(r, &event);
}

static int read_long(struct gap__recording *r) {
  const unsigned char *whole = r->end;
  uint64_t part = gap__recording_number(r), bytes = gap__recording_number(r);
  r->is_wrong |= bytes > (uint64_t)(r->end - r->at);
  if (r->is_wrong) return 0;
  r->end = r->at + bytes;
  int rc = gap__recording_read_part(r, part);
  if (rc || r->is_wrong) return rc;
  r->at = r->end; /* a newer writer may have more to say */
  r->end = whole;
  return 0;
}

static int read_record(struct gap__recording *r) {
  unsigned tag = gap__recording_byte(r), kind = tag & 0x0F;
  if (kind != GAP__RECORD_LONG && r->tick_ns == 0)
    return gap__recording_fail(r, "a trace that does not begin with its header");
  if (kind < GAP__RECORD_EVENT_KINDS) return read_event(r, tag);
  switch (kind) {
    case GAP__RECORD_SEGMENT: return gap__recording_read_segment(r, tag);
    case GAP__RECORD_BLOCK: return gap__recording_read_block(r, tag);
    case GAP__RECORD_LONG: return read_long(r);
    default: return gap__recording_fail(r, "a record of an unknown kind");
  }
}

static void begin_parcel(struct gap__recording *r) {
  r->tick = gap__recording_signed(r);
  r->addr = r->stream = 0;
  r->pool = 0;
  r->device = 0;
}

static int read_records(struct gap__recording *r) {
  int rc = 0;
  begin_parcel(r);
  while (!rc && !r->is_wrong && !r->is_done && r->at < r->end) rc = read_record(r);
  if (!rc && r->is_wrong) rc = gap__recording_fail(r, "a record that cannot be, in a parcel that is whole");
  return rc;
}

/* ---- parcels ------------------------------------------------------------------------------------------------------- */

static uint32_t load32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Takes the next parcel.  *is_good: it is there, whole, and the one expected. */
static int take_parcel(struct gap__recording *r, bool *is_good) {
  unsigned char head[GAP__RECORD_HEAD_BYTES];
  size_t got = 0;
  *is_good = false;
  r->parcel_at = gap__input_position(r->input);
  int rc = gap__input_take(r->input, head, sizeof head, &got, r->message);
  if (rc || got < sizeof head) return rc;
  uint32_t bytes = load32(head);
  if (bytes > GAP__RECORD_PARCEL_MOST) return 0;
  rc = gap__input_take(r->input, r->payload, bytes, &got, r->message);
  if (rc || got < bytes || gap__crc32(r->payload, bytes) != load32(head + 4)) return rc;
  r->at = r->payload;
  r->end = r->payload + bytes;
  *is_good = gap__recording_number(r) == r->sequence++ && !r->is_wrong;
  return 0;
}

static int read_parcels(struct gap__recording *r) {
  for (bool is_good;;) {
    int rc = take_parcel(r, &is_good);
    if (!rc && is_good) rc = read_records(r);
    if (rc || r->is_done) return rc;
    if (!is_good) break;
  }
  if (r->tick_ns == 0) return gap__message_set(r->message, GAP_EFORMAT, "byte 8: a trace without a whole header");
  r->history->is_torn = true;
  r->history->torn_at = r->parcel_at;
  return 0;
}

/* ---- the history --------------------------------------------------------------------------------------------------- */

static int no_memory(struct gap__recording *r) {
  return gap__message_set(r->message, GAP_ENOMETA, "out of host memory");
}

/* Where one device has all events its array is taken as it is. */
static struct gap__hist_event *take_events(struct gap__recording *r, uint64_t total) {
  for (uint32_t i = 0; i < r->devices.count; i++) {
    struct gap__recording_device *device = &r->devices.at[i];
    if (device->events.count != total || !device->events.at) continue;
    struct gap__hist_event *events = gap__vec_trim(device->events.at, device->events.count, sizeof *events);
    device->events.at = NULL;
    return events;
  }
  return NULL;
}

static struct gap__hist_event *gather_events(const struct gap__recording *r, uint64_t total) {
  struct gap__hist_event *events = calloc(total + 1, sizeof *events), *to = events;
  for (uint32_t i = 0; events && i < r->devices.count; i++) {
    const struct gap__recording_device *device = &r->devices.at[i];
    if (device->events.at) memcpy(to, device->events.at, device->events.count * sizeof *to);
    to += device->events.count;
  }
  return events;
}

static int build_events(struct gap__recording *r, struct gap__history *history) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < r->devices.count; i++) total += r->devices.at[i].events.count;
  if (total > GAP__VEC_MAX) return gap__recording_no_room(r);
  history->event_storage = take_events(r, total);
  if (!history->event_storage) history->event_storage = gather_events(r, total);
  if (!history->event_storage) return no_memory(r);
  struct gap__hist_event *at = history->event_storage;
  for (uint32_t i = 0; i < r->devices.count; i++) {
    history->devices[i].events = at;
    history->devices[i].event_count = r->devices.at[i].events.count;
    at += r->devices.at[i].events.count;
  }
  return 0;
}

static void append_segments(const struct gap__recording_device *device, struct gap__history *history) {
  for (uint32_t i = 0; i < device->segments.count; i++) {
    struct gap__hist_segment *segment = &history->segments[history->segment_count++];
    *segment = device->segments.at[i];
    segment->block_first += (uint32_t)history->block_count;
  }
  if (device->blocks.count)
    memcpy(history->blocks + history->block_count, device->blocks.at, device->blocks.count * sizeof *history->blocks);
  history->block_count += device->blocks.count;
}

static int build_segments(struct gap__recording *r, struct gap__history *history) {
  uint64_t segments = 0, blocks = 0;
  for (uint32_t i = 0; i < r->devices.count; i++) {
    segments += r->devices.at[i].segments.count;
    blocks += r->devices.at[i].blocks.count;
  }
  if (segments > GAP__VEC_MAX || blocks > GAP__VEC_MAX) return gap__recording_no_room(r);
  history->segments = calloc(segments + 1, sizeof *history->segments);
  history->blocks = calloc(blocks + 1, sizeof *history->blocks);
  if (!history->segments || !history->blocks) return no_memory(r);
  for (uint32_t i = 0; i < r->devices.count; i++) {
    if (!r->devices.at[i].is_whole) continue;
    append_segments(&r->devices.at[i], history);
    history->devices[i].facts = r->devices.at[i].facts;
  }
  return 0;
}

/* Moves an array from the reader to the history. */
#define HAND_OVER(vec, array, array_count) \
  (history->array = gap__vec_trim(r->vec.at, r->vec.count, sizeof *r->vec.at), history->array_count = r->vec.count, \
   r->vec.at = NULL)

/* Where a program was killed nobody has said what it held. */
static int find_ends(struct gap__recording *r) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < r->devices.count; i++)
    if (!r->devices.at[i].is_whole && r->devices.at[i].events.count) rc = gap__recording_find_end(r, &r->devices.at[i]);
  return rc;
}

static int build(struct gap__recording *r, struct gap__history *history) {
  if (!gap__recording_device(r, 0)) return no_memory(r);
  history->devices = calloc(r->devices.count, sizeof *history->devices);
  if (!history->devices) return no_memory(r);
  history->device_count = r->devices.count;
  int rc = find_ends(r);
  if (!rc) rc = build_events(r, history);
  if (!rc) rc = build_segments(r, history);
  HAND_OVER(pools, pools, pool_count);
  HAND_OVER(stacks, stacks, stack_count);
  HAND_OVER(stack_frames, stack_frames, stack_frame_count);
  HAND_OVER(frames, frames, frame_count);
  HAND_OVER(annotations, annotations, annotation_count);
  HAND_OVER(text, text, text_bytes);
  if (!rc) gap__history_shift_times(history);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* The items that are there from the start: the default pool, no stack, no text. */
static int begin(struct gap__recording *r) {
  if (!GAP__VEC_ROOM(r->pools, 1) || !GAP__VEC_ROOM(r->stacks, 1) || !GAP__VEC_ROOM(r->text, 1) ||
      !GAP__VEC_ROOM(r->texts, 1) || !(r->payload = malloc(GAP__RECORD_PARCEL_MOST)))
    return no_memory(r);
  r->pools.at[r->pools.count++] = (struct gap__hist_pool){{0, 0}};
  r->stacks.at[r->stacks.count++] = (struct gap__hist_stack){0, 0};
  r->text.at[r->text.count++] = '\0';
  r->texts.at[r->texts.count++] = 0;
  r->input->next += GAP__RECORD_MAGIC_BYTES;
  return 0;
}

static void destroy(struct gap__recording *r) {
  for (uint32_t i = 0; i < r->devices.count; i++) {
    free(r->devices.at[i].events.at);
    free(r->devices.at[i].segments.at);
    free(r->devices.at[i].blocks.at);
  }
  free(r->devices.at);
  free(r->pools.at);
  free(r->text.at);
  free(r->texts.at);
  free(r->frames.at);
  free(r->stacks.at);
  free(r->stack_frames.at);
  free(r->annotations.at);
  free(r->payload);
}

int gap__recording_read(struct gap__input *input, struct gap__history **out, char **message) {
  struct gap__recording r = {.input = input, .message = message, .history = calloc(1, sizeof *r.history)};
  *out = NULL;
  if (!r.history) return no_memory(&r);
  int rc = begin(&r);
  if (!rc) rc = read_parcels(&r);
  if (!rc) rc = build(&r, r.history);
  destroy(&r);
  if (rc) gap__history_free(r.history);
  else *out = r.history;
  return rc;
}
