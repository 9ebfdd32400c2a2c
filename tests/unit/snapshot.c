/* Snapshot pickles into histories: small files that are known item by item, and the recorded ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "trace/snapshot.h"

#define BASE ((uint64_t)0x7F0000000000)
#define MIB ((uint64_t)1 << 20)

static struct gap__history *read_data(const char *name) {
  char path[512], *message;
  struct gap__history *history;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  assert_string_equal(history->path, path);
  return history;
}

static size_t load(const char *name, unsigned char *bytes, size_t room) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t count = fread(bytes, 1, room, file);
  fclose(file);
  return count;
}

static void expect_event(const struct gap__hist_event *event, enum gap__action action, uint64_t addr, uint64_t size,
                         int64_t time_us, unsigned pool) {
  assert_int_equal(event->action, action);
  assert_true(event->addr == addr && event->size == size);
  assert_int_equal(event->time_us, time_us);
  assert_int_equal(event->pool, pool);
}

/* The second device's first event is 5 us older than the first device's: times count from it. */
static void check_small_events(const struct gap__history *history) {
  const struct gap__hist_event *first = history->devices[0].events, *second = history->devices[1].events;
  uint64_t a = BASE, b = BASE + 64 * MIB;
  assert_int_equal(history->device_count, 2);
  assert_int_equal(history->devices[0].event_count, 13);
  assert_int_equal(history->devices[1].event_count, 2);
  expect_event(&first[0], GAP__ACT_SEGMENT_ALLOC, a, 20 * MIB, 5, 0);
  expect_event(&first[1], GAP__ACT_ALLOC, a, 3 * MIB, 6, 0);
  expect_event(&first[3], GAP__ACT_ALLOC, b, 5 * MIB, 8, 0); /* another segment lay there then */
  expect_event(&first[6], GAP__ACT_SEGMENT_FREE, b, 20 * MIB, 11, 0);
  expect_event(&first[7], GAP__ACT_SEGMENT_ALLOC, b, 20 * MIB, 12, 1);
  expect_event(&first[8], GAP__ACT_ALLOC, b, 7 * MIB, 13, 1);
  expect_event(&first[10], GAP__ACT_FREE_REQUESTED, b + 8 * MIB, 1000, 15, 1);
  expect_event(&first[11], GAP__ACT_OOM, 123456, (uint64_t)4 << 30, 16, 0);
  expect_event(&first[12], GAP__ACT_SNAPSHOT, 0, 15 * MIB, 17, 0);
  expect_event(&second[0], GAP__ACT_SEGMENT_MAP, 2 * BASE, 20 * MIB, 0, 0);
  assert_int_equal(history->annotation_count, 1);
  assert_true(history->annotations[0].is_start && history->annotations[0].device == 0);
  assert_string_equal(history->text + history->annotations[0].name, "step");
  assert_int_equal(history->annotations[0].time_us,
                   1 - (1700000000000000 - 5)); /* on the events' clock, long before them */
  assert_int_equal(first[8].stream, 77);
  assert_false(history->devices[0].wrapped || history->devices[1].wrapped);
}

static void check_small_stacks(const struct gap__history *history) {
  const struct gap__hist_event *first = history->devices[0].events;
  assert_int_equal(first[2].stack, 0);
  assert_true(first[0].stack == first[1].stack && first[0].stack == first[11].stack); /* one list, one stack */
  assert_true(first[3].stack != first[0].stack);
  const struct gap__hist_stack *stack = &history->stacks[first[0].stack];
  assert_int_equal(stack->count, 2);
  const struct gap__hist_frame *inner = &history->frames[history->stack_frames[stack->first]];
  const struct gap__hist_frame *outer = &history->frames[history->stack_frames[stack->first + 1]];
  assert_string_equal(history->text + inner->name, "forward");
  assert_string_equal(history->text + inner->filename, "model.py");
  assert_int_equal(inner->line, 12);
  assert_string_equal(history->text + outer->name, "<module>");
}

static void check_small_segments(const struct gap__history *history) {
  static const uint8_t states[] = {1, 0, 1, 2, 0, 2, 0};
  const struct gap__hist_segment *segments = history->segments;
  assert_int_equal(history->segment_count, 3);
  assert_int_equal(history->block_count, 7);
  for (unsigned i = 0; i < 7; i++) assert_int_equal(history->blocks[i].state, states[i]);
  assert_int_equal(history->pool_count, 2);
  assert_true(history->pools[1].id[0] == 3 && history->pools[1].id[1] == 0);
  assert_int_equal(segments[1].pool, 1);
  assert_int_equal(segments[1].stream, 77);
  assert_true(segments[1].active_size == 8 * MIB + 1024 && segments[1].allocated_size == 8 * MIB);
  assert_int_equal(segments[1].block_first, 2);
  assert_int_equal(segments[1].block_count, 3);
  assert_true(segments[0].is_large && !segments[0].is_expandable);
  assert_true(!segments[2].is_large && segments[2].is_expandable && segments[2].device == 1);
  assert_true(history->blocks[3].addr == BASE + 72 * MIB && history->blocks[3].requested == 1000);
  assert_int_equal(history->stacks[history->blocks[0].stack].count, 2);
}

static void check_small_settings(const struct gap__history *history) {
  assert_true(history->settings.present);
  assert_string_equal(history->settings_text, "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:4]");
  assert_int_equal(history->settings.max_split_size, 64 * MIB);
  assert_true(history->settings.garbage_collection_threshold == 0.75);
  assert_false(history->settings.expandable_segments);
  for (unsigned i = 0; i < 16; i++) assert_int_equal(history->settings.roundup_power2_divisions[i], 1u << i % 4);
}

static void protocols_encodings_and_picklers_agree(void **state) {
  static const char *const names[] = {"made/small.2.pickle",   "made/small.3.pickle",        "made/small.4.pickle",
                                      "made/small.5.pickle",   "made/small.pickle.gz",       "made/small.pickle.xz",
                                      "made/small.pickle.zst", "made/small.item_wise.pickle"};
  (void)state;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    struct gap__history *history = read_data(names[i]);
    check_small_events(history);
    check_small_stacks(history);
    check_small_segments(history);
    check_small_settings(history);
    gap__history_free(history);
  }
}

static void old_layouts_are_read(void **state) {
  (void)state;
  struct gap__history *history = read_data("made/old_layout.pickle");
  assert_int_equal(history->devices[0].event_count, 3);
  assert_int_equal(history->unknown_actions, 1);
  assert_int_equal(history->devices[0].events[2].time_us, 0);
  assert_false(history->settings.present);
  assert_string_equal(history->settings_text, "");
  assert_int_equal(history->block_count, 3);
  assert_true(history->blocks[1].addr == BASE + 1024 && history->blocks[2].addr == BASE + 1536);
  assert_int_equal(history->blocks[0].requested, 1000); /* from its `history` */
  assert_int_equal(history->stacks[history->blocks[0].stack].count, 2);
  assert_int_equal(history->blocks[1].state, 2);
  gap__history_free(history);
}

/* Every shorter file is an error that says so. */
static void a_file_cut_at_any_byte_is_an_error(void **state) {
  static const char *const names[] = {"made/small.2.pickle", "made/small.5.pickle", "made/small.item_wise.pickle"};
  unsigned char bytes[8192];
  (void)state;
  for (unsigned i = 0; i < 3; i++) {
    size_t count = load(names[i], bytes, sizeof bytes);
    for (size_t cut = 0; cut < count; cut++) {
      struct gap__history *history;
      char *message;
      unsigned char *exact = malloc(cut + 1); /* a sanitizer sees reads beyond it */
      memcpy(exact, bytes, cut);
      assert_int_equal(gap__history_read_memory(exact, cut, &history, &message), GAP_EFORMAT);
      assert_null(history);
      const char *words = cut ? "byte " : "it is empty";
      assert_memory_equal(message, words, strlen(words));
      free(message);
      free(exact);
    }
  }
}

/* Any one byte changed: a history or a message, never anything else. */
static void any_changed_byte_is_survived(void **state) {
  unsigned char bytes[8192];
  size_t count = load("made/small.4.pickle", bytes, sizeof bytes);
  (void)state;
  for (size_t i = 0; i < count; i++)
    for (unsigned change = 1; change < 256; change <<= 1) {
      struct gap__history *history;
      char *message;
      bytes[i] ^= (unsigned char)change;
      int rc = gap__history_read_memory(bytes, count, &history, &message);
      assert_true((rc == 0) == (history != NULL) && (rc == 0) == (message == NULL));
      gap__history_free(history);
      free(message);
      bytes[i] ^= (unsigned char)change;
    }
}

static void expect_error(const char *text, size_t count, int code, const char *wanted) {
  struct gap__history *history;
  char *message;
  assert_int_equal(gap__history_read_memory(text, count, &history, &message), code);
  if (!strstr(message, wanted) || strncmp(message, "byte ", 5) != 0) fail_msg("'%s' is not in '%s'", wanted, message);
  free(message);
}

#define FAILS(text, wanted) expect_error("\x80\x04" text, sizeof("\x80\x04" text) - 1, GAP_EFORMAT, wanted)
#define KEY(length, word) "\x8c" length word

/* A root dict around one list of one trace with one entry. */
#define TRACE(entry) "}(" KEY("\x0d", "device_traces") "]](" entry "eau."
#define SEGMENTS(list) "}(" KEY("\x08", "segments") list "u."

static void wrong_types_are_named_with_their_key(void **state) {
  (void)state;
  FAILS(TRACE("}(" KEY("\x06", "action") "K\x01u"), "byte 34: 'action' of a trace entry cannot be an integer");
  FAILS(TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") KEY("\x04", "size") "J\xff\xff\xff\xff"
                                                                                  "u"),
        "'size' of a trace entry cannot be a negative integer");
  FAILS(TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") KEY("\x04", "addr") "]u"),
        "'addr' of a trace entry cannot be a list");
  FAILS(TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") KEY("\x06", "frames") "](K\x01"
                                                                                    "eu"),
        "'frames' of a trace entry cannot be a list");
  FAILS(TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") KEY("\x07", "time_us") "Nu"),
        "'time_us' of a trace entry cannot be None");
  FAILS(TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") "u"), "a trace entry without 'addr' or 'size'");
  FAILS(TRACE("K\x01"), "an item of 'device_traces' cannot be an integer");
  FAILS(SEGMENTS("K\x01"), "'segments' cannot be an integer");
  FAILS(SEGMENTS("](}e"), "an item of 'segments' cannot be a dict");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x06", "device") "J\xff\xff\xff\xff"
                                                                                "ue"),
        "a segment of device -1");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x0f", "segment_pool_id") "K\x01ue"),
        "'segment_pool_id' of a segment is no pair");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00" KEY(
            "\x07", "address") "K\x02ue"),
        "a segment ends beyond the last address");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x06", "blocks") "](}(" KEY("\x05", "state")
                     KEY("\x05", "happy") "ueue"),
        "a block of the unknown state 'happy'");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x06", "device") "\x8a\x05\x00\x00\x00\x00\x01"
                                                                                "ue"),
        "4294967296 is no device or line number");
  FAILS("}.", "neither 'device_traces' nor 'segments'");
  FAILS("K\x01.", "neither 'device_traces' nor 'segments'");
}

/* The same dict, listed again and again: refused, before any memory is taken for the copies. */
static void repeated_listing_is_refused(void **state) {
  (void)state;
  FAILS("}(" KEY("\x0d", "device_traces") "]](}\x94(" KEY("\x06", "action") KEY("\x05", "alloc")
            KEY("\x04", "addr") "K\x00" KEY("\x04", "size") "K\x01uh\x00h\x00h\x00"
                                                            "eau.",
        "trace entries are listed more than once");
  FAILS(SEGMENTS("](}\x94(" KEY("\x0a", "total_size") "K\x05uh\x00h\x00h\x00"
                                                      "e"),
        "segments are listed more than once");
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x06", "blocks") "](}\x94(" KEY("\x05", "state")
                     KEY("\x08", "inactive") "uh\x00h\x00h\x00h\x00"
                                             "eue"),
        "blocks are listed more than once");
}

#define FRAME(line) \
  "}(" KEY("\x08", "filename") KEY("\x01", "f") KEY("\x04", "name") KEY("\x01", "n") KEY("\x04", "line") "K" line "u"
#define ALLOC(addr, frames) \
  "}(" KEY("\x06", "action") KEY("\x05", "alloc") \
      KEY("\x04", "addr") "K" addr KEY("\x04", "size") "K\x01" KEY("\x06", "frames") frames "u"

/* Lists of their own with the same frames make one stack, which is kept once; a list that became a stack is nothing else besides. */
static void equal_lists_of_frames_are_one_stack(void **state) {
  static const char text[] =
      "\x80\x04"
      "}(" KEY("\x0d", "device_traces") "]](" ALLOC("\x01", "](" FRAME("\x07") "\x94" FRAME("\x08") "\x94"
                                                                                                    "e")
          ALLOC("\x02", "](h\x00h\x01"
                        "e") ALLOC("\x03", "](h\x01h\x00"
                                           "e") ALLOC("\x04", "](h\x00"
                                                              "e") "eau.";
  struct gap__history *history;
  char *message = NULL;
  (void)state;
  if (gap__history_read_memory(text, sizeof text - 1, &history, &message)) fail_msg("%s", message);
  const struct gap__hist_event *events = history->devices[0].events;
  assert_int_equal(events[0].stack, 1);
  assert_int_equal(events[1].stack, 1);
  assert_int_equal(events[2].stack, 2);
  assert_int_equal(events[3].stack, 3);
  assert_int_equal(history->stack_count, 4);
  assert_int_equal(history->stack_frame_count, 5);
  assert_int_equal(history->frames[history->stack_frames[history->stacks[2].first]].line, 8);
  gap__history_free(history);
  FAILS("}(" KEY("\x0d", "device_traces") "]](" ALLOC("\x01", "]\x94(" FRAME("\x07") "e") "ea" KEY(
            "\x08", "segments") "h\x00u.",
        "'segments' cannot be a list");
}

/* Dicts filled item by item that contain each other must not make the reader recurse. */
static void dicts_inside_each_other(void **state) {
  (void)state;
  FAILS(SEGMENTS("](}(" KEY("\x0a", "total_size") "K\x05" KEY("\x06", "blocks") "]\x94(}" KEY("\x05", "state")
                     KEY("\x08", "inactive") "s" KEY("\x06", "frames") "h\x00seue"),
        "'frames' of a block cannot be a list");
}

static void duplicate_keys_the_last_one_counts(void **state) {
  static const char text[] = "\x80\x04" TRACE("}(" KEY("\x06", "action") KEY("\x05", "alloc") KEY(
      "\x04", "addr") "K\x01" KEY("\x04", "size") "K\x02" KEY("\x04", "size") "K\x09u");
  struct gap__history *history;
  char *message;
  (void)state;
  assert_int_equal(gap__history_read_memory(text, sizeof text - 1, &history, &message), 0);
  assert_int_equal(history->devices[0].events[0].size, 9);
  gap__history_free(history);
}

static void expect_recorded(const char *name, uint64_t events, uint64_t segments, uint64_t blocks, uint32_t pools,
                            bool wrapped) {
  struct gap__history *history = read_data(name);
  assert_int_equal(history->device_count, 1);
  assert_int_equal(history->devices[0].event_count, events);
  assert_int_equal(history->segment_count, segments);
  assert_int_equal(history->block_count, blocks);
  assert_int_equal(history->pool_count, pools);
  assert_int_equal(history->devices[0].wrapped, wrapped);
  assert_int_equal(history->unknown_actions, 0);
  gap__history_free(history);
}

/* The counts are those that Python's pickle finds in the same files. */
static void recorded_files(void **state) {
  (void)state;
  expect_recorded("gnn.pickle.xz", 8610, 63, 66, 1, false);
  expect_recorded("graphs.pickle.xz", 6311, 24, 81, 5, false);
  expect_recorded("oom.pickle.xz", 10298, 226, 849, 1, false);
  expect_recorded("ring.pickle.xz", 2000, 63, 66, 1, true);
  expect_recorded("streams.pickle.xz", 10489, 52, 52, 1, false);
  expect_recorded("rlhf_cut.pickle.xz", 250000, 194, 704, 1, false);
  expect_recorded("unet_multires.expandable.pickle.xz", 99186, 2, 2, 1, false);
  expect_recorded("cs336_medium_1024_training.pickle.xz", 22331, 234, 1031, 1, true);
  expect_recorded("cs336b_mem_snapshot.pickle.xz", 97, 9, 20, 1, false);
  expect_recorded("flexgen_oom_snapshot.pickle.xz", 1, 176, 463, 1, true);
  expect_recorded("mosaic_output.pickle.xz", 1040, 5, 17, 1, true);
}

/* FNV-1a over what both ways must agree on. */
static uint64_t digest(const struct gap__history *history) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint64_t i = 0; i < history->devices[0].event_count; i++) {
    const struct gap__hist_event *event = &history->devices[0].events[i];
    uint64_t words[] = {event->addr, event->size, event->stream, (uint64_t)event->time_us, event->stack, event->action};
    for (unsigned j = 0; j < 6; j++) hash = (hash ^ words[j]) * 0x100000001b3u;
  }
  return hash;
}

static void the_quick_way_and_the_plain_way_agree(void **state) {
  static const char *const names[] = {"llama_sft.stacks.pickle.xz", "oom.pickle.xz", "streams.pickle.xz",
                                      "mosaic_output.pickle.xz", "cs336_medium_1024_training.pickle.xz"};
  (void)state;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    struct gap__history *plain, *quick = read_data(names[i]);
    struct gap__input input;
    char *message = NULL;
    assert_int_equal(gap__input_open(&input, quick->path, NULL, NULL, &message), 0);
    assert_int_equal(gap__snapshot_read(&input, true, &plain, &message), 0);
    gap__input_close(&input);
    assert_int_equal(plain->devices[0].event_count, quick->devices[0].event_count);
    assert_true(digest(plain) == digest(quick));
    gap__history_free(plain);
    gap__history_free(quick);
  }
}

/* Counted apart from this code: the events in the final segments of the four private pools, since those were made. */
static void pools_of_a_recorded_file(void **state) {
  (void)state;
  struct gap__history *history = read_data("graphs.pickle.xz");
  uint64_t pooled = 0;
  for (uint64_t i = 0; i < history->devices[0].event_count; i++) pooled += history->devices[0].events[i].pool != 0;
  assert_int_equal(pooled, 651);
  gap__history_free(history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(protocols_encodings_and_picklers_agree), cmocka_unit_test(old_layouts_are_read),
      cmocka_unit_test(a_file_cut_at_any_byte_is_an_error),     cmocka_unit_test(any_changed_byte_is_survived),
      cmocka_unit_test(wrong_types_are_named_with_their_key),   cmocka_unit_test(repeated_listing_is_refused),
      cmocka_unit_test(equal_lists_of_frames_are_one_stack),    cmocka_unit_test(dicts_inside_each_other),
      cmocka_unit_test(duplicate_keys_the_last_one_counts),     cmocka_unit_test(recorded_files),
      cmocka_unit_test(the_quick_way_and_the_plain_way_agree),  cmocka_unit_test(pools_of_a_recorded_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
