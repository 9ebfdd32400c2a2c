/* The reader of RMM logs on arbitrary bytes: a history or a message; a history is written as a log that says the same. */
#include <string.h>

#include "fuzz.h"
#include "trace/formats.h"

static int read_log(const uint8_t *data, size_t bytes, struct gap__history **out) {
  struct gap__input input;
  char *message = NULL;
  int rc = gap__input_open_memory(&input, data, bytes, &message);
  if (!rc) rc = gap__rmm_read(&input, out, &message);
  gap__input_close(&input);
  FUZZ_CHECK((rc == 0) == (message == NULL));
  free(message);
  return rc;
}

static void write_log(const struct gap__history *history, struct gap__text *text) {
  struct gap__output output;
  struct gap__writing writing = {.history = history, .out = &output};
  uint64_t written;
  char *message = NULL;
  FUZZ_CHECK(gap__output_open(&output, NULL, GAP__ENC_PLAIN, &message) == 0);
  output.sink = text;
  FUZZ_CHECK(gap__output_close(&output, gap__write_rmm(&writing), &written, &message) == 0);
  FUZZ_CHECK(!text->failed && text->length == written);
}

/* True when a log can say the times: it has no dates, so a pause of a day is none. */
static bool check_events(const struct gap__hist_device *device) {
  int64_t last = 0, longest = 0, hour = (int64_t)3600 * 1000000;
  for (uint64_t i = 0; i < device->event_count; i++) {
    FUZZ_CHECK(device->events[i].action < GAP__ACT_COUNT && device->events[i].time_us >= last);
    if (device->events[i].time_us - last > longest) longest = device->events[i].time_us - last;
    last = device->events[i].time_us;
  }
  return longest < 23 * hour;
}

/* What was written and read once is written the same again. */
static void check_again(const struct gap__history *history) {
  struct gap__text first = {0}, second = {0};
  struct gap__history *again = NULL;
  write_log(history, &first);
  FUZZ_CHECK(read_log((const uint8_t *)first.bytes, first.length, &again) == 0);
  check_events(&again->devices[0]);
  write_log(again, &second);
  FUZZ_CHECK(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0);
  gap__history_free(again);
  gap__text_free(&first);
  gap__text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__history *history = NULL;
  if (read_log(data, bytes, &history)) return 0;
  if (check_events(&history->devices[0])) check_again(history);
  gap__history_free(history);
  return 0;
}
