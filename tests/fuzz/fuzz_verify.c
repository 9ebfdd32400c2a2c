/* Verification of any history, also one that contradicts itself: it ends, with a verdict, and names an event that exists. */
#include <string.h>

#include "fuzz.h"
#include "gapless/gapless.h"
#include "replay/verify_native.h"

static void verify(const struct gap__history *history, uint32_t device) {
  struct gap__conf_set *set = gap__conf_new();
  struct gap__verify_result result;
  FUZZ_CHECK(set);
  int rc = gap__verify_native(history, device, gap__conf_values(set), 0, &result);
  FUZZ_CHECK(rc == 0 || rc == GAP_EMISMATCH || rc == GAP_ENOTSUP || rc == GAP_ENOMETA);
  FUZZ_CHECK(result.event <= history->devices[device].event_count && result.events == result.event);
  FUZZ_CHECK((rc == 0) == (result.text[0] == '\0') || rc == GAP_ENOMETA);
  gap__conf_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__history *history;
  char *message;
  if (gap__history_read_memory(data, bytes, &history, &message)) {
    free(message);
    return 0;
  }
  for (uint32_t i = 0; i < history->device_count; i++) verify(history, i);
  gap__history_free(history);
  return 0;
}
