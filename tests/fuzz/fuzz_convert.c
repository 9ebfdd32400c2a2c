/* Every format's writer on histories of arbitrary bytes: a pickle read again is the same history, what can be read at all is read, and text
 * that claims to be JSON is. */
#include <jansson.h>
#include <string.h>

#include "fuzz.h"
#include "trace/formats.h"

static struct gap__text written_from(const struct gap__history *history, const struct gap__format *format,
                                     uint64_t blocks_from) {
  struct gap__output output;
  struct gap__writing writing = {.history = history, .out = &output, .blocks_from = blocks_from};
  struct gap__text text = {0};
  uint64_t bytes;
  char *message = NULL;
  FUZZ_CHECK(gap__output_open(&output, NULL, GAP__ENC_PLAIN, &message) == 0);
  output.sink = &text;
  FUZZ_CHECK(gap__output_close(&output, format->write(&writing), &bytes, &message) == 0);
  FUZZ_CHECK(!text.failed && text.length == bytes);
  return text;
}

static struct gap__text written(const struct gap__history *history, const struct gap__format *format) {
  return written_from(history, format, 0);
}

static bool same_event(const struct gap__hist_event *a, const struct gap__hist_event *b) {
  return a->addr == b->addr && a->size == b->size && a->stream == b->stream && a->time_us == b->time_us &&
         a->pool == b->pool && a->action == b->action && (a->stack == 0) == (b->stack == 0);
}

static void check_same(const struct gap__history *a, const struct gap__history *b) {
  FUZZ_CHECK(a->device_count == b->device_count && a->segment_count == b->segment_count);
  FUZZ_CHECK(a->block_count == b->block_count && a->time_base_us == b->time_base_us);
  for (uint32_t i = 0; i < a->device_count; i++) {
    FUZZ_CHECK(a->devices[i].event_count == b->devices[i].event_count);
    FUZZ_CHECK(a->devices[i].wrapped == b->devices[i].wrapped);
    for (uint64_t j = 0; j < a->devices[i].event_count; j++)
      FUZZ_CHECK(same_event(&a->devices[i].events[j], &b->devices[i].events[j]));
  }
}

/* Twice: what a reader mends the first time, it finds in order the second time. */
static void check_pickle(const struct gap__history *history) {
  const struct gap__format *pickle = gap__format_named("pickle");
  struct gap__text first = written(history, pickle);
  struct gap__history *once, *twice;
  char *message;
  FUZZ_CHECK(gap__history_read_memory(first.bytes, first.length, &once, &message) == 0);
  struct gap__text second = written(once, pickle);
  FUZZ_CHECK(gap__history_read_memory(second.bytes, second.length, &twice, &message) == 0);
  check_same(once, twice);
  gap__text_free(&first);
  gap__text_free(&second);
  gap__history_free(once);
  gap__history_free(twice);
}

static bool is_utf8(const struct gap__history *history) {
  for (uint64_t i = 0; i < history->text_bytes; i++)
    if ((unsigned char)history->text[i] >= 0x80) return false;
  for (const char *at = history->settings_text; *at; at++)
    if ((unsigned char)*at >= 0x80) return false;
  return true;
}

static void check_json(const struct gap__history *history, const char *name, uint64_t blocks_from) {
  struct gap__text text = written_from(history, gap__format_named(name), blocks_from);
  json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
  FUZZ_CHECK(root != NULL || !is_utf8(history));
  json_decref(root);
  gap__text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__history *history;
  char *message;
  int rc = gap__history_read_memory(data, bytes, &history, &message);
  free(message);
  if (rc) return 0;
  check_pickle(history);
  if (history->device_count) {
    check_json(history, "json", 0);
    check_json(history, "perfetto", 0);
    check_json(history, "perfetto", 4096);
  }
  const struct gap__format *format;
  for (uint32_t i = 0; history->device_count && (format = gap__format_at(i)) != NULL; i++) {
    if (!format->write) continue;
    struct gap__text text = written(history, format), lost = {0};
    gap__format_losses(format, history, 0, &lost);
    gap__text_free(&text);
    gap__text_free(&lost);
  }
  gap__history_free(history);
  return 0;
}
