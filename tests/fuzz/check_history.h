/* What every history promises, whatever bytes it was read from: indices are in range, and what uses it comes to an end. */
#ifndef GAP_TESTS_CHECK_HISTORY_H
#define GAP_TESTS_CHECK_HISTORY_H

#include "fuzz.h"
#include "trace/history.h"

static inline void check_events(const struct gap__history *history, const struct gap__hist_device *device) {
  for (uint64_t i = 0; i < device->event_count; i++) {
    FUZZ_CHECK(device->events[i].action < GAP__ACT_COUNT);
    FUZZ_CHECK(device->events[i].pool < history->pool_count);
    FUZZ_CHECK(device->events[i].stack < history->stack_count);
  }
}

static inline void check_stacks(const struct gap__history *history) {
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

static inline void check_segments(const struct gap__history *history) {
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

static inline void use_history(const struct gap__history *history) {
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

static inline void check_history(const struct gap__history *history) {
  check_stacks(history);
  check_segments(history);
  use_history(history);
}

#endif
