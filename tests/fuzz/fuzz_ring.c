/* The reader of the ring of last events on arbitrary slots, words and states: the head, lengths and sums are put right where the input says
 * so, so that what is in them is what is tried.  A lost slot costs itself, and nothing else. */
#include <string.h>

#include "base/text.h"
#include "check_history.h"
#include "gapless/gapless.h"
#include "record/crc.h"
#include "record/ring.h"
#include "trace/history.h"

enum { SLOTS = GAP__RING_SLOTS_LEAST, AREA = 512 };

struct made {
  unsigned char bytes[GAP__RING_HEAD_BYTES + 3 * AREA + SLOTS * GAP__RING_SLOT_BYTES];
};

struct taken {
  const uint8_t *at;
  size_t left;
};

static uint8_t take(struct taken *input) {
  if (input->left == 0) return 0;
  input->left--;
  return *input->at++;
}

static uint64_t take_number(struct taken *input, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number = number << 8 | take(input);
  return number;
}

static size_t take_bytes(struct taken *input, unsigned char *to, size_t most) {
  size_t bytes = take(input);
  if (bytes > most) bytes = most;
  for (size_t i = 0; i < bytes; i++) to[i] = take(input);
  return bytes;
}

/* A parcel of arbitrary records, whole. */
static size_t add_parcel(struct taken *input, unsigned char *to, size_t most) {
  if (most < GAP__RECORD_HEAD_BYTES) return 0;
  size_t bytes = take_bytes(input, to + GAP__RECORD_HEAD_BYTES, most - GAP__RECORD_HEAD_BYTES);
  uint32_t about[2] = {(uint32_t)bytes, gap__crc32(to + GAP__RECORD_HEAD_BYTES, bytes)};
  memcpy(to, about, sizeof about);
  return GAP__RECORD_HEAD_BYTES + bytes;
}

static size_t make_words(struct taken *input, unsigned char *to) {
  static const uint8_t header[] = {
      0, 0, GAP__RECORD_LONG, GAP__PART_HEADER, 9, GAP__RECORD_VERSION, 0xE8, 7, 0, 1, 1, 0, 0, 0};
  uint32_t about[2] = {sizeof header, gap__crc32(header, sizeof header)};
  size_t used = GAP__RECORD_MAGIC_BYTES;
  memcpy(to, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES);
  memcpy(to + used, about, sizeof about);
  memcpy(to + used + sizeof about, header, sizeof header);
  used += sizeof about + sizeof header;
  for (unsigned i = take(input) % 4; i; i--) used += add_parcel(input, to + used, AREA - used);
  return used;
}

static void make_state(struct taken *input, unsigned char *to) {
  struct gap__ring_state_head head = {.number = take_number(input, 2)};
  unsigned char *at = to + sizeof head;
  for (unsigned i = take(input) % 4; i; i--) at += add_parcel(input, at, (size_t)(to + AREA - at));
  head.bytes = (uint64_t)(at - to) - sizeof head;
  head.crc = gap__crc32(to + sizeof head, head.bytes);
  if (take(input) & 1) head.crc ^= 1;
  memcpy(to, &head, sizeof head);
}

/* Small numbers, so that events meet at the same addresses. */
static void make_slot(struct taken *input, uint64_t number, unsigned char *slots) {
  uint64_t words[GAP__RING_SLOT_WORDS];
  uint8_t kind = take(input), place = take(input);
  struct gap__ring_event event = {.kind = kind & 31,
                                  .flags = kind >> 6,
                                  .ticks = take_number(input, 2),
                                  .addr = (uint64_t)(place & 15) << 21,
                                  .bytes = (uint64_t)(place >> 4) << 20,
                                  .stream = kind >> 5 & 1,
                                  .pool = place & 1};
  event.requested = event.bytes - (place >> 4 ? place & 3 : 0);
  if (place == 0xFF) event.addr = take_number(input, 8), event.bytes = take_number(input, 8);
  if (place == 0xFE) event.device = (uint16_t)take_number(input, 2), event.stack = take(input);
  gap__ring_pack(number, &event, words);
  if (place == 0xFD) words[3] ^= 1;
  memcpy(slots + number % SLOTS * sizeof words, words, sizeof words);
}

static void make_ring(struct made *made, struct taken *input) {
  struct gap__ring_head head = {.version = GAP__RING_VERSION, .slots = SLOTS, .words_bytes = AREA, .state_bytes = AREA};
  unsigned char *words = made->bytes + GAP__RING_HEAD_BYTES, *slots = words + 3 * AREA;
  uint64_t given = take_number(input, 2);
  memcpy(head.magic, GAP__RING_MAGIC, GAP__RING_MAGIC_BYTES);
  head.crc = gap__crc32(&head.slots, offsetof(struct gap__ring_head, given) - offsetof(struct gap__ring_head, slots));
  atomic_store(&head.words_used, make_words(input, words));
  for (int i = 0; i < GAP__RING_STATES; i++) make_state(input, words + (1 + i) * AREA);
  for (uint64_t number = given; input->left && number < given + SLOTS; number++) make_slot(input, number, slots);
  atomic_store(&head.given, given + take(input));
  memcpy(made->bytes, &head, sizeof head);
}

static void read_it(const void *bytes, size_t count) {
  struct gap__history *history;
  char *message;
  int rc = gap__history_read_memory(bytes, count, &history, &message);
  FUZZ_CHECK((rc == 0) == (history != NULL) && (rc == 0) == (message == NULL));
  if (!rc) check_history(history);
  gap__history_free(history);
  free(message);
}

/* An even first byte: the file as it is, behind the magic. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct taken input = {data, bytes};
  struct made *made = calloc(1, sizeof *made);
  FUZZ_CHECK(made);
  if (take(&input) & 1) {
    size_t cut = (size_t)take(&input);
    make_ring(made, &input);
    read_it(made->bytes, sizeof made->bytes - cut * 100);
  } else {
    size_t length = input.left < sizeof made->bytes - GAP__RING_MAGIC_BYTES ? input.left : 0;
    memcpy(made->bytes, GAP__RING_MAGIC, GAP__RING_MAGIC_BYTES);
    if (length) memcpy(made->bytes + GAP__RING_MAGIC_BYTES, input.at, length);
    read_it(made->bytes, GAP__RING_MAGIC_BYTES + length);
  }
  free(made);
  return 0;
}
