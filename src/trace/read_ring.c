/* The ring of last events (record/ring.h) as a trace, which the reader of traces then reads.
 *
 * Slots are taken in the order of their numbers; one whose sum is not that of its number was not whole when the program ended, and
 * counts as lost.  What the heap held is put where its number says, if all events since are there to tell the rest. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "record/crc.h"
#include "record/ring.h"
#include "record/writer.h"
#include "trace/formats.h"
#include "trace/message.h"
#include "trace/recording.h"

#define TIME_MOST_US 1e15 /* thirty years either way */
enum { PIECE_BYTES = 64 << 10 };

struct clock {
  uint64_t ticks;
  double us, us_a_tick;
};

struct state {
  uint64_t number;
  struct gap__text parcels; /* of length 0: there is none */
};

struct reader {
  struct gap__input *input;
  char **message;
  struct gap__ring_head head;
  uint64_t given; /* numbers in all; those from `first` on may be there */
  uint64_t first;
  struct gap__text words, slots;
  struct state state; /* the newest that is whole */
  struct clock clock;
  int64_t tick;    /* of the last event: time does not go back */
  uint64_t lost;   /* numbers whose slot does not have them */
  uint32_t stacks; /* that the words tell */
  struct gap__text trace;
  struct gap__record_writer *writer;
};

static int fail(const struct reader *reader, const char *what) {
  return gap__message_set(reader->message, GAP_EFORMAT, "%s", what);
}

static int no_memory(const struct reader *reader) {
  return gap__message_set(reader->message, GAP_ENOMETA, "out of host memory");
}

/* ---- the pieces of the file ---------------------------------------------------------------------------------------- */

/* Reads `bytes` and keeps the first of them; a file that ends before has less. */
static int take_area(struct reader *reader, uint64_t bytes, uint64_t keep, struct gap__text *out) {
  char piece[PIECE_BYTES];
  for (uint64_t done = 0; done < bytes;) {
    size_t want = bytes - done < sizeof piece ? (size_t)(bytes - done) : sizeof piece, got = 0;
    int rc = gap__input_take(reader->input, piece, want, &got, reader->message);
    if (rc) return rc;
    if (done < keep) gap__text_add_bytes(out, piece, keep - done < got ? (size_t)(keep - done) : got);
    if (out->failed) return no_memory(reader);
    done += got;
    if (got < want) break;
  }
  return 0;
}

static bool is_sound(const struct gap__ring_head *head) {
  const size_t from = offsetof(struct gap__ring_head, slots);
  const unsigned char *bytes = (const unsigned char *)head;
  return gap__crc32(bytes + from, offsetof(struct gap__ring_head, given) - from) == head->crc &&
         head->slots >= GAP__RING_SLOTS_LEAST && head->slots <= GAP__RING_SLOTS_MOST &&
         (head->slots & (head->slots - 1)) == 0 && head->words_bytes <= GAP__RING_AREA_MOST &&
         head->state_bytes <= GAP__RING_AREA_MOST && head->state_bytes >= sizeof(struct gap__ring_state_head);
}

static int take_head(struct reader *reader) {
  struct gap__text bytes = {0};
  int rc = take_area(reader, GAP__RING_HEAD_BYTES, GAP__RING_HEAD_BYTES, &bytes);
  bool is_whole = bytes.length == GAP__RING_HEAD_BYTES;
  if (is_whole) memcpy(&reader->head, bytes.bytes, sizeof reader->head);
  gap__text_free(&bytes);
  if (rc) return rc;
  if (!is_whole) return fail(reader, "a ring without a whole head");
  if (reader->head.version != GAP__RING_VERSION)
    return gap__message_set(reader->message, GAP_EFORMAT, "a ring of version %u, which this gapless does not know",
                            reader->head.version);
  if (!is_sound(&reader->head)) return fail(reader, "a ring whose head cannot be");
  reader->given = atomic_load(&reader->head.given);
  reader->first = reader->given > reader->head.slots ? reader->given - reader->head.slots : 0;
  return 0;
}

static bool state_is_good(const struct reader *reader, const struct gap__ring_state_head *head,
                          const struct gap__text *parcels) {
  return head->bytes && head->bytes == parcels->length && head->number >= reader->first &&
         head->number <= reader->given && gap__crc32(parcels->bytes, parcels->length) == head->crc;
}

static int take_state(struct reader *reader) {
  struct gap__text about = {0}, parcels = {0};
  struct gap__ring_state_head head = {0};
  uint64_t room = reader->head.state_bytes - sizeof head;
  int rc = take_area(reader, sizeof head, sizeof head, &about);
  if (!rc && about.length == sizeof head) memcpy(&head, about.bytes, sizeof head);
  gap__text_free(&about);
  if (!rc) rc = take_area(reader, room, head.bytes < room ? head.bytes : room, &parcels);
  bool is_newest = !rc && state_is_good(reader, &head, &parcels) &&
                   (!reader->state.parcels.length || head.number > reader->state.number);
  if (!is_newest) {
    gap__text_free(&parcels);
    return rc;
  }
  gap__text_free(&reader->state.parcels);
  reader->state = (struct state){head.number, parcels};
  return 0;
}

static int take_file(struct reader *reader) {
  int rc = take_head(reader);
  uint64_t slots = reader->head.slots * GAP__RING_SLOT_BYTES;
  if (!rc) rc = take_area(reader, reader->head.words_bytes, atomic_load(&reader->head.words_used), &reader->words);
  for (int i = 0; !rc && i < GAP__RING_STATES; i++) rc = take_state(reader);
  return rc ? rc : take_area(reader, slots, slots, &reader->slots);
}

/* ---- slots --------------------------------------------------------------------------------------------------------- */

/* The event of that number, if its slot has it whole. */
static bool get_event(const struct reader *reader, uint64_t number, struct gap__ring_event *out) {
  uint64_t words[GAP__RING_SLOT_WORDS], at = (number & (reader->head.slots - 1)) * GAP__RING_SLOT_BYTES;
  if (number >= reader->given || number < reader->first || at + sizeof words > reader->slots.length) return false;
  memcpy(words, reader->slots.bytes + at, sizeof words);
  gap__ring_unpack(words, out);
  return gap__ring_sum(number, words) == words[0];
}

/* How fast the counter ran, from the last slot of the clock. */
static void find_clock(struct reader *reader) {
  struct gap__ring_event event;
  uint64_t number = reader->given;
  while (number > reader->first && !(get_event(reader, number - 1, &event) && event.kind == GAP__RING_CLOCK)) number--;
  if (number == reader->first) return;
  double ticks = (double)(int64_t)(event.ticks - reader->head.origin_ticks);
  reader->clock = (struct clock){.ticks = event.ticks, .us = (double)event.addr / 1000};
  if (ticks > 0) reader->clock.us_a_tick = reader->clock.us / ticks;
}

static int64_t time_of(struct reader *reader, const struct gap__ring_event *event) {
  const struct clock *clock = &reader->clock;
  double us = clock->us + (double)(int64_t)(event->ticks - clock->ticks) * clock->us_a_tick;
  if (us > TIME_MOST_US) us = TIME_MOST_US;
  if (us > (double)reader->tick) reader->tick = (int64_t)us;
  return reader->tick;
}

/* False: the other half of its pool is lost. */
static bool get_pool(const struct reader *reader, uint64_t number, const struct gap__ring_event *event,
                     gap_pool_id *out) {
  struct gap__ring_event half = {0};
  if (event->flags == GAP__RING_POOL_BOTH && !(get_event(reader, number - 1, &half) && half.kind == GAP__RING_POOL))
    return false;
  *out = event->flags ? (gap_pool_id){half.addr, event->pool} : (gap_pool_id){event->pool, 0};
  return true;
}

static int write_event(struct reader *reader, uint64_t number, const struct gap__ring_event *event) {
  struct gap__record_event told = {.kind = (enum gap__record_kind)event->kind,
                                   .device = event->device,
                                   .addr = event->addr,
                                   .bytes = event->bytes,
                                   .requested = event->requested,
                                   .stream = event->stream,
                                   .tick = time_of(reader, event),
                                   .stack = event->stack <= reader->stacks ? event->stack : 0};
  if (event->kind >= GAP__RECORD_EVENT_KINDS) return 0;
  if (get_pool(reader, number, event, &told.pool)) return gap__record_event(reader->writer, &told);
  reader->lost++;
  return 0;
}

static int write_events(struct reader *reader, uint64_t from, uint64_t to) {
  struct gap__ring_event event;
  int rc = 0;
  for (uint64_t number = from; !rc && number < to; number++) {
    if (get_event(reader, number, &event)) rc = write_event(reader, number, &event);
    else reader->lost++;
  }
  return rc;
}

/* ---- parcels ------------------------------------------------------------------------------------------------------- */

static uint32_t load32(const char *bytes) {
  const unsigned char *at = (const unsigned char *)bytes;
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void store32(char *bytes, uint32_t number) {
  for (int i = 0; i < 4; i++, number >>= 8) bytes[i] = (char)(number & 0xFF);
}

/* Bytes of the parcel at `at`, its head included; 0: there is none that is whole. */
static size_t parcel_at(const struct gap__text *from, size_t at) {
  if (from->length - at < GAP__RECORD_HEAD_BYTES) return 0;
  uint32_t bytes = load32(from->bytes + at);
  const char *payload = from->bytes + at + GAP__RECORD_HEAD_BYTES;
  if (bytes > GAP__RECORD_PARCEL_MOST || bytes > from->length - at - GAP__RECORD_HEAD_BYTES) return 0;
  return gap__crc32(payload, bytes) == load32(from->bytes + at + 4) ? GAP__RECORD_HEAD_BYTES + bytes : 0;
}

/* A payload begins with the parcel's number, which becomes another one. */
static void add_numbered(struct gap__text *out, const char *payload, size_t bytes, uint64_t number) {
  size_t head = out->length, skip = 0;
  while (skip < bytes && payload[skip] & 0x80) skip++;
  if (skip < bytes) skip++;
  gap__text_add_bytes(out, (const char[GAP__RECORD_HEAD_BYTES]){0}, GAP__RECORD_HEAD_BYTES);
  for (; number >= 0x80; number >>= 7) gap__text_add_char(out, (char)(number | 0x80));
  gap__text_add_char(out, (char)number);
  gap__text_add_bytes(out, payload + skip, bytes - skip);
  if (out->failed) return;
  const size_t begin = head + GAP__RECORD_HEAD_BYTES;
  store32(out->bytes + head, (uint32_t)(out->length - begin));
  store32(out->bytes + head + 4, gap__crc32(out->bytes + begin, out->length - begin));
}

static uint64_t take_number(const char **at, const char *end) {
  uint64_t number = 0;
  for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
    unsigned char byte = (unsigned char)*(*at)++;
    number |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return number;
}

/* The words are parts, nothing else: a tag, which part, its bytes, and these. */
static uint32_t count_stacks(const char *at, const char *end) {
  uint32_t stacks = 0;
  take_number(&at, end); /* of the parcel */
  take_number(&at, end); /* its tick */
  while (at < end && *at++ == GAP__RECORD_LONG) {
    stacks += take_number(&at, end) == GAP__PART_STACK;
    uint64_t bytes = take_number(&at, end);
    at += bytes < (uint64_t)(end - at) ? (size_t)bytes : (size_t)(end - at);
  }
  return stacks;
}

static void find_stacks(struct reader *reader) {
  const struct gap__text *words = &reader->words;
  size_t at = GAP__RECORD_MAGIC_BYTES;
  for (size_t bytes; (bytes = parcel_at(words, at)) > 0; at += bytes)
    reader->stacks += count_stacks(words->bytes + at + GAP__RECORD_HEAD_BYTES, words->bytes + at + bytes);
}

/* Parcels that were written elsewhere go on from where the writer is. */
static int add_parcels(struct reader *reader, const struct gap__text *from, size_t at) {
  int rc = gap__record_flush(reader->writer);
  for (size_t bytes; !rc && (bytes = parcel_at(from, at)) > 0; at += bytes)
    add_numbered(&reader->trace, from->bytes + at + GAP__RECORD_HEAD_BYTES, bytes - GAP__RECORD_HEAD_BYTES,
                 reader->writer->sequence++);
  return reader->trace.failed ? GAP_ENOMETA : rc;
}

static int into_text(void *arg, const void *bytes, size_t count) {
  struct gap__text *text = arg;
  gap__text_add_bytes(text, bytes, count);
  return text->failed ? GAP_ENOMETA : 0;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int write_rest(struct reader *reader) {
  bool has_state = reader->state.parcels.length != 0;
  uint64_t middle = has_state ? reader->state.number : reader->given;
  int rc = write_events(reader, reader->first, middle);
  if (!rc && has_state) rc = add_parcels(reader, &reader->state.parcels, 0);
  if (!rc) rc = write_events(reader, middle, reader->given);
  if (!rc && reader->lost) rc = gap__record_lost(reader->writer, reader->lost);
  return rc ? rc : gap__record_end(reader->writer);
}

static int write_trace(struct reader *reader) {
  const struct gap__text *words = &reader->words;
  if (words->length < GAP__RECORD_MAGIC_BYTES || memcmp(words->bytes, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES) != 0)
    return fail(reader, "a ring without its words");
  reader->writer = calloc(1, sizeof *reader->writer);
  if (!reader->writer) return no_memory(reader);
  reader->writer->sink = into_text;
  reader->writer->arg = &reader->trace;
  find_clock(reader);
  find_stacks(reader);
  gap__text_add_bytes(&reader->trace, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES);
  int rc = add_parcels(reader, words, GAP__RECORD_MAGIC_BYTES);
  if (!rc) rc = write_rest(reader);
  return rc ? no_memory(reader) : 0;
}

static int read_trace(struct reader *reader, struct gap__history **out) {
  struct gap__input trace;
  int rc = gap__input_open_memory(&trace, reader->trace.bytes, reader->trace.length, reader->message);
  if (rc) return rc;
  rc = gap__recording_read(&trace, out, reader->message);
  if (!rc) (*out)->earlier_events = reader->first;
  gap__input_close(&trace);
  return rc;
}

static void destroy(struct reader *reader) {
  gap__text_free(&reader->words);
  gap__text_free(&reader->slots);
  gap__text_free(&reader->state.parcels);
  gap__text_free(&reader->trace);
  free(reader->writer);
}

bool gap__is_ring(const struct gap__input *input) {
  return input->end - input->next >= GAP__RING_MAGIC_BYTES &&
         memcmp(input->next, GAP__RING_MAGIC, GAP__RING_MAGIC_BYTES) == 0;
}

int gap__ring_read(struct gap__input *input, struct gap__history **out, char **message) {
  struct reader reader = {.input = input, .message = message};
  *out = NULL;
  int rc = take_file(&reader);
  if (!rc) rc = write_trace(&reader);
  gap__text_free(&reader.slots);
  if (!rc) rc = read_trace(&reader, out);
  destroy(&reader);
  return rc;
}
