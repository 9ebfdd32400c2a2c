/* gapless's own trace: what is written is read again, a torn end costs what is torn, and nothing hostile does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "record/crc.h"
#include "trace/recording.h"
#include "trace/vec.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- support ---- */

static int into_text(void *arg, const void *bytes, size_t count) {
  struct gap__text *text = arg;
  gap__text_add_bytes(text, bytes, count);
  return text->failed ? GAP_ENOMETA : 0;
}

static struct gap__history *read_bytes(const void *bytes, size_t count) {
  struct gap__history *history;
  char *message;
  if (gap__history_read_memory(bytes, count, &history, &message)) fail_msg("%s", message);
  return history;
}

static int refused(const struct gap__text *text, char **message) {
  struct gap__history *history;
  return gap__history_read_memory(text->bytes, text->length, &history, message);
}

static void expect_refusal(const struct gap__text *text, int code, const char *words) {
  char *message;
  assert_int_equal(refused(text, &message), code);
  if (!strstr(message, words)) fail_msg("\"%s\" does not say \"%s\"", message, words);
  free(message);
}

static const struct gap__record_header header = {.tick_ns = 1000,
                                                 .origin_us = 1234567890,
                                                 .process = 42,
                                                 .program = "train",
                                                 .version = "0.1.0",
                                                 .settings = "max_memory:20G",
                                                 .by_gapless = true};

struct made {
  struct gap__record_writer writer;
  struct gap__text text;
};

static struct made *begin(void) {
  struct made *made = calloc(1, sizeof *made);
  assert_non_null(made);
  assert_int_equal(gap__record_begin(&made->writer, into_text, &made->text, &header), 0);
  return made;
}

static void drop(struct made *made) {
  gap__text_free(&made->text);
  free(made);
}

static void put_event(struct made *made, enum gap__record_kind kind, uint64_t addr, uint64_t requested, int64_t tick) {
  uint64_t bytes = kind <= GAP__RECORD_FREE_COMPLETED ? (requested + 511) / 512 * 512 : requested;
  const struct gap__record_event event = {
      .kind = kind, .addr = addr, .bytes = bytes, .requested = requested, .stream = 7, .tick = tick};
  assert_int_equal(gap__record_event(&made->writer, &event), 0);
}

/* ---- the checksum ---- */

static void checksum_is_that_of_zlib(void **state) {
  unsigned char bytes[100];
  (void)state;
  for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + 11);
  for (unsigned i = 0; i <= sizeof bytes; i++) assert_int_equal(gap__crc32(bytes, i), crc32(0, bytes, i));
  assert_int_equal(gap__crc32("123456789", 9), 0xCBF43926);
}

/* ---- the bytes ---- */

/* Version 1 is what it is: a reader of tomorrow meets these bytes. */
static void bytes_of_version_1(void **state) {
  static const unsigned char parcel[] = {
      1,    14, /* the second parcel, at tick 7 */
      0x30, 6,  0x80, 0x80, 0x80,
      2,    2,  7,    24, /* alloc: 3 ticks on, 1 GiB (2^21 units, folded), 2 units, stream 7, 24 less */
      0x01, 0,  0,    2}; /* free_requested: same time, address and stream, 2 units */
  struct made *made = begin();
  (void)state;
  size_t before = made->text.length;
  made->writer.tick = 7;
  put_event(made, GAP__RECORD_ALLOC, (uint64_t)1 << 30, 1000, 10);
  put_event(made, GAP__RECORD_FREE_REQUESTED, (uint64_t)1 << 30, 1024, 10);
  assert_int_equal(gap__record_flush(&made->writer), 0);
  const unsigned char *at = (const unsigned char *)made->text.bytes + before;
  assert_int_equal(made->text.length - before, GAP__RECORD_HEAD_BYTES + sizeof parcel);
  assert_int_equal(at[0], sizeof parcel);
  assert_memory_equal(at + GAP__RECORD_HEAD_BYTES, parcel, sizeof parcel);
  drop(made);
}

/* ---- round trips ---- */

#define SAME(a, b, member) assert_true((a)->member == (b)->member)

static void same_text(const struct gap__history *a, uint32_t in_a, const struct gap__history *b, uint32_t in_b) {
  assert_string_equal(a->text + in_a, b->text + in_b);
}

static void same_stacks(const struct gap__history *a, const struct gap__history *b) {
  SAME(a, b, stack_count);
  SAME(a, b, frame_count);
  for (uint32_t i = 1; i < a->stack_count; i++) {
    SAME(&a->stacks[i], &b->stacks[i], count);
    for (uint32_t j = 0; j < a->stacks[i].count; j++)
      assert_int_equal(a->stack_frames[a->stacks[i].first + j], b->stack_frames[b->stacks[i].first + j]);
  }
  for (uint32_t i = 0; i < a->frame_count; i++) {
    same_text(a, a->frames[i].name, b, b->frames[i].name);
    same_text(a, a->frames[i].filename, b, b->frames[i].filename);
    SAME(&a->frames[i], &b->frames[i], line);
  }
}

static void same_pool(const struct gap__history *a, uint16_t in_a, const struct gap__history *b, uint16_t in_b) {
  assert_memory_equal(&a->pools[in_a], &b->pools[in_b], sizeof a->pools[0]);
}

static void same_events(const struct gap__history *a, const struct gap__history *b) {
  SAME(a, b, device_count);
  for (uint32_t i = 0; i < a->device_count; i++) {
    SAME(&a->devices[i], &b->devices[i], event_count);
    SAME(&a->devices[i], &b->devices[i], wrapped);
    for (uint64_t j = 0; j < a->devices[i].event_count; j++) {
      const struct gap__hist_event *one = &a->devices[i].events[j], *other = &b->devices[i].events[j];
      if (one->addr != other->addr || one->size != other->size || one->stream != other->stream ||
          one->time_us != other->time_us || one->stack != other->stack || one->action != other->action)
        fail_msg("event %llu of device %u differs", (unsigned long long)j, i);
      same_pool(a, one->pool, b, other->pool);
    }
  }
}

static void same_segments(const struct gap__history *a, const struct gap__history *b) {
  SAME(a, b, segment_count);
  SAME(a, b, block_count);
  for (uint64_t i = 0, at = 0; i < a->segment_count; i++) {
    const struct gap__hist_segment *one = &a->segments[i], *other = NULL;
    for (at = 0; at < b->segment_count && !other; at++) /* device by device in a trace */
      if (b->segments[at].addr == one->addr && b->segments[at].device == one->device) other = &b->segments[at];
    assert_non_null(other);
    SAME(one, other, total_size);
    SAME(one, other, allocated_size);
    SAME(one, other, active_size);
    SAME(one, other, requested_size);
    SAME(one, other, stream);
    SAME(one, other, is_large);
    SAME(one, other, is_expandable);
    SAME(one, other, block_count);
    same_pool(a, one->pool, b, other->pool);
    for (uint32_t j = 0; j < one->block_count; j++) {
      const struct gap__hist_block *left = &a->blocks[one->block_first + j];
      const struct gap__hist_block *right = &b->blocks[other->block_first + j];
      SAME(left, right, addr);
      SAME(left, right, size);
      SAME(left, right, requested);
      SAME(left, right, stack);
      SAME(left, right, state);
    }
  }
}

static void same_rest(const struct gap__history *a, const struct gap__history *b) {
  SAME(a, b, annotation_count);
  for (uint32_t i = 0; i < a->annotation_count; i++) {
    same_text(a, a->annotations[i].name, b, b->annotations[i].name);
    SAME(&a->annotations[i], &b->annotations[i], device);
    SAME(&a->annotations[i], &b->annotations[i], time_us);
    SAME(&a->annotations[i], &b->annotations[i], is_start);
  }
  assert_string_equal(a->settings_text, b->settings_text);
  assert_memory_equal(&a->settings, &b->settings, sizeof a->settings);
  SAME(a, b, memory_fraction);
  SAME(a, b, total_bytes);
  SAME(a, b, has_stats);
  SAME(a, b, stat_reserved_peak);
  SAME(a, b, stat_ooms);
  assert_false(b->is_torn);
}

static void round_trip(const char *name) {
  char path[512], *message;
  struct gap__history *history, *again;
  struct gap__text text = {0};
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  assert_int_equal(gap__history_record(history, into_text, &text), 0);
  again = read_bytes(text.bytes, text.length);
  same_stacks(history, again);
  same_events(history, again);
  same_segments(history, again);
  same_rest(history, again);
  gap__history_free(history);
  gap__history_free(again);
  gap__text_free(&text);
}

/* Native and expandable, with frames, pools, annotations, several devices, a wrapped ring, a file that contradicts itself. */
static void histories_come_back(void **state) {
  static const char *const names[] = {
      "llama_sft.stacks.pickle.xz", "streams.expandable.pickle.xz",        "graphs.pickle.xz", "ring.pickle.xz",
      "mosaic_output.pickle.xz",    "flexgen_oom_snapshot.pickle.xz",      "oom.pickle.xz",    "tr_exp_pools.json.gz",
      "tr_native_cap.json.gz",      "cs336_medium_1024_training.pickle.xz"};
  (void)state;
  for (size_t i = 0; i < COUNT(names); i++) round_trip(names[i]);
}

static void every_number_comes_back(void **state) {
  static const uint64_t numbers[] = {
      0, 1, 511, 512, 513, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX - 511, UINT64_MAX};
  struct made *made = begin();
  (void)state;
  for (size_t i = 0; i < COUNT(numbers); i++)
    for (size_t j = 0; j < COUNT(numbers); j++) {
      const struct gap__record_event event = {.kind = GAP__RECORD_ALLOC,
                                              .device = (uint32_t)(i % 2),
                                              .addr = numbers[i],
                                              .bytes = numbers[j],
                                              .requested = numbers[(i + j) % COUNT(numbers)],
                                              .stream = numbers[j],
                                              .pool = {numbers[j], numbers[i]},
                                              .tick = 5};
      assert_int_equal(gap__record_event(&made->writer, &event), 0);
    }
  assert_int_equal(gap__record_end(&made->writer), 0);
  struct gap__history *history = read_bytes(made->text.bytes, made->text.length);
  uint64_t next[2] = {0};
  for (size_t i = 0; i < COUNT(numbers); i++)
    for (size_t j = 0; j < COUNT(numbers); j++) {
      const struct gap__hist_event *event = &history->devices[i % 2].events[next[i % 2]++];
      assert_true(event->addr == numbers[i] && event->size == numbers[(i + j) % COUNT(numbers)]);
      assert_true(event->stream == numbers[j]);
      assert_true(history->pools[event->pool].id[0] == numbers[j] && history->pools[event->pool].id[1] == numbers[i]);
    }
  gap__history_free(history);
  drop(made);
}

/* ---- states ---- */

static void put_state(struct made *made, uint64_t number, uint64_t addr, const struct gap__record_facts *facts) {
  const struct gap__record_segment segment = {
      .kind = GAP__SEGMENT_PAGES, .is_large = true, .addr = addr, .bytes = 4096, .stream = 9, .pool = {0, 3}};
  const struct gap__record_segment hole = {.kind = GAP__SEGMENT_HOLE, .addr = addr + 4096, .bytes = 1 << 20};
  const struct gap__record_block live = {.state = 1, .addr = addr, .bytes = 1024, .requested = 700};
  const struct gap__record_block pending = {.state = 2, .addr = addr + 1024, .bytes = 512, .requested = 512};
  const struct gap__record_block idle = {.state = 0, .addr = addr + 1536, .bytes = 2560};
  assert_int_equal(gap__record_state(&made->writer, number, 2), 0);
  assert_int_equal(gap__record_segment(&made->writer, &segment), 0);
  assert_int_equal(gap__record_block(&made->writer, &live), 0);
  assert_int_equal(gap__record_block(&made->writer, &pending), 0);
  assert_int_equal(gap__record_block(&made->writer, &idle), 0);
  assert_int_equal(gap__record_segment(&made->writer, &hole), 0);
  assert_int_equal(gap__record_state_end(&made->writer, facts, "too little"), 0);
}

static const struct gap__record_facts facts = {.card_bytes = 1 << 30,
                                               .free_bytes = 1000,
                                               .cap_bytes = 5000,
                                               .returnable_bytes = 2048,
                                               .refusals = 3,
                                               .page_bytes = 2 << 20};

static struct gap__history *finish(struct made *made) {
  assert_int_equal(gap__record_end(&made->writer), 0);
  struct gap__history *history = read_bytes(made->text.bytes, made->text.length);
  drop(made);
  return history;
}

static void a_state_is_the_end(void **state) {
  (void)state;
  struct made *made = begin();
  put_state(made, 0, 8192, &facts);
  struct gap__history *history = finish(made);
  assert_int_equal(history->device_count, 3);
  assert_int_equal(history->segment_count, 1);
  const struct gap__hist_segment *segment = history->segments;
  assert_true(segment->is_paged && segment->is_expandable && segment->is_large);
  assert_int_equal(segment->device, 2);
  assert_int_equal(segment->stream, 9);
  assert_int_equal(segment->allocated_size, 1024);
  assert_int_equal(segment->active_size, 1536);
  assert_int_equal(segment->requested_size, 1212);
  assert_int_equal(history->blocks[1].addr, 9216);
  assert_int_equal(history->blocks[1].state, 2);
  assert_int_equal(history->blocks[2].requested, 0);
  assert_int_equal(history->process, 42);
  assert_true(history->by_gapless);
  assert_string_equal(history->text + history->program, "train");
  assert_string_equal(history->settings_text, "max_memory:20G");
  assert_true(history->devices[2].facts.present);
  assert_int_equal(history->devices[2].facts.cap_bytes, 5000);
  assert_int_equal(history->devices[2].facts.page_bytes, 2 << 20);
  assert_string_equal(history->text + history->devices[2].facts.refusal, "too little");
  gap__history_free(history);
}

/* Two heaps at one moment are one state; a later moment replaces an earlier one; events after it leave none. */
static void states_join_replace_and_age(void **state) {
  (void)state;
  struct made *made = begin();
  put_state(made, 0, 8192, &facts);
  put_state(made, 0, 1 << 20, &facts);
  struct gap__history *history = finish(made);
  assert_int_equal(history->segment_count, 2);
  assert_int_equal(history->segments[1].block_first, 3);
  assert_int_equal(history->devices[2].facts.returnable_bytes, 4096);
  assert_int_equal(history->devices[2].facts.card_bytes, 1 << 30);
  gap__history_free(history);

  made = begin();
  put_state(made, 0, 8192, &facts);
  put_state(made, 1, 1 << 20, &facts);
  history = finish(made);
  assert_int_equal(history->segment_count, 1);
  assert_int_equal(history->segments[0].addr, 1 << 20);
  gap__history_free(history);

  made = begin();
  put_state(made, 0, 8192, &facts);
  struct gap__record_event event = {.kind = GAP__RECORD_MARK, .device = 2};
  assert_int_equal(gap__record_event(&made->writer, &event), 0);
  event.device = 1;
  event.kind = GAP__RECORD_ALLOC;
  assert_int_equal(gap__record_event(&made->writer, &event), 0);
  history = finish(made);
  assert_int_equal(history->segment_count, 1);
  gap__history_free(history);

  made = begin();
  put_state(made, 0, 8192, &facts);
  event.device = 2;
  assert_int_equal(gap__record_event(&made->writer, &event), 0);
  history = finish(made);
  assert_int_equal(history->segment_count, 0);
  assert_false(history->devices[2].facts.present);
  gap__history_free(history);
}

/* ---- torn and altered ---- */

enum { EVENTS = 400, PER_PARCEL = 100 };

static struct made *several_parcels(void) {
  struct made *made = begin();
  for (int i = 0; i < EVENTS; i++) {
    put_event(made, GAP__RECORD_ALLOC, (uint64_t)(i + 1) << 20, 1000, i);
    if (i % PER_PARCEL == PER_PARCEL - 1) assert_int_equal(gap__record_flush(&made->writer), 0);
  }
  assert_int_equal(gap__record_end(&made->writer), 0);
  return made;
}

/* Wherever it is cut, whole parcels before the cut are there, in order, and the cut is known. */
static void a_torn_end_costs_what_is_torn(void **state) {
  struct made *made = several_parcels();
  size_t header_bytes = 0, most = 0;
  (void)state;
  for (size_t cut = GAP__RECORD_MAGIC_BYTES; cut < made->text.length; cut++) {
    struct gap__text part = {.bytes = made->text.bytes, .length = cut};
    struct gap__history *history;
    char *message;
    int rc = gap__history_read_memory(part.bytes, part.length, &history, &message);
    if (rc) {
      assert_int_equal(rc, GAP_EFORMAT);
      assert_int_equal(most, 0);
      header_bytes = cut;
      free(message);
      continue;
    }
    uint64_t events = history->devices[0].event_count;
    assert_true(history->is_torn && history->torn_at <= cut && events % PER_PARCEL == 0 && events >= most);
    for (uint64_t i = 0; i < events; i++) assert_true(history->devices[0].events[i].addr == (i + 1) << 20);
    most = events;
    gap__history_free(history);
  }
  assert_int_equal(most, EVENTS);
  assert_true(header_bytes > 40 && header_bytes < 80);
  drop(made);
}

/* No altered byte passes for events that never were. */
static void an_altered_byte_is_noticed(void **state) {
  struct made *made = several_parcels();
  struct gap__text *text = &made->text;
  (void)state;
  for (size_t at = GAP__RECORD_MAGIC_BYTES; at < text->length; at += 3) {
    struct gap__history *history;
    char *message;
    text->bytes[at] ^= 0x10;
    if (gap__history_read_memory(text->bytes, text->length, &history, &message) == 0) {
      assert_true(history->is_torn);
      for (uint64_t i = 0; i < history->devices[0].event_count; i++)
        assert_true(history->devices[0].events[i].addr == (i + 1) << 20);
      gap__history_free(history);
    } else {
      free(message);
    }
    text->bytes[at] ^= 0x10;
  }
  drop(made);
}

static void a_missing_parcel_is_noticed(void **state) {
  struct made *made = several_parcels();
  struct gap__text without = {0};
  (void)state;
  const unsigned char *at = (const unsigned char *)made->text.bytes + GAP__RECORD_MAGIC_BYTES;
  size_t parcel[2], start = GAP__RECORD_MAGIC_BYTES;
  for (int i = 0; i < 2; i++, start += parcel[i - 1], at += parcel[i - 1])
    parcel[i] = GAP__RECORD_HEAD_BYTES + at[0] + (size_t)at[1] * 256;
  gap__text_add_bytes(&without, made->text.bytes, GAP__RECORD_MAGIC_BYTES + parcel[0]);
  gap__text_add_bytes(&without, made->text.bytes + start, made->text.length - start);
  struct gap__history *history = read_bytes(without.bytes, without.length);
  assert_true(history->is_torn);
  assert_int_equal(history->devices[0].event_count, 0);
  gap__history_free(history);
  gap__text_free(&without);
  drop(made);
}

/* ---- refused ---- */

static void add_parcel(struct gap__text *text, const void *payload, size_t bytes) {
  uint32_t crc = gap__crc32(payload, bytes);
  const unsigned char head[] = {
      (unsigned char)bytes,       (unsigned char)(bytes >> 8), 0, 0, (unsigned char)crc, (unsigned char)(crc >> 8),
      (unsigned char)(crc >> 16), (unsigned char)(crc >> 24)};
  gap__text_add_bytes(text, (const char *)head, sizeof head);
  gap__text_add_bytes(text, payload, bytes);
}

/* A trace whose first parcel after the header is `payload`, numbered and whole. */
static void expect_wrong(const char *payload, size_t bytes, const char *words) {
  struct made *made = begin();
  struct gap__text parcel = {0};
  gap__text_add_bytes(&parcel, "\1\0", 2);
  gap__text_add_bytes(&parcel, payload, bytes);
  add_parcel(&made->text, parcel.bytes, parcel.length);
  expect_refusal(&made->text, GAP_EFORMAT, words);
  gap__text_free(&parcel);
  drop(made);
}
#define WRONG(payload, words) expect_wrong(payload, sizeof(payload) - 1, words)

static void records_that_cannot_be(void **state) {
  (void)state;
  WRONG("\x0B", "unknown kind");
  WRONG("\x00\x02", "cannot be");                                         /* cut off */
  WRONG("\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "cannot be"); /* 65 bits */
  WRONG("\x40\x00\x00\x00\x01", "cannot be");                             /* a stack that was not told */
  WRONG("\x80\x02\x00\x00\x00\x80\x08", "cannot be");                     /* device 1024 */
  WRONG("\x09\x00\x00\x00", "outside of a state");
  WRONG("\x0A\x00", "outside of a segment");
  WRONG("\x0F\x07\x02\x00\x00\x0A\x00", "outside of a segment");
  WRONG("\x0F\x08\x02\x00\x00", "has not begun");
  WRONG("\x0F\x07\x7F\x00\x00", "cannot be"); /* longer than its parcel */
  WRONG("\x0F\x01\x01\x01", "second header");
  WRONG("\x0F\x04\x02\x01\x01", "not told"); /* a stack of frame 1 */
  WRONG("\x0F\x07\x02\x00\x00\x09\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02", "last address");
  WRONG("\x0F\x07\x02\x00\x00\x09\x00\x02\x02\x3A\x00", "unknown state");
}

static void parts_of_tomorrow_are_passed_over(void **state) {
  struct made *made = begin();
  (void)state;
  add_parcel(&made->text, "\1\0\x0F\x63\3abc\x00\x02\x02\x02\x0F\x0A\1\1", 16);
  struct gap__history *history = read_bytes(made->text.bytes, made->text.length);
  assert_int_equal(history->devices[0].event_count, 1);
  assert_int_equal(history->devices[0].events[0].size, 1024);
  assert_false(history->is_torn);
  gap__history_free(history);
  drop(made);
}

static void traces_without_a_header(void **state) {
  struct gap__text text = {0};
  (void)state;
  gap__text_add_bytes(&text, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES);
  expect_refusal(&text, GAP_EFORMAT, "without a whole header");
  add_parcel(&text, "\0\0\x00\x00\x00\x00", 6);
  expect_refusal(&text, GAP_EFORMAT, "does not begin with its header");
  text.length = GAP__RECORD_MAGIC_BYTES;
  add_parcel(&text, "\0\0\x0F\x01\x01\x02", 6);
  expect_refusal(&text, GAP_EFORMAT, "version 2");
  gap__text_free(&text);
}

/* ---- the writer ---- */

struct fussy {
  int calls, fails_at;
};

static int fail_sometime(void *arg, const void *bytes, size_t count) {
  struct fussy *fussy = arg;
  (void)bytes, (void)count;
  return ++fussy->calls >= fussy->fails_at ? GAP_EIO : 0;
}

static void the_sink_is_asked_no_more_after_it_failed(void **state) {
  struct gap__record_writer *writer = calloc(1, sizeof *writer);
  struct fussy fussy = {.fails_at = 3};
  (void)state;
  assert_non_null(writer);
  assert_int_equal(gap__record_begin(writer, fail_sometime, &fussy, &header), 0);
  int rc = 0, events = 0;
  const struct gap__record_event event = {.kind = GAP__RECORD_ALLOC, .addr = 512, .bytes = 512, .requested = 512};
  for (; rc == 0 && events < 1000000; events++) rc = gap__record_event(writer, &event);
  assert_int_equal(rc, GAP_EIO);
  assert_in_range(events, 10000, 20000);
  assert_int_equal(gap__record_end(writer), GAP_EIO);
  assert_int_equal(fussy.calls, 3);
  free(writer);
}

static void long_texts_are_cut(void **state) {
  struct made *made = begin();
  char *text = malloc(100000);
  (void)state;
  assert_non_null(text);
  memset(text, 'x', 99999);
  text[99999] = '\0';
  assert_int_equal(gap__record_text(&made->writer, text), 0);
  assert_int_equal(gap__record_annotation(&made->writer, 1, 0, 0, true), 0);
  free(text);
  struct gap__history *history = finish(made);
  assert_int_equal(strlen(history->text + history->annotations[0].name), GAP__RECORD_TEXT_MOST);
  gap__history_free(history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checksum_is_that_of_zlib),
      cmocka_unit_test(bytes_of_version_1),
      cmocka_unit_test(histories_come_back),
      cmocka_unit_test(every_number_comes_back),
      cmocka_unit_test(a_state_is_the_end),
      cmocka_unit_test(states_join_replace_and_age),
      cmocka_unit_test(a_torn_end_costs_what_is_torn),
      cmocka_unit_test(an_altered_byte_is_noticed),
      cmocka_unit_test(a_missing_parcel_is_noticed),
      cmocka_unit_test(records_that_cannot_be),
      cmocka_unit_test(parts_of_tomorrow_are_passed_over),
      cmocka_unit_test(traces_without_a_header),
      cmocka_unit_test(the_sink_is_asked_no_more_after_it_failed),
      cmocka_unit_test(long_texts_are_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
