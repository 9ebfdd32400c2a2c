/* The reader of gapless's own trace on arbitrary parcels: lengths, checksums and numbers are put right, so that what is in them
 * is what is tried.  What is read is written and read again, and is the same. */
#include <string.h>

#include "base/text.h"
#include "check_history.h"
#include "gapless/gapless.h"
#include "record/crc.h"
#include "trace/recording.h"

static int into_text(void *arg, const void *bytes, size_t count) {
  gap__text_add_bytes(arg, bytes, count);
  return 0;
}

static void add_number(struct gap__text *text, uint32_t number) {
  for (int i = 0; i < 4; i++, number >>= 8) gap__text_add_char(text, (char)number);
}

static void add_parcel(struct gap__text *text, unsigned char sequence, const uint8_t *data, size_t bytes) {
  struct gap__text payload = {0};
  gap__text_add_char(&payload, (char)sequence);
  gap__text_add_bytes(&payload, (const char *)data, bytes);
  add_number(text, (uint32_t)payload.length);
  add_number(text, gap__crc32(payload.bytes, payload.length));
  gap__text_add_bytes(text, payload.bytes, payload.length);
  gap__text_free(&payload);
}

/* A byte is the length of the parcel that follows it; an odd first byte gives a good header. */
static void make_trace(struct gap__text *text, const uint8_t *data, size_t bytes) {
  static const uint8_t header[] = {
      0, GAP__RECORD_LONG, GAP__PART_HEADER, 9, GAP__RECORD_VERSION, 0xE8, 7, 0, 1, 1, 0, 0, 0};
  unsigned char sequence = 0;
  gap__text_add_bytes(text, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES);
  if (bytes && data[0] & 1) add_parcel(text, sequence++, header, sizeof header);
  if (bytes) data++, bytes--;
  while (bytes && sequence < 0x80) {
    size_t length = data[0] < bytes - 1 ? data[0] : bytes - 1;
    add_parcel(text, sequence++, data + 1, length);
    data += 1 + length;
    bytes -= 1 + length;
  }
}

static void check_again(const struct gap__history *history) {
  struct gap__text text = {0};
  struct gap__history *again;
  char *message;
  FUZZ_CHECK(gap__history_record(history, into_text, &text) == 0);
  FUZZ_CHECK(gap__history_read_memory(text.bytes, text.length, &again, &message) == 0);
  FUZZ_CHECK(!again->is_torn && again->device_count == history->device_count);
  FUZZ_CHECK(again->segment_count == history->segment_count && again->block_count == history->block_count);
  FUZZ_CHECK(again->stack_count == history->stack_count && again->frame_count == history->frame_count);
  for (uint32_t i = 0; i < history->device_count; i++) {
    const struct gap__hist_device *a = &history->devices[i], *b = &again->devices[i];
    FUZZ_CHECK(a->event_count == b->event_count && a->facts.present == b->facts.present);
    for (uint64_t j = 0; j < a->event_count; j++)
      FUZZ_CHECK(a->events[j].addr == b->events[j].addr && a->events[j].size == b->events[j].size &&
                 a->events[j].time_us == b->events[j].time_us && a->events[j].stream == b->events[j].stream);
  }
  gap__history_free(again);
  gap__text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__text text = {0};
  struct gap__history *history;
  char *message;
  make_trace(&text, data, bytes);
  int rc = gap__history_read_memory(text.bytes, text.length, &history, &message);
  FUZZ_CHECK((rc == 0) == (history != NULL) && (rc == 0) == (message == NULL));
  if (!rc) {
    check_history(history);
    check_again(history);
  }
  gap__history_free(history);
  free(message);
  gap__text_free(&text);
  return 0;
}
