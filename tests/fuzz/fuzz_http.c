/* The head of an HTTP request on arbitrary bytes, whole and as it comes in byte by byte: the answer is the same, a path is text without
 * blanks, and a head that is too long is refused. */
#include <string.h>

#include "fuzz.h"
#include "toolsapi/http_request.h"

static int first_status(const char *bytes, size_t length, size_t *read, struct gap__http_request *out) {
  int status = 0;
  for (*read = 0; *read < length && !status; ++*read) status = gap__http_read(bytes, *read + 1, out);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__http_request whole, piecewise;
  size_t length = bytes < 2 * GAP__HTTP_HEAD_MOST ? bytes : 2 * GAP__HTTP_HEAD_MOST, read;
  char *copy = calloc(length ? length : 1, 1); /* so that a read behind the end is seen */
  FUZZ_CHECK(copy);
  if (length) memcpy(copy, data, length);
  int status = gap__http_read(copy, length, &whole);
  FUZZ_CHECK(status == 0 || status == 200 || status == 400 || status == 405 || status == 414 || status == 431 ||
             status == 505);
  FUZZ_CHECK(status != 0 || length < GAP__HTTP_HEAD_MOST);
  if (length < 600) {
    FUZZ_CHECK(first_status(copy, length, &read, &piecewise) == status);
    if (status == 200) FUZZ_CHECK(strcmp(whole.path, piecewise.path) == 0 && whole.is_head == piecewise.is_head);
  }
  if (status == 200) {
    FUZZ_CHECK(whole.path[0] == '/' && strlen(whole.path) < sizeof whole.path);
    for (const char *at = whole.path; *at; at++) FUZZ_CHECK(*at > ' ' && *at <= '~' && *at != '?');
  }
  free(copy);
  return 0;
}
