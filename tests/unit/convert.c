/* Conversions: what a format carries comes back as it was, what it does not carry is named, and what was there before a failure stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "explain/lives.h"
#include "gapless/convert.h"
#include "gapless/gapless.h"
#include "plan/plan.h"
#include "trace/formats.h"

static const char *path_of(const char *name, char out[512]) {
  snprintf(out, 512, "%s/%s", GAP_TEST_DATA, name);
  return out;
}

static struct gap__history *read_file(const char *name) {
  struct gap__history *history;
  char path[512], *message;
  if (gap__history_read(path_of(name, path), NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  return history;
}

static struct gap__history *read_text(const void *bytes, size_t length) {
  struct gap__history *history;
  char *message;
  if (gap__history_read_memory(bytes, length, &history, &message)) fail_msg("%s", message);
  return history;
}

/* In the named format; to be freed. */
static struct gap__text written_from(const struct gap__history *history, const char *to, enum gap__encoding encoding,
                                     uint64_t blocks_from) {
  const struct gap__format *format = gap__format_named(to);
  struct gap__output output;
  struct gap__text text = {0};
  uint64_t bytes;
  char *message = NULL;
  struct gap__writing writing = {.history = history, .out = &output, .blocks_from = blocks_from};
  assert_int_equal(gap__output_open(&output, NULL, encoding, &message), 0);
  output.sink = &text;
  assert_int_equal(gap__output_close(&output, format->write(&writing), &bytes, &message), 0);
  assert_true(!text.failed && text.length == bytes);
  return text;
}

static struct gap__text written(const struct gap__history *history, const char *to, enum gap__encoding encoding) {
  return written_from(history, to, encoding, 0);
}

static struct gap__history *through(const struct gap__history *history, const char *to) {
  struct gap__text text = written(history, to, GAP__ENC_PLAIN);
  struct gap__history *again = read_text(text.bytes, text.length);
  gap__text_free(&text);
  assert_string_equal(gap__format_at(again->format)->name, to);
  return again;
}

/* ---- the same history? --------------------------------------------------------------------------------------------- */

static void expect_same_stack(const struct gap__history *a, uint32_t a_stack, const struct gap__history *b,
                              uint32_t b_stack) {
  assert_int_equal(a->stacks[a_stack].count, b->stacks[b_stack].count);
  for (uint32_t i = 0; i < a->stacks[a_stack].count; i++) {
    const struct gap__hist_frame *x = &a->frames[a->stack_frames[a->stacks[a_stack].first + i]];
    const struct gap__hist_frame *y = &b->frames[b->stack_frames[b->stacks[b_stack].first + i]];
    assert_true(x->line == y->line && strcmp(a->text + x->name, b->text + y->name) == 0 &&
                strcmp(a->text + x->filename, b->text + y->filename) == 0);
  }
}

static void expect_same_events(const struct gap__history *a, const struct gap__history *b, uint32_t carried) {
  for (uint32_t device = 0; device < a->device_count; device++) {
    assert_true(a->devices[device].event_count == b->devices[device].event_count);
    assert_int_equal(a->devices[device].wrapped, b->devices[device].wrapped);
    for (uint64_t i = 0; i < a->devices[device].event_count; i++) {
      const struct gap__hist_event *x = &a->devices[device].events[i], *y = &b->devices[device].events[i];
      assert_true(x->addr == y->addr && x->size == y->size && x->stream == y->stream && x->action == y->action);
      if (carried & GAP__HAS_TIMES) assert_true(x->time_us == y->time_us);
      if (carried & GAP__HAS_POOLS) assert_memory_equal(&a->pools[x->pool], &b->pools[y->pool], sizeof a->pools[0]);
      if (carried & GAP__HAS_STACKS) expect_same_stack(a, x->stack, b, y->stack);
    }
  }
}

static void expect_same_segments(const struct gap__history *a, const struct gap__history *b, bool stacks) {
  assert_true(a->segment_count == b->segment_count && a->block_count == b->block_count);
  for (uint64_t i = 0; i < a->segment_count; i++) {
    const struct gap__hist_segment *x = &a->segments[i], *y = &b->segments[i];
    assert_true(x->addr == y->addr && x->total_size == y->total_size && x->allocated_size == y->allocated_size);
    assert_true(x->active_size == y->active_size && x->requested_size == y->requested_size && x->stream == y->stream);
    assert_true(x->block_first == y->block_first && x->block_count == y->block_count && x->device == y->device);
    assert_true(x->is_large == y->is_large && x->is_expandable == y->is_expandable);
    assert_true(memcmp(&a->pools[x->pool], &b->pools[y->pool], sizeof a->pools[0]) == 0);
  }
  for (uint64_t i = 0; i < a->block_count; i++) {
    const struct gap__hist_block *x = &a->blocks[i], *y = &b->blocks[i];
    assert_true(x->addr == y->addr && x->size == y->size && x->requested == y->requested && x->state == y->state);
    if (stacks) expect_same_stack(a, x->stack, b, y->stack);
  }
}

static void expect_same_marks(const struct gap__history *a, const struct gap__history *b) {
  assert_int_equal(a->annotation_count, b->annotation_count);
  for (uint32_t i = 0; i < a->annotation_count; i++) {
    const struct gap__hist_annotation *x = &a->annotations[i], *y = &b->annotations[i];
    assert_true(x->device == y->device && x->time_us == y->time_us && x->is_start == y->is_start);
    assert_string_equal(a->text + x->name, b->text + y->name);
  }
}

/* ---- pickles ------------------------------------------------------------------------------------------------------- */

static const char *const pickles[] = {"gnn.pickle.xz",
                                      "llama_sft.stacks.pickle.xz",
                                      "oom.pickle.xz",
                                      "graphs.pickle.xz",
                                      "streams.expandable.pickle.xz",
                                      "ring.pickle.xz",
                                      "cs336_medium_1024_training.pickle.xz",
                                      "flexgen_oom_snapshot.pickle.xz",
                                      "mosaic_output.pickle.xz",
                                      "made/small.2.pickle",
                                      "made/old_layout.pickle",
                                      "made/training.pickle"};

static void pickles_come_back_as_they_were(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++) {
    struct gap__history *history = read_file(pickles[i]), *again = through(history, "pickle");
    assert_int_equal(history->device_count, again->device_count);
    assert_true(history->time_base_us == again->time_base_us);
    assert_string_equal(history->settings_text, again->settings_text);
    assert_int_equal(history->settings.present, again->settings.present);
    assert_true(history->settings.max_split_size == again->settings.max_split_size &&
                history->settings.expandable_segments == again->settings.expandable_segments);
    assert_memory_equal(history->settings.roundup_power2_divisions, again->settings.roundup_power2_divisions,
                        sizeof history->settings.roundup_power2_divisions);
    expect_same_events(history, again, UINT32_MAX);
    expect_same_segments(history, again, true);
    expect_same_marks(history, again);
    gap__history_free(history);
    gap__history_free(again);
  }
}

/* Big numbers, and those at the borders of the opcodes. */
static void numbers_of_every_size(void **state) {
  static const uint64_t numbers[] = {0,          255,           256,        65535,      65536,
                                     0x7fffffff, 0x80000000,    0xffffffff, 1ull << 39, 1ull << 47,
                                     ~0ull / 2,  ~0ull / 2 + 1, ~0ull >> 4, ~0ull - 1};
  enum { COUNT = sizeof numbers / sizeof numbers[0] };
  (void)state;
  struct gap__history *history = read_file("made/small.4.pickle");
  assert_true(history->devices[0].event_count >= 13);
  for (uint64_t i = 0; i < history->devices[0].event_count; i++) {
    history->devices[0].events[i].addr = numbers[i % COUNT];
    history->devices[0].events[i].size = numbers[(i + 5) % COUNT];
    history->devices[0].events[i].stream = numbers[(i + 9) % COUNT];
  }
  struct gap__history *again = through(history, "pickle");
  expect_same_events(history, again, 0);
  gap__history_free(history);
  gap__history_free(again);
}

static void verified_as_before(void **state) {
  static const char *const files[] = {"gnn.pickle.xz", "streams.expandable.pickle.xz", "tr_nat_round.json.gz",
                                      "tr_exp_pools.json.gz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    bool json = strstr(files[i], "json") != NULL; /* its limit is no part of a pickle */
    struct gap__history *history = read_file(files[i]), *again = through(history, json ? "json" : "pickle");
    gap_replay_result result = {.size = sizeof result};
    char message[512];
    assert_int_equal(gap_replay_verify(again, 0, &result, message, sizeof message), 0);
    if (result.verdict != GAP_VERDICT_AGREES) fail_msg("%s: %s", files[i], result.difference);
    assert_true(result.verified_events == history->devices[0].event_count);
    gap__history_free(history);
    gap__history_free(again);
  }
}

static void traces_come_back_as_they_were(void **state) {
  static const char *const files[] = {"oom.pickle.xz", "graphs.pickle.xz", "made/small.4.pickle",
                                      "tr_exp_pools.json.gz", "made/small.rmm.csv"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__history *history = read_file(files[i]), *again = through(history, "trace");
    assert_true(history->time_base_us == again->time_base_us && history->total_bytes == again->total_bytes);
    expect_same_events(history, again, UINT32_MAX);
    expect_same_segments(history, again, true);
    expect_same_marks(history, again);
    gap__history_free(history);
    gap__history_free(again);
  }
}

static void json_comes_back_as_it_was(void **state) {
  static const char *const files[] = {"tr_native_cap.json.gz", "tr_exp_pools.json.gz", "made/policy.json",
                                      "graphs.pickle.xz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__history *history = read_file(files[i]), *again = through(history, "json");
    expect_same_events(history, again, GAP__HAS_POOLS);
    expect_same_segments(history, again, false);
    assert_true(history->memory_fraction == again->memory_fraction && history->total_bytes == again->total_bytes);
    assert_true(history->has_stats == again->has_stats && history->stat_ooms == again->stat_ooms &&
                history->stat_reserved_peak == again->stat_reserved_peak);
    assert_string_equal(history->settings_text, again->settings_text);
    gap__history_free(history);
    gap__history_free(again);
  }
}

/* ---- logs ---------------------------------------------------------------------------------------------------------- */

static void expect_event(const struct gap__hist_event *event, enum gap__action action, uint64_t addr, uint64_t size,
                         uint64_t stream, int64_t time_us) {
  assert_int_equal(event->action, action);
  assert_true(event->addr == addr && event->size == size && event->stream == stream);
  assert_true(event->time_us == time_us);
}

/* make.py says what is in it. */
static void what_a_log_says(void **state) {
  (void)state;
  struct gap__history *history = read_file("made/small.rmm.csv");
  const struct gap__hist_event *events = history->devices[0].events;
  uint64_t base = 0x7f0000000000, stream = 0x7f8a38001020;
  assert_true(history->devices[0].event_count == 9 && !history->devices[0].wrapped);
  assert_true(history->time_base_us == (int64_t)(23 * 3600 + 59 * 60 + 58) * 1000000 + 999999);
  expect_event(&events[0], GAP__ACT_ALLOC, base, 1048576, 0, 0);
  expect_event(&events[1], GAP__ACT_ALLOC, base + 0x100000, 300, stream, 501);
  expect_event(&events[2], GAP__ACT_ALLOC, base + 0x200000, 4096, 0, 501); /* written late: not before the last line */
  expect_event(&events[3], GAP__ACT_FREE_REQUESTED, base, 1048576, 0, 1000002);
  expect_event(&events[4], GAP__ACT_FREE_COMPLETED, base, 1048576, 0, 1000002);
  expect_event(&events[5], GAP__ACT_OOM, 0, 42949672960, stream, 2000003);
  expect_event(&events[6], GAP__ACT_ALLOC, base, 512, 2, 3500001);
  expect_event(&events[7], GAP__ACT_FREE_REQUESTED, base + 0x100000, 300, stream, 4000001);
  gap__history_free(history);
}

static void logs_come_back_byte_for_byte(void **state) {
  static const char *const files[] = {"made/small.rmm.csv", "gnn.pickle.xz", "streams.pickle.xz", "oom.pickle.xz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__history *history = read_file(files[i]), *log = through(history, "rmm"),
                        *pickle = through(log, "pickle");
    struct gap__text first = written(history, "rmm", GAP__ENC_PLAIN), last = written(pickle, "rmm", GAP__ENC_PLAIN);
    assert_true(first.length == last.length && memcmp(first.bytes, last.bytes, first.length) == 0);
    expect_same_events(log, pickle, GAP__HAS_TIMES);
    gap__text_free(&first);
    gap__text_free(&last);
    gap__history_free(history);
    gap__history_free(log);
    gap__history_free(pickle);
  }
}

/* Without waits for other streams a log is all that a replay needs. */
static void a_log_needs_as_much(void **state) {
  (void)state;
  struct gap__history *history = read_file("gnn.pickle.xz"), *log = through(history, "rmm");
  gap_replay_options options;
  gap_replay_defaults(&options);
  for (int policy = 0; policy < GAP_POLICY_COUNT; policy++) {
    gap_replay_result a = {.size = sizeof a}, b = {.size = sizeof b};
    char message[512];
    options.policy = (enum gap_policy)policy;
    assert_int_equal(gap_replay(history, &options, &a, message, sizeof message), 0);
    assert_int_equal(gap_replay(log, &options, &b, message, sizeof message), 0);
    assert_true(a.peak_reserved_bytes == b.peak_reserved_bytes && a.peak_live_bytes == b.peak_live_bytes);
    assert_true(a.driver_calls == b.driver_calls && a.driver_time_us == b.driver_time_us);
  }
  assert_false(gap__history_tells_driver(log, 0));
  assert_true(gap__history_tells_driver(history, 0));
  gap__history_free(history);
  gap__history_free(log);
}

static void logs_that_begin_late(void **state) {
  static const char late[] = "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.0,free,0x1000,7,0x0\n";
  (void)state;
  struct gap__history *history = read_text(late, sizeof late - 1);
  assert_true(history->devices[0].wrapped);
  gap__history_free(history);
}

static void odd_logs_are_refused(void **state) {
  static const char head[] = "Thread,Time,Action,Pointer,Size,Stream\n";
  static const struct {
    const char *line, *message;
  } odd[] = {{"1,10:00:00.0,alocate,0x10,7,0x0", "line 2: \"alocate\" is no Action of an RMM log"},
             {"1,25:00:00.0,allocate,0x10,7,0x0", "line 2: \"25:00:00.0\" is no Time of an RMM log"},
             {"1,10:00:00.x,allocate,0x10,7,0x0", "line 2: \"10:00:00.x\" is no Time of an RMM log"},
             {"1,10:00:00.0,allocate,0xg0,7,0x0", "line 2: \"0xg0\" is no Pointer of an RMM log"},
             {"1,10:00:00.0,allocate,0x11111111111111111,7,0x0", "is no Pointer of an RMM log"},
             {"1,10:00:00.0,allocate,0x10,-7,0x0", "line 2: \"-7\" is no Size of an RMM log"},
             {"1,10:00:00.0,allocate,0x10,7,s", "line 2: \"s\" is no Stream of an RMM log"},
             {"1,10:00:00.0,allocate,0x10,7", "line 2: 5 cells, Stream is missing"}};
  (void)state;
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    struct gap__history *history = NULL;
    char text[256], *message = NULL;
    snprintf(text, sizeof text, "%s%s\n", head, odd[i].line);
    assert_int_equal(gap__history_read_memory(text, strlen(text), &history, &message), GAP_EFORMAT);
    if (!strstr(message, odd[i].message)) fail_msg("%s", message);
    free(message);
  }
}

static void long_lines_are_refused(void **state) {
  (void)state;
  size_t room = (size_t)GAP__INPUT_LINE_MAX + 200;
  char *text = malloc(room), *message = NULL;
  struct gap__history *history = NULL;
  assert_non_null(text);
  memset(text, '1', room);
  memcpy(text, "lower,upper,size\n", 17);
  assert_int_equal(gap__history_read_memory(text, room, &history, &message), GAP_EFORMAT);
  assert_non_null(strstr(message, "byte 17: a line of more than 65536 bytes"));
  free(message);
  free(text);
}

/* ---- MiniMalloc ---------------------------------------------------------------------------------------------------- */

static uint64_t bound_of(const struct gap__history *history) {
  struct gap_plan plan = {0};
  gap_plan_options options;
  struct gap__plan_clock clock = {gap__plan_now_ms(), 0, NULL, NULL};
  char *message = NULL;
  gap_plan_defaults(&options);
  assert_int_equal(gap__plan_from_history(history, &options, &plan, &message), 0);
  assert_int_equal(gap__plan_place(&plan, 0, &clock, &message), 0);
  uint64_t bound = plan.info.bound_bytes;
  free(message);
  gap__plan_release(&plan);
  return bound;
}

static uint64_t bound_of_csv(const struct gap__text *csv) {
  struct gap_plan plan = {0};
  struct gap__input input;
  struct gap__plan_clock clock = {gap__plan_now_ms(), 0, NULL, NULL};
  char *message = NULL;
  assert_int_equal(gap__input_open_memory(&input, csv->bytes, csv->length, &message), 0);
  assert_int_equal(gap__plan_from_csv(&input, &plan, &message), 0);
  assert_int_equal(gap__plan_place(&plan, 0, &clock, &message), 0);
  uint64_t bound = plan.info.bound_bytes;
  free(message);
  gap__input_close(&input);
  gap__plan_release(&plan);
  return bound;
}

static void the_same_blocks_meet(void **state) {
  static const char *const files[] = {"gnn.pickle.xz", "llama_sft.stacks.pickle.xz", "minimalloc/B.1048576.csv"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__history *history = read_file(files[i]), *again = through(history, "minimalloc");
    struct gap__text csv = written(history, "minimalloc", GAP__ENC_PLAIN);
    uint64_t bound = bound_of(history);
    assert_true(bound_of_csv(&csv) == bound && bound_of(again) == bound);
    gap__text_free(&csv);
    gap__history_free(history);
    gap__history_free(again);
  }
}

/* The bound of the file itself, and of the history that it becomes, where no size needs rounding. */
static void blocks_of_a_csv_file_become_a_history(void **state) {
  (void)state;
  struct gap__history *history = read_file("minimalloc/B.1048576.csv");
  struct gap__lives lives;
  assert_int_equal(gap__lives_find(history, 0, &lives), 0);
  assert_true(lives.peak_requested_bytes <= 1048576 && lives.peak_requested_bytes > 1000000);
  assert_false(history->devices[0].wrapped);
  gap__lives_free(&lives);
  gap__history_free(history);
}

/* ---- Perfetto ------------------------------------------------------------------------------------------------------ */

struct counters {
  json_int_t most_live, most_held, last_live, last_held, last_ts;
  size_t allocs, refusals, marks, begun, ended, others;
};

static void count_record(const json_t *record, struct counters *counters) {
  const char *kind = json_string_value(json_object_get(record, "ph"));
  const char *name = json_string_value(json_object_get(record, "name"));
  const json_t *args = json_object_get(record, "args");
  assert_non_null(kind);
  counters->marks += *kind == 'B' || *kind == 'E';
  counters->allocs += *kind == 'i' && strcmp(name, "alloc") == 0;
  counters->begun += *kind == 'b';
  counters->ended += *kind == 'e';
  counters->others += *kind == 'i' && !strstr("alloc free_requested free_completed", name);
  counters->refusals += *kind == 'i' && strcmp(name, "oom") == 0;
  if (*kind != 'C') return;
  counters->last_live = json_integer_value(json_object_get(args, "live"));
  counters->last_held = json_integer_value(json_object_get(args, "held"));
  assert_true(json_integer_value(json_object_get(args, "idle")) == counters->last_held - counters->last_live);
  if (counters->last_live > counters->most_live) counters->most_live = counters->last_live;
  if (counters->last_held > counters->most_held) counters->most_held = counters->last_held;
  assert_true(json_integer_value(json_object_get(record, "ts")) >= counters->last_ts);
  counters->last_ts = json_integer_value(json_object_get(record, "ts"));
}

static struct counters counters_from(const struct gap__history *history, uint64_t blocks_from) {
  struct gap__text text = written_from(history, "perfetto", GAP__ENC_PLAIN, blocks_from);
  struct counters counters = {0};
  json_error_t error;
  json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error), *record;
  size_t i;
  if (!root) fail_msg("%s at %d", error.text, error.position);
  json_array_foreach(json_object_get(root, "traceEvents"), i, record) count_record(record, &counters);
  json_decref(root);
  gap__text_free(&text);
  return counters;
}

static struct counters counters_of(const struct gap__history *history) { return counters_from(history, 0); }

/* Small blocks are counted and not drawn; of the others each life begins once, and ends when the block is free. */
static void lives_of_large_blocks_are_drawn(void **state) {
  const uint64_t from = 64 << 20;
  (void)state;
  struct gap__history *history = read_file("oom.pickle.xz");
  struct counters all = counters_of(history), large = counters_from(history, from);
  size_t begun = 0, refusals = 0;
  for (uint64_t i = 0; i < history->devices[0].event_count; i++) {
    const struct gap__hist_event *event = &history->devices[0].events[i];
    begun += event->action == GAP__ACT_ALLOC && event->size >= from;
    refusals += event->action == GAP__ACT_OOM;
  }
  assert_true(begun > 10 && large.begun == begun && large.allocs == begun);
  assert_true(large.ended > 0 && large.ended <= large.begun && all.begun == 0);
  assert_true(refusals > 0 && large.refusals == refusals && large.others == all.others);
  assert_true(large.most_live == all.most_live && large.most_held == all.most_held && large.last_live == all.last_live);
  gap__history_free(history);
}

static void counters_reach_the_peaks(void **state) {
  static const char *const files[] = {"gnn.pickle.xz", "oom.pickle.xz", "streams.pickle.xz", "ring.pickle.xz",
                                      "tr_exp_cap.json.gz"};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    struct gap__history *history = read_file(files[i]);
    struct counters counters = counters_of(history);
    uint64_t peak, requested, at, held = 0, allocs = 0;
    gap__history_peaks(history, 0, &peak, &requested, &at);
    for (uint64_t j = 0; j < history->segment_count; j++) held += history->segments[j].total_size;
    for (uint64_t j = 0; j < history->devices[0].event_count; j++)
      allocs += history->devices[0].events[j].action == GAP__ACT_ALLOC;
    /* of events at one time only the last is shown */
    assert_true((uint64_t)counters.most_live <= peak && (double)counters.most_live > 0.99 * (double)peak);
    assert_true((uint64_t)counters.last_held == held && counters.allocs == allocs);
    assert_true(counters.marks == history->annotation_count);
    if (history->has_stats) assert_true((uint64_t)counters.most_held == history->stat_reserved_peak);
    gap__history_free(history);
  }
}

/* ---- packing, losses, failures ------------------------------------------------------------------------------------- */

static void packed_files_come_back(void **state) {
  static const enum gap__encoding encodings[] = {GAP__ENC_GZIP, GAP__ENC_XZ, GAP__ENC_ZSTD};
  (void)state;
  struct gap__history *history = read_file("llama_sft.pickle.xz"); /* longer than a window */
  struct gap__text plain = written(history, "pickle", GAP__ENC_PLAIN);
  for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
    struct gap__text packed = written(history, "pickle", encodings[i]);
    assert_true(packed.length < plain.length / 2);
    assert_int_equal(gap__encoding_guess((const unsigned char *)packed.bytes, packed.length), encodings[i]);
    struct gap__history *again = read_text(packed.bytes, packed.length);
    expect_same_events(history, again, GAP__HAS_TIMES);
    gap__history_free(again);
    gap__text_free(&packed);
  }
  gap__text_free(&plain);
  gap__history_free(history);
}

static void names_choose_formats(void **state) {
  static const struct {
    const char *name, *format;
  } known[] = {{"x.trace.zst", "trace"},
               {"x.pickle", "pickle"},
               {"x.pkl.xz", "pickle"},
               {"a.json", "json"},
               {"a.trace.json", "perfetto"},
               {"a.perfetto.json.gz", "perfetto"},
               {"log.csv", "rmm"},
               {"x.minimalloc.csv", "minimalloc"},
               {"pickle", NULL},
               {"x.txt", NULL},
               {".pickle", NULL}};
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const struct gap__format *format = gap__format_of_name(known[i].name);
    if (known[i].format) assert_string_equal(format ? format->name : "none", known[i].format);
    else assert_null(format);
  }
}

static void losses_are_named(void **state) {
  (void)state;
  struct gap__history *history = read_file("made/small.4.pickle"), *log = read_file("made/small.rmm.csv");
  struct gap__text text = {0};
  gap__format_losses(gap__format_named("pickle"), history, -1, &text);
  assert_string_equal(gap__text_str(&text), "");
  gap__format_losses(gap__format_named("rmm"), history, 0, &text);
  assert_string_equal(gap__text_str(&text),
                      "call stacks, segments and driver calls, private pools, waits for other streams (a block is free "
                      "when the program lets go), the program's marks, the allocator's settings, other devices");
  gap__text_clear(&text);
  gap__format_losses(gap__format_named("rmm"), log, 0, &text);
  gap__format_losses(gap__format_named("pickle"), log, 0, &text);
  assert_string_equal(gap__text_str(&text), "");
  gap__text_free(&text);
  gap__history_free(history);
  gap__history_free(log);
}

static void a_failure_leaves_what_was_there(void **state) {
  (void)state;
  char path[] = "/tmp/gapless-convert-XXXXXX", in[512], message[512] = "", kept[8] = "";
  int fd = mkstemp(path);
  assert_true(fd >= 0 && write(fd, "before", 6) == 6);
  close(fd);
  gap_convert_options options;
  gap_convert_result result;
  gap_convert_defaults(&options);
  options.to = "rmm";
  options.device = 7;
  assert_int_equal(gap_convert(path_of("gnn.pickle.xz", in), path, &options, &result, message, sizeof message),
                   GAP_EINVAL);
  assert_string_equal(message, "there is no device 7: the file has 1");
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_non_null(fgets(kept, sizeof kept, file));
  fclose(file);
  assert_string_equal(kept, "before");
  options.device = -1;
  assert_int_equal(gap_convert(in, path, &options, &result, message, sizeof message), 0);
  assert_true(result.events == 8610 && result.bytes > 200000);
  unlink(path);
}

/* The name that a file has until it is whole can be guessed: in a folder that others write to somebody may have put a link there. */
static void a_link_at_the_unfinished_name_is_not_followed(void **state) {
  (void)state;
  char folder[] = "/tmp/gapless-convert-XXXXXX", path[64], trap[96], precious[64], in[512], message[512] = "";
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/out.csv", folder);
  snprintf(precious, sizeof precious, "%s/precious", folder);
  snprintf(trap, sizeof trap, "%s.%ld.new", path, (long)getpid());
  FILE *file = fopen(precious, "w");
  assert_true(file && fputs("before", file) >= 0 && fclose(file) == 0);
  assert_int_equal(symlink(precious, trap), 0);
  gap_convert_options options;
  gap_convert_result result;
  gap_convert_defaults(&options);
  options.to = "rmm";
  assert_int_equal(gap_convert(path_of("gnn.pickle.xz", in), path, &options, &result, message, sizeof message), 0);
  file = fopen(precious, "r");
  char kept[8] = "";
  assert_true(file && fgets(kept, sizeof kept, file) && fclose(file) == 0);
  assert_string_equal(kept, "before");
  assert_true(unlink(path) == 0 && unlink(precious) == 0 && rmdir(folder) == 0);
}

static void a_full_disk_is_an_error(void **state) {
  (void)state;
  char in[512], message[512] = "";
  gap_convert_options options;
  gap_convert_result result;
  gap_convert_defaults(&options);
  options.to = "pickle";
  if (access("/dev/full", W_OK) != 0) skip();
  assert_int_equal(gap_convert(path_of("gnn.pickle.xz", in), "/dev/full", &options, &result, message, sizeof message),
                   GAP_EIO);
  assert_non_null(strstr(message, "cannot write /dev/full: No space left on device"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pickles_come_back_as_they_were),
      cmocka_unit_test(numbers_of_every_size),
      cmocka_unit_test(verified_as_before),
      cmocka_unit_test(traces_come_back_as_they_were),
      cmocka_unit_test(json_comes_back_as_it_was),
      cmocka_unit_test(what_a_log_says),
      cmocka_unit_test(logs_come_back_byte_for_byte),
      cmocka_unit_test(a_log_needs_as_much),
      cmocka_unit_test(logs_that_begin_late),
      cmocka_unit_test(odd_logs_are_refused),
      cmocka_unit_test(long_lines_are_refused),
      cmocka_unit_test(the_same_blocks_meet),
      cmocka_unit_test(blocks_of_a_csv_file_become_a_history),
      cmocka_unit_test(counters_reach_the_peaks),
      cmocka_unit_test(lives_of_large_blocks_are_drawn),
      cmocka_unit_test(packed_files_come_back),
      cmocka_unit_test(names_choose_formats),
      cmocka_unit_test(losses_are_named),
      cmocka_unit_test(a_failure_leaves_what_was_there),
      cmocka_unit_test(a_link_at_the_unfinished_name_is_not_followed),
      cmocka_unit_test(a_full_disk_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
