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
  uint64_t assumed_retries;       /* that may have been an empty_cache() before the request */
  struct gap__addrmap live;       /* address -> index of the alloc event + 1 */
  struct gap__verify_fault fault; /* what is known of it beside dev.fault */
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

static bool is_release(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP;
}

static bool is_growth(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP;
}

static bool has_releases(const struct verifier *v, uint64_t end) {
  for (uint64_t at = v->call_first; at < end; at++) {
    if (is_release(&v->events[at])) return true;
  }
  return false;
}

static bool has_growth(const struct verifier *v, uint64_t end) {
  for (uint64_t at = v->call_first; at < end; at++) {
    if (is_growth(&v->events[at])) return true;
  }
  return false;
}

/* A request that grew before it gave anything back met a refusal on the way. */
static bool grows_first(const struct verifier *v, uint64_t end) {
  uint64_t at = v->call_first;
  while (at < end && !is_release(&v->events[at]) && !is_growth(&v->events[at])) at++;
  return at < end && is_growth(&v->events[at]);
}

static bool releases_in_part(const struct gap__conf *conf) {
  return conf->garbage_collection_threshold > 0 || conf->max_split_size != GAP__CONF_UNLIMITED;
}

struct burst {
  const struct verifier *v;
  uint64_t at, end;
};

static bool is_next_release(void *arg, gap_addr addr, uint64_t bytes) {
  struct burst *burst = arg;
  (void)bytes;
  while (burst->at < burst->end && burst->v->events[burst->at].action != GAP__ACT_SEGMENT_FREE) burst->at++;
  return burst->at < burst->end && burst->v->events[burst->at++].addr == addr;
}

/* Not all that is idle goes, or in another order. */
static bool gives_back_a_part(struct verifier *v, uint64_t end) {
  struct burst burst = {v, v->call_first, end};
  return !gap__caching_returnable(v->heap, 0, is_next_release, &burst);
}

/* Garbage collection works above its threshold only, and gives back the old first. */
static bool collects(struct verifier *v, uint64_t end) {
  double threshold = v->conf.garbage_collection_threshold;
  if (threshold <= 0 || (double)v->dev.held_bytes <= threshold * (double)v->cap_bytes) return false;
  return gives_back_a_part(v, end);
}

static int is_large_enough(void *arg, const struct gap__block_info *block) {
  const struct gap__hist_event *request = arg;
  return block->state == GAP__BLOCK_IDLE && block->stream == request->stream && block->bytes >= request->size;
}

/* Expandable segments grow from an idle block that max_split_size bars from the search, without asking the driver. */
static bool has_idle(const struct verifier *v, uint64_t at) {
  struct gap__hist_event request = v->events[at];
  return gap__heap_walk(v->heap, 0, is_large_enough, &request) != 0;
}

/* Without a known cap: oversize segments go alone; and after a retry the idle blocks are not searched again, so that growth
 * behind the release of whole pages agrees with a retry in any case, with an empty_cache() only where nothing fits. */
static bool may_retry(struct verifier *v, uint64_t end) {
  if (!v->conf.expandable_segments) return v->conf.max_split_size != GAP__CONF_UNLIMITED && gives_back_a_part(v, end);
  gap_pool_id pool = pool_of(v, end);
  bool retries = !pool.first && !pool.second && is_growth(&v->events[end - 1]) && !has_idle(v, end);
  v->assumed_retries += retries;
  return retries;
}

static bool serves(const struct verifier *v, uint64_t at, gap_pool_id pool) {
  return gap__caching_serves(v->heap, 0, v->events[at].stream, pool, v->events[at].size);
}

static bool exceeds_cap(const struct verifier *v, uint64_t at) {
  uint64_t bytes = gap__conf_round(&v->conf, v->events[at].size);
  return v->cap_bytes && v->dev.held_bytes + caching_segment_bytes(&v->conf, bytes) > v->cap_bytes;
}

/* Would the request itself give segments back? */
static bool releases_itself(struct verifier *v, uint64_t at) {
  if (grows_first(v, at)) return true;
  if (serves(v, at, pool_of(v, at))) return false;
  return exceeds_cap(v, at) || collects(v, at) || (!v->cap_bytes && may_retry(v, at));
}

static void trim(struct verifier *v) {
  v->dev.polls = v->dev.refuses = false;
  v->result->trims++;
  for (uint32_t i = 0; i < v->hidden_count; i++) {
    if (v->hidden[i].call == v->call_first) gap__heap_pool_release(v->heap, 0, hidden_pool(&v->hidden[i]));
  }
  gap__heap_trim(v->heap, 0, NO_POOL, NULL);
}

static int request(struct verifier *v, uint64_t at, gap_pool_id pool, gap_addr *out) {
  return gap__heap_alloc(v->heap, 0, v->events[at].stream, pool, v->events[at].size, out);
}

/* Growth of the other kind: the program has switched expandable segments on or off. */
static void follow_switch(struct verifier *v, uint64_t end) {
  for (uint64_t at = v->call_first; at < end; at++) {
    if (!is_growth(&v->events[at])) continue;
    bool expandable = v->events[at].action == GAP__ACT_SEGMENT_MAP;
    if (expandable == v->conf.expandable_segments) continue;
    v->conf.expandable_segments = expandable;
    gap__heap_configure(v->heap, &v->conf);
  }
}

static void on_alloc(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  follow_switch(v, at);
  gap__recorded_begin(&v->dev, v->call_first, at);
  bool releases = at > v->call_first && has_releases(v, at);
  if (releases && !releases_itself(v, at)) {
    trim(v);
    releases = false;
  }
  v->dev.polls = !releases || releases_in_part(&v->conf);
  v->dev.refuses = releases && !v->cap_bytes;
  gap_addr addr = 0;
  int rc = request(v, at, pool_of(v, at), &addr);
  if (!gap__recorded_finish(&v->dev)) return;
  if (rc) {
    gap__recorded_fault(&v->dev, at, "recorded: alloc of %" PRIu64 " bytes; the model refuses it: %s", event->size,
                        gap_strerror(rc));
  } else if (addr != event->addr) {
    v->fault.served = addr;
    gap__recorded_fault(&v->dev, at, "recorded: alloc of %" PRIu64 " bytes at %#" PRIx64 "; the model serves %#" PRIx64,
                        event->size, event->addr, addr);
  } else if (gap__addrmap_reserve(&v->live)) {
    gap__recorded_fault(&v->dev, at, "out of host memory");
  } else {
    gap__addrmap_put(&v->live, addr, (uint32_t)at + 1);
  }
}

/* Has the default pool anything that a refused request of it would have given back first? */
static bool could_release(const struct verifier *v, uint64_t at) {
  struct gap__stats stats;
  if (serves(v, at, NO_POOL) || v->dev.wait_count) return true;
  return gap__heap_stats(v->heap, 0, &stats) == 0 && stats.idle_returnable_bytes > 0;
}

/* No address says which pool was asked.  Private ones give nothing back. */
static gap_pool_id refusing_pool(const struct verifier *v, uint64_t at) {
  if (at > v->call_first || !could_release(v, at)) return NO_POOL;
  for (uint32_t i = 1; i < v->history->pool_count; i++) {
    const uint64_t *id = v->history->pools[i].id;
    if (!serves(v, at, (gap_pool_id){id[0], id[1]})) return (gap_pool_id){id[0], id[1]};
  }
  return NO_POOL;
}

/* A refusal comes after torch has waited for everything and given all back, so completions of this call are waits. */
static void on_oom(struct verifier *v, uint64_t at) {
  const struct gap__hist_event *event = &v->events[at];
  if (gap__conf_round(&v->conf, event->size) != event->size)
    gap__recorded_fault(&v->dev, at, "recorded: oom of %" PRIu64 " bytes, which is not the size of a rounded request",
                        event->size);
  gap__recorded_begin(&v->dev, v->call_first, at);
  v->dev.polls = false;
  v->dev.refuses = !v->cap_bytes;
  gap_addr addr = 0;
  int rc = request(v, at, refusing_pool(v, at), &addr);
  if (!gap__recorded_finish(&v->dev) || rc == GAP_ENOMEM) return;
  gap__recorded_fault(&v->dev, at,
                      "recorded: a request of %" PRIu64 " bytes was refused; the model serves it at %#" PRIx64,
                      event->size, addr);
}

/* Events that no alloc or oom ends: the program called empty_cache(). */
static void flush_call(struct verifier *v, uint64_t end) {
  if (v->call_first == end) return;
  if (has_growth(v, end)) {
    uint64_t odd = end < v->count ? end : end - 1;
    gap__recorded_fault(&v->dev, odd, "recorded: %s, where the request should be that memory was just taken for",
                        gap__action_name(v->events[odd].action));
    return;
  }
  gap__recorded_begin(&v->dev, v->call_first, end);
  bool had_failed = v->dev.failed;
  trim(v);
  gap__recorded_finish(&v->dev);
  if (had_failed || !v->dev.failed || has_releases(v, end)) return;
  v->dev.fault_event = v->call_first;
  v->fault.lone = true;
  snprintf(v->dev.fault, sizeof v->dev.fault,
           "recorded: the block at %#" PRIx64 " completes; no request and no empty_cache() looked for it",
           v->events[v->call_first].addr);
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
    case GAP__ACT_SEGMENT_FREE:
    case GAP__ACT_SEGMENT_MAP:
    case GAP__ACT_SEGMENT_UNMAP: return; /* gathered */
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
      recorded->state == states[block->state] && (!recorded->state || recorded->requested == block->requested))
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
  if (beyond < -(int64_t)v->assumed_retries || beyond > (int64_t)v->result->trims)
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
    out->expandable_segments = said->expandable_segments;
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
  out->expandable_segments = settings->expandable_segments;
  out->max_split_size = settings->max_split_size < 0 ? GAP__CONF_UNLIMITED : (uint64_t)settings->max_split_size;
  out->garbage_collection_threshold = settings->garbage_collection_threshold;
  for (int slot = 0; slot < 16; slot++)
    out->roundup_power2_divisions[slot] = (uint32_t)settings->roundup_power2_divisions[slot];
}

bool gap__verify_expandable(const struct gap__history *history, uint32_t device) {
  const struct gap__hist_device *recorded = &history->devices[device];
  struct gap__conf conf = {0};
  for (uint64_t at = 0; at < recorded->event_count; at++) {
    if (is_growth(&recorded->events[at])) return recorded->events[at].action == GAP__ACT_SEGMENT_MAP;
  }
  gap__verify_conf(history, &conf, &conf);
  return conf.expandable_segments;
}

enum gap_policy gap__verify_policy(const struct gap__history *history, uint32_t device) {
  if (history->by_gapless) return GAP_POLICY_GAPLESS;
  return gap__verify_expandable(history, device) ? GAP_POLICY_EXPANDABLE : GAP_POLICY_NATIVE;
}

uint64_t gap__verify_cap(const struct gap__history *history) {
  if (!(history->memory_fraction > 0 && history->memory_fraction < 1)) return 0;
  return (uint64_t)(history->memory_fraction * (double)history->total_bytes);
}

/* Frees of what was never handed out, and memory at the end that was never made: a history that begins late, or has lost its
 * beginning, has many.  One altered event makes at most two of the first and one of the second. */
enum { STRAY_FREES_MAX = 2, STRAY_SEGMENTS_MAX = 1 };

static uint64_t stray_frees(const struct gap__hist_device *recorded) {
  struct gap__addrmap live;
  uint64_t strays = 0;
  if (gap__addrmap_init(&live)) return 0;
  for (uint64_t at = 0; at < recorded->event_count; at++) {
    const struct gap__hist_event *event = &recorded->events[at];
    bool known = gap__addrmap_get(&live, event->addr);
    strays += !known && event->action == GAP__ACT_FREE_REQUESTED;
    if (known && event->action == GAP__ACT_FREE_REQUESTED) gap__addrmap_remove(&live, event->addr);
    if (!known && event->action == GAP__ACT_ALLOC && !gap__addrmap_reserve(&live))
      gap__addrmap_put(&live, event->addr, 1);
  }
  gap__addrmap_destroy(&live);
  return strays;
}

static uint64_t stray_segments(const struct gap__history *history, uint32_t device) {
  const struct gap__hist_device *recorded = &history->devices[device];
  uint64_t strays = 0;
  for (uint64_t i = 0; i < history->segment_count && strays <= STRAY_SEGMENTS_MAX; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    bool made = segment->device != (int)device;
    for (uint64_t at = 0; at < recorded->event_count && !made; at++) {
      const struct gap__hist_event *event = &recorded->events[at];
      made = is_growth(event) && segment->addr - event->addr < event->size;
    }
    strays += !made;
  }
  return strays;
}

static bool begins_late(const struct gap__history *history, uint32_t device) {
  return history->devices[device].wrapped && (stray_frees(&history->devices[device]) > STRAY_FREES_MAX ||
                                              stray_segments(history, device) > STRAY_SEGMENTS_MAX);
}

static int not_verifiable(const struct gap__history *history, uint32_t device, struct gap__verify_result *out) {
  if (device >= history->device_count) return GAP_EINVAL;
  const struct gap__hist_device *recorded = &history->devices[device];
  const char *why = NULL;
  if (history->by_gapless) why = "the strategy gapless made its events, and no policy of PyTorch's";
  else if (!gap__history_tells_driver(history, device))
    why = "the file does not say what was taken from the driver: there is nothing to compare";
  else if (begins_late(history, device)) why = "the history is wrapped: it does not begin where the allocator began";
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

static bool overlap(const struct gap__hist_event *a, const struct gap__hist_event *b) {
  return a->addr < b->addr + b->size && b->addr < a->addr + a->size;
}

/* The event from which on the memory of this release was there without a break. */
static uint64_t made_before(const struct verifier *v, uint64_t release) {
  uint64_t made = v->count;
  for (uint64_t at = release; at-- > 0;) {
    const struct gap__hist_event *event = &v->events[at];
    if ((!is_growth(event) && !is_release(event)) || !overlap(event, &v->events[release])) continue;
    if (is_release(event)) break;
    made = at;
  }
  return made;
}

/* The model gave a segment back too early that the same call releases later: perhaps it was of a hidden pool. */
static bool suspect_hidden_pool(struct verifier *v) {
  uint64_t early = v->dev.early_release, at = v->dev.fault_event;
  if (!early || v->hidden_count == HIDDEN_MAX) return false;
  while (at < v->count && is_release(&v->events[at]) && v->events[at].addr != early) at++;
  if (at == v->count || !is_release(&v->events[at])) return false;
  uint64_t from = made_before(v, at);
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
  v->fault = (struct gap__verify_fault){0};
  v->assumed_retries = 0;
  v->heap = NULL;
  *v->result = (struct gap__verify_result){.hidden_segments = v->hidden_count};
}

static int name_the_event(struct verifier *v) {
  struct gap__verify_result *result = v->result;
  snprintf(result->text, sizeof result->text, "%s", v->dev.fault);
  v->fault.event = result->event;
  result->event = gap__verify_blame(v->history, v->device, &v->fault, result->text, sizeof result->text);
  return GAP_EMISMATCH;
}

static int verify(struct verifier *v) {
  reset(v);
  int rc = open_heap(v);
  if (!rc) {
    pass(v);
    gap__heap_stats(v->heap, 0, &v->result->stats);
    if (!v->dev.failed) compare_end(v);
    v->result->event = v->dev.failed ? v->dev.fault_event : v->count;
    if (v->dev.failed) rc = name_the_event(v);
  }
  close_heap(v);
  return rc;
}

/* Suspects hidden pools as long as that leads further. */
static int verify_pools(struct verifier *v) {
  struct gap__verify_result best = {0};
  uint64_t reached = 0;
  int rc;
  v->hidden_count = 0;
  while ((rc = verify(v)) == GAP_EMISMATCH) {
    if (v->dev.fault_event < reached) *v->result = best;
    if (v->dev.fault_event < reached) break;
    reached = v->dev.fault_event;
    best = *v->result;
    if (!suspect_hidden_pool(v)) break;
  }
  return rc;
}

/* Nothing in a history names the version of torch: what one does not explain another may. */
static int verify_best(struct verifier *v) {
  enum gap__torch given = v->conf.torch;
  int rc = verify_pools(v);
  if (rc != GAP_EMISMATCH) return rc;
  struct gap__verify_result first = *v->result;
  v->conf.torch = given == GAP__TORCH_2_11 ? GAP__TORCH_2_12 : GAP__TORCH_2_11;
  rc = verify_pools(v);
  if (rc == GAP_EMISMATCH) *v->result = first;
  return rc;
}

/* What the model does not mind, two requests that have nothing to do with each other, the times do: the recorder's never go back.
 * The first difference is the one that is named. */
static int verify_times(const struct verifier *v, int rc) {
  struct gap__verify_result *result = v->result;
  uint64_t end = rc ? result->event : v->count;
  for (uint64_t at = 0; at + 1 < v->count && at < end; at++) {
    int64_t back = v->events[at].time_us - v->events[at + 1].time_us;
    if (back <= 0) continue;
    result->event = at;
    snprintf(result->text, sizeof result->text,
             "it is %" PRId64 " us later than the event after it: not the order in which things happened", back);
    return GAP_EMISMATCH;
  }
  return rc;
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
  v->conf.expandable_segments = gap__verify_expandable(history, device);
  rc = verify_best(v);
  if (rc == 0 || rc == GAP_EMISMATCH) rc = verify_times(v, rc);
  out->events = out->event;
  free(v);
  return rc;
}
