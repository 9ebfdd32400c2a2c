/* Reports of arbitrary bytes: whatever the reader takes is reduced, and the parts add up. */
#include <jansson.h>
#include <string.h>

#include "fuzz.h"
#include "report/document.h"

static void check_timeline(const struct gap__panel *panel) {
  const struct gap__timeline *timeline = &panel->timeline;
  for (uint32_t i = 0; i < timeline->count; i++) {
    const struct gap__point *point = &timeline->points[i];
    uint64_t categories = 0, streams = 0;
    for (int j = 0; j < GAP__CAT_COUNT; j++) categories += point->by_category[j];
    for (int j = 0; j < GAP__STREAMS_LISTED; j++) streams += point->by_stream[j];
    FUZZ_CHECK(categories == point->live && streams == point->live && point->pending <= point->live);
    FUZZ_CHECK(i == 0 || point->event > timeline->points[i - 1].event);
  }
}

static void check_moment(const struct gap__moment *moment) {
  uint64_t bytes = moment->left_bytes, live = moment->left_live, in_cells = moment->left_live;
  for (uint32_t i = 0; i < moment->row_count; i++) {
    bytes += moment->rows[i].segment.bytes;
    live += moment->rows[i].segment.live;
  }
  for (uint32_t i = 0; i < moment->cell_count; i++) {
    const struct gap__cell *cell = &moment->cells[i];
    in_cells += cell->live;
    FUZZ_CHECK(cell->live <= cell->bytes && cell->offset + cell->bytes <= moment->rows[cell->row].segment.bytes);
    FUZZ_CHECK(i == 0 || cell->row != cell[-1].row || cell->offset >= cell[-1].offset + cell[-1].bytes);
  }
  FUZZ_CHECK(bytes == moment->held && live == moment->live && in_cells == moment->live);
}

static void check_flame(const struct gap__flame *flame) {
  for (uint32_t i = 0; i < flame->count; i++) {
    uint64_t below = 0;
    for (uint32_t child = flame->nodes[i].first; child; child = flame->nodes[child].next)
      below += flame->nodes[child].bytes;
    FUZZ_CHECK(below <= flame->nodes[i].bytes);
  }
}

/* What is written can be read. */
static void check_json(struct gap__panel *panel) {
  struct gap__document document = {.panels = &panel, .panel_count = 1};
  char *json = NULL;
  FUZZ_CHECK(gap__document_json(&document, &json) == 0);
  json_t *read = json_loads(json, JSON_DECODE_INT_AS_REAL, NULL);
  FUZZ_CHECK(read != NULL && json_array_size(json_object_get(read, "panels")) == 1);
  json_decref(read);
  free(json);
}

/* Few of everything, so that a small input is reduced. */
static void reduce(struct gap__subject *subject) {
  struct gap__panel_limits limits = {
      .stretches = 3, .flame_nodes = 8, .moment = {.rows = 3, .cells = 5, .top = 4}, .no_what_if = false};
  struct gap__panel panel;
  FUZZ_CHECK(gap__panel_make(&panel, "file", subject, &limits) == 0);
  check_timeline(&panel);
  for (uint32_t i = 0; i < panel.moment_count; i++) check_moment(&panel.moments[i]);
  check_flame(&panel.flame);
  check_json(&panel);
  gap__panel_free(&panel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__subject subject = {0};
  char *message;
  gap_explain_defaults(&subject.options);
  int rc = gap__history_read_memory(data, bytes, &subject.history, &message);
  free(message);
  if (!rc && gap__subject_study(&subject) == 0) reduce(&subject);
  gap__subject_free(&subject);
  return 0;
}
