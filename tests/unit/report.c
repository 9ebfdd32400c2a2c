/* Reports: what is reduced still tells the truth, checked against counts made in another way; the whole as JSON and as a page.
 * (pthread_create is in src/replay/workers.c.) */
#include <fcntl.h>
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

#include "gapless/report.h"
#include "report/page.h"
#include "report/panel.h"

static const char *const files[] = {"gnn.pickle.xz",
                                    "oom.pickle.xz",
                                    "streams.pickle.xz",
                                    "ring.pickle.xz",
                                    "tr_exp_cap.json.gz",
                                    "tr_exp_streams.json.gz",
                                    "tr_nat_pools.json.gz",
                                    "made/training.pickle",
                                    "made/watched.trace",
                                    "mosaic_output.pickle.xz",
                                    "cs336_medium_1024_training.pickle.xz"};
enum { FILES = sizeof files / sizeof files[0] };

static struct gap__subject *open_data(const char *name) {
  struct gap__subject *subject = calloc(1, sizeof *subject);
  char path[512], *message;
  assert_non_null(subject);
  gap_explain_defaults(&subject->options);
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  if (gap__history_read(path, NULL, NULL, &subject->history, &message)) fail_msg("%s: %s", name, message);
  assert_int_equal(gap__subject_study(subject), 0);
  return subject;
}

static void close_data(struct gap__subject *subject) {
  gap__subject_free(subject);
  free(subject);
}

static struct gap__panel *panel_of(struct gap__subject *subject, struct gap__panel_limits limits) {
  struct gap__panel *panel = calloc(1, sizeof *panel);
  assert_non_null(panel);
  assert_int_equal(gap__panel_make(panel, "file", subject, &limits), 0);
  return panel;
}

static void close_panel(struct gap__panel *panel) {
  struct gap__subject *subject = panel->subject;
  gap__panel_free(panel);
  free(panel);
  close_data(subject);
}

static const struct gap__hist_event *events_of(const struct gap__subject *subject) {
  return subject->history->devices[subject->device].events;
}

/* ---- the timeline -------------------------------------------------------------------------------------------------- */

/* Live bytes after every event, from the lives alone. */
static uint64_t *whole_curve(const struct gap__subject *subject) {
  uint32_t events = subject->lives.event_count;
  uint64_t *curve = calloc((size_t)events + 1, sizeof *curve), live = 0;
  assert_non_null(curve);
  for (uint32_t i = 0; i < subject->lives.count; i++) {
    const struct gap__life *life = &subject->lives.at[i];
    if (life->before) live += life->bytes;
    else curve[life->born] += life->bytes;
    if (life->gone != GAP__LIFE_NEVER) curve[life->gone] -= life->bytes;
  }
  for (uint32_t i = 0; i < events; i++) curve[i] = live += curve[i];
  return curve;
}

struct range {
  uint64_t least, most;
};

static void widen(struct range *range, uint64_t value) {
  if (value < range->least) range->least = value;
  if (value > range->most) range->most = value;
}

/* Of every stretch the points span what the whole curve spans there, and each is on the curve. */
static void expect_envelope(const struct gap__subject *subject, const struct gap__timeline *timeline) {
  uint64_t *curve = whole_curve(subject);
  uint32_t at = 0, events = subject->lives.event_count;
  for (uint32_t first = 0; first < events; first += timeline->stretch) {
    struct range whole = {UINT64_MAX, 0}, kept = {UINT64_MAX, 0};
    uint32_t end = events - first < timeline->stretch ? events : first + timeline->stretch;
    for (uint32_t i = first; i < end; i++) widen(&whole, curve[i]);
    for (; at < timeline->count && timeline->points[at].event < end; at++) {
      assert_true(timeline->points[at].live == curve[timeline->points[at].event]);
      widen(&kept, timeline->points[at].live);
    }
    assert_true(whole.least == kept.least && whole.most == kept.most);
  }
  assert_int_equal(at, timeline->count);
  free(curve);
}

static void expect_sums(const struct gap__timeline *timeline, uint32_t listed) {
  for (uint32_t i = 0; i < timeline->count; i++) {
    const struct gap__point *point = &timeline->points[i];
    uint64_t categories = 0, streams = 0;
    for (int j = 0; j < GAP__CAT_COUNT; j++) categories += point->by_category[j];
    for (uint32_t j = 0; j < listed; j++) streams += point->by_stream[j];
    assert_true(categories == point->live && streams == point->live && point->pending <= point->live);
  }
}

static void expect_marks(const struct gap__subject *subject, const struct gap__timeline *timeline) {
  const struct gap__point *peak = gap__timeline_at(timeline, subject->lives.peak_event);
  const struct gap__point *failure = gap__timeline_at(timeline, subject->refusal.event);
  assert_int_equal(peak->event, subject->lives.peak_event);
  assert_true(peak->live == subject->lives.peak_bytes);
  if (subject->refusal.recorded) assert_int_equal(failure->event, subject->refusal.event);
  assert_int_equal(timeline->points[timeline->count - 1].event, subject->lives.event_count - 1);
}

static void timelines_keep_the_envelope(void **state) {
  static const uint32_t stretches[] = {1, 7, 100, 100000};
  (void)state;
  for (size_t i = 0; i < FILES; i++)
    for (size_t j = 0; j < sizeof stretches / sizeof stretches[0]; j++) {
      struct gap__panel_limits limits = gap__panel_limits(1, 10);
      limits.stretches = stretches[j];
      struct gap__panel *panel = panel_of(open_data(files[i]), limits);
      assert_true(panel->timeline.count <= stretches[j] * (uint64_t)4 + 4);
      expect_envelope(panel->subject, &panel->timeline);
      expect_sums(&panel->timeline, panel->streams.listed_count);
      expect_marks(panel->subject, &panel->timeline);
      close_panel(panel);
    }
}

/* With as many stretches as events nothing is left out; then the held bytes are those of the segment events, one by one, and end at those of
 * the segments, and what was needed peaks where the reader's own count does. */
static void held_and_needed_bytes_are_those_of_the_events(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    struct gap__panel_limits limits = gap__panel_limits(1, 10);
    limits.stretches = UINT32_MAX;
    struct gap__panel *panel = panel_of(open_data(files[i]), limits);
    const struct gap__timeline *timeline = &panel->timeline;
    const struct gap__hist_event *events = events_of(panel->subject);
    uint64_t needed = 0;
    assert_int_equal(timeline->count, panel->subject->lives.event_count);
    for (uint32_t j = 0; j < timeline->count; j++) {
      uint8_t action = events[j].action;
      uint64_t before = j ? timeline->points[j - 1].held : 0, held = timeline->points[j].held;
      bool asks = action == GAP__ACT_SEGMENT_ALLOC || action == GAP__ACT_SEGMENT_MAP;
      bool gives = action == GAP__ACT_SEGMENT_FREE || action == GAP__ACT_SEGMENT_UNMAP;
      if (j) assert_true(held == before + (asks ? events[j].size : 0) - (gives ? events[j].size : 0));
      if (timeline->points[j].needed > needed) needed = timeline->points[j].needed;
    }
    if (panel->subject->honest.has_segments)
      assert_true(timeline->points[timeline->count - 1].held == panel->moments[0].held);
    assert_true(needed == panel->subject->lives.peak_requested_bytes);
    close_panel(panel);
  }
}

/* Where a file hands an address out twice the second block takes the place of the first. */
static void an_address_handed_out_twice_counts_once(void **state) {
  static const char text[] = "{\"trace\":[[\"alloc\",65536,1024,0],[\"alloc\",65536,3072,0],[\"alloc\",131072,512,0],"
                             "[\"free_requested\",65536,3072,0],[\"free_completed\",65536,3072,0]]}";
  static const uint64_t live[] = {1024, 3072, 3584, 3584, 512}, needed[] = {1024, 3072, 3584, 512, 512};
  struct gap__subject *subject = calloc(1, sizeof *subject);
  char *message;
  (void)state;
  gap_explain_defaults(&subject->options);
  if (gap__history_read_memory(text, sizeof text - 1, &subject->history, &message)) fail_msg("%s", message);
  assert_int_equal(gap__subject_study(subject), 0);
  assert_int_equal(subject->honest.contradictions, 1);
  struct gap__panel *panel = panel_of(subject, gap__panel_limits(1, 3));
  assert_int_equal(panel->timeline.count, 5);
  for (uint32_t i = 0; i < 5; i++) {
    assert_int_equal(panel->timeline.points[i].live, live[i]);
    assert_int_equal(panel->timeline.points[i].needed, needed[i]);
    assert_int_equal(panel->timeline.points[i].pending, i == 3 ? 3072 : 0);
  }
  close_panel(panel);
}

/* ---- moments ------------------------------------------------------------------------------------------------------- */

static void expect_moment_sums(const struct gap__moment *moment) {
  uint64_t held = moment->left_bytes, live = moment->left_live, arenas = 0, in_cells = moment->left_live, blocks = 0;
  for (uint32_t i = 0; i < moment->arena_count; i++) arenas += moment->arenas[i].bytes;
  for (uint32_t i = 0; i < moment->row_count; i++) {
    held += moment->rows[i].segment.bytes;
    live += moment->rows[i].segment.live;
  }
  for (uint32_t i = 0; i < moment->cell_count; i++) {
    in_cells += moment->cells[i].live;
    blocks += moment->cells[i].blocks;
  }
  assert_true(held == moment->held && arenas == moment->held);
  assert_true(live == moment->live && in_cells == moment->live);
  if (!moment->left_segments) assert_int_equal(blocks, moment->block_count);
}

/* Every block lies in the one cell of its row that covers it. */
static void expect_blocks_in_cells(const struct gap__moment *moment) {
  for (uint32_t i = 0; i < moment->block_count; i++) {
    const struct gap__block *block = &moment->blocks[i];
    uint32_t covers = 0, rows = 0;
    for (uint32_t j = 0; j < moment->row_count; j++) {
      const struct gap__row *row = &moment->rows[j];
      if (block->addr - row->segment.addr >= row->segment.bytes) continue;
      rows++;
      for (uint32_t k = row->cell_first; k < row->cell_first + row->cell_count; k++) {
        uint64_t offset = block->addr - row->segment.addr, from = moment->cells[k].offset;
        covers += offset >= from && offset + block->bytes <= from + moment->cells[k].bytes;
      }
    }
    assert_int_equal(covers, rows);
  }
}

/* What lives at the peak lies in the map, and nothing else does. */
static void expect_lives(const struct gap__subject *subject, const struct gap__moment *moment) {
  uint32_t covering = 0, known = 0;
  for (uint32_t i = 0; i < subject->lives.count; i++)
    covering += gap__life_covers(&subject->lives.at[i], moment->event);
  for (uint32_t i = 0; i < moment->block_count; i++) {
    if (moment->blocks[i].life == GAP__LIFE_NEVER) continue;
    const struct gap__life *life = &subject->lives.at[moment->blocks[i].life];
    assert_true(life->addr == moment->blocks[i].addr && gap__life_covers(life, moment->event));
    known++;
  }
  assert_int_equal(known, covering);
  assert_int_equal(moment->block_count, covering);
}

static void maps_show_what_lives(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    struct gap__panel *panel = panel_of(open_data(files[i]), gap__panel_limits(1, 10));
    const struct gap__subject *subject = panel->subject;
    bool is_sound = subject->honest.has_segments && !subject->honest.contradictions;
    assert_int_equal(panel->moment_count, subject->refusal.recorded ? 3 : 2);
    for (uint32_t j = 0; j < panel->moment_count; j++) {
      expect_moment_sums(&panel->moments[j]);
      if (is_sound) expect_lives(subject, &panel->moments[j]);
    }
    close_panel(panel);
  }
}

static void maps_are_merged_until_they_fit(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++)
    for (uint32_t most = 1; most < 400; most = most * 3 + 1) {
      struct gap__panel_limits limits = gap__panel_limits(1, 3);
      limits.moment.rows = most / 2 + 1;
      limits.moment.cells = most;
      struct gap__panel *panel = panel_of(open_data(files[i]), limits);
      for (uint32_t j = 0; j < panel->moment_count; j++) {
        const struct gap__moment *moment = &panel->moments[j];
        assert_true(moment->row_count <= limits.moment.rows);
        assert_true(moment->cell_count <= most || moment->cell_count <= moment->row_count);
        expect_moment_sums(moment);
        expect_blocks_in_cells(moment);
      }
      close_panel(panel);
    }
}

static void the_largest_and_the_oldest_come_first(void **state) {
  (void)state;
  struct gap__panel *panel = panel_of(open_data("oom.pickle.xz"), gap__panel_limits(1, 12));
  const struct gap__moment *moment = &panel->moments[0];
  assert_int_equal(moment->top_count, 12);
  for (uint32_t i = 1; i < moment->top_count; i++) {
    const struct gap__block *last = &moment->blocks[moment->largest[i - 1]],
                            *next = &moment->blocks[moment->largest[i]];
    assert_true(last->bytes >= next->bytes);
    last = &moment->blocks[moment->oldest[i - 1]];
    next = &moment->blocks[moment->oldest[i]];
    assert_true(panel->subject->lives.at[last->life].born <= panel->subject->lives.at[next->life].born);
  }
  uint32_t larger = 0, least = moment->largest[11];
  for (uint32_t i = 0; i < moment->block_count; i++) larger += moment->blocks[i].bytes > moment->blocks[least].bytes;
  assert_true(larger <= 11);
  close_panel(panel);
}

/* ---- the flame graph ----------------------------------------------------------------------------------------------- */

static bool is_same_frame(const struct gap__history *history, uint32_t frame, const json_t *frames, size_t wanted) {
  const struct gap__hist_frame *at = &history->frames[frame];
  return strcmp(history->text + at->name, json_string_value(json_array_get(json_object_get(frames, "name"), wanted))) ==
             0 &&
         strcmp(history->text + at->filename,
                json_string_value(json_array_get(json_object_get(frames, "file"), wanted))) == 0 &&
         at->line == json_integer_value(json_array_get(json_object_get(frames, "line"), wanted));
}

static json_int_t item(const json_t *object, const char *column, size_t index) {
  return json_integer_value(json_array_get(json_object_get(object, column), index));
}

/* Does the stack begin, outermost first, with the frames from the root to this node? */
static bool leads_through(const struct gap__history *history, uint32_t stack, const json_t *panel, size_t node) {
  const json_t *flame = json_object_get(panel, "flame");
  size_t path[GAP__FLAME_DEPTH], depth = 0;
  for (; node; node = (size_t)item(flame, "parent", node)) path[depth++] = (size_t)item(flame, "frame", node);
  const struct gap__hist_stack *at = &history->stacks[stack];
  for (uint32_t i = 0; i < depth; i++) {
    if (i >= at->count) return false;
    uint32_t frame = history->stack_frames[at->first + at->count - 1 - i];
    if (!is_same_frame(history, frame, json_object_get(panel, "frames"), path[depth - 1 - i])) return false;
  }
  return true;
}

static json_t *json_of(struct gap__panel *panel) {
  struct gap__emit emit = {0};
  assert_int_equal(gap__panel_emit(panel, &emit), 0);
  json_t *json = json_loads(gap__text_str(&emit.text), 0, NULL);
  assert_non_null(json);
  gap__text_free(&emit.text);
  return json;
}

/* The bytes of a node are those of the blocks at the peak whose stacks lead through it. */
static void nodes_hold_the_blocks_below_them(void **state) {
  (void)state;
  struct gap__panel *panel = panel_of(open_data("oom.pickle.xz"), gap__panel_limits(1, 3));
  const struct gap__lives *lives = &panel->subject->lives;
  json_t *json = json_of(panel), *flame = json_object_get(json, "flame");
  size_t nodes = json_array_size(json_object_get(flame, "parent"));
  assert_true(nodes > 50);
  for (size_t i = 1; i < nodes; i++) {
    uint64_t bytes = 0, blocks = 0;
    if (item(flame, "frame", i) < 0) continue;
    for (uint32_t j = 0; j < lives->count; j++) {
      const struct gap__life *life = &lives->at[j];
      if (!gap__life_covers(life, lives->peak_event) || !leads_through(panel->subject->history, life->stack, json, i))
        continue;
      bytes += life->bytes;
      blocks++;
    }
    assert_true((uint64_t)item(flame, "bytes", i) == bytes && (uint64_t)item(flame, "blocks", i) == blocks);
  }
  json_decref(json);
  close_panel(panel);
}

/* Parents come before children; children sum to no more than their parent, and the root is the peak. */
static void expect_tree(const json_t *flame, uint64_t peak, uint32_t most) {
  size_t nodes = json_array_size(json_object_get(flame, "parent"));
  uint64_t *below = calloc(nodes, sizeof *below);
  assert_true(nodes >= 1 && nodes <= most && (uint64_t)item(flame, "bytes", 0) == peak);
  for (size_t i = 1; i < nodes; i++) {
    assert_true(item(flame, "parent", i) >= 0 && (size_t)item(flame, "parent", i) < i);
    below[item(flame, "parent", i)] += (uint64_t)item(flame, "bytes", i);
  }
  for (size_t i = 0; i < nodes; i++) assert_true(below[i] <= (uint64_t)item(flame, "bytes", i));
  free(below);
}

static void flame_graphs_are_cut_to_fit(void **state) {
  static const uint32_t most[] = {40, 200, 6000};
  (void)state;
  for (size_t i = 0; i < FILES; i++)
    for (size_t j = 0; j < sizeof most / sizeof most[0]; j++) {
      struct gap__panel_limits limits = gap__panel_limits(1, 3);
      limits.flame_nodes = most[j];
      struct gap__panel *panel = panel_of(open_data(files[i]), limits);
      json_t *json = json_of(panel);
      expect_tree(json_object_get(json, "flame"), panel->subject->lives.peak_bytes, most[j]);
      json_decref(json);
      close_panel(panel);
    }
}

/* ---- what if ------------------------------------------------------------------------------------------------------- */

static void replays_say_what_fits(void **state) {
  (void)state;
  struct gap__panel *panel = panel_of(open_data("oom.pickle.xz"), gap__panel_limits(1, 3));
  struct gap__what_if *what_if = &panel->what_if;
  struct gap__what_if_job jobs[GAP__WHAT_IF_POLICIES * GAP__WHAT_IF_CAPS];
  uint32_t count = gap__what_if_jobs(what_if, jobs);
  enum { NATIVE, EXPANDABLE, GAPLESS, IDEAL };
  assert_int_equal(count, what_if->cap_count * GAP__WHAT_IF_POLICIES);
  for (uint32_t i = 0; i < count; i++) gap__what_if_run(&jobs[i], gap_replay);
  for (uint32_t cap = 0; cap < what_if->cap_count; cap++) {
    uint64_t bytes = what_if->caps[cap].bytes;
    assert_true(what_if->results[IDEAL][cap].fits == (bytes == 0 || bytes >= what_if->peak));
    if (what_if->caps[cap].is_given) { /* the program was refused there; gapless serves it */
      assert_false(what_if->results[NATIVE][cap].fits);
      assert_true(what_if->results[NATIVE][cap].failed.event <= panel->subject->refusal.event);
      assert_true(what_if->results[GAPLESS][cap].fits && what_if->results[GAPLESS][cap].held <= bytes);
    }
    for (int policy = 0; policy < GAP__WHAT_IF_POLICIES; policy++) {
      const struct gap__what_if_result *result = &what_if->results[policy][cap];
      assert_true(result->tried && (bytes == 0 ? result->fits : !result->fits || result->held <= bytes));
      assert_true(result->fits == (result->failed.reason == NULL));
    }
  }
  close_panel(panel);
}

static void nothing_is_replayed_without_reason(void **state) {
  static const struct {
    const char *file, *reason;
  } cases[] = {{"flexgen_oom_snapshot.pickle.xz", "the file has no history"},
               {"mosaic_output.pickle.xz", "a history that contradicts itself cannot be replayed"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct gap__panel *panel = panel_of(open_data(cases[i].file), gap__panel_limits(1, 3));
    struct gap__what_if_job jobs[GAP__WHAT_IF_POLICIES * GAP__WHAT_IF_CAPS];
    assert_string_equal(panel->what_if.reason, cases[i].reason);
    assert_int_equal(gap__what_if_jobs(&panel->what_if, jobs), 0);
    close_panel(panel);
  }
}

/* ---- JSON and the page --------------------------------------------------------------------------------------------- */

static void values_are_written_as_json(void **state) {
  struct gap__emit emit = {0};
  (void)state;
  gap__emit_begin(&emit, '{');
  GAP__EMIT(&emit, text, "a", "\"\\\n\xff<");
  GAP__EMIT(&emit, number, "b", UINT64_MAX);
  GAP__EMIT(&emit, signed, "c", INT64_MIN);
  GAP__EMIT(&emit, real, "d", -0.99996);
  GAP__EMIT(&emit, real, "e", 1.0050);
  GAP__EMIT(&emit, bool, "f", true);
  GAP__EMIT(&emit, address, "g", 0x7f00u);
  GAP__EMIT(&emit, text, "h", NULL);
  gap__emit_name(&emit, "hh");
  gap__emit_start(&emit, "\xc3\xa4\xc3\xa4", 3);
  gap__emit_members(&emit, "{\"i\":[1,2]}");
  gap__emit_members(&emit, "{}");
  gap__emit_end(&emit, '}');
  assert_string_equal(
      gap__text_str(&emit.text),
      "{\"a\":\"\\\"\\\\\\u000a\xef\xbf\xbd<\",\"b\":18446744073709551615,\"c\":-9223372036854775808,"
      "\"d\":-1.0000,\"e\":1.0050,\"f\":true,\"g\":\"0x7f00\",\"h\":null,\"hh\":\"\xc3\xa4\xef\xbf\xbd\",\"i\":[1,2]}");
  gap__text_free(&emit.text);
}

static char *written(const char *html, const char *json, int *rc, char **message) {
  char path[] = "/tmp/gapless-page-XXXXXX", *text = calloc(1, 4096);
  int fd = mkstemp(path);
  struct gap__page page = {html, html ? strlen(html) : 0};
  *message = NULL;
  *rc = gap__page_write(page, json, path, message);
  int again = open(path, O_RDONLY);
  if (read(again, text, 4095) < 0) text[0] = 0;
  close(again);
  close(fd);
  unlink(path);
  return text;
}

/* No name of a file can end the script that holds the data. */
static void the_data_takes_its_place_in_the_page(void **state) {
  int rc;
  char *message, *text = written("<a><script type=\"application/json\" id=\"gapless-data\">{\"sample\":1}</script><b>",
                                 "{\"file\":\"</script><script>\"}", &rc, &message);
  (void)state;
  assert_int_equal(rc, 0);
  assert_string_equal(text, "<a><script type=\"application/json\" id=\"gapless-data\">"
                            "{\"file\":\"\\u003c/script>\\u003cscript>\"}</script><b>");
  free(text);
  text = written("<html></html>", "{}", &rc, &message);
  assert_int_equal(rc, GAP_ENOTSUP);
  assert_string_equal(message, "the page of this build has no place for the data");
  assert_string_equal(text, "");
  free(text);
  free(message);
  text = written(NULL, "{}", &rc, &message);
  assert_int_equal(rc, GAP_ENOTSUP);
  free(text);
  free(message);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static char *report_of(const char *const *names, size_t count, uint32_t threads) {
  gap_report_options options;
  gap_report *report;
  char path[512], message[512];
  gap_report_defaults(&options);
  options.threads = threads;
  options.budget_ms = 600000;
  options.top = 5;
  assert_int_equal(gap_report_new(&options, &report), 0);
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, names[i]);
    if (gap_report_file(report, path, message, sizeof message)) fail_msg("%s: %s", names[i], message);
  }
  assert_int_equal(gap_report_make(report, NULL, NULL), 0);
  char *json = gap_report_json(report);
  assert_non_null(json);
  gap_report_free(report);
  return json;
}

static void reports_do_not_depend_on_threads(void **state) {
  static const char *const names[] = {"streams.pickle.xz", "streams.expandable.pickle.xz"};
  (void)state;
  char *one = report_of(names, 2, 1), *many = report_of(names, 2, 8);
  assert_string_equal(one, many);
  json_t *json = json_loads(one, 0, NULL), *diff = json_object_get(json, "diff");
  assert_int_equal(json_array_size(json_object_get(json, "panels")), 2);
  assert_int_equal(json_integer_value(json_object_get(diff, "panel_b")), 1);
  assert_true(json_array_size(json_object_get(diff, "sizes")) <= 5);
  assert_true(json_is_null(json_object_get(json, "job")));
  json_decref(json);
  free(one);
  free(many);
}

/* Ranks of a job: three files, or a file of two devices; the latter are compared as well. */
static void ranks_are_told_apart(void **state) {
  static const char *const three[] = {"made/rank0.pickle.xz", "made/rank1.pickle.xz", "gnn.pickle.xz"};
  static const char *const devices[] = {"made/ranks.pickle.xz"};
  (void)state;
  char *text = report_of(three, 3, 2);
  json_t *json = json_loads(text, 0, NULL), *job = json_object_get(json, "job");
  assert_int_equal(json_array_size(json_object_get(json, "panels")), 3);
  assert_true(json_is_null(json_object_get(json, "diff")) && json_integer_value(json_object_get(job, "limits")) == 2);
  json_decref(json);
  free(text);
  text = report_of(devices, 1, 2);
  json = json_loads(text, 0, NULL);
  assert_int_equal(json_array_size(json_object_get(json, "panels")), 2);
  assert_true(json_is_object(json_object_get(json, "diff")) && json_is_object(json_object_get(json, "job")));
  json_decref(json);
  free(text);
}

/* Files that say little make a report all the same. */
static void poor_files_make_reports(void **state) {
  static const char *const names[] = {"flexgen_oom_snapshot.pickle.xz", "made/old_layout.pickle", "made/small.rmm.csv",
                                      "made/watched.torn.trace", "minimalloc/input.12.csv"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *text = report_of(&names[i], 1, 1);
    json_t *json = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "panels")), 1);
    json_decref(json);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(timelines_keep_the_envelope),
      cmocka_unit_test(held_and_needed_bytes_are_those_of_the_events),
      cmocka_unit_test(an_address_handed_out_twice_counts_once),
      cmocka_unit_test(maps_show_what_lives),
      cmocka_unit_test(maps_are_merged_until_they_fit),
      cmocka_unit_test(the_largest_and_the_oldest_come_first),
      cmocka_unit_test(nodes_hold_the_blocks_below_them),
      cmocka_unit_test(flame_graphs_are_cut_to_fit),
      cmocka_unit_test(replays_say_what_fits),
      cmocka_unit_test(nothing_is_replayed_without_reason),
      cmocka_unit_test(values_are_written_as_json),
      cmocka_unit_test(the_data_takes_its_place_in_the_page),
      cmocka_unit_test(reports_do_not_depend_on_threads),
      cmocka_unit_test(ranks_are_told_apart),
      cmocka_unit_test(poor_files_make_reports),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
