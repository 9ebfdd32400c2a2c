/* The short JSON form, as policy_json.h describes it; one device. */
#include "trace/formats.h"
#include "trace/json_text.h"

static void put_trace(struct gap__writing *writing) {
  const struct gap__hist_device *device = &writing->history->devices[writing->device];
  gap__output_print(writing->out, "{\"trace\": [");
  for (uint64_t i = 0; i < device->event_count; i++) {
    const struct gap__hist_event *event = &device->events[i];
    gap__output_print(writing->out, "%s[\"%s\", %llu, %llu, %llu]", i ? ", " : "",
                      gap__action_name((enum gap__action)event->action), (unsigned long long)event->addr,
                      (unsigned long long)event->size, (unsigned long long)event->stream);
    gap__writing_step(writing);
  }
  gap__output_print(writing->out, "]");
}

static void put_blocks(struct gap__writing *writing, const struct gap__hist_segment *segment) {
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  for (uint32_t i = 0; i < segment->block_count; i++) {
    const struct gap__hist_block *block = &writing->history->blocks[segment->block_first + i];
    gap__output_print(writing->out, "%s[%llu, %llu, \"%s\"]", i ? ", " : "", (unsigned long long)block->size,
                      (unsigned long long)block->requested, states[block->state]);
  }
}

static void put_segment(struct gap__writing *writing, const struct gap__hist_segment *segment) {
  const struct gap__hist_pool *pool = &writing->history->pools[segment->pool];
  gap__output_print(writing->out, "[%llu, %llu, %llu, \"%s\", %s, [%llu, %llu], [", (unsigned long long)segment->addr,
                    (unsigned long long)segment->total_size, (unsigned long long)segment->stream,
                    segment->is_large ? "large" : "small", segment->is_expandable ? "true" : "false",
                    (unsigned long long)pool->id[0], (unsigned long long)pool->id[1]);
  put_blocks(writing, segment);
  gap__output_print(writing->out, "]]");
}

static void put_segments(struct gap__writing *writing) {
  const struct gap__history *history = writing->history;
  bool any = false;
  gap__output_print(writing->out, ", \"segments\": [");
  for (uint64_t i = 0; i < history->segment_count; i++) {
    if ((uint32_t)history->segments[i].device != writing->device) continue;
    if (any) gap__output_print(writing->out, ", ");
    put_segment(writing, &history->segments[i]);
    any = true;
  }
  gap__output_print(writing->out, "]");
}

static void put_stats(struct gap__writing *writing) {
  const struct gap__history *history = writing->history;
  if (!history->has_stats) return;
  gap__output_print(writing->out,
                    ", \"stats\": {\"reserved_bytes.all.peak\": %llu, \"reserved_bytes.all.current\": %llu, "
                    "\"num_alloc_retries\": %llu, \"num_ooms\": %llu}",
                    (unsigned long long)history->stat_reserved_peak, (unsigned long long)history->stat_reserved_current,
                    (unsigned long long)history->stat_alloc_retries, (unsigned long long)history->stat_ooms);
}

int gap__write_json(struct gap__writing *writing) {
  const struct gap__history *history = writing->history;
  put_trace(writing);
  put_segments(writing);
  put_stats(writing);
  if (history->memory_fraction > 0) gap__output_print(writing->out, ", \"frac\": %.17g", history->memory_fraction);
  if (history->total_bytes)
    gap__output_print(writing->out, ", \"total\": %llu", (unsigned long long)history->total_bytes);
  gap__output_print(writing->out, ", \"conf\": ");
  gap__output_byte(writing->out, '"');
  gap__json_put(writing->out, history->settings_text);
  gap__output_byte(writing->out, '"');
  gap__output_print(writing->out, "}\n");
  return 0;
}
