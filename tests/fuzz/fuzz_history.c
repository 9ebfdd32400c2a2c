/* The history reader on arbitrary bytes: it answers with a history whose every index is in range, or with a message; the
 * quick way for trace entries and the plain one give the same. */
#include <string.h>

#include "fuzz.h"
#include "trace/history.h"
#include "trace/message.h"
#include "trace/snapshot.h"

static void check_events(const struct gap__history *history, const struct gap__hist_device *device) {
  for (uint64_t i = 0; i < device->event_count; i++) {
    FUZZ_CHECK(device->events[i].action < GAP__ACT_COUNT);
    FUZZ_CHECK(device->events[i].pool < history->pool_count);
    FUZZ_CHECK(device->events[i].stack < history->stack_count);
  }
}

static void check_stacks(const struct gap__history *history) {
  for (uint32_t i = 0; i < history->stack_count; i++)
    FUZZ_CHECK((uint64_t)history->stacks[i].first + history->stacks[i].count <= history->stack_frame_count);
  for (uint32_t i = 0; i < history->stack_frame_count; i++) FUZZ_CHECK(history->stack_frames[i] < history->frame_count);
  for (uint32_t i = 0; i < history->frame_count; i++) {
    FUZZ_CHECK(history->frames[i].name < history->text_bytes);
    FUZZ_CHECK(history->frames[i].filename < history->text_bytes);
  }
  for (uint32_t i = 0; i < history->annotation_count; i++)
    FUZZ_CHECK(history->annotations[i].name < history->text_bytes);
  FUZZ_CHECK(history->text_bytes > 0 && history->text[history->text_bytes - 1] == 0);
}

static void check_segments(const struct gap__history *history) {
  for (uint64_t i = 0; i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    FUZZ_CHECK(segment->pool < history->pool_count);
    FUZZ_CHECK(segment->device >= 0 && (uint32_t)segment->device < history->device_count);
    FUZZ_CHECK((uint64_t)segment->block_first + segment->block_count <= history->block_count);
  }
  for (uint64_t i = 0; i < history->block_count; i++) {
    FUZZ_CHECK(history->blocks[i].state <= 2);
    FUZZ_CHECK(history->blocks[i].stack < history->stack_count);
  }
}

static void use(const struct gap__history *history) {
  for (uint32_t i = 0; i < history->device_count; i++) {
    uint64_t event, peak, requested, at;
    char *message;
    check_events(history, &history->devices[i]);
    int rc = gap__history_check(history, i, &event, &message);
    FUZZ_CHECK((rc == 0) == (message == NULL));
    free(message);
    gap__history_peaks(history, i, &peak, &requested, &at);
    FUZZ_CHECK(at < history->devices[i].event_count || at == 0);
  }
}

static int read_plainly(const uint8_t *data, size_t bytes, struct gap__history **out) {
  struct gap__input input;
  char *message = NULL;
  int rc = gap__input_open_memory(&input, data, bytes, &message);
  if (!rc) rc = gap__snapshot_read(&input, true, out, &message);
  gap__input_close(&input);
  FUZZ_CHECK((rc == 0) == (message == NULL));
  free(message);
  return rc;
}

/* Pools are left out: they are assigned later, from what is compared here. */
static bool same_event(const struct gap__hist_event *a, const struct gap__hist_event *b) {
  return a->addr == b->addr && a->size == b->size && a->stream == b->stream && a->time_us == b->time_us &&
         a->stack == b->stack && a->action == b->action;
}

static void check_same(const struct gap__history *a, const struct gap__history *b) {
  FUZZ_CHECK(a->device_count == b->device_count && a->stack_count == b->stack_count);
  FUZZ_CHECK(a->unknown_actions == b->unknown_actions && a->segment_count == b->segment_count);
  for (uint32_t i = 0; i < a->device_count; i++) {
    FUZZ_CHECK(a->devices[i].event_count == b->devices[i].event_count);
    for (uint64_t j = 0; j < a->devices[i].event_count; j++)
      FUZZ_CHECK(same_event(&a->devices[i].events[j], &b->devices[i].events[j]));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__history *history, *plain = NULL;
  char *message;
  int rc = gap__history_read_memory(data, bytes, &history, &message);
  FUZZ_CHECK((rc == 0) == (history != NULL) && (rc == 0) == (message == NULL));
  if (bytes && data[0] == 0x80) {
    FUZZ_CHECK(read_plainly(data, bytes, &plain) == rc);
    if (!rc) check_same(history, plain);
  }
  if (!rc) {
    check_stacks(history);
    check_segments(history);
    use(history);
  }
  gap__history_free(plain);
  gap__history_free(history);
  free(message);
  return 0;
}
