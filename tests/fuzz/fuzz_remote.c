/* The list of servers and the header of a piece on arbitrary bytes: the first byte says which.  What is read is in range and comes back when it is
 * written; what is refused has a reason, which repeats none of the text. */
#include <string.h>

#include "fuzz.h"
#include "piece.h"
#include "url.h"

enum { ROOM = 8 };

static char *copy_text(const uint8_t *data, size_t bytes) {
  char *text = malloc(bytes + 1);
  FUZZ_CHECK(text);
  if (bytes) memcpy(text, data, bytes);
  text[bytes] = '\0';
  return text;
}

static void check_url(const struct gap__remote_url *url) {
  char name[GAP__REMOTE_NAME_BYTES], message[400] = "";
  static struct gap__remote_url again[1];
  uint32_t count = 0;
  FUZZ_CHECK(url->host[0] && memchr(url->host, '\0', sizeof url->host) && url->port && url->database <= 65535);
  FUZZ_CHECK(memchr(url->user, '\0', sizeof url->user) && memchr(url->password, '\0', sizeof url->password));
  FUZZ_CHECK(url->has_password == (url->password[0] != '\0'));
  gap__remote_url_name(url, name);
  FUZZ_CHECK(gap__remote_url_parse(name, again, 1, &count, message, sizeof message) == 0 && count == 1);
  FUZZ_CHECK(strcmp(again->host, url->host) == 0 && again->port == url->port && again->tls == url->tls &&
             again->database == url->database && !again->user[0] && !again->has_password);
}

static void try_urls(const uint8_t *data, size_t bytes) {
  static struct gap__remote_url urls[ROOM];
  char *text = copy_text(data, bytes), message[400] = "";
  uint32_t count = 0;
  int rc = gap__remote_url_parse(text, urls, ROOM, &count, message, sizeof message);
  if (rc == 0) {
    FUZZ_CHECK(count >= 1 && count <= ROOM);
    for (uint32_t i = 0; i < count; i++) check_url(&urls[i]);
  } else {
    FUZZ_CHECK(rc == GAP_EVALUE && strncmp(message, "server ", 7) == 0);
  }
  free(text);
}

static void try_piece(const uint8_t *data, size_t bytes) {
  uint8_t written[GAP__PIECE_HEADER_BYTES];
  struct gap__piece p;
  uint8_t *copy = calloc(bytes ? bytes : 1, 1); /* so that a read behind the end is seen */
  FUZZ_CHECK(copy);
  if (bytes) memcpy(copy, data, bytes);
  if (gap__piece_read(copy, bytes, &p)) {
    FUZZ_CHECK(bytes == (size_t)GAP__PIECE_HEADER_BYTES + p.bytes && p.index < p.count);
    FUZZ_CHECK((uint64_t)p.index * p.piece_bytes + p.bytes <= p.total_bytes);
    gap__piece_write(&p, written);
    FUZZ_CHECK(memcmp(written, copy, sizeof written) == 0);
  }
  free(copy);
}

/* Few inputs have a checksum that is right: here it is made so. */
static void try_mended(const uint8_t *data, size_t bytes) {
  enum { CHECKED = GAP__PIECE_HEADER_BYTES - 8 };
  uint8_t *copy = malloc(bytes + 1);
  FUZZ_CHECK(copy);
  if (bytes) memcpy(copy, data, bytes);
  if (bytes >= GAP__PIECE_HEADER_BYTES) {
    uint64_t check = gap__piece_sum(copy, CHECKED);
    for (int i = 0; i < 8; i++) copy[CHECKED + i] = (uint8_t)(check >> (8 * i));
  }
  try_piece(copy, bytes);
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  switch (data[0]) {
    case 'u': try_urls(data + 1, bytes - 1); break;
    case 'p': try_piece(data + 1, bytes - 1); break;
    default: try_mended(data + 1, bytes - 1);
  }
  return 0;
}
