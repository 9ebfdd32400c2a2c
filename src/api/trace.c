#include "api/trace.h"

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "api/client.h"
#include "api/frames.h"
#include "api/recorder.h"
#include "api/state.h"
#include "api/trace_file.h"
#include "api/trace_ring.h"
#include "base/log.h"
#include "base/text.h"
#include "base/worker.h"

enum {
  FLUSH_MS = 100,                     /* the longest that an event waits */
  WAKE_SLOTS = GAP__TRACE_SLOTS / 4,  /* so many wake the thread */
  GIVE_SLOTS = GAP__TRACE_SLOTS / 16, /* so many are given back at once */
  ROOM_MS = 100                       /* a program waits so long for the disk, then events are lost */
};

struct clock_point {
  uint64_t ticks;
  int64_t ns;
};

struct gap__trace {
  struct gap__trace_ring ring;
  struct gap__recorder recorder;
  gap_heap *heap;
  bool has_frames;
  pthread_t thread;
  int wake; /* an eventfd */
  atomic_bool stop, failed;
  struct gap__trace_file file;
  /* the thread's own */
  struct clock_point origin, point;
  double ns_a_tick;
  int64_t tick;  /* us of the last event: time does not go back */
  int64_t began; /* where the file began */
  uint64_t lost_told;
  uint64_t states; /* that were written */
  struct gap__frames_told told;
  struct gap__record_writer writer;
};

/* ---- events come in ---- */

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

static bool has_room(struct gap__trace *trace) {
  struct gap__trace_ring *ring = &trace->ring;
  ring->room_until = atomic_load_explicit(&ring->taken, memory_order_acquire) + GAP__TRACE_SLOTS;
  return ring->put < ring->room_until;
}

/* Out of line.  The ring is full: the thread is waited for, once; while events are lost nobody waits. */
static __attribute__((noinline)) bool find_room(struct gap__trace *trace) {
  struct gap__trace_ring *ring = &trace->ring;
  bool found = has_room(trace);
  for (int naps = 0; !found && !ring->is_losing && naps < ROOM_MS * 20 && !atomic_load(&trace->failed); naps++) {
    nap();
    found = has_room(trace);
  }
  ring->is_losing = !found;
  if (!found) atomic_fetch_add_explicit(&ring->lost_total, 1, memory_order_relaxed);
  return found;
}

/* A gap_event_fn, under the heap's event lock. */
static void hear(void *arg, const gap_event *event) {
  struct gap__trace *trace = arg;
  struct gap__trace_ring *ring = &trace->ring;
  if (__builtin_expect(ring->put == ring->room_until, 0) && !find_room(trace)) return;
  gap__trace_ring_put(ring, event, trace->has_frames ? gap__frames_current() : 0);
  if (__builtin_expect(ring->put % WAKE_SLOTS == 0, 0)) eventfd_write(trace->wake, 1);
}

/* ---- and go out ---- */

static struct clock_point read_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (struct clock_point){gap__ticks(), (int64_t)now.tv_sec * 1000000000 + now.tv_nsec};
}

/* How fast the counter runs, measured from the start: the longer the better. */
static void compare_clocks(struct gap__trace *trace) {
  trace->point = read_clock();
  uint64_t ticks = trace->point.ticks - trace->origin.ticks;
  if (ticks) trace->ns_a_tick = (double)(trace->point.ns - trace->origin.ns) / (double)ticks;
}

/* Microseconds since the beginning. */
static int64_t time_of(struct gap__trace *trace, uint64_t ticks) {
  double ns =
      (double)(trace->point.ns - trace->origin.ns) + (double)(int64_t)(ticks - trace->point.ticks) * trace->ns_a_tick;
  int64_t tick = (int64_t)(ns / 1000);
  if (tick > trace->tick) trace->tick = tick;
  return trace->tick;
}

static int write_event(struct gap__trace *trace, const struct gap__trace_slot *slot) {
  static const uint8_t kinds[] = {[GAP_EVENT_ALLOC] = GAP__RECORD_ALLOC,
                                  [GAP_EVENT_FREE_REQUESTED] = GAP__RECORD_FREE_REQUESTED,
                                  [GAP_EVENT_FREE_COMPLETED] = GAP__RECORD_FREE_COMPLETED,
                                  [GAP_EVENT_SEGMENT_ALLOC] = GAP__RECORD_SEGMENT_ALLOC,
                                  [GAP_EVENT_SEGMENT_FREE] = GAP__RECORD_SEGMENT_FREE,
                                  [GAP_EVENT_SEGMENT_MAP] = GAP__RECORD_SEGMENT_MAP,
                                  [GAP_EVENT_SEGMENT_UNMAP] = GAP__RECORD_SEGMENT_UNMAP,
                                  [GAP_EVENT_OOM] = GAP__RECORD_OOM};
  return gap__record_event(&trace->writer,
                           &(struct gap__record_event){.kind = (enum gap__record_kind)kinds[slot->kind],
                                                       .device = slot->device,
                                                       .addr = slot->addr,
                                                       .bytes = slot->bytes,
                                                       .requested = slot->requested,
                                                       .stream = slot->stream,
                                                       .pool = {slot->pool_first, slot->pool_second},
                                                       .tick = time_of(trace, slot->ticks) - trace->began,
                                                       .stack = slot->stack});
}

static int tell_losses(struct gap__trace *trace) {
  uint64_t lost = atomic_load_explicit(&trace->ring.lost_total, memory_order_relaxed), more = lost - trace->lost_told;
  if (!more) return 0;
  if (!trace->lost_told)
    gap__log(GAP__LOG_WARNING, "trace:%s: the disk does not keep up: events are left out", trace->file.path);
  trace->lost_told = lost;
  return gap__record_lost(&trace->writer, more);
}

static int drain(struct gap__trace *trace) {
  struct gap__trace_ring *ring = &trace->ring;
  uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed), given = at;
  uint64_t end = atomic_load_explicit(&ring->filled, memory_order_acquire);
  int rc = 0;
  compare_clocks(trace);
  if (trace->has_frames) rc = gap__frames_tell(&trace->told, &trace->writer); /* those of the events that are there */
  for (; !rc && at < end; at++) {
    rc = write_event(trace, &ring->slots[at % GAP__TRACE_SLOTS]);
    if (at - given < GIVE_SLOTS) continue;
    atomic_store_explicit(&ring->taken, given = at, memory_order_release);
  }
  atomic_store_explicit(&ring->taken, at, memory_order_release);
  return rc ? rc : tell_losses(trace);
}

static int begin_file(struct gap__trace *trace) {
  trace->began = trace->tick;
  trace->told = (struct gap__frames_told){0};
  return gap__state_begin(&trace->heap, 1, &trace->writer, gap__trace_file_write, &trace->file);
}

static int into_text(void *arg, const void *bytes, size_t count) {
  struct gap__text *text = arg;
  gap__text_add_bytes(text, bytes, count);
  return text->failed ? GAP_ENOMETA : 0;
}

/* What the heap holds, between events.  The file waits until the heap's locks are free again. */
static int write_state(struct gap__trace *trace) {
  struct gap__text text = {0};
  struct gap__record_writer *writer = &trace->writer;
  writer->sink = into_text;
  writer->arg = &text;
  int rc = gap__state_heap(trace->heap, trace->states++, writer);
  if (!rc) rc = gap__record_flush(writer);
  writer->sink = gap__trace_file_write;
  writer->arg = &trace->file;
  if (!rc) rc = gap__trace_file_write(&trace->file, text.bytes, text.length);
  gap__text_free(&text);
  return rc;
}

/* What is in the state of some of the events behind it does no harm: each says what is at its address from then on. */
static int turn(struct gap__trace *trace) {
  int rc = gap__record_end(&trace->writer);
  if (!rc) rc = gap__trace_file_turn(&trace->file);
  if (!rc) rc = begin_file(trace);
  return rc ? rc : write_state(trace);
}

static int write_some(struct gap__trace *trace) {
  int rc = drain(trace);
  if (!rc) rc = gap__record_flush(&trace->writer);
  return !rc && gap__trace_file_is_full(&trace->file) ? turn(trace) : rc;
}

static void wait_a_while(const struct gap__trace *trace) {
  struct pollfd wake = {.fd = trace->wake, .events = POLLIN};
  eventfd_t ignored;
  if (poll(&wake, 1, FLUSH_MS) > 0) (void)eventfd_read(trace->wake, &ignored);
}

static void *trace_main(void *arg) {
  struct gap__trace *trace = arg;
  int rc = 0;
  while (!rc && !atomic_load(&trace->stop)) {
    wait_a_while(trace);
    rc = write_some(trace);
  }
  if (!rc) return NULL;
  atomic_store(&trace->failed, true);
  gap__heap_set_events(trace->heap, GAP__TAP_TRACE, NULL, NULL);
  return NULL;
}

/* ---- its life ---- */

static void discard(struct gap__trace *trace) {
  gap__trace_file_close(&trace->file);
  if (trace->wake >= 0) close(trace->wake);
  free(trace->ring.slots);
  free(trace);
}

static bool start_thread(struct gap__trace *trace) { return gap__worker_start(&trace->thread, trace_main, trace); }

/* No event comes any more, the thread has written those that did: now the state, and the end. */
static void finish(struct gap__trace *trace) {
  if (atomic_load(&trace->failed)) return;
  int rc = drain(trace);
  if (!rc) rc = gap__record_flush(&trace->writer); /* whatever comes of the rest */
  if (!rc) rc = gap__state_heap(trace->heap, trace->states++, &trace->writer);
  if (!rc) gap__record_end(&trace->writer);
}

static void stop_thread(struct gap__trace *trace) {
  gap__heap_set_events(trace->heap, GAP__TAP_TRACE, NULL, NULL);
  atomic_store(&trace->stop, true);
  eventfd_write(trace->wake, 1);
}

static struct gap__trace *trace_of(struct gap__recorder *recorder) {
  return (struct gap__trace *)((char *)recorder - offsetof(struct gap__trace, recorder));
}

static void at_exit(struct gap__recorder *recorder) {
  struct gap__trace *trace = trace_of(recorder);
  stop_thread(trace);
  if (gap__recorder_join(trace->thread)) finish(trace);
}

static void in_child(struct gap__recorder *recorder) {
  gap__frames_leave(trace_of(recorder)->has_frames);
  gap__trace_file_close(&trace_of(recorder)->file);
}

static int start(struct gap__trace *trace, const struct gap__conf *conf) {
  trace->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  trace->ring.slots = aligned_alloc(64, GAP__TRACE_SLOTS * sizeof *trace->ring.slots);
  if (trace->wake < 0 || !trace->ring.slots) return GAP_ENOMETA;
  trace->origin = trace->point = read_clock();
  int rc = gap__trace_file_open(&trace->file, "trace", conf->trace, conf->trace_max);
  if (!rc) rc = begin_file(trace);
  return rc ? rc : start_thread(trace) ? 0 : GAP_ENOMETA;
}

static struct gap__trace *new_trace(gap_heap *heap, const struct gap__conf *conf) {
  struct gap__trace *trace = aligned_alloc(64, sizeof *trace);
  if (!trace) return NULL;
  memset(trace, 0, sizeof *trace);
  trace->heap = heap;
  trace->has_frames = conf->trace_frames;
  trace->file.fd = trace->wake = -1;
  if (!start(trace, conf)) return trace;
  discard(trace);
  return NULL;
}

void gap__trace_begin(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  const struct gap__conf *conf = gap__conf_values(client->conf);
  if (!conf->trace[0]) return;
  if (client->options.flags & GAP_HEAP_NO_THREAD) {
    gap__log(GAP__LOG_WARNING, "trace:%s: a heap without threads (GAP_HEAP_NO_THREAD) writes no trace", conf->trace);
    return;
  }
  client->trace = new_trace(heap, conf);
  if (!client->trace) return;
  client->trace->recorder = (struct gap__recorder){.at_exit = at_exit, .in_child = in_child};
  gap__frames_want(conf->trace_frames);
  gap__recorder_add(&client->trace->recorder);
  gap__heap_set_events(heap, GAP__TAP_TRACE, hear, client->trace);
  if (atomic_load(&client->trace->failed)) gap__heap_set_events(heap, GAP__TAP_TRACE, NULL, NULL);
}

void gap__trace_end(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  struct gap__trace *trace = client->trace;
  client->trace = NULL;
  if (!trace) return;
  if (gap__recorder_remove(&trace->recorder)) {
    gap__frames_leave(trace->has_frames);
    stop_thread(trace);
    pthread_join(trace->thread, NULL);
    finish(trace);
    discard(trace);
  }
}
