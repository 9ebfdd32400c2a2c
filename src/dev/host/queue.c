/* Streams of the host backend: ordered queues of operations, and the events in them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dev/host/state.h"
#include "dev/soft/pinned.h"

/* The index of a stream; met for the first time it is made.  0: no host memory. */
static uint32_t find_stream(struct host *host, gap_stream handle) {
  uint64_t key = gap__space_stream_key(handle), known;
  if (gap__map_get(&host->stream_of, key, &known)) return (uint32_t)known;
  if (host->stream_count == host->stream_max) {
    size_t wanted = host->stream_max ? host->stream_max * 2 : 16;
    struct host_stream *streams = realloc(host->streams, wanted * sizeof *streams);
    if (!streams) return 0;
    host->streams = streams;
    host->stream_max = wanted;
    if (host->stream_count == 0) host->stream_count = 1;
  }
  if (gap__map_put(&host->stream_of, key, host->stream_count) != 0) return 0;
  host->streams[host->stream_count] = (struct host_stream){0};
  return (uint32_t)host->stream_count++;
}

static bool make_room(struct host_stream *stream) {
  if (stream->first + stream->count < stream->capacity) return true;
  if (stream->first > stream->capacity / 2) {
    memmove(stream->ops, stream->ops + stream->first, stream->count * sizeof *stream->ops);
    stream->first = 0;
    return true;
  }
  size_t wanted = stream->capacity ? stream->capacity * 2 : 64;
  struct host_op *ops = realloc(stream->ops, wanted * sizeof *ops);
  if (!ops) return false;
  stream->ops = ops;
  stream->capacity = wanted;
  return true;
}

/* Runs up to `count` operations of a stream; how many ran. */
static uint64_t run_stream(struct host *host, uint32_t index, uint64_t count) {
  struct host_stream *stream = &host->streams[index];
  uint64_t ran = 0;
  while (ran < count && stream->count && gap__host_execute(host, &stream->ops[stream->first])) {
    stream->gates -= stream->ops[stream->first].is_gate;
    stream->first = --stream->count ? stream->first + 1 : 0;
    ran++;
  }
  if (ran) pthread_cond_broadcast(&host->progress);
  return ran;
}

/* Until nothing can run: an operation of one stream may be what another waits for. */
static void run_streams(struct host *host) {
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t i = 1; i < host->stream_count; i++) progress |= run_stream(host, i, UINT64_MAX) > 0;
  }
}

static void run_if_automatic(struct host *host) {
  if (!host->params.manual) run_streams(host);
}

static bool all_idle(const struct host *host) {
  for (size_t i = 1; i < host->stream_count; i++)
    if (host->streams[i].count) return false;
  return true;
}

/* Gives other threads a chance to write the value that a stream waits for; it may also be written past us, hence the limit. */
static void await_progress(struct host *host) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&host->progress, &host->lock, &until);
}

void gap__host_drain(struct host *host) {
  for (run_streams(host); !all_idle(host); run_streams(host)) await_progress(host);
}

static int queue_locked(struct host *host, struct host_op *op, gap_stream on) {
  uint32_t index = find_stream(host, on);
  if (index == 0 || !make_room(&host->streams[index])) return GAP_ENOMETA;
  struct host_stream *stream = &host->streams[index];
  if (gap__host_touches_memory(op) && gap__soft_capture_add(&host->graphs, &stream->front)) return GAP_ENOMETA;
  op->sequence = ++host->sequence;
  op->is_gated = stream->gates > 0;
  if (gap__host_touches_memory(op) && !op->is_gated && !gap__host_hold(host, op)) return gap__host_misuse(host);
  stream->gates += op->is_gate;
  stream->ops[stream->first + stream->count++] = *op;
  run_if_automatic(host);
  return 0;
}

static int queue(struct gap__dev *dev, struct host_op *op, gap_stream stream) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = queue_locked(host, op, stream);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_fill(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return queue(dev, &(struct host_op){.kind = OP_FILL, .addr = addr, .bytes = bytes, .value = pattern}, stream);
}

int gap__host_expect(struct gap__dev *dev, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return queue(dev, &(struct host_op){.kind = OP_EXPECT, .addr = addr, .bytes = bytes, .value = pattern}, stream);
}

int gap__host_copy(struct gap__dev *dev, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream stream) {
  return queue(dev, &(struct host_op){.kind = OP_COPY, .addr = dst, .src = src, .bytes = bytes}, stream);
}

int gap__host_call(struct gap__dev *dev, void (*call)(void *), void *arg, gap_stream stream) {
  return queue(dev, &(struct host_op){.kind = OP_CALL, .call = call, .src = (uintptr_t)arg}, stream);
}

int gap__host_write_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  return queue(dev, &(struct host_op){.kind = OP_WRITE, .addr = addr, .bytes = sizeof value, .value = value}, stream);
}

int gap__host_wait_value(struct gap__dev *dev, gap_stream stream, gap_addr addr, uint32_t value) {
  return queue(dev, &(struct host_op){.kind = OP_WAIT, .addr = addr, .bytes = sizeof value, .value = value}, stream);
}

/* Nothing comes between the two: the lock is held. */
static int gate_locked(struct host *host, gap_stream on, gap_addr arrived, gap_addr open, uint32_t value) {
  struct host_op write = {.kind = OP_WRITE, .addr = arrived, .bytes = sizeof value, .value = value};
  struct host_op wait = {.kind = OP_WAIT, .addr = open, .bytes = sizeof value, .value = value, .is_gate = true};
  uint32_t index = find_stream(host, on);
  if (index == 0) return GAP_ENOMETA;
  if (host->streams[index].front.capture) return GAP_EDEVICE;
  int rc = queue_locked(host, &write, on);
  return rc ? rc : queue_locked(host, &wait, on);
}

int gap__host_gate(struct gap__dev *dev, gap_stream stream, gap_addr arrived, gap_addr open, uint32_t value) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = gate_locked(host, stream, arrived, open, value);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static bool value_at(gap_addr word, uint32_t value) {
  return __atomic_load_n((const uint32_t *)(uintptr_t)word, __ATOMIC_ACQUIRE) >= value;
}

int gap__host_value_await(struct gap__dev *dev, gap_addr word, uint32_t value, uint64_t limit_ns) {
  struct host *host = host_of(dev);
  uint64_t end = dev->ops->now_ns(dev) + limit_ns;
  pthread_mutex_lock(&host->lock);
  int rc = gap__soft_is_pinned(&host->pinned, word, sizeof value) ? 0 : gap__host_misuse(host);
  if (!rc) run_streams(host);
  while (!rc && !value_at(word, value)) {
    if (dev->ops->now_ns(dev) >= end) rc = GAP_EAGAIN;
    else await_progress(host);
    run_streams(host);
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static struct host_event *find_event(struct host *host, gap__event handle) {
  uint32_t index = (uint32_t)handle;
  if (index == 0 || index >= host->events.count) return NULL;
  struct host_event *event = gap__slab_at(&host->events, index);
  return event->generation == handle >> 32 ? event : NULL;
}

int gap__host_event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  struct host *host = host_of(dev);
  (void)stream; /* one context a device */
  pthread_mutex_lock(&host->lock);
  uint32_t index = gap__slab_take(&host->events);
  if (index) {
    struct host_event *event = gap__slab_at(&host->events, index);
    *event = (struct host_event){.generation = event->generation};
    *out = (uint64_t)event->generation << 32 | index;
  }
  pthread_mutex_unlock(&host->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__host_event_destroy(struct gap__dev *dev, gap__event handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_event *event = find_event(host, handle);
  int rc = event ? 0 : gap__host_misuse(host);
  if (event) {
    gap__soft_front_clear(&event->front);
    event->generation++;
    gap__slab_give(&host->events, (uint32_t)handle);
  }
  pthread_mutex_unlock(&host->lock);
  return rc;
}

static int record_locked(struct host *host, gap__event handle, gap_stream stream) {
  struct host_event *event = find_event(host, handle);
  if (!event) return gap__host_misuse(host);
  uint32_t index = find_stream(host, stream);
  if (index == 0) return GAP_ENOMETA;
  event->stream = index;
  gap__soft_front_clear(&event->front);
  int rc = gap__soft_capture_join(&event->front, &host->streams[index].front);
  if (rc) return rc;
  event->recorded++;
  return queue_locked(host, &(struct host_op){.kind = OP_EVENT, .event = handle, .value = event->recorded}, stream);
}

int gap__host_event_record(struct gap__dev *dev, gap__event handle, gap_stream stream) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = record_locked(host, handle, stream);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_event_query(struct gap__dev *dev, gap__event handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  run_if_automatic(host);
  struct host_event *event = find_event(host, handle);
  int rc = 0;
  if (!event) rc = gap__host_misuse(host);
  else if (event->front.capture) rc = GAP_EDEVICE;
  else if (event->done != event->recorded) rc = GAP_EAGAIN;
  pthread_mutex_unlock(&host->lock);
  return rc;
}

/* Runs the event's stream until it is complete; other streams only when that one is stuck. */
static int wait_locked(struct host *host, gap__event handle) {
  struct host_event *event = find_event(host, handle);
  if (!event) return gap__host_misuse(host);
  if (event->front.capture) return GAP_EDEVICE;
  for (uint64_t serial = event->recorded; find_event(host, handle) && event->done < serial;) {
    if (run_stream(host, event->stream, 1)) continue;
    run_streams(host);
    if (event->done < serial) await_progress(host);
  }
  return 0;
}

int gap__host_event_wait(struct gap__dev *dev, gap__event handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = wait_locked(host, handle);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_stream_wait(struct gap__dev *dev, gap_stream stream, gap__event handle) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_event *event = find_event(host, handle);
  uint32_t index = find_stream(host, stream);
  int rc = !event ? gap__host_misuse(host) : !index ? GAP_ENOMETA : 0;
  if (rc == 0) rc = gap__soft_capture_join(&host->streams[index].front, &event->front);
  if (rc == 0)
    rc = queue_locked(host, &(struct host_op){.kind = OP_AWAIT, .event = handle, .value = event->recorded}, stream);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint32_t index = find_stream(host, stream);
  if (index) *out = (uint64_t)dev->ordinal << 32 | index;
  pthread_mutex_unlock(&host->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__host_stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint32_t index = find_stream(host, stream);
  if (index) *out = host->streams[index].front.capture != 0;
  pthread_mutex_unlock(&host->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__host_stream_front(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *nodes,
                           uint32_t *count) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint32_t index = find_stream(host, stream);
  int rc = index ? gap__soft_stream_front(&host->streams[index].front, capture, nodes, count) : GAP_ENOMETA;
  pthread_mutex_unlock(&host->lock);
  return rc;
}

int gap__host_node_before(struct gap__dev *dev, gap__node node, gap__node *nodes, uint32_t *count) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  int rc = gap__soft_node_before(&host->graphs, node, nodes, count);
  if (rc) gap__host_misuse(host);
  pthread_mutex_unlock(&host->lock);
  return rc;
}

/* All streams that take part leave with it. */
static void end_capture(struct host *host, uint64_t capture) {
  for (size_t i = 1; i < host->stream_count && capture; i++)
    if (host->streams[i].front.capture == capture) gap__soft_front_clear(&host->streams[i].front);
}

void gap__host_stream_capture(struct gap__dev *dev, gap_stream stream, bool capturing) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint32_t index = find_stream(host, stream);
  if (index && capturing) gap__soft_capture_begin(&host->graphs, &host->streams[index].front);
  else if (index) end_capture(host, host->streams[index].front.capture);
  pthread_mutex_unlock(&host->lock);
}

void gap__host_run(struct gap__dev *dev, gap_stream stream, uint64_t count) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  uint32_t index = find_stream(host, stream);
  if (index) run_stream(host, index, count);
  pthread_mutex_unlock(&host->lock);
}

void gap__host_run_all(struct gap__dev *dev) {
  struct host *host = host_of(dev);
  pthread_mutex_lock(&host->lock);
  run_streams(host);
  pthread_mutex_unlock(&host->lock);
}
