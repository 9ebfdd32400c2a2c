/* One pass over the events.  What the recorder writes inside one call of the program stands together: late completions and
 * driver calls before the alloc or oom they belong to, or alone when the call was empty_cache().  These events are gathered
 * until the one that ends the call, then played as the script of a recorded device.
 *
 * A history does not say who caused a burst of segment_free.  It is the request's own (release and retry) when no idle block
 * fits and the cap is exceeded; otherwise it is taken for an empty_cache() just before: the effect on blocks is the same, so
 * only the number of retries is then known as a range. */
#include "replay/verify_native.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/caching.h"
#include "replay/recorded_dev.h"
#include "replay/verify_blame.h"

/* A segment of a private pool that was gone when the history was saved: then nothing says so but the order in which the
 * release gave segments back, default pool first. */
struct hidden {
  uint64_t addr, bytes;
  uint64_t from, to; /* events of its making and its release */
  uint64_t call;     /* first event of the call that released it: one pool a call */
};

enum { HIDDEN_MAX = 64 };

struct verifier {
  const struct gap__history *history;
  const struct gap__hist_event *events;
  uint64_t count;
  uint32_t device;
  uint64_t call_first; /* the first event of the call that is being gathered */
  bool holds_free;     /* the event before call_first is a free_requested not yet given to the model */
  struct gap__conf conf;
  uint64_t cap_bytes;
  struct recorded_dev dev;
  gap_heap *heap;
  struct gap__addrmap live; /* address -> index of the alloc event + 1 */
  struct hidden hidden[HIDDEN_MAX];
  uint32_t hidden_count;
  struct gap__verify_result *result;
};

#define NO_POOL ((gap_pool_id){0, 0})

static gap_pool_id hidden_pool(const struct hidden *hidden) { return (gap_pool_id){UINT64_MAX, hidden->call}; }

static gap_pool_id pool_of(const struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  for (uint32_t i = 0; i < v->hidden_count; i++) {
    const struct hidden *hidden = &v->hidden[i];
    if (at > hidden->from && at < hidden->to && event->addr - hidden->addr < hidden->bytes) return hidden_pool(hidden);
  }
  const uint64_t *id = v->history->pools[event->pool].id;
  return (gap_pool_id){id[0], id[1]};
}

/* ---- frees ---- */

/* The held free: completed at once, or some stream still uses the block and a made-up stream stands for it. */
static int settle_free(struct verifier *v, bool at_once) {
  uint64_t at = v->call_first - 1;
  const struct gap__hist_event *event = &v->events[at];
  v->holds_free = false;
  int rc = 0;
  if (!at_once) {
    gap_stream user = 0;
    rc = gap__recorded_wait(&v->dev, event->addr, event->size, &user);
    if (!rc) rc = gap__heap_record_stream(v->heap, event->addr, user);
  }
  if (!rc) rc = gap__heap_free(v->heap, event->addr);
  if (rc) gap__recorded_fault(&v->dev, at, "the model refuses to free %#" PRIx64 ": %s", event->addr, gap_strerror(rc));
  return rc;
}

static void hold_free(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  uint32_t made = gap__addrmap_get(&v->live, event->addr);
  if (!made) {
    gap__recorded_fault(&v->dev, at, "free_requested of %#" PRIx64 ", where no block is live", event->addr);
    return;
  }
  const struct gap__hist_event *alloc = &v->events[made - 1];
  if (alloc->size != event->size || alloc->stream != event->stream) {
    gap__recorded_fault(&v->dev, at,
                        "free_requested of %" PRIu64 " bytes on stream %" PRIu64 " at %#" PRIx64
                        "; alloc (event %" PRIu32 ") said %" PRIu64 " bytes on stream %" PRIu64,
                        event->size, event->stream, event->addr, made - 1, alloc->size, alloc->stream);
    return;
  }
  gap__addrmap_remove(&v->live, event->addr);
  v->holds_free = true;
}

/* ---- calls that end in alloc or oom ---- */

struct fit_query {
  const struct gap__conf *conf;
  uint64_t bytes;
  gap_stream stream;
  gap_pool_id pool;
};

static int fits_here(void *arg, const struct gap__block_info *block) {
  const struct fit_query *query = arg;
  return block->state == GAP__BLOCK_IDLE && block->stream == query->stream && block->pool.first == query->pool.first &&
         block->pool.second == query->pool.second && block->is_large == (query->bytes > CACHING_SMALL_MAX) &&
         block->bytes >= query->bytes && !caching_refuses(query->conf, query->bytes, block->bytes);
}

static bool has_releases(const struct verifier *v, uint64_t end) {
  for (uint64_t at = v->call_first; at < end; at++) {
    if (v->events[at].action == GAP__ACT_SEGMENT_FREE) return true;
  }
  return false;
}

static bool releases_in_part(const struct gap__conf *conf) {
  return conf->garbage_collection_threshold > 0 || conf->max_split_size != GAP__CONF_UNLIMITED;
}

/* Would the request itself give segments back? */
static bool releases_itself(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  struct fit_query query = {&v->conf, gap__conf_round(&v->conf, event->size), event->stream, pool_of(v, at)};
  if (gap__heap_walk(v->heap, 0, fits_here, &query)) return false;
  if (releases_in_part(&v->conf)) return true;
  return v->cap_bytes && v->dev.held_bytes + caching_segment_bytes(&v->conf, query.bytes) > v->cap_bytes;
}

static void trim(struct verifier *v) {
  v->dev.polls = v->dev.refuses = false;
  v->result->trims++;
  for (uint32_t i = 0; i < v->hidden_count; i++) {
    if (v->hidden[i].call == v->call_first) gap__heap_pool_release(v->heap, 0, hidden_pool(&v->hidden[i]));
  }
  gap__heap_trim(v->heap, 0, NO_POOL, NULL);
}

static int request(struct verifier *v, uint64_t at, gap_addr *out) {
  return gap__heap_alloc(v->heap, 0, v->events[at].stream, pool_of(v, at), v->events[at].size, out);
}

static void on_alloc(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  gap__recorded_begin(&v->dev, v->call_first, at);
  bool releases = at > v->call_first && has_releases(v, at);
  if (releases && !releases_itself(v, at)) {
    trim(v);
    releases = false;
  }
  v->dev.polls = !releases || releases_in_part(&v->conf);
  v->dev.refuses = releases && !v->cap_bytes;
  gap_addr addr = 0;
  int rc = request(v, at, &addr);
  if (!gap__recorded_finish(&v->dev)) return;
  if (rc) {
    gap__recorded_fault(&v->dev, at, "recorded: alloc of %" PRIu64 " bytes; the model refuses it: %s", event->size,
                        gap_strerror(rc));
  } else if (addr != event->addr) {
    gap__recorded_fault(&v->dev, at, "recorded: alloc of %" PRIu64 " bytes at %#" PRIx64 "; the model serves %#" PRIx64,
                        event->size, event->addr, addr);
  } else if (gap__addrmap_reserve(&v->live)) {
    gap__recorded_fault(&v->dev, at, "out of host memory");
  } else {
    gap__addrmap_put(&v->live, addr, (uint32_t)at + 1);
  }
}

/* A refusal comes after torch has waited for everything and given all back, so completions of this call are waits. */
static void on_oom(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  gap__recorded_begin(&v->dev, v->call_first, at);
  v->dev.polls = false;
  v->dev.refuses = !v->cap_bytes;
  gap_addr addr = 0;
  int rc = request(v, at, &addr);
  if (!gap__recorded_finish(&v->dev) || rc == GAP_ENOMEM) return;
  gap__recorded_fault(&v->dev, at,
                      "recorded: a request of %" PRIu64 " bytes was refused; the model serves it at %#" PRIx64,
                      event->size, addr);
}

/* Events that no alloc or oom ends: the program called empty_cache(). */
static void flush_call(struct verifier *v, uint64_t end) {
  if (v->call_first == end) return;
  gap__recorded_begin(&v->dev, v->call_first, end);
  trim(v);
  gap__recorded_finish(&v->dev);
}

static void on_snapshot(struct verifier *v, uint64_t at) {
  struct gap__stats stats;
  if (!v->events[at].size || gap__heap_stats(v->heap, 0, &stats)) return;
  int64_t active = stats.active_bytes[GAP__KIND_ALL].current;
  if ((uint64_t)active == v->events[at].size) return;
  gap__recorded_fault(&v->dev, at, "recorded: snapshot with %" PRIu64 " active bytes; the model has %" PRId64,
                      v->events[at].size, active);
}

/* ---- the pass ---- */

/* True when the event completes the held free. */
static bool completes_held(struct verifier *v, const struct gap__hist_event *event) {
  const struct gap__hist_event *freed = &v->events[v->call_first - 1];
  bool at_once = event->action == GAP__ACT_FREE_COMPLETED && event->addr == freed->addr && event->size == freed->size;
  return settle_free(v, at_once) == 0 && at_once;
}

static void step(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  if (v->holds_free && completes_held(v, event)) {
    v->call_first = at + 1;
    return;
  }
  switch (event->action) {
    case GAP__ACT_ALLOC: on_alloc(v, at); break;
    case GAP__ACT_OOM: on_oom(v, at); break;
    case GAP__ACT_FREE_REQUESTED:
      flush_call(v, at);
      hold_free(v, at);
      break;
    case GAP__ACT_SNAPSHOT:
      flush_call(v, at);
      on_snapshot(v, at);
      break;
    case GAP__ACT_FREE_COMPLETED:
    case GAP__ACT_SEGMENT_ALLOC:
    case GAP__ACT_SEGMENT_FREE: return; /* gathered */
    default: gap__recorded_fault(&v->dev, at, "%s has no place in a native history", gap__action_name(event->action));
  }
  v->call_first = at + 1;
}

/* ---- the end ---- */

struct final_walk {
  struct verifier *v;
  uint64_t segment; /* index of the next */
  uint32_t block;   /* in the present segment */
};

static int next_segment(struct final_walk *walk, const struct gap__block_info *block) {
  const struct gap__history *history = walk->v->history;
  while (walk->segment < history->segment_count && history->segments[walk->segment].device != (int)walk->v->device)
    walk->segment++;
  const struct gap__hist_segment *recorded = &history->segments[walk->segment++];
  walk->block = 0;
  if (walk->segment <= history->segment_count && recorded->addr == block->segment &&
      recorded->total_size == block->segment_bytes && recorded->stream == block->stream &&
      recorded->is_large == block->is_large)
    return 0;
  gap__recorded_fault(&walk->v->dev, walk->v->count,
                      "at the end the model holds a segment of %" PRIu64 " bytes at %#" PRIx64
                      " that was not recorded so",
                      block->segment_bytes, block->segment);
  return GAP_EMISMATCH;
}

static int compare_block(void *arg, const struct gap__block_info *block) {
  static const uint8_t states[] = {[GAP__BLOCK_IDLE] = 0, [GAP__BLOCK_LIVE] = 1, [GAP__BLOCK_PENDING] = 2};
  struct final_walk *walk = arg;
  const struct gap__history *history = walk->v->history;
  if (block->addr == block->segment && next_segment(walk, block)) return GAP_EMISMATCH;
  const struct gap__hist_segment *segment = &history->segments[walk->segment - 1];
  if (!segment->block_count) return 0; /* the policy form may have segments only */
  const struct gap__hist_block *recorded = &history->blocks[segment->block_first + walk->block++];
  if (walk->block <= segment->block_count && recorded->addr == block->addr && recorded->size == block->bytes &&
      recorded->state == states[block->state])
    return 0;
  gap__recorded_fault(&walk->v->dev, walk->v->count,
                      "at the end the model has a block of %" PRIu64 " bytes at %#" PRIx64 " that was not recorded so",
                      block->bytes, block->addr);
  return GAP_EMISMATCH;
}

static void compare_segments(struct verifier *v) {
  struct final_walk walk = {.v = v};
  if (!v->history->segment_count || gap__heap_walk(v->heap, 0, compare_block, &walk)) return;
  for (; walk.segment < v->history->segment_count; walk.segment++) {
    const struct gap__hist_segment *left = &v->history->segments[walk.segment];
    if (left->device != (int)v->device) continue;
    gap__recorded_fault(&v->dev, v->count,
                        "at the end a segment of %" PRIu64 " bytes at %#" PRIx64 " was recorded; the model has none",
                        left->total_size, left->addr);
    return;
  }
}

static void expect(struct verifier *v, const char *what, uint64_t recorded, int64_t model) {
  if ((int64_t)recorded == model) return;
  gap__recorded_fault(&v->dev, v->count, "%s: recorded %" PRIu64 ", the model has %" PRId64, what, recorded, model);
}

static void compare_end(struct verifier *v) {
  const struct gap__history *history = v->history;
  const struct gap__stats *stats = &v->result->stats;
  const struct gap__stat *reserved = &stats->reserved_bytes[GAP__KIND_ALL];
  compare_segments(v);
  if (!history->has_stats) return;
  expect(v, "peak of reserved bytes", history->stat_reserved_peak, reserved->peak);
  expect(v, "reserved bytes at the end", history->stat_reserved_current, reserved->current);
  expect(v, "refused requests", history->stat_ooms, stats->num_ooms);
  /* Some bursts taken for an empty_cache() may have been retries after a refusal of the driver. */
  int64_t beyond = (int64_t)history->stat_alloc_retries - stats->num_alloc_retries;
  if (beyond < 0 || beyond > (int64_t)v->result->trims)
    expect(v, "retries", history->stat_alloc_retries, stats->num_alloc_retries);
}

static void pass(struct verifier *v) {
  for (uint64_t at = 0; at < v->count && !v->dev.failed; at++) step(v, at);
  if (v->dev.failed) return;
  if (v->holds_free) settle_free(v, false);
  flush_call(v, v->count);
}

/* ---- around it ---- */

/* The torch keys of the recorded string; a string that does not parse says nothing. */
static void take_string(const char *string, struct gap__conf *out) {
  struct gap__conf_set *set = string && *string ? gap__conf_new() : NULL;
  if (set && gap__conf_apply(set, GAP__CONF_RUNTIME, "history", string, NULL) == 0) {
    const struct gap__conf *said = gap__conf_values(set);
    out->max_split_size = said->max_split_size;
    out->max_non_split_rounding = said->max_non_split_rounding;
    out->garbage_collection_threshold = said->garbage_collection_threshold;
    out->large_segment_size = said->large_segment_size;
    memcpy(out->roundup_power2_divisions, said->roundup_power2_divisions, sizeof out->roundup_power2_divisions);
  }
  gap__conf_free(set);
}

void gap__verify_conf(const struct gap__history *history, const struct gap__conf *conf, struct gap__conf *out) {
  *out = *conf;
  out->strategy = GAP__STRATEGY_CACHING;
  out->max_memory = (struct gap__conf_amount){0};
  out->per_process_memory_fraction = 1;
  out->nmalloc = 1;
  take_string(history->settings_text, out);
  const struct gap__hist_settings *settings = &history->settings;
  if (!settings->present) return;
  out->max_split_size = settings->max_split_size < 0 ? GAP__CONF_UNLIMITED : (uint64_t)settings->max_split_size;
  out->garbage_collection_threshold = settings->garbage_collection_threshold;
  for (int slot = 0; slot < 16; slot++)
    out->roundup_power2_divisions[slot] = (uint32_t)settings->roundup_power2_divisions[slot];
}

uint64_t gap__verify_cap(const struct gap__history *history) {
  if (!(history->memory_fraction > 0 && history->memory_fraction < 1)) return 0;
  return (uint64_t)(history->memory_fraction * (double)history->total_bytes);
}

static int not_verifiable(const struct gap__history *history, uint32_t device, struct gap__verify_result *out) {
  if (device >= history->device_count) return GAP_EINVAL;
  const struct gap__hist_device *recorded = &history->devices[device];
  const char *why = NULL;
  if (recorded->wrapped) why = "the history is wrapped: it does not begin where the allocator began";
  for (uint64_t at = 0; at < recorded->event_count && !why; at++) {
    if (recorded->events[at].action == GAP__ACT_SEGMENT_MAP) why = "the history was recorded with expandable segments";
  }
  if (recorded->event_count >= UINT32_MAX) why = "the history has more than 4 billion events";
  if (!why) return 0;
  snprintf(out->text, sizeof out->text, "%s", why);
  return GAP_ENOTSUP;
}

static int open_heap(struct verifier *v) {
  int rc = gap__recorded_init(&v->dev, v->events, v->history->total_bytes);
  if (!rc) rc = gap__addrmap_init(&v->live);
  if (rc) return rc;
  struct gap__dev *dev = &v->dev.base;
  rc = gap__heap_create(&(struct gap__heap_params){.devs = &dev, .dev_count = 1, .conf = &v->conf}, &v->heap);
  if (!rc && v->cap_bytes) rc = gap__heap_set_cap(v->heap, 0, v->cap_bytes);
  for (uint32_t i = 1; i < v->history->pool_count && !rc; i++) {
    const uint64_t *id = v->history->pools[i].id;
    rc = gap__heap_pool_retain(v->heap, 0, (gap_pool_id){id[0], id[1]});
  }
  for (uint32_t i = 0; i < v->hidden_count && !rc; i++)
    rc = gap__heap_pool_retain(v->heap, 0, hidden_pool(&v->hidden[i]));
  return rc;
}

static void close_heap(struct verifier *v) {
  v->dev.failed = true; /* the segments that are still held go without a script */
  gap__heap_destroy(v->heap);
  gap__addrmap_destroy(&v->live);
  gap__recorded_destroy(&v->dev);
}

/* ---- hidden pools ---- */

/* Private pools live on the streams that captures run on; only there a hidden one is believed in. */
static bool has_private_pool(const struct verifier *v, gap_stream stream) {
  for (uint64_t i = 0; i < v->history->segment_count; i++) {
    if (v->history->segments[i].pool && v->history->segments[i].stream == stream) return true;
  }
  return false;
}

static uint64_t made_before(const struct verifier *v, uint64_t at, uint64_t addr) {
  while (at-- > 0) {
    if (v->events[at].action == GAP__ACT_SEGMENT_ALLOC && v->events[at].addr == addr) return at;
  }
  return v->count;
}

/* The model gave a segment back too early that the same call releases later: perhaps it was of a hidden pool. */
static bool suspect_hidden_pool(struct verifier *v) {
  uint64_t early = v->dev.early_release, at = v->dev.fault_event;
  if (!early || v->hidden_count == HIDDEN_MAX) return false;
  while (at < v->count && v->events[at].action == GAP__ACT_SEGMENT_FREE && v->events[at].addr != early) at++;
  if (at == v->count || v->events[at].action != GAP__ACT_SEGMENT_FREE) return false;
  uint64_t from = made_before(v, at, early);
  if (from == v->count || !has_private_pool(v, v->events[at].stream)) return false;
  v->hidden[v->hidden_count++] =
      (struct hidden){.addr = early, .bytes = v->events[at].size, .from = from, .to = at, .call = v->call_first};
  return true;
}

/* ---- one try ---- */

static void reset(struct verifier *v) {
  memset(&v->dev, 0, sizeof v->dev);
  v->call_first = 0;
  v->holds_free = false;
  v->heap = NULL;
  *v->result = (struct gap__verify_result){.hidden_segments = v->hidden_count};
}

static int verify(struct verifier *v) {
  reset(v);
  int rc = open_heap(v);
  if (!rc) {
    pass(v);
    gap__heap_stats(v->heap, 0, &v->result->stats);
    if (!v->dev.failed) compare_end(v);
    v->result->event = v->dev.failed ? v->dev.fault_event : v->count;
    if (v->dev.failed) rc = GAP_EMISMATCH;
  }
  close_heap(v);
  return rc;
}

static void name_the_event(struct verifier *v) {
  struct gap__verify_result *result = v->result;
  snprintf(result->text, sizeof result->text, "%s", v->dev.fault);
  result->event = gap__verify_blame(&v->history->devices[v->device], result->event, result->text, sizeof result->text);
}

int gap__verify_native(const struct gap__history *history, uint32_t device, const struct gap__conf *conf,
                       uint64_t cap_bytes, struct gap__verify_result *out) {
  *out = (struct gap__verify_result){0};
  int rc = not_verifiable(history, device, out);
  if (rc) return rc;
  struct verifier *v = calloc(1, sizeof *v);
  if (!v) return GAP_ENOMETA;
  v->history = history;
  v->device = device;
  v->events = history->devices[device].events;
  v->count = history->devices[device].event_count;
  v->cap_bytes = cap_bytes ? cap_bytes : gap__verify_cap(history);
  v->result = out;
  gap__verify_conf(history, conf, &v->conf);
  do rc = verify(v);
  while (rc == GAP_EMISMATCH && suspect_hidden_pool(v));
  if (rc == GAP_EMISMATCH) name_the_event(v);
  out->events = out->event;
  free(v);
  return rc;
}
