#include "record/writer.h"

#include <stddef.h>
#include <string.h>

#include "record/crc.h"

enum {
  VARINT_MOST = 10,
  EVENT_MOST = 2 + 9 * VARINT_MOST,
  LONG_MOST = 1 + 2 * VARINT_MOST, /* before the bytes of a part */
  PART_MOST = 3 * GAP__RECORD_TEXT_MOST + 512
};
_Static_assert(PART_MOST + LONG_MOST + 2 * VARINT_MOST < GAP__RECORD_PARCEL_BYTES, "every part fits into a parcel");
_Static_assert((GAP__RECORD_STACK_MOST + 1) * VARINT_MOST < PART_MOST, "a stack is a part");
_Static_assert(offsetof(struct gap__record_writer, payload) ==
                   offsetof(struct gap__record_writer, head) + GAP__RECORD_HEAD_BYTES,
               "a parcel is one piece");

/* ---- numbers ---- */

static unsigned char *put(unsigned char *at, uint64_t number) {
  for (; number >= 0x80; number >>= 7) *at++ = (unsigned char)(number | 0x80);
  *at++ = (unsigned char)number;
  return at;
}

static unsigned char *put_signed(unsigned char *at, int64_t number) { return put(at, gap__record_fold(number)); }
static unsigned char *put_size(unsigned char *at, uint64_t bytes) { return put(at, gap__record_turn(bytes)); }

static unsigned char *put_fixed(unsigned char *at, uint64_t number, int bytes) {
  for (; bytes; bytes--, number >>= 8) *at++ = (unsigned char)number;
  return at;
}

static unsigned char *put_real(unsigned char *at, double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return put_fixed(at, bits, 8);
}

static unsigned char *put_text(unsigned char *at, const char *text) {
  size_t length = strnlen(text, GAP__RECORD_TEXT_MOST);
  at = put(at, length);
  memcpy(at, text, length);
  return at + length;
}

/* The difference to the address before, which becomes this one. */
static unsigned char *put_addr(struct gap__record_writer *writer, unsigned char *at, uint64_t addr) {
  uint64_t turned = gap__record_turn(addr);
  at = put_signed(at, (int64_t)(turned - writer->addr));
  writer->addr = turned;
  return at;
}

static unsigned char *put_stream(struct gap__record_writer *writer, unsigned char *at, uint64_t stream) {
  writer->stream = stream;
  return put(at, stream);
}

static unsigned char *put_pool(struct gap__record_writer *writer, unsigned char *at, gap_pool_id pool) {
  writer->pool = pool;
  return put(put(at, pool.first), pool.second);
}

static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

/* ---- parcels ---- */

static void send(struct gap__record_writer *writer, const void *bytes, size_t count) {
  if (!writer->failed) writer->failed = writer->sink(writer->arg, bytes, count);
}

int gap__record_flush(struct gap__record_writer *writer) {
  if (!writer->used) return writer->failed;
  put_fixed(writer->head, writer->used, 4);
  put_fixed(writer->head + 4, gap__crc32(writer->payload, writer->used), 4);
  send(writer, writer->head, GAP__RECORD_HEAD_BYTES + writer->used);
  writer->used = 0;
  return writer->failed;
}

static void begin_parcel(struct gap__record_writer *writer) {
  unsigned char *at = put_signed(put(writer->payload, writer->sequence++), writer->tick);
  writer->used = (size_t)(at - writer->payload);
  writer->addr = writer->stream = 0;
  writer->pool = (gap_pool_id){0, 0};
  writer->device = 0;
}

/* Where the next record goes: there is room for `bytes`. */
static unsigned char *room(struct gap__record_writer *writer, size_t bytes) {
  if (writer->used + bytes > GAP__RECORD_PARCEL_BYTES) gap__record_flush(writer);
  if (!writer->used) begin_parcel(writer);
  return writer->payload + writer->used;
}

static int done(struct gap__record_writer *writer, const unsigned char *end) {
  writer->used = (size_t)(end - writer->payload);
  return writer->failed;
}

/* ---- events ---- */

int gap__record_event(struct gap__record_writer *writer, const struct gap__record_event *event) {
  unsigned char *tag = room(writer, EVENT_MOST), *at = tag + 1, more = 0;
  *tag = (unsigned char)event->kind;
  if (event->stream != writer->stream) *tag |= GAP__EVENT_STREAM;
  if (event->requested != event->bytes) *tag |= GAP__EVENT_SLACK;
  if (event->stack) *tag |= GAP__EVENT_STACK;
  if (!same_pool(event->pool, writer->pool)) more |= GAP__EVENT_POOL;
  if (event->device != writer->device) more |= GAP__EVENT_DEVICE;
  if (more) *tag |= GAP__EVENT_MORE, *at++ = more;
  at = put_signed(at, event->tick - writer->tick);
  at = put_size(put_addr(writer, at, event->addr), event->bytes);
  if (*tag & GAP__EVENT_STREAM) at = put_stream(writer, at, event->stream);
  if (*tag & GAP__EVENT_SLACK) at = put(at, event->bytes - event->requested);
  if (*tag & GAP__EVENT_STACK) at = put(at, event->stack);
  if (more & GAP__EVENT_POOL) at = put_pool(writer, at, event->pool);
  if (more & GAP__EVENT_DEVICE) at = put(at, event->device);
  writer->tick = event->tick;
  writer->device = event->device;
  writer->events++;
  return done(writer, at);
}

/* ---- parts ---- */

static int write_part(struct gap__record_writer *writer, enum gap__record_part part, const unsigned char *bytes,
                      const unsigned char *end) {
  size_t count = (size_t)(end - bytes);
  unsigned char *at = room(writer, LONG_MOST + count);
  *at++ = GAP__RECORD_LONG;
  at = put(put(at, part), count);
  memcpy(at, bytes, count);
  return done(writer, at + count);
}

int gap__record_begin(struct gap__record_writer *writer, gap__record_sink *sink, void *arg,
                      const struct gap__record_header *header) {
  unsigned char part[PART_MOST], *at = part;
  *writer = (struct gap__record_writer){.sink = sink, .arg = arg};
  send(writer, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES);
  at = put(put(put(put(at, GAP__RECORD_VERSION), header->tick_ns), header->origin_us), header->process);
  at = put(at, header->by_gapless ? GAP__HEADER_BY_GAPLESS : 0);
  at = put_text(put_text(put_text(at, header->program), header->version), header->settings);
  write_part(writer, GAP__PART_HEADER, part, at);
  return gap__record_flush(writer);
}

int gap__record_text(struct gap__record_writer *writer, const char *text) {
  unsigned char part[PART_MOST];
  return write_part(writer, GAP__PART_TEXT, part, put_text(part, text));
}

int gap__record_frame(struct gap__record_writer *writer, const struct gap__record_frame *frame) {
  unsigned char part[3 * VARINT_MOST];
  unsigned char *at = put_signed(put(put(part, frame->name), frame->filename), frame->line);
  return write_part(writer, GAP__PART_FRAME, part, at);
}

int gap__record_stack(struct gap__record_writer *writer, const uint32_t *frames, uint32_t count) {
  unsigned char part[PART_MOST], *at = part;
  if (count > GAP__RECORD_STACK_MOST) count = GAP__RECORD_STACK_MOST;
  at = put(at, count);
  for (uint32_t i = 0; i < count; i++) at = put(at, frames[i]);
  return write_part(writer, GAP__PART_STACK, part, at);
}

int gap__record_annotation(struct gap__record_writer *writer, uint32_t name, uint32_t device, int64_t tick,
                           bool is_start) {
  unsigned char part[4 * VARINT_MOST];
  unsigned char *at = put(put_signed(put(put(part, name), device), tick), is_start);
  return write_part(writer, GAP__PART_ANNOTATION, part, at);
}

int gap__record_settings(struct gap__record_writer *writer, const struct gap__record_settings *settings) {
  unsigned char part[PART_MOST], *at = part;
  at = put(put(at, settings->present), settings->expandable_segments);
  at = put_real(put_signed(at, settings->max_split_size), settings->garbage_collection_threshold);
  for (int i = 0; i < 16; i++) at = put(at, settings->roundup_power2_divisions[i]);
  at = put(put_real(at, settings->memory_fraction), settings->total_bytes);
  at = put(put(put(at, settings->has_stats), settings->reserved_peak), settings->reserved_current);
  at = put(put(at, settings->alloc_retries), settings->ooms);
  return write_part(writer, GAP__PART_SETTINGS, part, at);
}

int gap__record_lost(struct gap__record_writer *writer, uint64_t events) {
  unsigned char part[VARINT_MOST];
  return write_part(writer, GAP__PART_LOST, part, put(part, events));
}

/* ---- states ---- */

int gap__record_state(struct gap__record_writer *writer, uint64_t number, uint32_t device) {
  unsigned char part[2 * VARINT_MOST];
  return write_part(writer, GAP__PART_STATE, part, put(put(part, number), device));
}

int gap__record_segment(struct gap__record_writer *writer, const struct gap__record_segment *segment) {
  unsigned char *tag = room(writer, EVENT_MOST), *at = tag + 1;
  *tag = GAP__RECORD_SEGMENT;
  if (segment->stream != writer->stream) *tag |= GAP__SEGMENT_STREAM;
  if (!same_pool(segment->pool, writer->pool)) *tag |= GAP__SEGMENT_POOL;
  if (segment->has_sums) *tag |= GAP__SEGMENT_SUMS;
  *at++ = (unsigned char)(segment->kind | (segment->is_large ? GAP__SEGMENT_LARGE : 0));
  at = put_size(put_addr(writer, at, segment->addr), segment->bytes);
  if (*tag & GAP__SEGMENT_STREAM) at = put_stream(writer, at, segment->stream);
  if (*tag & GAP__SEGMENT_POOL) at = put_pool(writer, at, segment->pool);
  if (segment->has_sums) at = put_size(put_size(put_size(at, segment->allocated), segment->active), segment->requested);
  writer->expected = segment->addr;
  return done(writer, at);
}

static uint64_t usual_request(const struct gap__record_block *block) { return block->state ? block->bytes : 0; }

int gap__record_block(struct gap__record_writer *writer, const struct gap__record_block *block) {
  unsigned char *tag = room(writer, EVENT_MOST), *at = tag + 1, more = 0;
  *tag = (unsigned char)(GAP__RECORD_BLOCK | block->state << GAP__BLOCK_STATE_SHIFT);
  if (block->requested != usual_request(block)) *tag |= GAP__BLOCK_SLACK;
  if (block->stack) more |= GAP__BLOCK_STACK;
  if (block->addr != writer->expected) more |= GAP__BLOCK_ADDR;
  if (more) *tag |= GAP__BLOCK_MORE, *at++ = more;
  at = put_size(at, block->bytes);
  if (*tag & GAP__BLOCK_SLACK) at = put(at, block->bytes - block->requested);
  if (more & GAP__BLOCK_STACK) at = put(at, block->stack);
  if (more & GAP__BLOCK_ADDR) at = put_size(at, block->addr);
  writer->expected = block->addr + block->bytes;
  return done(writer, at);
}

static unsigned char *put_facts(unsigned char *at, const struct gap__record_facts *facts) {
#define X(name) +1
  at = put(at, GAP__RECORD_FACTS(X));
#undef X
#define X(name) at = put(at, facts->name);
  GAP__RECORD_FACTS(X)
#undef X
  return at;
}

int gap__record_state_end(struct gap__record_writer *writer, const struct gap__record_facts *facts,
                          const char *refusal) {
  unsigned char part[PART_MOST], *at = put_text(part, refusal);
  at = facts ? put_facts(at, facts) : put(at, 0);
  return write_part(writer, GAP__PART_STATE_END, part, at);
}

int gap__record_end(struct gap__record_writer *writer) {
  unsigned char part[VARINT_MOST];
  write_part(writer, GAP__PART_END, part, put(part, writer->events));
  return gap__record_flush(writer);
}
