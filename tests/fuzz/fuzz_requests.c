/* The reader of request traces on arbitrary bytes: requests within their limits, or a message. */
#include <string.h>

#include "fuzz.h"
#include "serving/requests.h"
#include "trace/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__input input;
  struct gap__requests requests;
  char *message = NULL;
  int rc = gap__input_open_memory(&input, data, bytes, &message);
  if (!rc) rc = gap__requests_read_opened(&input, 0, &requests, &message);
  FUZZ_CHECK((rc == 0) == (message == NULL));
  free(message);
  if (rc) return 0;
  FUZZ_CHECK(requests.count > 0);
  for (uint64_t i = 0; i < requests.count; i++) {
    const struct gap__request_line *line = &requests.at[i];
    FUZZ_CHECK(line->input > 0 && line->input <= GAP__REQUEST_TOKENS_MOST && line->output <= GAP__REQUEST_TOKENS_MOST);
    FUZZ_CHECK(line->input + line->output <= requests.longest);
    FUZZ_CHECK(line->block_count == 0 || line->block_first + (uint64_t)line->block_count <= requests.block_count);
    FUZZ_CHECK(gap__request_token(&requests, i, 0) >= 0 &&
               gap__request_token(&requests, i, line->input + line->output) >= 0);
  }
  gap__requests_free(&requests);
  return 0;
}
