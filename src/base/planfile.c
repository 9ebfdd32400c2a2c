/* Plan files: numbers of fixed length first, then five variable-length numbers a request, then a sum over all of it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/planfile.h"
#include "gapless/gapless.h"

static const char magic[8] = "GAPPLAN";
enum { VERSION = 1, HEAD_BYTES = 48, SUM_BYTES = 8, ENTRY_BYTES_MIN = 5, ENTRY_BYTES_MAX = 50, STREAMS_MAX = 4096 };

static uint64_t sum_of(const unsigned char *data, size_t bytes) { /* FNV-1a */
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ data[i]) * 0x100000001b3;
  return sum;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (unsigned char)(value >> 8 * i);
  return at;
}

static unsigned char *put_varint(unsigned char *at, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = (unsigned char)(value | 0x80);
  *at++ = (unsigned char)value;
  return at;
}

int gap__planfile_encode(const struct gap__planfile *plan, unsigned char **out, size_t *bytes) {
  size_t room = HEAD_BYTES + (size_t)plan->stream_count * 8 + (size_t)plan->count * ENTRY_BYTES_MAX + SUM_BYTES;
  unsigned char *data = malloc(room), *at = data;
  if (!data) return GAP_ENOMETA;
  memcpy(at, magic, sizeof magic);
  at = put(at + sizeof magic, VERSION, 4);
  at = put(at, plan->stream_count, 4);
  at = put(at, plan->count, 4);
  at = put(at, plan->moments, 4);
  at = put(at, plan->plan_bytes, 8);
  at = put(at, plan->bound_bytes, 8);
  at = put(at, plan->total_bytes, 8);
  for (uint32_t i = 0; i < plan->stream_count; i++) at = put(at, plan->streams[i], 8);
  for (uint32_t i = 0, before = 0; i < plan->count; before = plan->at[i++].from) {
    const struct gap__plan_entry *entry = &plan->at[i];
    at = put_varint(at, entry->from - before);
    at = put_varint(at, entry->to - entry->from);
    at = put_varint(at, entry->bytes);
    at = put_varint(at, entry->stream);
    at = put_varint(at, entry->offset);
  }
  at = put(at, sum_of(data, (size_t)(at - data)), 8);
  *bytes = (size_t)(at - data);
  *out = data;
  return 0;
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

static int __attribute__((format(printf, 3, 4))) refuse(struct gap__text *why, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  gap__text_addv(why, format, args);
  va_end(args);
  return code;
}

struct cursor {
  const unsigned char *start, *at, *end;
  bool failed; /* went beyond the end, or a number has more than 64 bits */
};

static uint64_t get(struct cursor *cursor, int bytes) {
  uint64_t value = 0;
  if (cursor->end - cursor->at < bytes) {
    cursor->failed = true;
    return 0;
  }
  for (int i = 0; i < bytes; i++) value |= (uint64_t)*cursor->at++ << 8 * i;
  return value;
}

static uint64_t get_varint(struct cursor *cursor) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
    unsigned char byte = *cursor->at++;
    if (shift == 63 && byte > 1) break;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
  cursor->failed = true;
  return 0;
}

static int read_head(struct cursor *cursor, uint32_t most, struct gap__planfile *plan, struct gap__text *why) {
  if (cursor->end - cursor->at < HEAD_BYTES + SUM_BYTES || memcmp(cursor->at, magic, sizeof magic) != 0)
    return refuse(why, GAP_EFORMAT, "not a plan file");
  cursor->at += sizeof magic;
  uint64_t version = get(cursor, 4);
  if (version != VERSION)
    return refuse(why, GAP_EFORMAT, "a plan of version %" PRIu64 "; this program knows %d", version, VERSION);
  plan->stream_count = (uint32_t)get(cursor, 4);
  plan->count = (uint32_t)get(cursor, 4);
  plan->moments = (uint32_t)get(cursor, 4);
  plan->plan_bytes = get(cursor, 8);
  plan->bound_bytes = get(cursor, 8);
  plan->total_bytes = get(cursor, 8);
  cursor->end -= SUM_BYTES;
  size_t left = (size_t)(cursor->end - cursor->at);
  if (plan->stream_count == 0 || plan->stream_count > STREAMS_MAX || plan->count > most ||
      plan->moments > (uint64_t)2 * plan->count)
    return refuse(why, GAP_ELIMIT, "the head's counts are beyond what a plan may have");
  if (left < (size_t)plan->stream_count * 8 + (size_t)plan->count * ENTRY_BYTES_MIN)
    return refuse(why, GAP_EFORMAT, "the file ends before its last request");
  return 0;
}

static int read_entry(struct cursor *cursor, struct gap__planfile *plan, uint32_t index, struct gap__text *why) {
  struct gap__plan_entry *entry = &plan->at[index];
  uint64_t before = index ? plan->at[index - 1].from : 0; /* at most `moments`: so it was checked */
  uint64_t from = get_varint(cursor), length = get_varint(cursor);
  entry->align = 1;
  entry->bytes = get_varint(cursor);
  uint64_t stream = get_varint(cursor);
  entry->offset = get_varint(cursor);
  if (cursor->failed || from > plan->moments - before || length > plan->moments - before - from ||
      stream >= plan->stream_count)
    return refuse(why, GAP_EFORMAT, "request %" PRIu32 " at byte %td is malformed", index, cursor->at - cursor->start);
  entry->from = (uint32_t)(before + from);
  entry->to = (uint32_t)(before + from + length);
  entry->stream = (uint32_t)stream;
  return 0;
}

static int read_body(struct cursor *cursor, struct gap__planfile *plan, struct gap__text *why) {
  int rc = 0;
  plan->streams = calloc(plan->stream_count, sizeof *plan->streams);
  plan->at = calloc((size_t)plan->count + 1, sizeof *plan->at);
  if (!plan->streams || !plan->at) return GAP_ENOMETA;
  for (uint32_t i = 0; i < plan->stream_count; i++) plan->streams[i] = get(cursor, 8);
  for (uint32_t i = 0; !rc && i < plan->count; i++) rc = read_entry(cursor, plan, i, why);
  if (!rc && cursor->at != cursor->end)
    rc = refuse(why, GAP_EFORMAT, "%td bytes are left after the last request", cursor->end - cursor->at);
  return rc;
}

/* What a head claims must be true of the requests: a reader sizes its memory by it. */
static int check_sums(const struct gap__planfile *plan, struct gap__text *why) {
  uint64_t total = 0, height = 0;
  for (uint32_t i = 0; i < plan->count; i++) {
    total += plan->at[i].bytes;
    if (plan->at[i].offset + plan->at[i].bytes > height) height = plan->at[i].offset + plan->at[i].bytes;
  }
  if (total == plan->total_bytes && height == plan->plan_bytes && plan->bound_bytes <= height) return 0;
  return refuse(why, GAP_EFORMAT, "the head's sums are not those of the requests");
}

int gap__planfile_decode(const unsigned char *data, size_t bytes, uint32_t most, struct gap__planfile *plan,
                         struct gap__text *why) {
  struct cursor cursor = {data, data, data + bytes, false};
  *plan = (struct gap__planfile){0};
  int rc = read_head(&cursor, most, plan, why);
  if (!rc) {
    struct cursor sum = {data, cursor.end, data + bytes, false};
    if (get(&sum, 8) != sum_of(data, bytes - SUM_BYTES))
      rc = refuse(why, GAP_EFORMAT, "the file is damaged: its sum does not match");
  }
  if (!rc) rc = read_body(&cursor, plan, why);
  if (!rc) rc = gap__planfile_check(plan, why);
  if (rc == GAP_EMISMATCH) rc = GAP_EFORMAT;
  if (!rc) rc = check_sums(plan, why);
  if (rc) gap__planfile_free(plan);
  return rc;
}

void gap__planfile_free(struct gap__planfile *plan) {
  free(plan->at);
  free(plan->streams);
  *plan = (struct gap__planfile){0};
}
