#include "api/talk.h"

#include <stdio.h>
#include <string.h>

void gap__talk_uuid(const unsigned char uuid[16], char out[GAP__TALK_UUID_BYTES]) {
  bool known = false;
  for (int i = 0; i < 16; i++) {
    snprintf(out + 2 * i, 3, "%02x", uuid[i]);
    known |= uuid[i] != 0;
  }
  if (!known) *out = '\0';
}

size_t gap__talk_write_request(char out[GAP__TALK_MOST], const char *uuid, uint64_t bytes) {
  return (size_t)snprintf(out, GAP__TALK_MOST, "gapless give 1 %s %llu\n", uuid, (unsigned long long)bytes);
}

size_t gap__talk_write_answer(char out[GAP__TALK_MOST], const struct gap__given *given) {
  return (size_t)snprintf(out, GAP__TALK_MOST, "gapless gave 1 %llu %llu %llu %llu\n", (unsigned long long)given->given,
                          (unsigned long long)given->kept, (unsigned long long)given->in_ms,
                          (unsigned long long)given->held);
}

/* ---- reading: nothing but what is written above passes ---- */

struct reader {
  const char *at, *end;
};

static bool take(struct reader *r, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
  r->at += length;
  return true;
}

static bool take_number(struct reader *r, uint64_t *out) {
  const char *begin = r->at;
  for (*out = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, (uint64_t)(*r->at - '0'), out))
      return false;
  return r->at > begin;
}

static bool at_end(const struct reader *r) { return r->at == r->end; }

bool gap__talk_read_request(const char *text, size_t length, const char *uuid, uint64_t *bytes) {
  struct reader r = {text, text + length};
  return take(&r, "gapless give 1 ") && take(&r, uuid) && take(&r, " ") && take_number(&r, bytes) && take(&r, "\n") &&
         at_end(&r);
}

bool gap__talk_read_answer(const char *text, size_t length, struct gap__given *out) {
  struct reader r = {text, text + length};
  return take(&r, "gapless gave 1 ") && take_number(&r, &out->given) && take(&r, " ") && take_number(&r, &out->kept) &&
         take(&r, " ") && take_number(&r, &out->in_ms) && take(&r, " ") && take_number(&r, &out->held) &&
         take(&r, "\n") && at_end(&r);
}
