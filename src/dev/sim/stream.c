/* Streams and events of the simulated card. */
#include "dev/sim/state.h"
#include "dev/soft/pinned.h"

#define COPY_US 2.2               /* to issue */
#define GATE_CALLS 2              /* a gate costs what recording so many events does: a write and a wait */
#define DEVICE_BYTES_PER_NS 2245. /* a copy reads and writes: half the read bandwidth */
#define HOST_BYTES_PER_NS 55.     /* pinned, one way */

static struct sim_stream *stream_at(struct sim *sim, uint32_t index) { return gap__slab_at(&sim->streams, index); }

/* The stream of a handle; met for the first time it is made.  0: no host memory. */
static uint32_t find_stream(struct sim *sim, gap_stream handle) {
  uint64_t key = gap__space_stream_key(handle), known;
  if (gap__map_get(&sim->stream_of, key, &known)) return (uint32_t)known;
  uint32_t index = gap__slab_take(&sim->streams);
  if (index == 0) return 0;
  *stream_at(sim, index) = (struct sim_stream){.open_order = UINT64_MAX};
  if (gap__map_put(&sim->stream_of, key, index) == 0) return index;
  gap__slab_give(&sim->streams, index);
  return 0;
}

static uint64_t lag_ns(const struct sim *sim) { return sim->caught_up ? 0 : sim->params.lag_us * 1000; }

/* Work queued now completes one lag later, and never before what was queued earlier. */
static uint64_t queue_work(struct sim *sim, struct sim_stream *stream, uint64_t ns) {
  uint64_t done = gap__sim_time(&sim->dev) + lag_ns(sim);
  if (done < stream->tail_ns) done = stream->tail_ns;
  stream->tail_ns = done + ns;
  sim->queued = true;
  return stream->tail_ns;
}

void gap__sim_drain(struct sim *sim) {
  if (!sim->queued) return;
  uint64_t end = gap__sim_time(&sim->dev) + lag_ns(sim);
  for (uint32_t i = 1; i < sim->streams.count; i++) {
    struct sim_stream *stream = stream_at(sim, i);
    if (stream->open_order != UINT64_MAX) stream->open_order = stream->order;
    if (stream->tail_ns > end) end = stream->tail_ns;
  }
  gap__sim_wait_until(sim, end);
  sim->queued = false;
}

static struct sim_event *find_event(struct sim *sim, gap__event handle) {
  uint32_t index = (uint32_t)handle;
  if (index == 0 || index >= sim->events.count) return NULL;
  struct sim_event *event = gap__slab_at(&sim->events, index);
  return event->generation == handle >> 32 ? event : NULL;
}

int gap__sim_event_create(struct gap__dev *dev, gap_stream stream, gap__event *out) {
  struct sim *sim = sim_of(dev);
  (void)stream; /* one context a card */
  gap__lock(&sim->lock);
  uint32_t index = gap__slab_take(&sim->events);
  if (index) {
    struct sim_event *event = gap__slab_at(&sim->events, index);
    *event = (struct sim_event){.generation = event->generation};
    gap__sim_charge(sim, sim->params.prices->event_create_us);
    *out = (uint64_t)event->generation << 32 | index;
  }
  gap__unlock(&sim->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__sim_event_destroy(struct gap__dev *dev, gap__event handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  struct sim_event *event = find_event(sim, handle);
  if (event) {
    gap__soft_front_clear(&event->front);
    event->generation++;
    gap__slab_give(&sim->events, (uint32_t)handle);
  }
  gap__unlock(&sim->lock);
  return event ? 0 : GAP_EINVAL;
}

static int record_locked(struct sim *sim, gap__event handle, gap_stream on) {
  struct sim_event *event = find_event(sim, handle);
  if (!event) return GAP_EINVAL;
  uint32_t index = find_stream(sim, on);
  if (index == 0) return GAP_ENOMETA;
  struct sim_stream *stream = stream_at(sim, index);
  gap__sim_charge(sim, sim->params.prices->event_record_us);
  event->stream = index;
  gap__soft_front_clear(&event->front);
  if (stream->front.capture) return gap__soft_capture_join(&event->front, &stream->front); /* nothing is queued */
  event->order = ++stream->order;
  event->complete_ns = queue_work(sim, stream, 0);
  return 0;
}

int gap__sim_event_record(struct gap__dev *dev, gap__event handle, gap_stream stream) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = record_locked(sim, handle, stream);
  gap__unlock(&sim->lock);
  return rc;
}

static bool is_held(struct sim *sim, const struct sim_event *event) {
  return event->order > stream_at(sim, event->stream)->open_order;
}

/* Does it stand behind a gate that is still closed? */
static bool is_gated(struct sim *sim, const struct sim_event *event) {
  const struct sim_stream *stream = stream_at(sim, event->stream);
  if (!stream->gate || event->order <= stream->gate_order) return false;
  return __atomic_load_n((const uint32_t *)(uintptr_t)stream->gate, __ATOMIC_ACQUIRE) < stream->gate_value;
}

static int query_locked(struct sim *sim, gap__event handle) {
  struct sim_event *event = find_event(sim, handle);
  if (!event) return GAP_EINVAL;
  gap__sim_charge(sim, sim->params.prices->event_query_us);
  if (event->front.capture) return GAP_EDEVICE;
  if (event->order == 0) return 0;
  if (is_held(sim, event) || is_gated(sim, event)) return GAP_EAGAIN;
  return event->complete_ns > gap__sim_time(&sim->dev) ? GAP_EAGAIN : 0;
}

int gap__sim_event_query(struct gap__dev *dev, gap__event handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = query_locked(sim, handle);
  gap__unlock(&sim->lock);
  return rc;
}

/* The stream gets to the event after all: in one lag from now. */
static void let_through(struct sim *sim, struct sim_event *event) {
  struct sim_stream *stream = stream_at(sim, event->stream);
  stream->open_order = event->order;
  event->complete_ns = gap__sim_time(&sim->dev) + lag_ns(sim);
  if (stream->tail_ns < event->complete_ns) stream->tail_ns = event->complete_ns;
}

static int wait_locked(struct sim *sim, gap__event handle) {
  struct sim_event *event = find_event(sim, handle);
  if (!event) return GAP_EINVAL;
  gap__sim_charge(sim, sim->params.prices->event_query_us);
  if (event->front.capture) return GAP_EDEVICE;
  if (event->order == 0) return 0;
  if (is_gated(sim, event)) return GAP_EDEVICE; /* nobody else is there who could open it */
  if (is_held(sim, event)) let_through(sim, event);
  gap__sim_wait_until(sim, event->complete_ns);
  return 0;
}

int gap__sim_event_wait(struct gap__dev *dev, gap__event handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = wait_locked(sim, handle);
  gap__unlock(&sim->lock);
  return rc;
}

/* What is queued on the stream from now on completes after the event.  When a held event completes is not known: refused. */
static int stream_wait_locked(struct sim *sim, gap_stream on, gap__event handle) {
  struct sim_event *event = find_event(sim, handle);
  if (!event) return GAP_EINVAL;
  uint32_t index = find_stream(sim, on);
  if (index == 0) return GAP_ENOMETA;
  struct sim_stream *stream = stream_at(sim, index);
  gap__sim_charge(sim, sim->params.prices->event_record_us);
  if (event->front.capture || stream->front.capture) return gap__soft_capture_join(&stream->front, &event->front);
  if (event->order == 0) return 0;
  if (is_held(sim, event)) return GAP_ENOTSUP;
  if (stream->tail_ns < event->complete_ns) stream->tail_ns = event->complete_ns;
  return 0;
}

int gap__sim_stream_wait(struct gap__dev *dev, gap_stream stream, gap__event handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = stream_wait_locked(sim, stream, handle);
  gap__unlock(&sim->lock);
  return rc;
}

/* Who closes a gate waits for what is before it: a held stream gets there, as when one of its events is waited for. */
static int gate_locked(struct sim *sim, gap_stream on, gap_addr arrived, gap_addr open, uint32_t value) {
  uint32_t index = find_stream(sim, on);
  if (index == 0) return GAP_ENOMETA;
  struct sim_stream *stream = stream_at(sim, index);
  gap__sim_charge(sim, GATE_CALLS * sim->params.prices->event_record_us);
  if (stream->front.capture) return GAP_EDEVICE;
  bool words =
      gap__soft_is_pinned(&sim->pinned, arrived, sizeof value) && gap__soft_is_pinned(&sim->pinned, open, sizeof value);
  if (!words) return GAP_EINVAL;
  if (stream->open_order != UINT64_MAX) stream->open_order = stream->order;
  stream->gate = open;
  stream->gate_value = value;
  stream->gate_order = stream->order;
  return gap__map_put(&sim->arrivals, arrived, queue_work(sim, stream, 0));
}

int gap__sim_gate(struct gap__dev *dev, gap_stream stream, gap_addr arrived, gap_addr open, uint32_t value) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = gate_locked(sim, stream, arrived, open, value);
  gap__unlock(&sim->lock);
  return rc;
}

/* The word is written when it is looked at: nobody else reads it. */
int gap__sim_value_await(struct gap__dev *dev, gap_addr word, uint32_t value, uint64_t limit_ns) {
  struct sim *sim = sim_of(dev);
  uint64_t arrival = 0;
  gap__lock(&sim->lock);
  uint64_t last = gap__sim_time(dev) + limit_ns;
  bool known = gap__map_get(&sim->arrivals, word, &arrival);
  int rc = !known ? GAP_EINVAL : arrival > last ? GAP_EAGAIN : 0;
  if (known) gap__sim_wait_until(sim, arrival < last ? arrival : last);
  if (!rc) sim->caught_up = true;
  if (!rc) __atomic_store_n((uint32_t *)(uintptr_t)word, value, __ATOMIC_RELEASE);
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_stream_id(struct gap__dev *dev, gap_stream stream, uint64_t *out) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, stream);
  if (index) *out = (uint64_t)dev->ordinal << 32 | index; /* records of streams are never reused */
  gap__unlock(&sim->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__sim_stream_capturing(struct gap__dev *dev, gap_stream stream, bool *out) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, stream);
  if (index) *out = stream_at(sim, index)->front.capture != 0;
  gap__unlock(&sim->lock);
  return index ? 0 : GAP_ENOMETA;
}

int gap__sim_stream_front(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *nodes,
                          uint32_t *count) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, stream);
  int rc = index ? gap__soft_stream_front(&stream_at(sim, index)->front, capture, nodes, count) : GAP_ENOMETA;
  gap__unlock(&sim->lock);
  return rc;
}

int gap__sim_node_before(struct gap__dev *dev, gap__node node, gap__node *nodes, uint32_t *count) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  int rc = gap__soft_node_before(&sim->graphs, node, nodes, count);
  gap__unlock(&sim->lock);
  return rc;
}

/* Whether every byte may be used; *on_card becomes false when host memory lies behind any of it. */
static bool check_use(struct sim *sim, gap_addr addr, uint64_t bytes, bool *on_card) {
  if (gap__soft_is_pinned(&sim->pinned, addr, bytes)) {
    *on_card = false;
    return true;
  }
  if (addr >= GAP__SPACE_END || bytes > GAP__SPACE_END - addr) return false;
  for (gap_addr at = addr, end = addr + bytes; at < end;) {
    uint32_t index = gap__space_at(&sim->space, at);
    if (index == 0) return false;
    const struct sim_mapping *mapping = gap__slab_at(&sim->mappings, index);
    if (!mapping->accessible) return false;
    const struct sim_chunk *chunk = mapping->chunk ? gap__slab_at(&sim->chunks, mapping->chunk) : NULL;
    if (chunk && chunk->place == GAP__PLACE_HOST) *on_card = false;
    at = mapping->addr + mapping->bytes;
  }
  return true;
}

int gap__sim_copy(struct gap__dev *dev, gap_addr dst, gap_addr src, uint64_t bytes, gap_stream on) {
  struct sim *sim = sim_of(dev);
  bool on_card = true;
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, on);
  int rc = index == 0 ? GAP_ENOMETA : 0;
  if (rc == 0 && !(check_use(sim, dst, bytes, &on_card) && check_use(sim, src, bytes, &on_card))) rc = GAP_EINVAL;
  if (rc == 0) rc = gap__soft_capture_add(&sim->graphs, &stream_at(sim, index)->front);
  if (rc == 0) {
    gap__sim_charge(sim, COPY_US);
    double ns = (double)bytes / (on_card ? DEVICE_BYTES_PER_NS : HOST_BYTES_PER_NS);
    queue_work(sim, stream_at(sim, index), (uint64_t)ns);
  }
  gap__unlock(&sim->lock);
  return rc;
}

/* Test controls. A handle that cannot be recorded for want of host memory is left alone. */
static void control(struct gap__dev *dev, gap_stream handle, void (*change)(struct sim_stream *)) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, handle);
  if (index) change(stream_at(sim, index));
  gap__unlock(&sim->lock);
}

static void hold(struct sim_stream *stream) {
  if (stream->open_order == UINT64_MAX) stream->open_order = stream->order;
}
static void let_go(struct sim_stream *stream) { stream->open_order = UINT64_MAX; }

void gap__sim_stream_hold(struct gap__dev *dev, gap_stream stream) { control(dev, stream, hold); }
void gap__sim_stream_release(struct gap__dev *dev, gap_stream stream) { control(dev, stream, let_go); }
bool gap__sim_stream_passed(struct gap__dev *dev, gap_stream handle) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, handle);
  bool passed = index && stream_at(sim, index)->order <= stream_at(sim, index)->open_order;
  gap__unlock(&sim->lock);
  return passed;
}

/* All streams that take part leave with it. */
static void end_capture(struct sim *sim, uint64_t capture) {
  for (uint32_t i = 1; i < sim->streams.count && capture; i++)
    if (stream_at(sim, i)->front.capture == capture) gap__soft_front_clear(&stream_at(sim, i)->front);
}

void gap__sim_stream_capture(struct gap__dev *dev, gap_stream handle, bool capturing) {
  struct sim *sim = sim_of(dev);
  gap__lock(&sim->lock);
  uint32_t index = find_stream(sim, handle);
  if (index && capturing) gap__soft_capture_begin(&sim->graphs, &stream_at(sim, index)->front);
  else if (index) end_capture(sim, stream_at(sim, index)->front.capture);
  gap__unlock(&sim->lock);
}

void gap__sim_forget_captures(struct sim *sim) {
  for (uint32_t i = 1; i < sim->streams.count; i++) gap__soft_front_clear(&stream_at(sim, i)->front);
  for (uint32_t i = 1; i < sim->events.count; i++) {
    struct sim_event *event = gap__slab_at(&sim->events, i);
    gap__soft_front_clear(&event->front);
  }
  gap__soft_graphs_free(&sim->graphs);
}

/* The old stream's work still completes; only the handle forgets it. */
void gap__sim_stream_recycle(struct gap__dev *dev, gap_stream stream) {
  struct sim *sim = sim_of(dev);
  control(dev, stream, let_go);
  gap__lock(&sim->lock);
  gap__map_remove(&sim->stream_of, gap__space_stream_key(stream), NULL);
  gap__unlock(&sim->lock);
}
