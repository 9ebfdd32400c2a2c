#include "replay/replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"
#include "replay/blockmap.h"
#include "replay/card.h"
#include "replay/checker.h"

enum {
  SMALL_HISTORY_EVENTS = 20000,
  CHECK_EVERY_LARGE = 1000,
  PROGRESS_EVERY = 1 << 16,
  SAME_MALLOC_US = 2000, /* a release burst and the retry that follows it lie closer than this */
  PACE_US = 50,          /* from event to event where a history has no times; training records one every 35 to 150 us */
};
#define HOST_BYTES ((uint64_t)80 << 30)         /* addresses; memory is taken as it is touched */
#define MADE_UP_STREAM ((uint64_t)0x7A11 << 48) /* no driver's handles look like this */

struct run {
  const struct gap__history *history;
  const gap_replay_options *options;
  gap_replay_result *result;
  struct gap__card *card;
  struct gap__dev *dev;
  gap_heap *heap;
  struct gap__blockmap blocks;
  struct gap__blockmap_entry held; /* its free_requested was the last event; key 0: none */
  struct gap__live live;
  /* The card's clock as this replay set it last, and how late the program is. */
  uint64_t start_ns, clock_ns, delay_ns, longest_ns;
  bool has_times;
  bool native;              /* torch's own policy is replayed */
  uint64_t late_mark_bytes; /* 0.9 P */
  bool is_late;             /* live has passed it */
  uint64_t late_time_us, late_driver_ns, late_background_ns;
  uint64_t calls_before; /* driver calls of setting up */
  uint64_t burst;        /* segment_free and segment_unmap events in a row, up to now */
  int64_t burst_time_us;
  /* Made-up streams: those below `stream_count` exist, `stream_free` lists the ones nobody uses. */
  uint64_t stream_count, *stream_free;
  size_t stream_free_count, stream_free_max;
  bool *pool_seen;       /* one a pool of the history */
  uint64_t unknown_addr; /* of the last free_requested of an unknown block */
  struct gap__checker *checker;
  uint64_t check_every, check_due;
  uint64_t waits;            /* of the device, when the checker was last told what they ended */
  uint64_t beyond_cap_bytes; /* the last page of an expandable segment may end beyond the cap */
  uint64_t index;            /* of the event at hand */
  bool refused;
  char *message;
  size_t message_bytes;
};

static int complain(struct run *run, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int complain(struct run *run, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(run->message, run->message_bytes, format, args);
  va_end(args);
  return code;
}

static int heap_error(struct run *run, int rc, const char *call) {
  return complain(run, rc, "event %" PRIu64 ": %s: %s", run->index, call, gap_strerror(rc));
}

/* ---- Time ---- */

/* Adds the time that passed since to the delay; returns it. */
static uint64_t fall_behind(struct run *run) {
  uint64_t now = gap__dev_now_ns(run->dev);
  if (now <= run->clock_ns) return 0;
  uint64_t spent = now - run->clock_ns;
  run->clock_ns = now;
  run->delay_ns += spent;
  return spent;
}

/* Accounts for the last event. */
static void settle(struct run *run) {
  uint64_t spent = fall_behind(run);
  if (spent > run->longest_ns) run->longest_ns = spent;
}

static int64_t event_time(const struct run *run, const struct gap__hist_event *event) {
  int64_t recorded = run->has_times ? event->time_us : (int64_t)run->index * PACE_US;
  double speed = run->options->speed;
  return speed == 1 ? recorded : speed > 0 ? (int64_t)((double)recorded / speed) : 0;
}

static void advance(struct run *run, int64_t time_us) {
  settle(run);
  uint64_t target = run->start_ns + (uint64_t)time_us * 1000 + run->delay_ns;
  if (target <= run->clock_ns) return;
  run->card->ops->wait_until(run->card, target);
  run->clock_ns = gap__dev_now_ns(run->dev);
}

static void driver_time(struct gap__dev *dev, uint64_t *calls, uint64_t *caller_ns, uint64_t *background_ns) {
  *calls = *caller_ns = *background_ns = 0;
  for (int i = 0; i < GAP__CALL_COUNT; i++) {
    *calls += dev->counters.calls[i] + dev->counters.background_calls[i];
    if (i == GAP__CALL_event_wait || i == GAP__CALL_value_await) continue; /* stalls, counted as such */
    *caller_ns += dev->counters.ns[i];
    *background_ns += dev->counters.background_ns[i];
  }
}

static void note_late(struct run *run, const struct gap__hist_event *event) {
  uint64_t calls;
  run->is_late = true;
  run->late_time_us = (uint64_t)event->time_us;
  driver_time(run->dev, &calls, &run->late_driver_ns, &run->late_background_ns);
}

/* ---- Streams ---- */

static int card_stream(struct run *run, uint64_t recorded, gap_stream *out) {
  int rc = run->card->ops->stream(run->card, recorded, out);
  return rc == 0 ? 0 : heap_error(run, rc, "stream");
}

/* Those made up for blocks that a second stream still uses. */

static uint64_t stream_take(struct run *run) {
  if (run->stream_free_count > 0) return run->stream_free[--run->stream_free_count];
  return MADE_UP_STREAM + ++run->stream_count;
}

static int stream_give(struct run *run, uint64_t stream) {
  if (run->stream_free_count == run->stream_free_max) {
    size_t max = run->stream_free_max ? run->stream_free_max * 2 : 64;
    uint64_t *list = realloc(run->stream_free, max * sizeof *list);
    if (!list) return complain(run, GAP_ENOMETA, "out of host memory");
    run->stream_free = list;
    run->stream_free_max = max;
  }
  run->stream_free[run->stream_free_count++] = stream;
  return 0;
}

/* ---- Events ---- */

static int refuse(struct run *run, const struct gap__hist_event *event) {
  gap_replay_failure *failed = &run->result->failed;
  *failed = (gap_replay_failure){.event = run->index,
                                 .action = gap__action_name(event->action),
                                 .size = event->size,
                                 .stream = event->stream,
                                 .time_us = event->time_us,
                                 .live_bytes = run->live.bytes,
                                 .held_bytes = gap__heap_held(run->heap, 0)};
  if (gap__heap_diagnosis(run->heap, 0, failed->reason, sizeof failed->reason) < 0 || failed->reason[0] == '\0')
    snprintf(failed->reason, sizeof failed->reason, "%s", gap_strerror(GAP_ENOMEM));
  run->refused = true;
  return 0;
}

/* Who waits for a held stream brings its release about (card.h): the uses that end with it are over sooner than was recorded, and
 * their blocks may serve again.  The checker hears of it before it hears of the block that was waited for. */
static int end_waited(struct run *run) {
  const struct gap__dev_counters *counters = &run->dev->counters;
  uint64_t waits = counters->calls[GAP__CALL_event_wait] + counters->calls[GAP__CALL_segment_free] +
                   counters->calls[GAP__CALL_value_await];
  int rc = 0;
  if (!run->checker || waits == run->waits) return 0;
  run->waits = waits;
  for (size_t i = 0; i <= run->blocks.mask && rc == 0; i++) {
    struct gap__blockmap_entry *entry = &run->blocks.entries[i];
    bool deferred = entry->key && entry->stream && entry->size && entry->addr;
    if (!deferred || !gap__sim_stream_passed(run->dev, entry->stream)) continue;
    rc = gap__checker_free(run->checker, entry->addr);
    entry->addr = 0; /* nothing lies there any more */
  }
  return rc;
}

static int use_pool(struct run *run, uint16_t pool, gap_pool_id *id) {
  const uint64_t *recorded = run->history->pools[pool].id;
  *id = (gap_pool_id){recorded[0], recorded[1]};
  if (pool == 0 || run->pool_seen[pool]) return 0;
  run->pool_seen[pool] = true;
  int rc = gap__heap_pool_retain(run->heap, 0, *id);
  return rc == 0 ? 0 : heap_error(run, rc, "pool");
}

static int request(struct run *run, const struct gap__hist_event *event, gap_addr *addr) {
  gap_pool_id pool = {0, 0};
  int rc = event->pool == 0 ? 0 : use_pool(run, event->pool, &pool);
  if (rc != 0) return rc;
  gap_stream stream;
  rc = card_stream(run, event->stream, &stream);
  if (rc == 0) rc = gap__heap_alloc(run->heap, 0, stream, pool, event->size, addr);
  if (rc == GAP_ENOMEM || rc == GAP_ETOOBIG) return refuse(run, event);
  if (rc != 0) return heap_error(run, rc, "alloc");
  gap__live_alloc(&run->live, event->size);
  if (!run->is_late && run->live.bytes >= run->late_mark_bytes) note_late(run, event);
  rc = end_waited(run);
  if (rc != 0 || !run->checker || event->size == 0) return rc;
  return gap__checker_alloc(run->checker, *addr, event->size);
}

static int on_alloc(struct run *run, const struct gap__hist_event *event) {
  gap_addr addr;
  int rc = request(run, event, &addr);
  if (rc != 0 || run->refused) return rc;
  if (gap__blockmap_find(&run->blocks, event->addr))
    return complain(run, GAP_EFORMAT, "event %" PRIu64 ": alloc of 0x%" PRIx64 ", which is live", run->index,
                    event->addr);
  struct gap__blockmap_entry *entry = gap__blockmap_put(&run->blocks, event->addr);
  if (!entry) return complain(run, GAP_ENOMETA, "out of host memory");
  *entry = (struct gap__blockmap_entry){.key = event->addr, .addr = addr, .size = event->size};
  return 0;
}

/* A recorded out-of-memory is a request like any other; served, it stays. */
static int on_oom(struct run *run, const struct gap__hist_event *event) {
  gap_addr addr;
  return request(run, event, &addr);
}

static int on_free_requested(struct run *run, const struct gap__hist_event *event) {
  struct gap__blockmap_entry *entry = gap__blockmap_find(&run->blocks, event->addr);
  if (!entry || entry->stream != 0) {
    run->result->unknown_frees++;
    run->unknown_addr = event->addr;
    return 0;
  }
  gap__live_let_go(&run->live, entry->size);
  run->held = *entry;
  return 0;
}

/* The block's uses are all over. */
static int end_block(struct run *run, const struct gap__blockmap_entry *block) {
  gap__live_end(&run->live, block->size);
  if (!run->checker || block->size == 0 || block->addr == 0) return 0;
  return gap__checker_free(run->checker, block->addr);
}

/* Takes the block off the map first: what follows may not come back to it. */
static int free_block(struct run *run, struct gap__blockmap_entry *entry) {
  struct gap__blockmap_entry block = *entry;
  gap__blockmap_take(&run->blocks, entry);
  int rc = gap__heap_free(run->heap, block.addr);
  return rc != 0 ? heap_error(run, rc, "free") : end_block(run, &block);
}

static int release_block(struct run *run, struct gap__blockmap_entry *entry) {
  struct gap__blockmap_entry block = *entry;
  gap__blockmap_take(&run->blocks, entry);
  gap_stream stream;
  int rc = card_stream(run, block.stream, &stream);
  if (rc == 0) rc = run->card->ops->release(run->card, stream);
  if (rc == 0) rc = stream_give(run, block.stream);
  return rc != 0 ? rc : end_block(run, &block);
}

static int on_free_completed(struct run *run, const struct gap__hist_event *event) {
  struct gap__blockmap_entry *entry = gap__blockmap_find(&run->blocks, event->addr);
  if (!entry) { /* counted already unless its free_requested lies before the start too */
    if (event->addr != run->unknown_addr) run->result->unknown_frees++;
    return 0;
  }
  if (entry->stream != 0) return release_block(run, entry);
  if (run->held.key == 0) gap__live_let_go(&run->live, entry->size);
  run->held.key = 0;
  return free_block(run, entry);
}

/* The held block is still used by another stream.  When that use ends is recorded exactly, so no lag comes on top of it. */
static int defer_free(struct run *run) {
  struct gap__blockmap_entry *entry = gap__blockmap_find(&run->blocks, run->held.key);
  run->held.key = 0;
  entry->stream = stream_take(run);
  gap_stream stream;
  int rc = card_stream(run, entry->stream, &stream);
  if (rc == 0) rc = run->card->ops->hold(run->card, stream);
  if (rc == 0) rc = gap__heap_record_stream(run->heap, entry->addr, stream);
  run->card->ops->lag_set(run->card, 0);
  if (rc == 0) rc = gap__heap_free(run->heap, entry->addr);
  run->card->ops->lag_set(run->card, run->options->lag_us);
  return rc == 0 ? 0 : heap_error(run, rc, "free while a second stream uses the block");
}

/* Is the burst that has ended at `event` (NULL: the end of the history) an empty_cache() to repeat?
 * With nothing but other work behind it, it is the program's.  With growth or an oom behind it the recorded policy was
 * most likely refused by the driver and retried (in the history of llama_sft the burst and the retry took 200 ms, beside other
 * programs on the card): the native policy repeats it to hold what was recorded, unless it will retry by itself; gapless was
 * not refused. */
static bool is_empty_cache(const struct run *run, const struct gap__hist_event *event) {
  if (!event || (event->action != GAP__ACT_SEGMENT_ALLOC && event->action != GAP__ACT_SEGMENT_MAP &&
                 event->action != GAP__ACT_OOM))
    return true;
  return run->native && event->time_us - run->burst_time_us >= SAME_MALLOC_US;
}

static int end_burst(struct run *run, const struct gap__hist_event *event) {
  run->burst = 0;
  if (!is_empty_cache(run, event)) return 0;
  run->result->trims++;
  uint64_t returned;
  int rc = gap__heap_trim(run->heap, 0, (gap_pool_id){0, 0}, &returned);
  fall_behind(run); /* no request waited for it: not among the longest calls */
  return rc == 0 ? 0 : heap_error(run, rc, "empty_cache");
}

static int on_segment_free(struct run *run, const struct gap__hist_event *event) {
  run->burst++;
  run->burst_time_us = event->time_us;
  return 0;
}

static int dispatch(struct run *run, const struct gap__hist_event *event) {
  switch (event->action) {
    case GAP__ACT_ALLOC: return on_alloc(run, event);
    case GAP__ACT_FREE_REQUESTED: return on_free_requested(run, event);
    case GAP__ACT_FREE_COMPLETED: return on_free_completed(run, event);
    case GAP__ACT_OOM: return on_oom(run, event);
    case GAP__ACT_SEGMENT_FREE:
    case GAP__ACT_SEGMENT_UNMAP: return on_segment_free(run, event);
    default: return 0;
  }
}

static int check(struct run *run) {
  char text[400];
  run->check_due = run->check_every;
  run->result->checks++;
  uint64_t cap = run->result->cap_bytes;
  int rc = gap__checker_check(run->checker, cap ? cap + run->beyond_cap_bytes : 0, text, sizeof text);
  if (rc == GAP_EMISMATCH) return complain(run, rc, "event %" PRIu64 ": the checker found that %s", run->index, text);
  return rc == 0 ? 0 : complain(run, rc, "the checker ran out of host memory");
}

static bool gives_back(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP;
}

static int step(struct run *run, const struct gap__hist_event *event) {
  int rc = 0;
  if (run->held.key != 0 && (event->action != GAP__ACT_FREE_COMPLETED || event->addr != run->held.key))
    rc = defer_free(run);
  advance(run, event_time(run, event));
  if (rc == 0 && run->burst != 0 && !gives_back(event)) rc = end_burst(run, event);
  gap__heap_tick(run->heap, 0);
  if (rc == 0) rc = dispatch(run, event);
  if (rc == 0 && run->checker && --run->check_due == 0) rc = check(run);
  return rc;
}

static void progress(const struct run *run, uint64_t total) {
  if (run->options->progress) run->options->progress(run->options->progress_arg, run->index, total);
}

static int replay_events(struct run *run) {
  const struct gap__hist_device *device = &run->history->devices[run->options->device];
  int rc = 0;
  for (run->index = 0; run->index < device->event_count && !run->refused; run->index++) {
    if ((run->index & (PROGRESS_EVERY - 1)) == 0) progress(run, device->event_count);
    rc = step(run, &device->events[run->index]);
    if (rc != 0) return rc;
  }
  if (!run->refused && run->held.key != 0) rc = defer_free(run);
  if (rc == 0 && !run->refused && run->burst != 0) rc = end_burst(run, NULL);
  settle(run);
  progress(run, device->event_count);
  return rc;
}

/* ---- Setting up, and what came out ---- */

/* The smaller of the caller's cap and the configuration's. */
static int set_cap(struct run *run) {
  struct gap__stats stats = {0};
  int rc = gap__heap_stats(run->heap, 0, &stats);
  uint64_t wanted = run->options->cap_bytes, configured = (uint64_t)stats.cap_bytes;
  bool ours = rc == 0 && wanted != 0 && (configured == 0 || wanted < configured);
  if (ours) rc = gap__heap_set_cap(run->heap, 0, wanted);
  run->result->cap_bytes = ours ? wanted : configured;
  return rc == 0 ? 0 : complain(run, rc, "the cap: %s", gap_strerror(rc));
}

static int open_card(const gap_replay_options *options, struct gap__card **out) {
  struct gap__dev *dev;
  int rc;
  switch (options->backend) {
    case GAP_BACKEND_SIM: return gap__card_sim(options, out);
    case GAP_BACKEND_HOST:
      rc = gap__host_create(
          options->ordinal,
          &(struct gap__host_params){.total_bytes = options->card_bytes ? options->card_bytes : HOST_BYTES}, &dev);
      break;
    case GAP_BACKEND_CUDA:
      setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* held streams keep those waiting that share their queue */
      rc = gap__cuda_create(options->ordinal, &(struct gap__cuda_params){0}, &dev);
      break;
    default: return GAP_EINVAL;
  }
  return rc ? rc : gap__card_real(dev, options, out);
}

static int open_heap(struct run *run, const struct gap__conf *conf) {
  int rc = open_card(run->options, &run->card);
  if (rc != 0) return complain(run, rc, "the card: %s", gap_strerror(rc));
  run->dev = run->card->dev;
  run->start_ns = run->clock_ns = gap__dev_now_ns(run->dev);
  struct gap__heap_params heap = {.devs = &run->dev, .dev_count = 1, .conf = conf, .maker = run->card->maker};
  rc = gap__heap_create(&heap, &run->heap);
  if (rc != 0) run->dev = NULL; /* it has ended with the heap */
  if (rc != 0) return complain(run, rc, "the heap: %s", gap_strerror(rc));
  return set_cap(run);
}

static uint64_t checks_every(const gap_replay_options *options, uint64_t events) {
  if (options->backend != GAP_BACKEND_SIM) return 0; /* it looks into the simulation */
  if (options->check != GAP_CHECK_AUTO) return (uint64_t)options->check;
  return events < SMALL_HISTORY_EVENTS ? 1 : CHECK_EVERY_LARGE;
}

static int set_up(struct run *run, const struct gap__conf *conf) {
  int rc = open_heap(run, conf);
  if (rc != 0) return rc;
  rc = gap__blockmap_init(&run->blocks);
  run->pool_seen = calloc(run->history->pool_count + 1, sizeof *run->pool_seen);
  if (rc != 0 || !run->pool_seen) return complain(run, GAP_ENOMETA, "out of host memory");
  const struct gap__hist_device *device = &run->history->devices[run->options->device];
  run->has_times = device->event_count > 0 && device->events[device->event_count - 1].time_us > 0;
  run->check_every = run->check_due = checks_every(run->options, device->event_count);
  if (run->check_every == 0) return 0;
  struct gap__checker_source source = gap__checker_sim(run->dev);
  return gap__checker_create(&source, &run->checker);
}

static void count_set_up(struct run *run) {
  uint64_t caller_ns, background_ns;
  driver_time(run->dev, &run->calls_before, &caller_ns, &background_ns);
}

static void tear_down(struct run *run) {
  gap__checker_destroy(run->checker);
  gap__blockmap_destroy(&run->blocks);
  free(run->stream_free);
  free(run->pool_seen);
  if (run->heap) gap__heap_destroy(run->heap);
  else if (run->dev) gap__dev_destroy(run->dev);
  if (run->card) run->card->ops->close(run->card);
}

static void report_driver(struct run *run) {
  gap_replay_result *result = run->result;
  uint64_t caller_ns, background_ns;
  driver_time(run->dev, &result->driver_calls, &caller_ns, &background_ns);
  result->driver_calls -= run->calls_before;
  result->driver_time_us = caller_ns / 1000;
  result->background_time_us = background_ns / 1000;
  result->longest_call_us = run->longest_ns / 1000;
  if (!run->is_late) return;
  result->late_recorded_us = run->has_times ? result->recorded_us - run->late_time_us : 0;
  result->late_driver_us = (caller_ns - run->late_driver_ns) / 1000;
  result->late_background_us = (background_ns - run->late_background_ns) / 1000;
}

static void report_calls(const struct gap__dev *dev, gap_replay_result *result) {
  const struct gap__dev_counters *counters = &dev->counters;
  result->call_count = GAP__CALL_COUNT;
  for (int i = 0; i < GAP__CALL_COUNT; i++)
    result->call[i] = (gap_replay_call){.name = gap__dev_call_name((enum gap__dev_call)i),
                                        .calls = counters->calls[i],
                                        .us = counters->ns[i] / 1000,
                                        .background_calls = counters->background_calls[i],
                                        .background_us = counters->background_ns[i] / 1000};
}
_Static_assert(GAP__CALL_COUNT <= GAP_CALLS_MAX, "the public result has room for every call");

static void report_stats(const struct gap__stats *stats, gap_replay_result *result) {
  result->peak_reserved_bytes = (uint64_t)stats->reserved_bytes[GAP__KIND_ALL].peak;
  result->stalls = (uint64_t)stats->stalls;
  result->stall_us = (uint64_t)stats->stall_us;
  result->pages_grown = (uint64_t)stats->pages_grown;
  result->pages_made_ahead = (uint64_t)stats->pages_made_ahead;
  result->pages_stolen = (uint64_t)stats->pages_stolen;
  result->num_alloc_retries = (uint64_t)stats->num_alloc_retries;
  result->growth_caller_us = (uint64_t)stats->rung_us[GAP__RUNG_grow];
  result->growth_background_us = result->background_time_us;
  result->rung_count = GAP__RUNG_COUNT;
  for (int i = 0; i < GAP__RUNG_COUNT; i++) {
    result->rung_name[i] = gap__rung_name((enum gap__rung)i);
    result->rung_served[i] = (uint64_t)stats->rung_count[i];
    result->rung_us[i] = (uint64_t)stats->rung_us[i];
  }
}
_Static_assert(GAP__RUNG_COUNT <= GAP_RUNGS_MAX, "the public result has room for every rung");

static void report_plan(const struct gap__stats *stats, gap_replay_plan *plan) {
  *plan = (gap_replay_plan){.requests = (uint64_t)stats->plan_requests,
                            .bytes = (uint64_t)stats->plan_bytes,
                            .placed = (uint64_t)stats->plan_placed,
                            .placed_bytes = (uint64_t)stats->plan_placed_bytes,
                            .unexpected = (uint64_t)stats->plan_unexpected,
                            .unexpected_bytes = (uint64_t)stats->plan_unexpected_bytes,
                            .taken = (uint64_t)stats->plan_taken,
                            .taken_bytes = (uint64_t)stats->plan_taken_bytes,
                            .unbacked = (uint64_t)stats->plan_unbacked,
                            .unbacked_bytes = (uint64_t)stats->plan_unbacked_bytes,
                            .found = (uint64_t)stats->plan_found,
                            .periods = (uint64_t)stats->plan_periods};
}

static void report_conversion(const struct gap__stats *stats, gap_replay_conversion *conversion) {
  *conversion = (gap_replay_conversion){.chunks = (uint64_t)stats->conversions,
                                        .copied_bytes = (uint64_t)stats->bytes_copied,
                                        .freed_bytes = (uint64_t)stats->pages_converted << GAP__PAGE_SHIFT,
                                        .us = (uint64_t)stats->convert_us};
}

static void report_overflow(const struct gap__stats *stats, gap_replay_overflow *overflow) {
  *overflow = (gap_replay_overflow){.peak_bytes = (uint64_t)stats->overflow_bytes_peak,
                                    .requests = (uint64_t)stats->rung_count[GAP__RUNG_overflow],
                                    .bytes = (uint64_t)stats->overflow_placed_bytes};
}

static int report(struct run *run) {
  struct gap__stats stats = {0};
  report_driver(run);
  report_calls(run->dev, run->result); /* before the statistics, which ask the driver too */
  int rc = gap__heap_stats(run->heap, 0, &stats);
  if (rc != 0) return complain(run, rc, "statistics: %s", gap_strerror(rc));
  run->result->fitted = !run->refused;
  run->result->events = run->index;
  report_stats(&stats, run->result);
  report_plan(&stats, &run->result->plan);
  report_conversion(&stats, &run->result->conversion);
  report_overflow(&stats, &run->result->overflow);
  return 0;
}

/* The strategy's own books, once, when checks are wanted at all. */
static int check_books(struct run *run) {
  char text[400];
  if (run->options->check == GAP_CHECK_OFF) return 0;
  int rc = gap__heap_check(run->heap, 0, text, sizeof text);
  return rc == 0 ? 0 : complain(run, GAP_EMISMATCH, "the strategy's own check at the end: %s", text);
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int gap__replay_run(const struct gap__history *history, const gap_replay_options *options, const struct gap__conf *conf,
                    const struct gap__live *peaks, gap_replay_result *result, char *message, size_t bytes) {
  struct run run = {.history = history,
                    .options = options,
                    .result = result,
                    .native = conf->strategy == GAP__STRATEGY_CACHING,
                    .beyond_cap_bytes = conf->expandable_segments ? conf->large_segment_size : 0,
                    .late_mark_bytes = peaks->bytes_peak - peaks->bytes_peak / 10,
                    .message = message,
                    .message_bytes = bytes};
  int rc = set_up(&run, conf);
  if (rc == 0) count_set_up(&run); /* and begin: setting up took time on a real card */
  if (rc == 0) run.start_ns = run.clock_ns = gap__dev_now_ns(run.dev);
  double start = seconds_now();
  if (rc == 0) rc = replay_events(&run);
  result->seconds = seconds_now() - start;
  if (rc == 0 && run.checker) rc = check(&run);
  if (rc == 0) rc = check_books(&run);
  if (rc == 0) rc = report(&run);
  tear_down(&run);
  return rc;
}
