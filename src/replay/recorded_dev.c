#include "replay/recorded_dev.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define MADE_UP ((gap_stream)1 << 63) /* no driver hands out such a handle */
#define SEGMENT_UNIT ((uint64_t)512)
#define MAPPED_MOST ((uint64_t)4 << 40)
#define ADDRESSES_END ((uint64_t)1 << 57)
#define UNKNOWN_CARD ((uint64_t)1 << 40) /* so large that no segment reaches its end */

static struct recorded_dev *of(struct gap__dev *dev) { return (struct recorded_dev *)dev; }

void gap__recorded_fault(struct recorded_dev *dev, uint64_t event, const char *format, ...) {
  if (dev->failed) return;
  dev->failed = true;
  dev->fault_event = event;
  va_list args;
  va_start(args, format);
  vsnprintf(dev->fault, sizeof dev->fault, format, args);
  va_end(args);
}

static void describe(const struct gap__hist_event *event, char *out, size_t bytes) {
  snprintf(out, bytes, "%s of %" PRIu64 " bytes at %#" PRIx64, gap__action_name(event->action), event->size,
           event->addr);
}

/* The next driver call of the script; late completions are looked up by address, wherever they stand. */
static const struct gap__hist_event *front(struct recorded_dev *dev) {
  while (dev->next < dev->end && dev->events[dev->next].action == GAP__ACT_FREE_COMPLETED) dev->next++;
  return dev->next < dev->end ? &dev->events[dev->next] : NULL;
}

/* ---- segments ---- */

static int unexpected_alloc(struct recorded_dev *dev, uint64_t bytes, const struct gap__hist_event *at) {
  char text[160];
  describe(at ? at : &dev->events[dev->end], text, sizeof text);
  gap__recorded_fault(dev, dev->next, "recorded: %s; the model asks the driver for %" PRIu64 " bytes", text, bytes);
  return GAP_EDEVICE;
}

static int segment_alloc(struct gap__dev *base, uint64_t bytes, gap_addr *out) {
  struct recorded_dev *dev = of(base);
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front(dev);
  if (at ? at->action == GAP__ACT_SEGMENT_FREE && dev->refuses : dev->refuses) return GAP_ENOMEM;
  if (!at || at->action != GAP__ACT_SEGMENT_ALLOC || at->size != bytes) return unexpected_alloc(dev, bytes, at);
  if (gap__addrmap_reserve(&dev->segments)) return GAP_ENOMETA;
  if (!gap__addrmap_get(&dev->segments, at->addr))
    gap__addrmap_put(&dev->segments, at->addr, (uint32_t)(bytes / SEGMENT_UNIT));
  *out = at->addr;
  dev->held_bytes += bytes;
  dev->next++;
  return 0;
}

static int segment_free(struct gap__dev *base, gap_addr addr) {
  struct recorded_dev *dev = of(base);
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front(dev);
  uint64_t bytes = SEGMENT_UNIT * gap__addrmap_get(&dev->segments, addr);
  if (at && at->action == GAP__ACT_SEGMENT_FREE && at->addr == addr && at->size == bytes) {
    gap__addrmap_remove(&dev->segments, addr);
    dev->held_bytes -= at->size;
    dev->next++;
    return 0;
  }
  dev->early_release = addr;
  char text[160] = "no further driver call";
  if (at) describe(at, text, sizeof text);
  gap__recorded_fault(dev, dev->next, "recorded: %s; the model gives %" PRIu64 " bytes at %#" PRIx64 " back", text,
                      bytes, addr);
  return GAP_EDEVICE;
}

/* ---- pages ---- */

/* The driver call that the model makes is not the recorded one; `at` NULL: none was recorded. */
static int unexpected(struct recorded_dev *dev, const struct gap__hist_event *at, const char *what, gap_addr addr,
                      uint64_t bytes) {
  char text[160];
  describe(at ? at : &dev->events[dev->end], text, sizeof text);
  gap__recorded_fault(dev, dev->next, "recorded: %s; the model %s %" PRIu64 " bytes at %#" PRIx64, text, what, bytes,
                      addr);
  return GAP_EDEVICE;
}

/* The segment_map at the front of the script; NULL: another call is, or *rc says that the driver refuses. */
static const struct gap__hist_event *front_map(struct recorded_dev *dev, int *rc) {
  const struct gap__hist_event *at = front(dev);
  *rc = 0;
  if (at && at->action == GAP__ACT_SEGMENT_MAP) return at;
  if (dev->refuses && (!at || at->action == GAP__ACT_SEGMENT_UNMAP || at->action == GAP__ACT_SEGMENT_FREE))
    *rc = GAP_ENOMEM;
  return NULL;
}

/* What no card can have mapped would take for ever to compare page by page. */
static bool is_sane(const struct gap__hist_event *map, uint64_t reserved) {
  return map->addr % GAP__PAGE == 0 && map->addr <= ADDRESSES_END && reserved <= ADDRESSES_END &&
         map->size <= MAPPED_MOST;
}

/* A segment begins where the first of its pages was mapped. */
static int reserve(struct gap__dev *base, uint64_t bytes, uint64_t align, gap_addr *out) {
  struct recorded_dev *dev = of(base);
  int rc;
  (void)align;
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front_map(dev, &rc);
  if (rc) return rc;
  if (!at || !is_sane(at, bytes)) return unexpected(dev, at, "begins a new segment of", at ? at->addr : 0, bytes);
  *out = at->addr;
  return 0;
}

static int unreserve(struct gap__dev *base, gap_addr addr, uint64_t bytes) {
  (void)base, (void)addr, (void)bytes;
  return 0;
}

static int chunk_create(struct gap__dev *base, uint64_t bytes, enum gap__place place, gap__chunk *out) {
  struct recorded_dev *dev = of(base);
  int rc;
  (void)place;
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front_map(dev, &rc);
  if (!rc && (!at || dev->created_bytes + bytes > at->size || at->size > MAPPED_MOST))
    rc = unexpected(dev, at, "maps at least", at ? at->addr : 0, dev->created_bytes + bytes);
  if (rc) {
    dev->created_bytes = 0;
    return rc;
  }
  dev->created_bytes += bytes;
  *out = ++dev->chunks;
  return 0;
}

static int chunk_release(struct gap__dev *base, gap__chunk chunk) {
  (void)base, (void)chunk;
  return 0;
}

static int map(struct gap__dev *base, gap_addr addr, uint64_t bytes, gap__chunk chunk) {
  struct recorded_dev *dev = of(base);
  (void)chunk;
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front(dev);
  if (at->addr + dev->mapped_bytes != addr) return unexpected(dev, at, "maps", addr, dev->created_bytes);
  dev->mapped_bytes += bytes;
  return 0;
}

static int set_access(struct gap__dev *base, gap_addr addr, uint64_t bytes) {
  struct recorded_dev *dev = of(base);
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front(dev);
  if (at->addr != addr || at->size != bytes) return unexpected(dev, at, "maps", addr, bytes);
  dev->created_bytes = dev->mapped_bytes = 0;
  dev->held_bytes += bytes;
  dev->next++;
  return 0;
}

/* One page of a range, from its start on.  When the pages go on behind the end of the recorded range, that one is to blame. */
static int unmap(struct gap__dev *base, gap_addr addr, uint64_t bytes) {
  struct recorded_dev *dev = of(base);
  if (dev->failed) return GAP_EDEVICE;
  const struct gap__hist_event *at = front(dev);
  if (!dev->unmapped_bytes && addr == dev->unmap_end) {
    while (dev->events[--dev->next].action != GAP__ACT_SEGMENT_UNMAP) continue;
    return unexpected(dev, &dev->events[dev->next], "goes on to unmap", addr, bytes);
  }
  if (!at || at->action != GAP__ACT_SEGMENT_UNMAP || at->addr + dev->unmapped_bytes != addr ||
      bytes > at->size - dev->unmapped_bytes) {
    dev->early_release = addr;
    return unexpected(dev, at, "unmaps", addr, bytes);
  }
  dev->unmapped_bytes += bytes;
  if (dev->unmapped_bytes < at->size) return 0;
  dev->unmap_end = addr + bytes;
  dev->held_bytes -= at->size;
  dev->unmapped_bytes = 0;
  dev->next++;
  return 0;
}

/* ---- events, of the made-up streams ---- */

/* The streams of the program itself keep pace: whoever waits for one finds it ready. */
#define READY ((gap__event)RECORDED_WAITS_MAX + 1)

static int event_create(struct gap__dev *base, gap_stream stream, gap__event *out) {
  (void)base;
  *out = stream & MADE_UP ? stream & ~MADE_UP : READY; /* one event a stream: the number of the wait */
  return 0;
}
static int event_destroy(struct gap__dev *base, gap__event event) {
  (void)base, (void)event;
  return 0;
}
static int event_record(struct gap__dev *base, gap__event event, gap_stream stream) {
  (void)base, (void)event, (void)stream;
  return 0;
}

static int event_query(struct gap__dev *base, gap__event event) {
  struct recorded_dev *dev = of(base);
  struct recorded_wait *wait = &dev->waits[event];
  if (!wait->scripted || !dev->polls) return GAP_EAGAIN;
  wait->completed = true;
  return GAP_OK;
}

static int event_wait(struct gap__dev *base, gap__event event) {
  struct recorded_dev *dev = of(base);
  if (event == READY) return GAP_OK;
  struct recorded_wait *wait = &dev->waits[event];
  if (!wait->scripted) {
    gap__recorded_fault(dev, dev->end,
                        "the model waits for all work, so the block at %#" PRIx64
                        " completes; in the record it does not yet",
                        wait->addr);
    return GAP_EDEVICE;
  }
  wait->completed = true;
  return GAP_OK;
}

static int stream_capturing(struct gap__dev *base, gap_stream stream, bool *out) {
  (void)base, (void)stream;
  *out = false;
  return 0;
}

static uint64_t now_ns(struct gap__dev *base) {
  (void)base;
  return 0;
}
static void destroy(struct gap__dev *base) { (void)base; /* its owner does */ }

static const struct gap__dev_ops ops = {.name = "recorded",
                                        .destroy = destroy,
                                        .reserve = reserve,
                                        .unreserve = unreserve,
                                        .chunk_create = chunk_create,
                                        .chunk_release = chunk_release,
                                        .map = map,
                                        .set_access = set_access,
                                        .unmap = unmap,
                                        .segment_alloc = segment_alloc,
                                        .segment_free = segment_free,
                                        .event_create = event_create,
                                        .event_destroy = event_destroy,
                                        .event_record = event_record,
                                        .event_query = event_query,
                                        .event_wait = event_wait,
                                        .stream_capturing = stream_capturing,
                                        .now_ns = now_ns};

/* ---- the script ---- */

int gap__recorded_init(struct recorded_dev *dev, const struct gap__hist_event *events, uint64_t total_bytes) {
  dev->base.ops = &ops;
  dev->base.caps = (struct gap__dev_caps){.total_bytes = total_bytes ? total_bytes : UNKNOWN_CARD,
                                          .granularity_bytes = GAP__PAGE,
                                          .vmm = true,
                                          .stepped = true};
  dev->events = events;
  int rc = gap__addrmap_init(&dev->segments);
  return rc ? rc : gap__addrmap_init(&dev->wait_map);
}

void gap__recorded_destroy(struct recorded_dev *dev) {
  gap__addrmap_destroy(&dev->segments);
  gap__addrmap_destroy(&dev->wait_map);
}

int gap__recorded_wait(struct recorded_dev *dev, uint64_t addr, uint64_t size, gap_stream *out) {
  uint32_t index = dev->wait_free;
  if (index) dev->wait_free = dev->waits[index].next_free;
  else if (dev->waits_used < RECORDED_WAITS_MAX) index = ++dev->waits_used;
  else return GAP_ELIMIT;
  int rc = gap__addrmap_reserve(&dev->wait_map);
  if (rc) return rc;
  dev->waits[index] = (struct recorded_wait){.addr = addr, .size = size};
  gap__addrmap_put(&dev->wait_map, addr, index);
  dev->wait_count++;
  *out = MADE_UP | index;
  return 0;
}

static void script_completion(struct recorded_dev *dev, uint64_t at) {
  const struct gap__hist_event *event = &dev->events[at];
  uint32_t index = gap__addrmap_get(&dev->wait_map, event->addr);
  if (!index || dev->waits[index].scripted) {
    gap__recorded_fault(dev, at, "the block at %#" PRIx64 " completes, but nothing waits there", event->addr);
  } else if (dev->waits[index].size != event->size) {
    gap__recorded_fault(dev, at, "the block at %#" PRIx64 " completes with %" PRIu64 " bytes; %" PRIu64 " were asked",
                        event->addr, event->size, dev->waits[index].size);
  } else {
    dev->waits[index].scripted = true;
  }
}

void gap__recorded_begin(struct recorded_dev *dev, uint64_t first, uint64_t end) {
  dev->first = dev->next = first;
  dev->created_bytes = dev->mapped_bytes = dev->unmapped_bytes = dev->unmap_end = 0;
  dev->end = end;
  for (uint64_t at = first; at < end; at++) {
    if (dev->events[at].action == GAP__ACT_FREE_COMPLETED) script_completion(dev, at);
  }
}

static void finish_completion(struct recorded_dev *dev, uint64_t at) {
  uint64_t addr = dev->events[at].addr;
  uint32_t index = gap__addrmap_get(&dev->wait_map, addr);
  if (!index || !dev->waits[index].completed) {
    gap__recorded_fault(dev, at, "recorded: the block at %#" PRIx64 " completes; the model does not look for it", addr);
    return;
  }
  gap__addrmap_remove(&dev->wait_map, addr);
  dev->waits[index].next_free = dev->wait_free;
  dev->wait_free = index;
  dev->wait_count--;
}

bool gap__recorded_finish(struct recorded_dev *dev) {
  for (uint64_t at = dev->first; at < dev->end && !dev->failed; at++) {
    if (dev->events[at].action == GAP__ACT_FREE_COMPLETED) {
      finish_completion(dev, at);
    } else if (at >= dev->next) {
      char text[160];
      describe(&dev->events[at], text, sizeof text);
      gap__recorded_fault(dev, at, "recorded: %s; the model makes no such driver call", text);
    }
  }
  return !dev->failed;
}
