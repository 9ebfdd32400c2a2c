#include "trace/policy_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "trace/builder.h"
#include "trace/message.h"

/* What the builder functions share. */
struct build {
  struct gap__history *history;
  char **message;
  const char *list; /* the list at work and the row in it, for messages */
  size_t row;
};

static int wrong(struct build *build, const char *what) {
  return gap__message_set(build->message, GAP_EFORMAT, "'%s' row %zu: %s", build->list, build->row, what);
}

static int no_memory(struct build *build) {
  return gap__message_set(build->message, GAP_ENOMETA, "out of host memory");
}

static bool to_u64(const json_t *value, uint64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *out = (uint64_t)json_integer_value(value);
  return true;
}

/* ---- trace --------------------------------------------------------------------------------------------------------- */

static int action_of(const json_t *value) {
  for (int action = 0; json_is_string(value) && action < GAP__ACT_COUNT; action++)
    if (strcmp(json_string_value(value), gap__action_name((enum gap__action)action)) == 0) return action;
  return json_is_string(value) ? GAP__ACT_COUNT : -1;
}

static int add_event(struct build *build, const json_t *row) {
  struct gap__hist_device *device = build->history->devices;
  struct gap__hist_event event = {0};
  int action = action_of(json_array_get(row, 0));
  if (action < 0) return wrong(build, "the action must be a string");
  if (action == GAP__ACT_COUNT) {
    build->history->unknown_actions++;
    return 0;
  }
  if (!to_u64(json_array_get(row, 1), &event.addr)) return wrong(build, "the address must be a number of 0 or more");
  if (!to_u64(json_array_get(row, 2), &event.size)) return wrong(build, "the size must be a number of 0 or more");
  if (!to_u64(json_array_get(row, 3), &event.stream)) return wrong(build, "the stream must be a number of 0 or more");
  event.action = (uint8_t)action;
  device->events[device->event_count++] = event;
  return 0;
}

static int add_trace(struct build *build, const json_t *rows) {
  const json_t *row;
  build->list = "trace";
  if (!json_is_array(rows)) return gap__message_set(build->message, GAP_EFORMAT, "byte 0: no list 'trace'");
  struct gap__history *history = build->history;
  history->event_storage = calloc(json_array_size(rows) + 1, sizeof *history->event_storage);
  if (!history->event_storage) return no_memory(build);
  history->devices[0].events = history->event_storage;
  json_array_foreach(rows, build->row, row) {
    int rc = json_is_array(row) ? add_event(build, row) : wrong(build, "no list");
    if (rc) return rc;
  }
  return 0;
}

/* ---- segments ------------------------------------------------------------------------------------------------------ */

static int state_of(const char *name) {
  if (!name) return -1;
  if (strcmp(name, "inactive") == 0) return 0;
  if (strcmp(name, "active_allocated") == 0) return 1;
  return strcmp(name, "active_pending_free") == 0 || strcmp(name, "active_awaiting_free") == 0 ? 2 : -1;
}

static int add_block(struct build *build, struct gap__hist_segment *segment, const json_t *row, uint64_t *addr) {
  struct gap__hist_block block = {.addr = *addr};
  int state = state_of(json_string_value(json_array_get(row, 2)));
  if (!to_u64(json_array_get(row, 0), &block.size) || !to_u64(json_array_get(row, 1), &block.requested) || state < 0)
    return wrong(build, "a block must be [size, requested, state]");
  if (block.size > segment->addr + segment->total_size - *addr)
    return wrong(build, "its blocks are larger than the segment");
  block.state = (uint8_t)state;
  segment->allocated_size += state == 1 ? block.size : 0;
  segment->active_size += state ? block.size : 0;
  segment->requested_size += state ? block.requested : 0;
  build->history->blocks[build->history->block_count++] = block;
  segment->block_count++;
  *addr += block.size;
  return 0;
}

static int segment_pool(struct build *build, const json_t *pool, uint16_t *out) {
  struct gap__history *history = build->history;
  uint64_t id[2];
  *out = 0;
  if (!pool || json_is_null(pool)) return 0;
  if (!to_u64(json_array_get(pool, 0), &id[0]) || !to_u64(json_array_get(pool, 1), &id[1]))
    return wrong(build, "the pool must be null or a pair of numbers");
  for (uint32_t i = 0; i < history->pool_count; i++)
    if (history->pools[i].id[0] == id[0] && history->pools[i].id[1] == id[1]) {
      *out = (uint16_t)i;
      return 0;
    }
  if (history->pool_count == UINT16_MAX) return wrong(build, "too many pools");
  history->pools[history->pool_count] = (struct gap__hist_pool){{id[0], id[1]}};
  *out = (uint16_t)history->pool_count++;
  return 0;
}

static int add_segment(struct build *build, const json_t *row) {
  struct gap__hist_segment *segment = &build->history->segments[build->history->segment_count++];
  const char *type = json_string_value(json_array_get(row, 3));
  const json_t *blocks = json_array_get(row, 6), *block;
  uint64_t addr;
  size_t i;
  *segment = (struct gap__hist_segment){.block_first = (uint32_t)build->history->block_count,
                                        .is_large = !type || strcmp(type, "small") != 0,
                                        .is_expandable = json_is_true(json_array_get(row, 4))};
  if (!to_u64(json_array_get(row, 0), &segment->addr) || !to_u64(json_array_get(row, 1), &segment->total_size) ||
      !to_u64(json_array_get(row, 2), &segment->stream))
    return wrong(build, "a segment must be [addr, total, stream, type, expandable, pool, blocks]");
  int rc = segment_pool(build, json_array_get(row, 5), &segment->pool);
  addr = segment->addr;
  json_array_foreach(blocks, i, block) {
    if (!rc) rc = add_block(build, segment, block, &addr);
  }
  return rc;
}

static size_t count_blocks(const json_t *rows) {
  size_t i, count = 0;
  const json_t *row;
  json_array_foreach(rows, i, row) count += json_array_size(json_array_get(row, 6));
  return count;
}

static int add_segments(struct build *build, const json_t *rows) {
  struct gap__history *history = build->history;
  const json_t *row;
  build->list = "segments";
  history->segments = calloc(json_array_size(rows) + 1, sizeof *history->segments);
  history->blocks = calloc(count_blocks(rows) + 1, sizeof *history->blocks);
  history->pools = calloc(json_array_size(rows) + 1, sizeof *history->pools);
  if (!history->segments || !history->blocks || !history->pools) return no_memory(build);
  history->pool_count = 1;
  json_array_foreach(rows, build->row, row) {
    int rc = add_segment(build, row);
    if (rc) return rc;
  }
  return 0;
}

/* ---- the rest ------------------------------------------------------------------------------------------------------ */

static int add_facts(struct build *build, const json_t *root) {
  struct gap__history *history = build->history;
  const json_t *stats = json_object_get(root, "stats");
  const char *conf = json_string_value(json_object_get(root, "conf"));
  if (conf && !(history->settings_text = strdup(conf))) return no_memory(build);
  history->memory_fraction = json_number_value(json_object_get(root, "frac"));
  to_u64(json_object_get(root, "total"), &history->total_bytes);
  history->has_stats = json_is_object(stats);
  to_u64(json_object_get(stats, "reserved_bytes.all.peak"), &history->stat_reserved_peak);
  to_u64(json_object_get(stats, "reserved_bytes.all.current"), &history->stat_reserved_current);
  to_u64(json_object_get(stats, "num_alloc_retries"), &history->stat_alloc_retries);
  to_u64(json_object_get(stats, "num_ooms"), &history->stat_ooms);
  return 0;
}

static int build_all(struct build *build, const json_t *root) {
  struct gap__history *history = build->history;
  if (gap__history_begin(history)) return no_memory(build);
  int rc = add_trace(build, json_object_get(root, "trace"));
  if (!rc) rc = add_segments(build, json_object_get(root, "segments"));
  return rc ? rc : add_facts(build, root);
}

/* ---- input --------------------------------------------------------------------------------------------------------- */

struct feed {
  struct gap__input *input;
  char **message;
  uint64_t bytes;
  int rc;
};

static size_t feed_some(void *buffer, size_t room, void *arg) {
  struct feed *feed = arg;
  size_t got = 0;
  feed->rc = gap__input_take(feed->input, buffer, room, &got, feed->message);
  feed->bytes += got;
  if (!feed->rc && feed->bytes > GAP__JSON_BYTES_MAX)
    feed->rc = gap__message_set(feed->message, GAP_ELIMIT, "byte %llu: more than 256 MiB of JSON",
                                (unsigned long long)GAP__JSON_BYTES_MAX);
  return feed->rc ? (size_t)-1 : got;
}

int gap__policy_json_read(struct gap__input *input, struct gap__history **out, char **message) {
  struct feed feed = {.input = input, .message = message};
  json_error_t error = {0};
  *out = NULL;
  json_t *root = json_load_callback(feed_some, &feed, JSON_REJECT_DUPLICATES, &error);
  if (!root && feed.rc) return feed.rc;
  if (!root) return gap__message_set(message, GAP_EFORMAT, "byte %d: %s", error.position, error.text);
  struct build build = {.history = calloc(1, sizeof *build.history), .message = message};
  int rc = build.history ? build_all(&build, root) : no_memory(&build);
  json_decref(root);
  if (rc) gap__history_free(build.history);
  else *out = build.history;
  return rc;
}
