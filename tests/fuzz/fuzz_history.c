/* The history reader on arbitrary bytes: it answers with a history whose every index is in range, or with a message; the
 * quick way for trace entries and the plain one give the same. */
#include <string.h>

#include "check_history.h"
#include "trace/history.h"
#include "trace/message.h"
#include "trace/snapshot.h"

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
  if (!rc) check_history(history);
  gap__history_free(plain);
  gap__history_free(history);
  free(message);
  return 0;
}
