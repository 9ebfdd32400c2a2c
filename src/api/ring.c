#include "api/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "api/client.h"
#include "api/frames.h"
#include "api/recorder.h"
#include "api/state.h"
#include "api/trace_file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/ticks.h"
#include "base/worker.h"
#include "record/crc.h"
#include "record/ring.h"

enum {
  BEAT_SLOTS = 64,      /* the clock is looked at no more often */
  STATES_A_LAP = 4,     /* what the heap holds is put down so often */
  AREA_LEAST = 1 << 20, /* bytes */
  AREA_SHARE = 8        /* bytes for each slot: of the words, and of both states */
};

struct gap__ring {
  struct gap__ring_head *head; /* the file, mapped */
  gap__ring_word *slots;
  uint64_t mask; /* slots - 1 */
  int64_t origin_ns;
  int wake;                      /* an eventfd */
  struct gap__recorder recorder; /* what follows is not of the hot path */
  gap_heap *heap;
  size_t bytes;
  struct gap__trace_file file;
  bool has_keeper;
  pthread_t keeper;
  atomic_bool stop;
  unsigned turn; /* the state that is written next; of the keeper */
  bool too_large_said;
  bool has_frames;
  struct gap__lock words_lock; /* guards what follows; the store's lock is taken inside */
  struct gap__record_writer words;
  struct gap__frames_told told;
  _Atomic uint32_t stacks_told; /* as in `told`, for those without the lock */
};

/* ---- events ---- */

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t take_numbers(struct gap__ring *ring, uint64_t count) {
  return atomic_fetch_add_explicit(&ring->head->given, count, memory_order_relaxed);
}

static void put(struct gap__ring *ring, uint64_t number, const struct gap__ring_event *event) {
  uint64_t words[GAP__RING_SLOT_WORDS];
  gap__ring_word *slot = ring->slots + (number & ring->mask) * GAP__RING_SLOT_WORDS;
  gap__ring_pack(number, event, words);
  for (int i = 0; i < GAP__RING_SLOT_WORDS; i++) atomic_store_explicit(&slot[i], words[i], memory_order_relaxed);
}

static void put_clock(struct gap__ring *ring) {
  put(ring, take_numbers(ring, 1),
      &(struct gap__ring_event){
          .kind = GAP__RING_CLOCK, .ticks = gap__ticks(), .addr = (uint64_t)(now_ns() - ring->origin_ns)});
}

/* Out of line, after every 64th number: often at first, so that the clock of a short run is known too. */
static __attribute__((noinline)) void beat(struct gap__ring *ring, uint64_t number) {
  uint64_t beats = number / BEAT_SLOTS, beats_a_state = (ring->mask + 1) / STATES_A_LAP / BEAT_SLOTS;
  const uint64_t beats_a_clock = GAP__RING_CLOCK_SLOTS / BEAT_SLOTS;
  if (beats < beats_a_clock || beats % beats_a_clock == 0) put_clock(ring);
  if (beats % beats_a_state == 0) eventfd_write(ring->wake, 1);
}

/* The kinds of a record, for those of an event. */
static uint8_t kind_of(gap_event_kind kind) {
  _Static_assert((int)GAP_EVENT_SEGMENT_UNMAP == GAP__RECORD_SEGMENT_UNMAP && (int)GAP_EVENT_ALLOC == GAP__RECORD_ALLOC,
                 "all but the last kind are the same");
  return kind == GAP_EVENT_OOM ? GAP__RECORD_OOM : (uint8_t)kind;
}

/* Out of line: a stack that is new to the file.  Its number, or 0 where it finds no room among the words. */
static __attribute__((noinline)) uint32_t tell_stack(struct gap__ring *ring, uint32_t stack) {
  gap__lock(&ring->words_lock);
  if (stack > ring->told.stacks && !gap__frames_tell(&ring->told, &ring->words)) gap__record_flush(&ring->words);
  if (!ring->words.failed) atomic_store_explicit(&ring->stacks_told, ring->told.stacks, memory_order_relaxed);
  bool is_told = stack <= atomic_load_explicit(&ring->stacks_told, memory_order_relaxed);
  gap__unlock(&ring->words_lock);
  if (!is_told) atomic_fetch_add_explicit(&ring->head->stacks_lost, 1, memory_order_relaxed);
  return is_told ? stack : 0;
}

static uint32_t stack_of(struct gap__ring *ring) {
  uint32_t stack = gap__frames_current();
  return stack <= atomic_load_explicit(&ring->stacks_told, memory_order_relaxed) ? stack : tell_stack(ring, stack);
}

/* A gap_event_fn, called by any thread at any time. */
static void hear(void *arg, const gap_event *event) {
  struct gap__ring *ring = arg;
  bool both = event->pool.first && event->pool.second;
  uint32_t stack = __builtin_expect(ring->has_frames, 0) ? stack_of(ring) : 0;
  uint64_t number = take_numbers(ring, 1 + (uint64_t)both);
  struct gap__ring_event told = {.ticks = gap__ticks(),
                                 .addr = event->addr,
                                 .bytes = event->bytes,
                                 .requested = event->requested,
                                 .stream = event->stream,
                                 .pool = event->pool.second ? event->pool.second : event->pool.first,
                                 .device = (uint16_t)event->device,
                                 .kind = kind_of(event->kind),
                                 .stack = stack};
  if (event->pool.second) told.flags = both ? GAP__RING_POOL_BOTH : GAP__RING_POOL_SECOND;
  if (__builtin_expect(both, 0))
    put(ring, number++, &(struct gap__ring_event){.kind = GAP__RING_POOL, .addr = event->pool.first});
  put(ring, number, &told);
  if (__builtin_expect(number % BEAT_SLOTS <= both, 0)) beat(ring, number);
}

/* ---- what the heap holds ---- */

static void say_too_large(struct gap__ring *ring) {
  if (ring->too_large_said) return;
  ring->too_large_said = true;
  gap__log(
      GAP__LOG_WARNING,
      "trace_ring:%s: what the heap holds does not fit beside %llu events: after more than these it cannot be told; "
      "a larger trace_ring_events helps",
      ring->file.path, (unsigned long long)ring->head->slots);
}

static void put_state(struct gap__ring *ring, uint64_t number, const struct gap__text *text) {
  char *at = (char *)ring->head + gap__ring_state_at(ring->head, ring->turn);
  struct gap__ring_state_head head = {number, text->length, gap__crc32(text->bytes, text->length)}, none = {0};
  if (sizeof head + text->length > ring->head->state_bytes) {
    say_too_large(ring);
    return;
  }
  memcpy(at, &none, sizeof none);
  memcpy(at + sizeof head, text->bytes, text->length);
  memcpy(at, &head, sizeof head);
  ring->turn = (ring->turn + 1) % GAP__RING_STATES;
}

/* The state is taken while the program runs on.  Whether it has what happened after the number was read does not matter: whoever follows
 * the events from that number on ends with the same blocks at the same addresses either way. */
static void take_state(struct gap__ring *ring) {
  struct gap__text text = {0};
  uint64_t number = atomic_load_explicit(&ring->head->given, memory_order_seq_cst);
  if (!gap__state_parcels(ring->heap, &text)) put_state(ring, number, &text);
  gap__text_free(&text);
}

static void *keep(void *arg) {
  struct gap__ring *ring = arg;
  eventfd_t ignored;
  while (eventfd_read(ring->wake, &ignored) == 0 && !atomic_load(&ring->stop)) take_state(ring);
  return NULL;
}

/* ---- the words ---- */

/* A gap__record_sink. */
static int put_words(void *arg, const void *bytes, size_t count) {
  struct gap__ring *ring = arg;
  uint64_t used = atomic_load_explicit(&ring->head->words_used, memory_order_relaxed);
  if (count > ring->head->words_bytes - used) return GAP_ELIMIT;
  memcpy((char *)ring->head + gap__ring_words_at() + used, bytes, count);
  atomic_store_explicit(&ring->head->words_used, used + count, memory_order_release);
  return 0;
}

/* ---- its life ---- */

static void discard(struct gap__ring *ring) {
  if (ring->head) munmap(ring->head, ring->bytes);
  gap__trace_file_close(&ring->file);
  if (ring->wake >= 0) close(ring->wake);
  free(ring);
}

static uint64_t area_bytes(uint64_t slots, unsigned share) {
  uint64_t bytes = slots * share;
  return bytes < AREA_LEAST ? AREA_LEAST : bytes;
}

static int map_file(struct gap__ring *ring, const struct gap__ring_head *head) {
  ring->bytes = gap__ring_bytes(head);
  int rc = gap__trace_file_reserve(&ring->file, ring->bytes);
  if (rc) return rc;
  void *at = mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->file.fd, 0);
  if (at == MAP_FAILED) return gap__trace_file_complain(&ring->file, "cannot be mapped");
  madvise(at, ring->bytes, MADV_DONTFORK);
  ring->head = at;
  ring->slots = (gap__ring_word *)((char *)at + gap__ring_slots_at(head));
  ring->mask = head->slots - 1;
  return 0;
}

/* The magic comes last: a file without it is none yet. */
static int begin_file(struct gap__ring *ring, uint64_t slots) {
  struct gap__ring_head head = {.version = GAP__RING_VERSION,
                                .slots = slots,
                                .words_bytes = area_bytes(slots, AREA_SHARE),
                                .state_bytes = area_bytes(slots, AREA_SHARE / GAP__RING_STATES)};
  int rc = map_file(ring, &head);
  if (rc) return rc;
  ring->origin_ns = now_ns();
  head.origin_ticks = gap__ticks();
  head.crc = gap__crc32(&head.slots, offsetof(struct gap__ring_head, given) - offsetof(struct gap__ring_head, slots));
  memcpy(ring->head, &head, sizeof head);
  rc = gap__state_begin(&ring->heap, 1, &ring->words, put_words, ring);
  memcpy(ring->head->magic, GAP__RING_MAGIC, GAP__RING_MAGIC_BYTES);
  return rc;
}

static int start(struct gap__ring *ring, const struct gap__conf *conf) {
  ring->wake = eventfd(0, EFD_CLOEXEC);
  if (ring->wake < 0) return GAP_ENOMETA;
  int rc = gap__trace_file_open(&ring->file, "trace_ring", conf->trace_ring, UINT64_MAX);
  if (!rc) rc = begin_file(ring, conf->trace_ring_events);
  if (rc || gap__client_of(ring->heap)->options.flags & GAP_HEAP_NO_THREAD) return rc;
  ring->has_keeper = gap__worker_start(&ring->keeper, keep, ring);
  return ring->has_keeper ? 0 : GAP_ENOMETA;
}

static struct gap__ring *new_ring(gap_heap *heap, const struct gap__conf *conf) {
  struct gap__ring *ring = calloc(1, sizeof *ring);
  if (!ring) return NULL;
  ring->heap = heap;
  ring->has_frames = conf->trace_frames;
  ring->file.fd = ring->wake = -1;
  if (!start(ring, conf)) return ring;
  discard(ring);
  return NULL;
}

static void stop_keeper(struct gap__ring *ring) {
  atomic_store(&ring->stop, true);
  eventfd_write(ring->wake, 1);
}

static void finish(struct gap__ring *ring) {
  put_clock(ring);
  take_state(ring);
}

static struct gap__ring *ring_of(struct gap__recorder *recorder) {
  return (struct gap__ring *)((char *)recorder - offsetof(struct gap__ring, recorder));
}

/* Others may still be writing. */
static void at_exit(struct gap__recorder *recorder) {
  struct gap__ring *ring = ring_of(recorder);
  stop_keeper(ring);
  if (!ring->has_keeper || gap__recorder_join(ring->keeper)) finish(ring);
}

/* Nothing is mapped here. */
static void in_child(struct gap__recorder *recorder) {
  struct gap__ring *ring = ring_of(recorder);
  gap__frames_leave(ring->has_frames);
  gap__heap_set_recorder(ring->heap, NULL, NULL);
  gap__trace_file_close(&ring->file);
}

void gap__ring_begin(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  const struct gap__conf *conf = gap__conf_values(client->conf);
  if (!conf->trace_ring[0]) return;
  client->ring = new_ring(heap, conf);
  if (!client->ring) return;
  client->ring->recorder = (struct gap__recorder){.at_exit = at_exit, .in_child = in_child};
  gap__frames_want(conf->trace_frames);
  gap__recorder_add(&client->ring->recorder);
  gap__heap_set_recorder(heap, hear, client->ring);
}

void gap__ring_end(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  struct gap__ring *ring = client->ring;
  client->ring = NULL;
  if (!ring || !gap__recorder_remove(&ring->recorder)) return;
  gap__frames_leave(ring->has_frames);
  gap__heap_set_recorder(heap, NULL, NULL);
  stop_keeper(ring);
  if (ring->has_keeper) pthread_join(ring->keeper, NULL);
  finish(ring);
  discard(ring);
}
